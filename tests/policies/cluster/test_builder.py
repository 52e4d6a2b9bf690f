"""Facts kept up event by event: always equal to a recount from scratch, and cheap where nothing changed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import SnapshotBuilder, key_of, snapshot_from_objects
from gpugate.policies.cluster.kinds import BY_RESOURCE, fact_kind_of
from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from tests.shared.builders import container, node, pod

Object = dict[str, Any]
_GIB = 1 << 30
_NODES = ("n1", "n2", "n3", "cpu")


def running(name: str, on: str = "n1", *, phase: str = "Running", **metadata: Any) -> Object:
    made = pod(container(gpus=2, memory="100Gi"), nodeName=on)
    made["metadata"] |= {"name": name, "uid": f"uid-{name}", **metadata}
    made["status"] = {"phase": phase}
    return made


def put(builder: SnapshotBuilder, *objects: Object) -> None:
    for obj in objects:
        kind = fact_kind_of(obj)
        assert kind is not None
        builder.put(kind.resource, key_of(obj), kind.read(obj))


def published(builder: SnapshotBuilder) -> ClusterSnapshot:
    return builder.snapshot({})


def topology(name: str, policy: str) -> Object:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": name},
        "attributes": [{"name": "topologyManagerPolicy", "value": policy}],
        "zones": [{"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "allocatable": "48"}]}],
    }


_labels = st.fixed_dictionaries({}, optional={"rack": st.sampled_from(["a", "b"]), "nvidia.com/gpu.product": st.just("H100")})
_made_nodes = st.builds(
    lambda name, labels, gpus, memory: node(name, labels=labels, memory=memory, **{"nvidia.com/gpu": gpus}),
    st.sampled_from(_NODES),
    _labels,
    st.sampled_from(["0", "4", "8"]),
    st.sampled_from(["1000Gi", "1001Gi", "64Gi"]),
)
_groups: st.SearchStrategy[Object] = st.sampled_from(
    [
        {},
        {"labels": {"kueue.x-k8s.io/pod-group-name": "llm"}, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"}},
        {"labels": {"scheduling.x-k8s.io/pod-group": "llm"}},
        {"annotations": {"gpugate.io/gang-name": "llm", "gpugate.io/gang-size": "2"}},
        {"ownerReferences": [{"uid": "owner", "controller": True}]},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
    ]
)
_made_pods = st.builds(
    lambda name, on, phase, more: running(name, on, phase=phase, **more),
    st.sampled_from(["p1", "p2", "p3", "p4"]),
    st.sampled_from(["", *_NODES]),
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    _groups,
)
_others = st.sampled_from(
    [
        topology("n1", "single-numa-node"),
        topology("n2", "restricted"),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": {"x": "y"}}},
        {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "llm", "namespace": "team-a"}},
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata"},
    ]
)
_objects = st.one_of(_made_nodes, _made_pods, _made_pods, _others)
#: An event: an object as it is now, its deletion, or a full list of its kind, and whether a snapshot is taken then.
_events = st.tuples(_objects, st.sampled_from(["put", "put", "put", "again", "delete", "relist"]), st.booleans())


@settings(max_examples=300)
@given(st.lists(_events, max_size=30))
def test_after_any_events_the_facts_are_those_of_a_recount_from_scratch(events: list[tuple[Object, str, bool]]) -> None:
    builder = SnapshotBuilder()
    live: dict[tuple[str, tuple[str, str]], Object] = {}
    for obj, event, looked in events:
        kind = fact_kind_of(obj)
        assert kind is not None
        key = key_of(obj)
        if event == "delete":
            live.pop((kind.resource, key), None)
            builder.put(kind.resource, key, None)
        elif event == "relist":
            live = {at: one for at, one in live.items() if at[0] != kind.resource} | {(kind.resource, key): obj}
            builder.replace(kind.resource, {key: kind.read(obj)})
        else:
            live[(kind.resource, key)] = obj
            for _ in range(1 + (event == "again")):
                builder.put(kind.resource, key, kind.read(obj))
        if looked:
            published(builder)
    fresh = SnapshotBuilder()
    put(fresh, *live.values())
    assert published(builder) == published(fresh)
    assert [builder.node(name) for name in _NODES] == [fresh.node(name) for name in _NODES]


def test_what_pods_hold_of_a_node_is_added_up() -> None:
    builder = SnapshotBuilder()
    put(builder, node("n1"), node("n2"), running("a"), running("b"), running("c", "n2"))
    use = builder.node("n1")
    assert (use.pods, use.memory, use.memory_limit, use.devices) == (2, 200 * _GIB, 200 * _GIB, {"nvidia.com/gpu": 4})
    (shape,) = published(builder).shapes
    pool = published(builder).usage_of(shape)
    assert (pool.memory_limit, pool.least_limit) == (300 * _GIB, 100 * _GIB)


def test_a_node_without_pods_has_the_least_limit_of_nothing() -> None:
    builder = SnapshotBuilder()
    put(builder, node("n1"), node("n2"), running("a"))
    snapshot = published(builder)
    assert snapshot.usage_of(snapshot.shapes[0]).least_limit == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str) -> None:
    builder = SnapshotBuilder()
    put(builder, node("n1"), running("a"))
    assert builder.get("pods", key_of(running("a"))) is not None
    put(builder, running("a", phase=phase))
    assert builder.node("n1").pods == 0
    assert builder.get("pods", key_of(running("a"))) is None


def test_a_pod_without_accelerators_on_a_node_counts_and_one_that_waits_is_not_kept() -> None:
    plain = pod(container(gpus=None, memory="1Gi"))
    builder = SnapshotBuilder()
    put(builder, plain)
    assert builder.get("pods", key_of(plain)) is None
    put(builder, {**plain, "spec": {**plain["spec"], "nodeName": "n1"}})
    assert builder.get("pods", key_of(plain)) is not None
    assert builder.node("n1").memory == _GIB


def test_the_members_of_a_group_are_counted_by_phase_with_what_they_state() -> None:
    group = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "llm", "kueue.x-k8s.io/queue-name": "train"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "4"},
    }
    builder = SnapshotBuilder()
    put(
        builder,
        running("a", **group),
        running("b", phase="Succeeded", **group),
        running("c", phase="Failed", **group),
        running("d", "", phase="Pending", **group),
    )
    found = published(builder).group("team-a", GroupKey("Kueue", "llm"))
    assert found is not None
    assert (found.pending, found.running, found.succeeded, found.failed, found.present) == (1, 1, 1, 1, 3)
    assert (found.sizes, found.queues, len(found.asks)) == ((4,), ("train",), 1)
    assert published(builder).group("team-b", GroupKey("Kueue", "llm")) is None


def test_a_group_is_forgotten_with_its_last_member() -> None:
    builder = SnapshotBuilder()
    member = running("a", labels={"scheduling.x-k8s.io/pod-group": "llm"})
    put(builder, member)
    assert published(builder).groups
    builder.put("pods", key_of(member), None)
    assert not published(builder).groups


def test_what_did_not_change_is_shared_between_snapshots() -> None:
    builder = SnapshotBuilder()
    put(builder, node("n1"), running("a"))
    before = published(builder)
    put(builder, running("b"))
    after = published(builder)
    assert after.shapes is before.shapes
    assert after.memo is before.memo
    assert after.namespaces is before.namespaces
    assert after.usage_of(after.shapes[0]) != before.usage_of(before.shapes[0])


def test_what_was_worked_out_is_forgotten_when_a_node_changes() -> None:
    builder = SnapshotBuilder()
    put(builder, node("n1"))
    before = published(builder)
    put(builder, node("n1", memory="64Gi"))
    after = published(builder)
    assert after.memo is not before.memo
    assert (before.shapes[0].memory, after.shapes[0].memory) == (1000 * _GIB, 64 * _GIB)


def test_zones_of_a_node_join_it_whichever_comes_first() -> None:
    first, second = SnapshotBuilder(), SnapshotBuilder()
    put(first, node("n1"), topology("n1", "restricted"))
    put(second, topology("n1", "restricted"), node("n1"))
    for builder in (first, second):
        (shape,) = published(builder).shapes
        assert shape.topology is not None
        assert shape.topology.policy == "restricted"
        builder.put("noderesourcetopologies", ("", "n1"), None)
        assert published(builder).shapes[0].topology is None


def test_a_kind_that_no_file_holds_is_not_given_and_one_that_it_holds_is_synced() -> None:
    snapshot = snapshot_from_objects([node("n1")], {"pods": SyncState.ABSENT})
    assert (snapshot.sync_state("nodes"), snapshot.sync_state("pods"), snapshot.sync_state("cohorts")) == (
        SyncState.SYNCED,
        SyncState.ABSENT,
        SyncState.NOT_GIVEN,
    )


def test_objects_without_a_version_are_read_by_their_kind_alone() -> None:
    assert fact_kind_of({"kind": "LocalQueue"}) is BY_RESOURCE["localqueues"]
    assert fact_kind_of({"kind": "PodGroup"}) is BY_RESOURCE["podgroups.scheduling.x-k8s.io"]
    assert fact_kind_of({"apiVersion": "example.com/v1", "kind": "Node"}) is None
