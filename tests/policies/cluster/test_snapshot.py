"""Facts: plain Kubernetes objects become records, and alike nodes one shape."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.nodes import Node, node_of
from gpugate.policies.cluster.records.common import Taint
from gpugate.policies.cluster.records.devices import claim_of
from gpugate.policies.cluster.records.namespaces import namespace_of
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import MalformedError
from tests.shared.builders import bind, container, decided, node, opened, pod, reasons, shapes_of, templated


def _many(count: int) -> list[Node]:
    return [
        node_of(
            node(
                f"gpu-{number:04}",
                labels={
                    "kubernetes.io/hostname": f"gpu-{number:04}",
                    "example.com/serial": str(number * 7919),
                    "topology.k8s.aws/network-node-layer-3": f"nn-{number // 16}",
                    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                },
                # What firmware and kernel keep differs a little from machine to machine.
                memory=str((2000 << 30) + 1000 * number),
            )
        )
        for number in range(count)
    ]


def test_five_thousand_alike_nodes_are_one_shape() -> None:
    shapes = shapes_of(_many(5000))
    assert len(shapes) == 1
    assert len(shapes[0].nodes) == 5000
    assert shapes[0].memory - shapes[0].least_memory == 1000 * 4999
    assert shapes[0].title == "NVIDIA-H100-80GB-HBM3"
    assert shapes[0].accelerators == 8
    assert len(shapes[0].labels["kubernetes.io/hostname"]) == 5000


def test_the_order_of_nodes_does_not_matter() -> None:
    nodes = [*_many(20), *(node_of(node(f"t4-{number}", **{"nvidia.com/gpu": "1"})) for number in range(5))]
    assert shapes_of(nodes) == shapes_of(reversed(nodes))
    assert [len(shape.nodes) for shape in shapes_of(nodes)] == [20, 5]


@pytest.mark.parametrize(
    "other",
    [
        {"labels": {"nvidia.com/gpu.product": "A100"}},
        {"labels": {"node.kubernetes.io/instance-type": "p5"}},
        {"labels": {"gpugate.io/numa-aligned": "true"}},
        {"taints": [{"key": "sku", "value": "gpu", "effect": "NoSchedule"}]},
        {"cpu": "48"},
        {"memory": "500Gi"},
        {"nvidia.com/gpu": "4"},
        {"vpc.amazonaws.com/efa": "32"},
    ],
    ids=str,
)
def test_nodes_that_differ_for_a_decision_are_two_shapes(other: dict[str, Any]) -> None:
    assert len(shapes_of([node_of(node("a")), node_of(node("b", **other))])) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"labels": {"kubernetes.io/hostname": "b", "example.com/rack": "7"}},
        {"memory": str((1000 << 30) + 4096)},
        {"nvidia.com/gpu": 8},
        {"cpu": "96000m"},
        {"ephemeral-storage": "500Gi"},
    ],
    ids=str,
)
def test_nodes_that_differ_in_nothing_that_matters_are_one_shape(other: dict[str, Any]) -> None:
    assert len(shapes_of([node_of(node("a")), node_of(node("b", **other))])) == 1


def test_a_label_that_some_node_lacks_is_known_to_be_lacking() -> None:
    shape = shapes_of([node_of(node("a", labels={"rack": "1"})), node_of(node("b"))])[0]
    assert shape.labels["rack"] == {"1", None}


def test_the_order_of_taints_does_not_split_a_shape() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "value": "x", "effect": "NoExecute"}]
    shapes = shapes_of([node_of(node("a", taints=taints)), node_of(node("b", taints=taints[::-1]))])
    assert [shape.taints for shape in shapes] == [(Taint("a", "", "NoSchedule"), Taint("b", "x", "NoExecute"))]


def test_nodes_without_accelerators_are_no_shape() -> None:
    assert shapes_of([node_of(node("cpu", **{"nvidia.com/gpu": "0"}))]) == ()
    assert shapes_of([node_of(node("efa", **{"nvidia.com/gpu": "0", "vpc.amazonaws.com/efa": "32"}))]) == ()


def test_capacity_stands_in_where_nothing_is_allocatable_yet() -> None:
    fresh = node("n")
    fresh["status"] = {"capacity": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"}}
    assert node_of(fresh) == Node("n", {}, (), 16 << 30, 8000, {"nvidia.com/gpu": 1})


def test_an_amount_that_does_not_parse_counts_as_none() -> None:
    assert node_of(node("n", memory="plenty", **{"nvidia.com/gpu": "many"}))._replace(labels={}) == Node("n", {}, (), 0, 96000, {})


def test_an_empty_node_is_read() -> None:
    assert node_of({"kind": "Node", "metadata": None, "spec": None, "status": None}) == Node("", {}, (), 0, 0, {})


def test_a_node_with_a_field_of_another_type_is_malformed() -> None:
    with pytest.raises(MalformedError, match=r"spec\.taints"):
        node_of({"spec": {"taints": "gpu"}})


def test_a_record_cannot_be_changed() -> None:
    snapshot = snapshot_from_objects([node("a", labels={"x": "1"})])
    with pytest.raises(TypeError):
        snapshot.shapes[0].devices["nvidia.com/gpu"] = 99  # type: ignore[index]
    with pytest.raises(AttributeError):
        snapshot.shapes[0].memory = 1  # type: ignore[misc]
    with pytest.raises(AttributeError):
        snapshot.shapes = ()  # type: ignore[misc]


def test_a_namespace_always_carries_its_name() -> None:
    assert namespace_of({"metadata": {"name": "a"}}).labels == {"kubernetes.io/metadata.name": "a"}
    snapshot = snapshot_from_objects([{"kind": "Namespace", "metadata": {"name": "a", "labels": {"team": "x"}}}])
    assert snapshot.namespace_labels("a") == {"kubernetes.io/metadata.name": "a", "team": "x"}
    assert snapshot.namespace_labels("unknown") == {"kubernetes.io/metadata.name": "unknown"}


def test_queues_are_found_by_namespace_in_order() -> None:
    made = [
        {"kind": "LocalQueue", "metadata": {"namespace": space, "name": name}, "spec": {"clusterQueue": "cq"}}
        for space, name in (("a", "two"), ("b", "x"), ("a", "one"))
    ]
    queues = snapshot_from_objects(made).queues
    assert [queue.name for queue in queues["a"]] == ["one", "two"]
    assert queues["b"][0].cluster_queue == "cq"


def test_what_nobody_exported_is_not_given_and_what_is_there_is_synced() -> None:
    snapshot = snapshot_from_objects([node("a"), {"kind": "ConfigMap"}, {}])
    assert snapshot.sync_state("nodes") is SyncState.SYNCED
    assert snapshot.sync_state("localqueues") is SyncState.NOT_GIVEN
    assert snapshot_from_objects([], known={"nodes": SyncState.ABSENT}).sync_state("nodes") is SyncState.ABSENT
    assert EMPTY_SNAPSHOT.sync_state("nodes") is SyncState.NOT_GIVEN


@pytest.mark.parametrize("rule", ["gang", "host-memory"])
def test_nodes_that_are_still_on_their_way_make_findings_unknown(rule: str) -> None:
    snapshot = snapshot_from_objects([], {"nodes": SyncState.PENDING})
    job = templated("Job", container(gpus=3), parallelism=4, completions=4)
    job["metadata"] |= {"labels": {"kueue.x-k8s.io/queue-name": "q"}, "annotations": {"gpugate.io/gang-size": "4"}}
    assert reasons(decided(job, bind({rule: {}}), snapshot=snapshot)) == [(rule, "NodesUnknown", "unknown")]


@pytest.mark.parametrize(
    ("devices", "is_gpu"),
    [
        ({"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}, True),
        ({"requests": [{"deviceClassName": "mig.nvidia.com"}]}, True),
        ({"requests": [{"firstAvailable": [{"deviceClassName": "a"}, {"deviceClassName": "vfio.gpu.nvidia.com"}]}]}, True),
        ({"requests": [{"exactly": {"deviceClassName": "compute-domain-daemon.nvidia.com"}}]}, False),
        ({"requests": [{"exactly": {"deviceClassName": None}}]}, False),
        ({"requests": None}, False),
        (None, False),
    ],
    ids=str,
)
def test_a_claim_stands_for_a_gpu_by_its_device_classes(devices: Any, is_gpu: bool) -> None:
    assert claim_of({"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": devices}}).is_gpu is is_gpu
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "c"}, "spec": {"spec": {"devices": devices}}}
    assert claim_of(template).is_gpu is is_gpu


def _claim_facts() -> ClusterSnapshot:
    spec = {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    return snapshot_from_objects([{"kind": "ResourceClaim", "metadata": {"name": "gpu", "namespace": "team-a"}, "spec": spec}])


def test_a_claim_is_looked_up_in_the_workloads_own_namespace() -> None:
    asking = pod(
        {"name": "main", "resources": {"claims": [{"name": "c"}]}}, resourceClaims=[{"name": "c", "resourceClaimName": "gpu"}]
    )
    assert opened(asking, snapshot=_claim_facts()).gpu_pod_sets()
    asking["metadata"]["namespace"] = "team-b"
    assert not opened(asking, snapshot=_claim_facts()).gpu_pod_sets()
