"""What is remembered between reviews: an answer follows the facts, and pods that ask otherwise get their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpugate.policies.cluster.builder import SnapshotBuilder, key_of
from gpugate.policies.cluster.in_flight import Admitted
from gpugate.policies.cluster.kinds import CLUSTER_KINDS, fact_kind_of
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.framework.decision import Phase
from gpugate.policies.kube.fields import clone
from gpugate.policies.kube.memo import LONGEST_TEXT, cached, keep, recall, remembered
from gpugate.policies.queueing.budget import pod_fingerprint
from gpugate.policies.workloads.kinds.model import PodSetSpec, WorkloadKind
from gpugate.policies.workloads.open import open_workload
from tests.shared.builders import bind, container, decided, node, pod, templated

Object = dict[str, Any]

_BOUND = bind({"queue": {"mode": "Disabled"}}, mode="Enforce")
_SYNCED: Mapping[str, SyncState] = {kind.resource: SyncState.SYNCED for kind in CLUSTER_KINDS}
_TEAM = {"namespace": "team-a"}
_QUEUED = {"kueue.x-k8s.io/queue-name": "q"}


def _burst(name: str = "main", **limits: str) -> Object:
    """A container that is raised from 32Gi to 64Gi, and from half a CPU to 8, where nothing stands in the way."""
    limits = {"nvidia.com/gpu": "1", "memory": "64Gi", "cpu": "7500m", **limits}
    return container(name, resources={"limits": limits, "requests": {"memory": "32Gi", "cpu": "500m"}})


def _job(*, parallelism: int = 1, annotations: Object | None = None, **spec: Any) -> Object:
    root = templated("Job", _burst(), parallelism=parallelism, completions=parallelism)
    root["metadata"] |= {"labels": dict(_QUEUED), "annotations": annotations or {}}
    root["spec"]["template"]["spec"] |= spec
    return root


def _plain_job() -> Object:
    """A Job that states no CPU."""
    root = templated("Job", container(), parallelism=1, completions=1)
    root["metadata"]["labels"] = dict(_QUEUED)
    return root


def _deployment(replicas: int = 1) -> Object:
    root = templated("Deployment", _burst(), replicas=replicas)
    root["metadata"]["labels"] = dict(_QUEUED)
    return root


def _elsewhere(root: Object) -> Object:
    root["metadata"]["namespace"] = "team-b"
    return root


def _seen(root: Object) -> Object:
    return {**root, "status": {"conditions": []}}


def _quota(memory: str, used: str = "0", **spec: Any) -> Object:
    hard = {"requests.memory": memory, "requests.nvidia.com/gpu": "1"}
    status = {"hard": hard, "used": {"requests.memory": used}}
    return {"kind": "ResourceQuota", "metadata": {"name": "quota", **_TEAM}, "spec": {"hard": hard, **spec}, "status": status}


def _for_urgent(memory: str) -> Object:
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}
    return _quota(memory, scopeSelector={"matchExpressions": [scope]})


def _limit_range(cpu: str) -> Object:
    return {
        "kind": "LimitRange",
        "metadata": {"name": "range", **_TEAM},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": cpu}}]},
    }


def _default(cpu: str) -> Object:
    """What a container that states no CPU requests."""
    limits = [{"type": "Container", "defaultRequest": {"cpu": cpu}}]
    return {"kind": "LimitRange", "metadata": {"name": "range", **_TEAM}, "spec": {"limits": limits}}


def _quota_of_cpu(cpu: str) -> Object:
    hard = {"requests.cpu": cpu}
    return {"kind": "ResourceQuota", "metadata": {"name": "cpu", **_TEAM}, "spec": {"hard": hard}, "status": {"hard": hard}}


def _runtime(memory: str) -> Object:
    return {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "overhead": {"podFixed": {"memory": memory}}}


def _queue(name: str = "c", *memory: str, cohort: str = "", cpu: str = "96") -> Object:
    """A ClusterQueue with so much memory in its flavors f, g, ..."""
    flavors = [
        {
            "name": flavor,
            "resources": [
                {"name": "nvidia.com/gpu", "nominalQuota": "8"},
                {"name": "cpu", "nominalQuota": cpu},
                {"name": "memory", "nominalQuota": amount},
            ],
        }
        for flavor, amount in zip("fg", memory, strict=False)
    ]
    groups = [{"coveredResources": ["nvidia.com/gpu", "cpu", "memory"], "flavors": flavors}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups, **({"cohort": cohort} if cohort else {})}
    return {"kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def _flavors(**f: Any) -> list[Object]:
    specs = {"f": f, "g": {"nodeLabels": {"pool": "g"}}}
    return [{"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec} for name, spec in specs.items()]


def _kueue(**resources: Any) -> Object:
    frameworks = ["batch/job", "deployment"]
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": frameworks},
        "resources": resources,
    }


_NODE = node("n")
_LOCAL = {"kind": "LocalQueue", "metadata": {"name": "q", **_TEAM}, "spec": {"clusterQueue": "c"}}
_DEFAULT = {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1, "globalDefault": True}
_TAINT = {"key": "special", "value": "x", "effect": "NoSchedule"}
_POOLED = [_LOCAL, _kueue(), _queue("c", "400Gi", "40Gi"), *_flavors(nodeLabels={"pool": "f"})]
_TAINTED = [_LOCAL, _kueue(), _queue("c", "400Gi", "40Gi"), *_flavors(nodeTaints=[_TAINT])]


def _pool(name: str) -> Object:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _facts(builder: SnapshotBuilder, objects: Iterable[Object], known: Mapping[str, SyncState] = _SYNCED) -> ClusterSnapshot:
    """The facts once there are ``objects``, and a node, and nothing else."""
    records: dict[str, dict[tuple[str, str], Any]] = {}
    for obj in (_NODE, *objects):
        kind = fact_kind_of(obj)
        assert kind is not None
        records.setdefault(kind.resource, {})[key_of(obj)] = kind.read(obj)
    for resource in _SYNCED:
        builder.replace(resource, records.get(resource, {}))
    return builder.snapshot(known)


def _answer(root: Object, snapshot: ClusterSnapshot, bound: Any = _BOUND) -> list[Any]:
    decisions = [decided(clone(root), bound, snapshot=snapshot, phase=phase) for phase in (Phase.MUTATE, Phase.CHECK)]
    assert not any(one.failures for one in decisions)
    return [(one.patch, one.findings) for one in decisions]


_FACTS_THAT_CHANGE = {
    "ResourceQuota": (pod(_burst()), [_quota("400Gi")], [_quota("40Gi")]),
    "ResourceQuota below what is asked": (pod(_burst()), [_quota("40Gi")], [_quota("30Gi")]),
    "LimitRange below what is asked": (pod(_burst()), [_limit_range("7500m")], [_limit_range("7000m")]),
    "RuntimeClass whose overhead is too much": (
        pod(_burst(), runtimeClassName="kata"),
        [_quota("40Gi"), _runtime("1Gi")],
        [_quota("40Gi"), _runtime("30Gi")],
    ),
    "PriorityClass with a quota below what is asked": (pod(_burst()), [_for_urgent("30Gi")], [_for_urgent("30Gi"), _DEFAULT]),
    "LimitRange's default under a ResourceQuota": (
        pod(container()),
        [_default("4"), _quota_of_cpu("8")],
        [_default("16"), _quota_of_cpu("8")],
    ),
    "LimitRange's default beside a node": (pod(container()), [_default("4")], [_default("200")]),
    "LimitRange's default in a queue": (
        _plain_job(),
        [_default("4"), _LOCAL, _queue("c", "400Gi"), *_flavors()],
        [_default("95"), _LOCAL, _queue("c", "400Gi", cpu="90"), *_flavors()],
    ),
    "LimitRange's default alone in a queue": (
        _plain_job(),
        [_default("4"), _LOCAL, _queue("c", "400Gi", cpu="90"), *_flavors()],
        [_default("95"), _LOCAL, _queue("c", "400Gi", cpu="90"), *_flavors()],
    ),
    "LimitRange": (pod(_burst()), [_limit_range("96")], [_limit_range("7500m")]),
    "LimitRange under a ResourceQuota": (
        pod(_burst()),
        [_limit_range("96"), _quota("400Gi")],
        [_limit_range("7500m"), _quota("400Gi")],
    ),
    "RuntimeClass": (
        pod(_burst(), runtimeClassName="kata"),
        [_quota("70Gi"), _runtime("1Gi")],
        [_quota("70Gi"), _runtime("30Gi")],
    ),
    "PriorityClass": (pod(_burst()), [_for_urgent("40Gi")], [_for_urgent("40Gi"), _DEFAULT]),
    "ClusterQueue": (_job(), [_LOCAL, _queue("c", "400Gi"), *_flavors()], [_LOCAL, _queue("c", "40Gi"), *_flavors()]),
    "ClusterQueue of the cohort": (
        _job(),
        [_LOCAL, _queue("c", "40Gi", cohort="all"), _queue("d", "400Gi", cohort="all"), *_flavors()],
        [_LOCAL, _queue("c", "40Gi", cohort="all"), _queue("d", "0", cohort="all"), *_flavors()],
    ),
    "LocalQueue": (
        _job(),
        [_LOCAL, _queue("c", "400Gi"), _queue("d", "40Gi"), *_flavors()],
        [{**_LOCAL, "spec": {"clusterQueue": "d"}}, _queue("c", "400Gi"), _queue("d", "40Gi"), *_flavors()],
    ),
    "ResourceFlavor": (_job(), [_LOCAL, _queue("c", "400Gi", "40Gi"), *_flavors()], _TAINTED[:1] + _TAINTED[2:]),
    "ResourceFlavor that alone holds": (
        _job(),
        [_LOCAL, _queue("c", "400Gi"), *_flavors()],
        [_LOCAL, _queue("c", "400Gi"), *_flavors(nodeTaints=[_TAINT])],
    ),
    "Configuration": (
        _job(),
        [_LOCAL, _queue("c", "40Gi"), *_flavors(), _kueue(excludeResourcePrefixes=["memory"])],
        [_LOCAL, _queue("c", "40Gi"), *_flavors(), _kueue()],
    ),
    "Configuration where all fits": (
        _job(),
        [_LOCAL, _queue("c", "400Gi"), *_flavors(), _kueue(transformations=[])],
        [
            _LOCAL,
            _queue("c", "400Gi"),
            *_flavors(),
            _kueue(transformations=[{"input": "nvidia.com/gpu", "strategy": "Retain", "outputs": {"memory": "1Ti"}}]),
        ],
    ),
    "RuntimeClass in a queue": (
        _job(runtimeClassName="kata"),
        [_LOCAL, _queue("c", "70Gi"), *_flavors(), _runtime("1Gi")],
        [_LOCAL, _queue("c", "70Gi"), *_flavors(), _runtime("50Gi")],
    ),
}


@pytest.mark.parametrize(("root", "before", "after"), _FACTS_THAT_CHANGE.values(), ids=_FACTS_THAT_CHANGE)
def test_an_answer_follows_the_facts_that_it_rests_on(root: Object, before: list[Object], after: list[Object]) -> None:
    first, second = (_answer(root, _facts(SnapshotBuilder(), objects)) for objects in (before, after))
    assert first != second
    builder = SnapshotBuilder()
    assert [_answer(root, _facts(builder, objects)) for objects in (before, after, before)] == [first, second, first]


def test_an_answer_follows_how_far_priority_classes_are_known() -> None:
    builder, root, objects = SnapshotBuilder(), pod(_burst()), [_for_urgent("40Gi")]
    not_known = {**_SYNCED, "priorityclasses": SyncState.NOT_GIVEN}
    alone = [_answer(root, _facts(SnapshotBuilder(), objects, known)) for known in (_SYNCED, not_known)]
    assert alone[0] != alone[1]
    assert [_answer(root, _facts(builder, objects, known)) for known in (_SYNCED, not_known)] == alone


def test_an_answer_follows_how_far_limit_ranges_are_known() -> None:
    builder, root, objects = SnapshotBuilder(), pod(container(memory="64Gi")), [_quota("400Gi")]
    objects[0]["spec"]["hard"]["requests.cpu"] = objects[0]["status"]["hard"]["requests.cpu"] = "96"
    not_known = {**_SYNCED, "limitranges": SyncState.NOT_GIVEN}
    alone = [_answer(root, _facts(SnapshotBuilder(), objects, known)) for known in (_SYNCED, not_known)]
    assert alone[0] != alone[1]
    assert [_answer(root, _facts(builder, objects, known)) for known in (_SYNCED, not_known)] == alone


_NOT_ALIKE = {
    "deadline": (pod(_burst()), pod(_burst(), activeDeadlineSeconds=60), [_quota("40Gi", scopes=["Terminating"])]),
    "priority": (pod(_burst()), pod(_burst(), priorityClassName="urgent"), [_for_urgent("40Gi")]),
    "node selector": (_job(nodeSelector={"pool": "f"}), _job(nodeSelector={"pool": "g"}), _POOLED),
    "affinity": (_job(affinity=_pool("f")), _job(affinity=_pool("g")), _POOLED),
    "tolerations": (_job(tolerations=[{"operator": "Exists"}]), _job(), _TAINTED),
    "overhead": (pod(_burst(), overhead={"memory": "1Gi"}), pod(_burst(), overhead={"memory": "30Gi"}), [_quota("70Gi")]),
    "overhead of none": (pod(_burst()), pod(_burst(), overhead={"memory": "30Gi"}), [_quota("70Gi"), _limit_range("96")]),
    "pod-level resources": (pod(_burst()), pod(_burst(), resources={"requests": {"memory": "50Gi"}}), [_quota("40Gi")]),
    "runtime class": (pod(_burst()), pod(_burst(), runtimeClassName="kata"), [_quota("70Gi"), _runtime("30Gi")]),
    "runtime class whose overhead is too much": (
        pod(_burst()),
        pod(_burst(), runtimeClassName="kata"),
        [_quota("40Gi"), _runtime("30Gi")],
    ),
    "container's name": (pod(_burst()), pod(_burst("other")), [_limit_range("7500m")]),
    "resources": (pod(_burst()), pod(_burst(memory="48Gi")), [_quota("50Gi")]),
    "namespace": (pod(_burst()), _elsewhere(pod(_burst())), [_quota("40Gi")]),
    "namespace with defaults": (pod(_burst()), _elsewhere(pod(_burst())), [_limit_range("7000m")]),
    "namespace with defaults beyond a node": (
        pod(container()),
        _elsewhere(pod(container())),
        [_default("200"), _elsewhere(_default("4"))],
    ),
    "namespace with defaults beyond its quota": (
        pod(container()),
        _elsewhere(pod(container())),
        [_default("16"), _elsewhere(_default("4")), _quota_of_cpu("8"), _elsewhere(_quota_of_cpu("8"))],
    ),
    "namespace with defaults in a queue": (
        _plain_job(),
        _elsewhere(_plain_job()),
        [_default("95"), _LOCAL, _elsewhere(clone(_LOCAL)), _queue("c", "400Gi", cpu="90"), *_flavors()],
    ),
    "requests": (pod(_burst()), pod(container(memory="64Gi")), [_quota("40Gi")]),
    "number": (_job(), _job(parallelism=2), [_quota("100Gi")]),
    "number that is too many": (_job(), _job(parallelism=2), [_quota("60Gi")]),
    "number in a queue": (_job(), _job(parallelism=2), [_LOCAL, _queue("c", "50Gi"), *_flavors()]),
    "togetherness": (
        _job(parallelism=2, annotations={"gpugate.io/gang-size": "1"}),
        _job(parallelism=2, annotations={"gpugate.io/gang-size": "2"}),
        [_quota("60Gi")],
    ),
    "standing": (pod(_burst()), _seen(pod(_burst())), [_quota("400Gi", used="390Gi")]),
    "kind": (_job(), _deployment(), _TAINTED),
    "queue": (_job(), templated("Job", _burst(), parallelism=1, completions=1), [_LOCAL, _queue("c", "40Gi"), *_flavors()]),
    "none yet": (_deployment(), _deployment(0), [_LOCAL, _kueue(), _queue("c", "40Gi"), *_flavors()]),
    "place": (pod(_burst()), templated("Deployment", _burst(), replicas=1), [_limit_range("7000m")]),
}


@pytest.mark.parametrize(("one", "other", "objects"), _NOT_ALIKE.values(), ids=_NOT_ALIKE)
def test_what_asks_otherwise_gets_an_answer_of_its_own(one: Object, other: Object, objects: list[Object]) -> None:
    alone = [_answer(root, _facts(SnapshotBuilder(), objects)) for root in (one, other)]
    assert alone[0] != alone[1]
    snapshot = _facts(SnapshotBuilder(), objects)
    assert [_answer(root, snapshot) for root in (one, other, one)] == [*alone, alone[0]]


def test_pods_at_different_places_of_one_object_are_told_apart() -> None:
    kind = WorkloadKind("example.com", "Pair", "pairs", (PodSetSpec(("spec", "leader")), PodSetSpec(("spec", "worker"))))
    template = {"spec": {"containers": [_burst()]}}
    root = {"metadata": {"name": "w", **_TEAM}, "spec": {"leader": template, "worker": clone(template)}}
    workload = open_workload(kind, root, EMPTY_SNAPSHOT)
    leader, worker = (pod_fingerprint(workload, pods) for pods in workload.pod_sets)
    assert None not in (leader, worker)
    assert leader != worker


def test_what_a_pod_is_raised_to_decides_on_what_stands_in_the_way() -> None:
    root = pod(container(memory="64Gi"))
    quota = _quota("400Gi")
    quota["spec"]["hard"]["requests.cpu"] = quota["status"]["hard"]["requests.cpu"] = "8"
    quota["spec"]["scopes"] = ["NotTerminating"]
    bounds = [bind({"numa": {"cpuPerAccelerator": most}}, mode="Enforce") for most in ("4", "12")]
    alone = [_answer(root, _facts(SnapshotBuilder(), [quota]), bound) for bound in bounds]
    assert alone[0] != alone[1]
    snapshot = _facts(SnapshotBuilder(), [quota])
    assert [_answer(root, snapshot, bound) for bound in bounds] == alone


@pytest.mark.parametrize("hard", ["120Gi", "80Gi", "70Gi"])
def test_what_is_in_flight_counts_at_once_and_no_longer_than_it_is(hard: str) -> None:
    root, flying = pod(_burst()), Admitted("Pod", "team-a", "other", 1, "", None, {"memory": 40 << 30})
    snapshot, alone = (_facts(SnapshotBuilder(), [_quota(hard)]) for _ in range(2))
    before = _answer(root, snapshot)
    for one in (snapshot, alone):
        one.in_flight.add("u", flying)
    during = _answer(root, snapshot)
    assert during == _answer(root, alone)
    assert (during != before) is (hard != "120Gi")
    snapshot.in_flight.remove("u")
    assert _answer(root, snapshot) == before


def test_a_memo_stays_small() -> None:
    memo: dict[Any, Any] = {}
    for number in range(10_000):
        keep(memo, "numbers", number, number)
    assert len(memo["numbers"]) < 5000
    assert recall(memo, "numbers", 9999) == 9999


def test_a_function_is_called_again_for_another_key_for_other_facts_and_for_no_key() -> None:
    calls = []

    @remembered(by=lambda key, _snapshot: key, on=lambda _key, snapshot: (snapshot.quotas,))
    def double(key: int | None, snapshot: ClusterSnapshot) -> int:
        calls.append(key)
        return 2 * (key or 0) + len(snapshot.quotas)

    snapshot = _facts(SnapshotBuilder(), [])
    assert [double(key, snapshot) for key in (1, 1, 2, None, None, 1)] == [2, 2, 4, 0, 0, 2]
    assert calls == [1, 2, None, None]
    assert double(1, replace(snapshot, quotas={})) == 2
    assert calls == [1, 2, None, None, 1]


def test_what_rests_on_something_else_is_not_recalled() -> None:
    memo: dict[Any, Any] = {}
    snapshot, same = {"a": 1}, {"a": 1}
    keep(memo, "sums", "key", 3, snapshot)
    assert recall(memo, "sums", "key", snapshot) == 3
    assert recall(memo, "sums", "key", same) is None
    assert recall(memo, "sums", "key", snapshot, snapshot) is None
    assert recall(memo, "sums", "key") is None
    keep(memo, "sums", None, 3)
    assert recall(memo, "sums", None) is None


def test_results_for_long_texts_are_not_kept() -> None:
    asked: list[str] = []

    @cached(4)
    def shouted(text: str) -> str:
        asked.append(text)
        return text.upper()

    for text in ("a" * LONGEST_TEXT, "a" * (LONGEST_TEXT + 1)):
        assert shouted(text) == shouted(text) == "A" * len(text)
    assert [len(text) for text in asked] == [LONGEST_TEXT, LONGEST_TEXT + 1, LONGEST_TEXT + 1]
