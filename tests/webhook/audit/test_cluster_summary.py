"""The picture of nodes, queues, quotas and policies in an audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import builder_from_objects, snapshot_from_objects
from gpugate.policies.cluster.nodes import Node
from gpugate.policies.cluster.usage import NodeUsage
from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.audit.cluster_summary import policies_of, queues_of, quotas_of, shapes_of
from gpugate.webhook.audit.model import NodeSummary, PolicyLine, QuotaSummary, ShapeSummary
from tests.shared.reviews import policy

GIB = 1 << 30
GPU = "nvidia.com/gpu"


def node(name: str = "n1", *, memory: str = "800Gi", cpu: str = "80", devices: Mapping[str, int] | None = None) -> dict[str, Any]:
    resources = {"memory": memory, "cpu": cpu, **{key: str(count) for key, count in (devices or {GPU: 8}).items()}}
    labels = {"nvidia.com/gpu.product": "H100"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": resources, "allocatable": resources},
    }


def use(memory: int = 0, cpu: int = 0, **devices: int) -> NodeUsage:
    return NodeUsage(1, memory * GIB, memory * GIB, cpu * 1000, {GPU: devices.pop("held", 0), **devices})


def shapes(*nodes: dict[str, Any], used: NodeUsage | None = None, gone: frozenset[str] = frozenset()) -> tuple[ShapeSummary, ...]:
    builder, given_ = builder_from_objects(nodes)

    def node_of(name: str) -> Node | None:
        found: Node | None = None if name in gone else builder.get("nodes", ("", name))
        return found

    return shapes_of(builder.snapshot(given_), node_of, lambda _: used or use())


def picture(used: NodeUsage, **fields: Any) -> NodeSummary:
    (shape,) = shapes(node(**fields), used=used)
    (found,) = shape.nodes
    return found


@pytest.mark.parametrize(
    ("used", "held", "idle", "stranded"),
    [
        (use(), 0, 8, 0),
        (use(memory=5, cpu=2), 0, 8, 0),  # what DaemonSets take strands nothing
        (use(memory=400, cpu=40, held=4), 4, 4, 0),
        (use(memory=400, cpu=40), 0, 8, 0),  # half of a share is enough
        (use(memory=600, held=1), 1, 4, 3),  # 200 GiB are half of the shares of four
        (use(memory=800, held=1), 1, 0, 7),
        (use(memory=900, held=1), 1, 0, 7),  # more than there is
        (use(cpu=80, held=2), 2, 0, 6),
        (use(memory=800, cpu=80, held=8), 8, 0, 0),
        (use(held=9), 8, 0, 0),  # more than the node has
    ],
)
def test_free_accelerators_are_idle_or_stranded(used: NodeUsage, held: int, idle: int, stranded: int) -> None:
    found = picture(used)
    assert (found.held, found.idle, found.stranded) == (held, idle, stranded)


@pytest.mark.parametrize("fields", [{"memory": "0"}, {"cpu": "0"}])
def test_a_node_that_does_not_say_what_it_has_strands_nothing_by_it(fields: dict[str, str]) -> None:
    assert picture(use(memory=5, cpu=5, held=1), **fields).stranded == 0


def test_slices_and_whole_cards_are_counted_together() -> None:
    found = picture(
        NodeUsage(3, 0, 0, 0, {"nvidia.com/mig-1g.10gb": 3, "rdma/hca": 2}),
        devices={"nvidia.com/mig-1g.10gb": 7, GPU: 4, "rdma/hca": 8},
    )
    assert (found.devices, found.held, found.idle) == (11, 3, 8)


def test_the_device_of_a_shape_is_the_one_it_has_most_of() -> None:
    (shape,) = shapes(node(devices={"nvidia.com/mig-1g.10gb": 7, GPU: 4, "rdma/hca": 8}))
    assert (shape.title, shape.device) == ("H100", "nvidia.com/mig-1g.10gb")


@given(st.integers(0, 10**13), st.integers(0, 10**6), st.integers(0, 20), st.integers(0, 2000), st.integers(0, 200))
def test_held_idle_and_stranded_are_all_that_there_is(memory: int, cpu: int, held: int, room: int, cores: int) -> None:
    found = picture(NodeUsage(1, memory, memory, cpu, {GPU: held}), memory=f"{room}Gi", cpu=str(cores))
    assert found.held + found.idle + found.stranded == found.devices == 8
    assert min(found.held, found.idle, found.stranded) >= 0


def test_why_is_said_in_words_with_the_sums_of_the_worst_node() -> None:
    (shape,) = shapes(node(), node("n2"), used=use(memory=800, cpu=10, held=7))
    assert shape.why_stranded == (
        "2 free accelerators on 2 nodes have less than half of their fair share of the node left: on n2 800Gi of 800Gi memory are"
        " requested by pods that hold 7 of 8"
    )
    (shape,) = shapes(node(), used=use(memory=800, cpu=80, held=7))
    assert shape.why_stranded.startswith(
        "1 free accelerator on 1 node has less than half of its fair share of the node left: on n1"
    )
    assert "800Gi of 800Gi memory are requested and 80 of 80 CPU are requested" in shape.why_stranded
    assert shapes(node())[0].why_stranded == ""


def test_nodes_without_accelerators_are_left_out_and_the_largest_shape_is_first() -> None:
    found = shapes(node("small", devices={GPU: 1}), node("a"), node("b"), node("cpu", devices={"rdma/hca": 1}))
    assert [[one.name for one in shape.nodes] for shape in found] == [["a", "b"], ["small"]]


def test_a_node_that_has_gone_since_the_snapshot_is_left_out_and_so_is_a_shape_of_none() -> None:
    assert shapes(node(), gone=frozenset({"n1"})) == ()
    (shape,) = shapes(node(), node("n2"), gone=frozenset({"n1"}))
    assert [one.name for one in shape.nodes] == ["n2"]


def test_quotas_of_cluster_queues() -> None:
    quota = {"name": GPU, "nominalQuota": 16}
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ClusterQueue",
        "metadata": {"name": "research"},
        "spec": {
            "cohort": "all",
            "stopPolicy": "Hold",
            "resourceGroups": [
                {
                    "coveredResources": [GPU, "memory"],
                    "flavors": [{"name": "h100", "resources": [quota, {"name": "memory", "nominalQuota": "1Gi"}]}],
                }
            ],
        },
        "status": {
            "pendingWorkloads": 3,
            "flavorsReservation": [{"name": "h100", "resources": [{"name": GPU, "total": "12"}]}],
        },
    }
    memory, gpus = sorted(queues_of(snapshot_from_objects([queue])), key=lambda one: one.resource)
    assert gpus[:7] == ("research", "all", "h100", GPU, 16, 12, 3)
    assert gpus.stopped
    assert (memory.nominal, memory.reserved) == (GIB, 0)
    del queue["spec"]["stopPolicy"]
    assert {one.stopped for one in queues_of(snapshot_from_objects([queue]))} == {""}


def resource_quota(namespace: str, name: str = "q", **hard: str) -> dict[str, Any]:
    amounts = {key.replace("__", ".").replace("_", "/"): amount for key, amount in hard.items()}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": amounts},
        "status": {"hard": amounts, "used": dict.fromkeys(amounts, "2")},
    }


def test_quotas_of_namespaces_that_bound_accelerators_and_memory_and_cpu_beside_them() -> None:
    gpus = {"requests__nvidia__com_gpu": "8"}
    objects = [
        resource_quota("team-a", "gpus", **gpus),
        resource_quota("team-a", "others", limits__memory="1Gi", pods="10", requests__cpu="4"),
        resource_quota("team-b", limits__memory="1Gi"),
    ]
    assert quotas_of(snapshot_from_objects(objects)) == (
        QuotaSummary("team-a", "gpus", "requests.nvidia.com/gpu", 8, 2),
        QuotaSummary("team-a", "others", "limits.memory", GIB, 2),
        QuotaSummary("team-a", "others", "requests.cpu", 4000, 2000),
    )


def test_policies_are_listed_as_they_win_with_the_modes_that_they_bind_anywhere() -> None:
    strict = policy("strict", generation=4, mode=None, priority=5, rules={"vram": {}, "numa": {"mode": "Disabled"}})
    mild = policy("mild", mode="DryRun", match={"namespaceSelector": {"matchLabels": {"team": "a"}}})
    first, second, third = policies_of(PolicySet([mild, strict]), {"broken": "spec.mode: no", "mild": "spec: no"})
    assert first == PolicyLine("strict", 4, 5, (("vram", "Enforce"),), "")
    assert (second.name, second.problem) == ("mild", "spec: no")
    assert {mode for _, mode in second.modes} == {"DryRun"}
    assert third == PolicyLine("broken", 0, 0, (), "spec.mode: no")
