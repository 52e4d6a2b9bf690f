"""Gangs: sums of what nodes and domains hold, members on their way, and minima in the fields of kinds to come."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import SnapshotBuilder, snapshot_from_objects
from gpugate.policies.cluster.in_flight import Admitted, InFlight
from gpugate.policies.cluster.node_shapes import NodeShapeIndex
from gpugate.policies.cluster.nodes import Node, node_of
from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.records.pods import pod_record_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.fields import clone
from gpugate.policies.rules.gangs.gang.checks import check_minimum
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.topology_domains import domains_by, largest, pods_on
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.kinds.model import PodSetSpec, WorkloadKind
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests
from tests.shared import strategies
from tests.shared.builders import bind, container, decided, node, pod, reasons, shapes_of, templated

Object = dict[str, Any]

_LABELS = st.fixed_dictionaries(
    {}, optional={"rack": st.sampled_from(["r1", "r2", "r3"]), "karpenter.sh/capacity-type": st.sampled_from(["spot", "on-demand"])}
)
_NODES = st.lists(
    st.builds(
        lambda labels, gpus, memory: (labels, {"nvidia.com/gpu": gpus, "memory": memory}),
        _LABELS,
        st.sampled_from(["1", "4", "8"]),
        st.sampled_from(["100Gi", "1000Gi"]),
    ),
    max_size=8,
)


def _nodes(drawn: Any) -> list[Node]:
    return [node_of(node(f"n{at}", labels=labels, **amounts)) for at, (labels, amounts) in enumerate(drawn)]


def _holds(one: Node, gpus: int, memory: int) -> int:
    return min(one.devices["nvidia.com/gpu"] // gpus, one.memory // memory)


@given(_NODES, st.sampled_from([1, 2, 3, 8]), st.sampled_from([64 << 30, 300 << 30]))
@settings(deadline=None, derandomize=True, database=None)
def test_what_shapes_and_domains_hold_is_what_a_count_node_by_node_gives(drawn: Any, gpus: int, memory: int) -> None:
    nodes = _nodes(drawn)
    shapes = shapes_of(nodes)
    demand = PodRequests(memory, 0, {"nvidia.com/gpu": gpus})
    assert sum(len(shape.nodes) * pods_on(shape, demand) for shape in shapes) == sum(_holds(one, gpus, memory) for one in nodes)

    one_pod = pod(container(gpus=gpus))
    pods = PodSet(one_pod, one_pod["spec"], (), 1, frozenset())
    snapshot = ClusterSnapshot(shapes=shapes, known={"nodes": SyncState.SYNCED})
    chosen = node_candidates(pods, snapshot)
    domains = domains_by("rack", pods, open_shapes(pods, chosen), chosen)
    racks = {one.labels["rack"] for one in nodes if "rack" in one.labels}
    held = {rack: sum(_holds(one, gpus, memory) for one in nodes if one.labels.get("rack") == rack) for rack in racks}
    assert sum(domain.number for domain in domains) == len(racks)
    if racks:
        domain, most = largest(domains, open_shapes(pods, chosen), demand)
        assert most == max(held.values())
        assert held[domain.example] == most


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), _LABELS)), max_size=12))
@settings(deadline=None, derandomize=True, database=None)
def test_counts_kept_up_node_by_node_are_those_of_a_count_from_scratch(steps: Any) -> None:
    index, there = NodeShapeIndex(), {}
    for number, labels in steps:
        name = f"n{number}"
        now = None if labels is None else node_of(node(name, labels=labels))
        index.put(name, now)
        there.pop(name, None)
        if now is not None:
            there[name] = now
        index.shapes()
    assert index.shapes() == shapes_of(there.values())
    for shape in index.shapes():
        for key in ("rack", "karpenter.sh/capacity-type"):
            found = [there[name].labels[key] for name in shape.nodes if key in there[name].labels]
            assert shape.carriers(key) == Counter(found)


def test_a_shape_that_was_published_keeps_its_counts_when_a_node_goes() -> None:
    index = NodeShapeIndex()
    for name in ("a", "b"):
        index.put(name, node_of(node(name, labels={"rack": "r1"})))
    (before,) = index.shapes()
    index.put("b", None)
    assert before.carriers("rack") == {"r1": 2}
    assert index.shapes()[0].carriers("rack") == {"r1": 1}


def test_spot_and_on_demand_nodes_are_two_shapes() -> None:
    nodes = [node_of(node(name, labels={"karpenter.sh/capacity-type": name})) for name in ("spot", "on-demand")]
    assert len(shapes_of(nodes)) == 2


def _member(name: str, namespace: str, group: str, phase: str = "Pending", size: str = "2") -> Object:
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"kueue.x-k8s.io/pod-group-name": group},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": size},
    }
    return pod(container(gpus=8, cpu="8")) | {"metadata": metadata, "status": {"phase": phase}}


_GROUPS = st.sampled_from([None, "a", "b"])
_PHASES = st.sampled_from(["Pending", "Running"])
_STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y"]), _GROUPS, _PHASES), max_size=12)


@given(_STEPS)
@settings(deadline=None, derandomize=True, database=None)
def test_the_namespaces_of_a_group_are_those_of_a_count_from_scratch(steps: Any) -> None:
    builder, there = SnapshotBuilder(), {}
    for number, namespace, group, phase in steps:
        key = (namespace, f"p{number}")
        there.pop(key, None)
        record = None
        if group is not None:
            there[key] = obj = _member(key[1], namespace, group, phase)
            record = pod_record_of(obj)
        builder.put("pods", key, record)
        builder.snapshot({})
    scratch = snapshot_from_objects(there.values())
    built = builder.snapshot({})
    assert built.group_homes == scratch.group_homes
    assert built.groups == scratch.groups


_LLM = GroupKey("Kueue", "llm")


def _joining(uid: str, snapshot: ClusterSnapshot) -> list[tuple[str, str, str]]:
    joining = _member("new", "team-a", "llm")
    joining["metadata"]["uid"] = uid
    return [
        one
        for one in reasons(decided(joining, bind({"gang-members": {}}, mode="Enforce"), snapshot=snapshot))
        if one[0] == "gang-members"
    ]


def test_a_member_that_was_just_admitted_takes_a_place() -> None:
    snapshot = snapshot_from_objects([_member("llm-0", "team-a", "llm")])
    assert _joining("c", snapshot) == []
    snapshot.in_flight.add("b", Admitted("Pod", "team-a", "llm-1", 1, "", _LLM, {}))
    assert _joining("c", snapshot) == [("gang-members", "OneTooMany", "deny")]


def test_a_member_on_the_word_of_an_unknown_caller_takes_no_place_and_one_that_the_watch_shows_does() -> None:
    snapshot = snapshot_from_objects([_member("llm-0", "team-a", "llm")])
    snapshot.in_flight.unconfirmed = InFlight()
    snapshot.in_flight.unconfirmed.add("b", Admitted("Pod", "team-a", "llm-1", 1, "", _LLM, {}))
    assert _joining("b", snapshot) == []
    assert _joining("c", snapshot) == [("gang-members", "OneTooMany", "warn")]
    snapshot.in_flight.add("d", Admitted("Pod", "team-a", "llm-2", 1, "", _LLM, {}))
    assert _joining("c", snapshot) == [("gang-members", "OneTooMany", "deny")]
    full = snapshot_from_objects([_member(f"llm-{number}", "team-a", "llm") for number in range(2)])
    full.in_flight.unconfirmed = InFlight()
    assert _joining("c", full) == [("gang-members", "OneTooMany", "deny")]


def test_a_pod_that_is_asked_about_again_does_not_stand_in_its_own_way() -> None:
    snapshot = snapshot_from_objects([_member("llm-0", "team-a", "llm")])
    snapshot.in_flight.add("c", Admitted("Pod", "team-a", "new", 1, "", _LLM, {}))
    assert _joining("c", snapshot) == []


@pytest.mark.parametrize(
    ("api_version", "name", "field"),
    [
        ("kubeflow.org/v1", "PyTorchJob", ("runPolicy", "schedulingPolicy", "minAvailable")),
        ("batch.volcano.sh/v1alpha1", "Job", ("minAvailable",)),
    ],
)
@pytest.mark.parametrize(("minimum", "wanted"), [(3, ["PartialStart"]), (5, [])])
def test_a_minimum_in_a_field_counts_the_pods_of_all_pod_sets(
    api_version: str, name: str, field: tuple[str, ...], minimum: int, wanted: list[str]
) -> None:
    sets = tuple(PodSetSpec(("spec", role, "template"), (("spec", role, "replicas"),)) for role in ("master", "worker"))
    real = kind_of(api_version, name)
    assert real is not None
    kind = WorkloadKind(real.group, "Training", "trainings", sets, batch=True, min_available=real.min_available)
    root: Object = templated("Job", container())
    root["spec"] = {
        "master": {"template": {"spec": {"containers": [container(gpus=None)]}}, "replicas": 1},
        "worker": {"template": {"spec": {"containers": [container()]}}, "replicas": 4},
    }
    at = root["spec"]
    for part in field[:-1]:
        at = at.setdefault(part, {})
    at[field[-1]] = minimum
    workload = open_workload(kind, root, ClusterSnapshot())
    gang = gang_of(workload)
    assert gang is not None
    found = list(check_minimum(workload, gang))
    assert [one.reason for one in found] == wanted
    assert [one.path for one in found] == [("spec", *field)] * len(wanted)


def test_a_refusal_for_a_pool_too_small_is_not_known_to_hold_where_nodes_are_out_of_date() -> None:
    snapshot = snapshot_from_objects([node("n")])
    old = snapshot_from_objects([node("n")])
    object.__setattr__(old, "stale", {"nodes": 7})
    rules = bind({"gang-packing": {}}, mode="Enforce")

    def job() -> dict[str, Any]:
        made = templated("Job", container(gpus=8), parallelism=2, completions=2)
        made["metadata"]["annotations"] = {"gpugate.io/gang-size": "2"}
        return made

    assert ("gang-packing", "PoolTooSmall", "deny") in reasons(decided(job(), rules, snapshot=snapshot))
    assert ("gang-packing", "PoolTooSmall", "unknown") in reasons(decided(job(), rules, snapshot=old))


@given(st.data(), strategies.bound_rules(), strategies.bound_rules("Enforce"), strategies.clusters())
@settings(deadline=None, derandomize=True, database=None, max_examples=150, suppress_health_check=list(HealthCheck))
def test_gits_own_version_sent_again_never_splits_a_gang_that_runs(
    data: st.DataObject, before: Any, after: Any, snapshot: ClusterSnapshot
) -> None:
    git = data.draw(strategies.workloads(data.draw(st.sampled_from(["Job", "StatefulSet"]))))
    git["metadata"].pop("ownerReferences", None)
    (git["metadata"].get("annotations") or {}).pop("gpugate.io/mutations", None)
    live = clone(git)
    decided(live, before, snapshot=snapshot)
    status = {"active": 2, "readyReplicas": 2}
    decision = decided(git | {"status": status}, after, snapshot=snapshot, old=live | {"status": status})
    assert not [one for one in decision.findings if one.finding.reason in {"Splits", "Shrinks"}]


def test_domains_are_those_of_the_shapes_that_the_pods_will_tolerate_and_not_of_the_same_template_elsewhere() -> None:
    racks = [
        node("a", labels={"rack": "r1"}),
        node("b", labels={"rack": "r2"}, taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}]),
    ]
    snapshot = snapshot_from_objects(racks)
    held = []
    for foreseen in ((), ({"key": "team", "operator": "Exists"},), ()):
        one_pod = pod(container(gpus=8))
        pods = PodSet(one_pod, one_pod["spec"], (), 1, frozenset())
        pods.predicted_tolerations = foreseen
        chosen = node_candidates(pods, snapshot)
        held.append(sum(domain.number for domain in domains_by("rack", pods, open_shapes(pods, chosen), chosen)))
    assert held == [1, 2, 1]
