"""Which node shapes a pod may land on, as the scheduler's plugins see it."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.nodes import node_of
from gpugate.policies.cluster.records.common import Taint, toleration_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.scheduling.gpu_share import share_of
from gpugate.policies.scheduling.node_selection import matches_selector, node_candidates, tolerated_shapes
from tests.shared.builders import container, node, pod, pods_of, shapes_of

_SHAPE = shapes_of([node_of(node("n1", labels={"product": "H100", "memory": "81559", "odd": "x", "minus": "-5"}))])[0]


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ({"product": "H100"}, True),
        ({"product": "A100"}, False),
        ({"product": "H100", "absent": "x"}, False),
        ({"kubernetes.io/hostname": "n1"}, True),
        ({"kubernetes.io/hostname": "n2"}, False),
        ({}, True),
        (None, True),
    ],
)
def test_node_selector(selector: Any, wanted: bool) -> None:
    assert matches_selector(pods_of(pod(container(), nodeSelector=selector)), _SHAPE) is wanted


@pytest.mark.parametrize(
    ("term", "wanted"),
    [
        (_expression("product", "In", "A100", "H100"), True),
        (_expression("product", "In", "A100"), False),
        (_expression("absent", "In", "x"), False),
        (_expression("product", "NotIn", "A100"), True),
        (_expression("product", "NotIn", "H100"), False),
        (_expression("absent", "NotIn", "x"), True),
        (_expression("product", "Exists"), True),
        (_expression("absent", "Exists"), False),
        (_expression("absent", "DoesNotExist"), True),
        (_expression("product", "DoesNotExist"), False),
        (_expression("memory", "Gt", "81558"), True),
        (_expression("memory", "Gt", "81559"), False),
        (_expression("memory", "Lt", "81560"), True),
        (_expression("memory", "Lt", "81559"), False),
        (_expression("minus", "Lt", "-4"), True),
        (_expression("product", "Gt", "1"), False),
        (_expression("absent", "Gt", "1"), False),
        (_expression("memory", "Gt", "much"), False),
        (_expression("memory", "Gt"), False),
        (_expression("memory", "Gte", "1"), False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}, False),
        (
            {**_expression("product", "Exists"), "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]},
            False,
        ),
        ({}, False),
        ({"matchExpressions": [], "matchFields": None}, False),
    ],
    ids=str,
)
def test_required_node_affinity(term: dict[str, Any], wanted: bool) -> None:
    assert matches_selector(pods_of(pod(container(), affinity=_affinity(term))), _SHAPE) is wanted


def test_terms_are_alternatives_and_expressions_in_one_are_not() -> None:
    no, yes = _expression("product", "In", "A100"), _expression("product", "In", "H100")
    both = {"matchExpressions": no["matchExpressions"] + yes["matchExpressions"]}
    assert matches_selector(pods_of(pod(container(), affinity=_affinity(no, yes))), _SHAPE)
    assert not matches_selector(pods_of(pod(container(), affinity=_affinity(both))), _SHAPE)
    assert not matches_selector(pods_of(pod(container(), nodeSelector={"product": "A100"}, affinity=_affinity(yes))), _SHAPE)


def test_a_preference_rules_nothing_out() -> None:
    affinity = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": _expression("product", "In", "A100")}]
        }
    }
    assert matches_selector(pods_of(pod(container(), affinity=affinity)), _SHAPE)


def test_a_shape_of_several_nodes_is_ruled_out_only_where_none_of_them_matches() -> None:
    shape = shapes_of([node_of(node(name, labels={"rack": name})) for name in ("r1", "r2")])[0]
    assert len(shape.nodes) == 2
    for wanted, selector in ((True, {"rack": "r2"}), (False, {"rack": "r3"})):
        assert matches_selector(pods_of(pod(container(), nodeSelector=selector)), shape) is wanted
    assert matches_selector(pods_of(pod(container(), affinity=_affinity(_expression("rack", "NotIn", "r1")))), shape)
    assert not matches_selector(pods_of(pod(container(), affinity=_affinity(_expression("rack", "NotIn", "r1", "r2")))), shape)


@pytest.mark.parametrize(
    ("toleration", "wanted"),
    [
        ({"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}, True),
        ({"key": "sku", "value": "gpu"}, True),
        ({"key": "sku", "value": "cpu"}, False),
        ({"key": "sku"}, False),
        ({"key": "sku", "operator": "Exists"}, True),
        ({"key": "sku", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Equal"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "sku", "operator": "Gt", "value": "gpu"}, False),
    ],
    ids=str,
)
def test_a_toleration_covers_a_taint(toleration: dict[str, Any], wanted: bool) -> None:
    assert toleration_of(toleration).covers(Taint("sku", "gpu", "NoSchedule")) is wanted


@pytest.mark.parametrize(
    ("taint", "wanted"),
    [
        ({"key": "sku", "value": "gpu", "effect": "NoSchedule"}, False),
        ({"key": "sku", "value": "gpu", "effect": "NoExecute"}, False),
        ({"key": "sku", "value": "gpu", "effect": "PreferNoSchedule"}, True),
        # What passes with the node's condition says nothing about what it could ever hold.
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}, True),
    ],
    ids=str,
)
def test_only_lasting_taints_that_keep_pods_off_count(taint: dict[str, str], wanted: bool) -> None:
    shape = shapes_of([node_of(node("n", taints=[taint]))])[0]
    assert bool(tolerated_shapes(pods_of(pod(container(), tolerations=None)), [shape])) is wanted


@pytest.fixture(scope="module")
def snapshot() -> ClusterSnapshot:
    return snapshot_from_objects(
        [
            node("large", labels={"size": "large"}),
            node("small", labels={"size": "small"}, **{"nvidia.com/gpu": "2", "memory": "100Gi", "cpu": "10"}),
            node("amd", **{"nvidia.com/gpu": "0", "amd.com/gpu": "8"}),
        ]
    )


def _names(shapes: Any) -> list[str]:
    return sorted(name for shape in shapes for name in shape.nodes)


def test_offering_looks_at_names_reachable_at_selectors_and_roomy_at_counts(snapshot: ClusterSnapshot) -> None:
    four = pods_of(pod(container(gpus=4)))
    assert _names(node_candidates(four, snapshot).with_resource) == ["large", "small"]
    assert _names(node_candidates(four, snapshot).matching) == ["large", "small"]
    assert _names(node_candidates(four, snapshot).large_enough) == ["large"]
    selecting = pods_of(pod(container(gpus=4), nodeSelector={"size": "small"}))
    assert (_names(node_candidates(selecting, snapshot).with_resource), _names(node_candidates(selecting, snapshot).matching)) == (
        ["large", "small"],
        ["small"],
    )
    assert _names(node_candidates(selecting, snapshot).large_enough) == []
    both = pods_of(pod(container(), {"name": "amd", "resources": {"limits": {"amd.com/gpu": 1}}}))
    assert _names(node_candidates(both, snapshot).with_resource) == []
    assert _names(node_candidates(pods_of(pod(container(gpus=None))), snapshot).with_resource) == []


def test_equal_pods_are_answered_alike_and_different_ones_apart(snapshot: ClusterSnapshot) -> None:
    for _ in range(2):
        for size in ("small", "large"):
            assert _names(node_candidates(pods_of(pod(container(), nodeSelector={"size": size})), snapshot).matching) == [size]
        assert _names(node_candidates(pods_of(pod(container())), snapshot).matching) == ["large", "small"]


def test_the_share_of_one_accelerator_is_the_smallest_over_the_shapes(snapshot: ClusterSnapshot) -> None:
    large, small = sorted(node_candidates(pods_of(pod(container())), snapshot).with_resource, key=lambda shape: shape.nodes)
    both = share_of([large, small], "nvidia.com/gpu", 0.1)
    assert both is not None
    assert (both.memory, both.cpu) == (45 << 30, 4000)
    alone = share_of([large], "nvidia.com/gpu", 0.1)
    assert alone is not None
    assert (alone.memory, alone.cpu) == (112 << 30, 10000)
    assert share_of([], "nvidia.com/gpu", 0.1) is None


def test_a_slice_has_as_much_of_the_node_as_it_has_of_its_card() -> None:
    resources = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "3", "nvidia.com/mig-4g.20gb": "1", "memory": "140Gi", "cpu": "28"}
    mixed = shapes_of([node_of(node("m", **resources))])
    shares = [share_of(mixed, name, 0) for name in ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-4g.20gb")]
    assert [share.memory >> 30 for share in shares if share] == [70, 10, 40]


def test_names_for_the_same_devices_do_not_divide_a_node_twice() -> None:
    resources = {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32", "memory": "512Gi", "cpu": "128"}
    trainium = shapes_of([node_of(node("t", **resources))])
    whole, core = share_of(trainium, "aws.amazon.com/neuron", 0), share_of(trainium, "aws.amazon.com/neuroncore", 0)
    assert whole is not None
    assert core is not None
    assert (whole.memory >> 30, core.memory >> 30) == (32, 16)


def test_a_share_below_one_gib_and_one_core_is_kept_as_it_is() -> None:
    tiny = shapes_of([node_of(node("t", **{"nvidia.com/gpu": "4", "memory": "2Gi", "cpu": "2"}))])
    share = share_of(tiny, "nvidia.com/gpu", 0)
    assert share is not None
    assert (share.memory, share.cpu) == (512 << 20, 500)
