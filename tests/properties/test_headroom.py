"""What gpugate puts in or raises never makes an object impossible."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.decision import BoundRule, Phase
from gpugate.policies.kube.fields import clone
from tests.shared import strategies
from tests.shared.builders import bind, decided, reasons

Object = dict[str, Any]

_MEMORY = st.sampled_from(["1Gi", "8Gi", "15744Mi", "32Gi", "60Gi", "200Gi"])
_CPU = st.sampled_from(["500m", "1", "3500m", "7500m", "16", "47500m"])
_MANY = settings(
    max_examples=int(os.environ.get("GPUGATE_EXAMPLES", "300")),
    deadline=None,
    derandomize="GPUGATE_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@cache
def _amounts() -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries({}, optional={"memory": _MEMORY, "cpu": _CPU})


@st.composite
def _container(draw: st.DrawFn, name: str) -> Object:
    """One that may be raised mostly, or be given memory or CPU."""
    form = draw(st.sampled_from(["burst", "burst", "limit", "no memory", "no cpu", "any"]))
    limits, requests = {"memory": draw(_MEMORY), "cpu": draw(_CPU)}, {}
    if form == "burst":
        requests = {"memory": draw(st.sampled_from(["512Mi", limits["memory"]])), "cpu": draw(st.sampled_from(["250m", "500m"]))}
    elif form == "any":
        limits, requests = draw(_amounts()), draw(_amounts())
    elif form != "limit":
        del limits[form.removeprefix("no ")]
    if form.startswith("no ") or draw(st.booleans()):
        limits["nvidia.com/gpu"] = draw(st.sampled_from(["1", "1", "2", "4"]))
    return {"name": name, "image": "example.com/image", "resources": {"limits": limits, "requests": requests}}


@st.composite
def _pods(draw: st.DrawFn) -> Object:
    spec: Object = {"containers": [draw(_container(f"main{at}")) for at in range(draw(st.integers(1, 3)))]}
    for at in range(draw(st.sampled_from([0, 0, 1, 2]))):
        restarts = draw(st.sampled_from([{}, {"restartPolicy": "Always"}]))
        spec.setdefault("initContainers", []).append({**draw(_container(f"init{at}")), **restarts})
    if draw(st.integers(0, 4)) == 0:
        spec["runtimeClassName"] = "kata"
    elif draw(st.integers(0, 4)) == 0:
        spec["overhead"] = {"memory": "2Gi", "cpu": "500m"}
    return spec


@st.composite
def some_workloads(draw: st.DrawFn) -> Object:
    kind = draw(st.sampled_from(["Pod", "Job", "CronJob", "Deployment", "StatefulSet", "DaemonSet"]))
    labels = draw(st.sampled_from([{}, {"kueue.x-k8s.io/queue-name": "q"}]))
    root: Object = {"kind": kind, "metadata": {"name": "w", "namespace": "team-a", "labels": labels}}
    spec = draw(_pods())
    if kind == "Pod":
        owners = draw(st.sampled_from([[], [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "o", "controller": True}]]))
        root["metadata"]["ownerReferences"] = owners
        return {**root, "apiVersion": "v1", "spec": spec}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    number = draw(st.integers(1, 3))
    if kind in {"Job", "CronJob"}:
        job = {"parallelism": number, "completions": draw(st.sampled_from([number, 8])), "template": template}
        return {**root, "apiVersion": "batch/v1", "spec": job if kind == "Job" else {"jobTemplate": {"spec": job}}}
    return {**root, "apiVersion": "apps/v1", "spec": {"replicas": number, "template": template}}


def _quota(hard: Object, used: Object, scopes: list[str]) -> Object:
    used = {name: amount for name, amount in used.items() if name in hard}
    place = {"name": "quota", "namespace": "team-a"}
    return {"kind": "ResourceQuota", "metadata": place, "spec": {"hard": hard, "scopes": scopes}, "status": {"used": used}}


@cache
def _quotas() -> st.SearchStrategy[Object]:
    memory, cpu = st.sampled_from(["16Gi", "64Gi", "100Gi", "400Gi"]), st.sampled_from(["4", "16", "48", "96"])
    names = {"memory": memory, "requests.memory": memory, "limits.memory": memory, "requests.cpu": cpu, "limits.cpu": cpu}
    used = st.fixed_dictionaries({}, optional={"requests.memory": st.just("8Gi"), "requests.cpu": st.just("3")})
    scopes = st.sampled_from([[], [], ["NotBestEffort"], ["NotTerminating"], ["Terminating"]])
    return st.builds(_quota, st.fixed_dictionaries({}, optional={**names, "requests.nvidia.com/gpu": st.just("2")}), used, scopes)


@cache
def _limit_ranges() -> st.SearchStrategy[Object]:
    amounts = st.fixed_dictionaries({}, optional={"memory": _MEMORY, "cpu": _CPU})
    ratio = st.fixed_dictionaries({}, optional={"memory": st.sampled_from(["1", "2"]), "cpu": st.sampled_from(["1", "1.5"])})
    bounds = dict.fromkeys(("max", "min"), amounts)
    container = st.fixed_dictionaries(
        {"type": st.just("Container")},
        optional={**bounds, "default": amounts, "defaultRequest": amounts, "maxLimitRequestRatio": ratio},
    )
    pod = st.fixed_dictionaries({"type": st.just("Pod")}, optional={**bounds, "maxLimitRequestRatio": ratio})
    place = {"name": "bounds", "namespace": "team-a"}
    return st.lists(st.one_of(container, pod), min_size=1, max_size=2).map(
        lambda limits: {"kind": "LimitRange", "metadata": place, "spec": {"limits": limits}}
    )


@st.composite
def _queues(draw: st.DrawFn) -> list[Object]:
    flavors = []
    groups = [["nvidia.com/gpu", "memory", "cpu"]] if draw(st.booleans()) else [["nvidia.com/gpu"], ["memory", "cpu"]]
    amounts = {"nvidia.com/gpu": ["4", "16"], "memory": ["64Gi", "100Gi", "600Gi"], "cpu": ["8", "48", "96"]}
    for covered in groups:
        offers = [
            {"name": name, "resources": [{"name": one, "nominalQuota": draw(st.sampled_from(amounts[one]))} for one in covered]}
            for name in draw(st.sampled_from([["f"], ["f", "g"]]))
        ]
        flavors.append({"coveredResources": covered, "flavors": offers})
    config: Object = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]},
    }
    transform = draw(st.sampled_from([None, None, {"input": "cpu", "strategy": "Retain", "outputs": {"memory": "1Gi"}}]))
    if transform:
        config["resources"] = {"transformations": [transform]}
    return [
        {"kind": "LocalQueue", "metadata": {"name": "q", "namespace": "team-a"}, "spec": {"clusterQueue": "c"}},
        {"kind": "ClusterQueue", "metadata": {"name": "c"}, "spec": {"namespaceSelector": {}, "resourceGroups": flavors}},
        *({"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}} for name in ("f", "g")),
        config,
    ]


@st.composite
def some_nodes(draw: st.DrawFn) -> list[Object]:
    small = strategies.node_like("t", {"nvidia.com/gpu.product": "T4"}, cpu="48", memory="64Gi", **{"nvidia.com/gpu": "1"})
    large = strategies.node_like("h", {"nvidia.com/gpu.product": "H100"}, cpu="96", memory="400Gi", **{"nvidia.com/gpu": "8"})
    return clone(draw(st.sampled_from([[], [small], [large], [small, large]])))


@st.composite
def some_bounds(draw: st.DrawFn) -> list[Object]:
    """All that bounds pods beside nodes."""
    overhead = draw(st.sampled_from([{"memory": "1Gi", "cpu": "250m"}, {"memory": "30Gi"}]))
    objects: list[Object] = [{"kind": "RuntimeClass", "metadata": {"name": "kata"}, "overhead": {"podFixed": overhead}}]
    objects += [draw(kind) for kind in (_quotas(), _limit_ranges()) if draw(st.booleans())]
    return objects + (draw(_queues()) if draw(st.booleans()) else [])


@cache
def clusters() -> st.SearchStrategy[ClusterSnapshot]:
    return st.builds(lambda nodes, bounds: snapshot_from_objects([*nodes, *bounds]), some_nodes(), some_bounds())


@st.composite
def _rules(draw: st.DrawFn) -> tuple[BoundRule, ...]:
    """Every rule but the one that gives workloads a queue: what that one holds is for people to choose."""
    numa = {"maxShareRatio": draw(st.sampled_from([2, 1000])), "maxRaiseRatio": draw(st.sampled_from([2, 1000, 1000]))}
    host = {"maxOvercommitRatio": draw(st.sampled_from([2, 1000]))}
    return bind({"queue": {"mode": "Disabled"}, "numa": numa, "host-memory": host}, mode="Enforce")


def _impossible(root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot, phase: Phase) -> list[tuple[str, str]]:
    """What says of the object that it can never be made, run or admitted."""
    found = reasons(decided(root, bound, snapshot=snapshot, phase=phase))
    never = {"host-memory": {"NeverFits"}, "numa": {"NoZoneHolds"}}
    return [
        (rule, reason)
        for rule, reason, severity in found
        if severity == "deny" and (rule in {"namespace-limits", "queue-quota"} or reason in never.get(rule, ()))
    ]


def _assert_not_made_impossible(root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot) -> None:
    if _impossible(clone(root), bound, snapshot, Phase.CHECK):
        return
    assert _impossible(root, bound, snapshot, Phase.REVIEW) == []
    again = clone(root)
    assert decided(again, bound, snapshot=snapshot).patch == []


@given(some_workloads(), _rules(), clusters())
@_MANY
def test_what_gpugate_puts_in_never_makes_an_object_impossible(
    root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot
) -> None:
    _assert_not_made_impossible(root, bound, snapshot)


@given(strategies.workloads(), _rules(), strategies.clusters())
@_MANY
def test_nor_does_it_for_an_odd_object_in_an_odd_cluster(
    root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot
) -> None:
    _assert_not_made_impossible(root, bound, snapshot)
