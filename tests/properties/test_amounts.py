"""What rules write into resources and volumes costs nobody a node, changes no stated amount unasked, and is refused by none."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.decision import BoundRule, Phase
from gpugate.policies.kube.fields import clone
from gpugate.policies.kube.quantity import unit_of
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.policies.rules.registry import BY_ID
from gpugate.policies.scheduling.node_fit import node_request
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.scheduling.pods_per_node import pods_per_node, shapes_in_reach
from tests.properties import test_headroom as realistic
from tests.shared import strategies
from tests.shared.builders import decided, opened, policy, reasons
from tests.shared.params import params_of

Object = dict[str, Any]

_WRITING = ("host-memory", "numa", "shared-memory")
_MANY = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
_CLUSTERS = st.one_of(realistic.clusters(), strategies.clusters())
_WORKLOADS = st.one_of(realistic.some_workloads(), strategies.workloads())


@st.composite
def _any_parameters(draw: st.DrawFn, *more: str) -> tuple[BoundRule, ...]:
    """The rules that write amounts, and ``more``, with any parameters."""
    rules = {rule: {**draw(params_of(BY_ID[rule])), "mode": "Enforce"} for rule in (*_WRITING, *more)}
    parsed = parse_policy({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "p"}, "spec": {"rules": rules}})
    return PolicySet([parsed]).bind({}, {})


def _refused(root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot, phase: Phase) -> set[tuple[str, str]]:
    found = reasons(decided(root, bound, snapshot=snapshot, phase=phase))
    return {(rule, reason) for rule, reason, severity in found if severity == "deny" and reason != "HeldBack"}


@given(_WORKLOADS, _any_parameters(), _CLUSTERS)
@_MANY
def test_no_rule_refuses_what_gpugate_itself_wrote(root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot) -> None:
    as_sent = _refused(clone(root), bound, snapshot, Phase.CHECK)
    assert _refused(root, bound, snapshot, Phase.REVIEW) <= as_sent


def _pods_per_node(root: Object, snapshot: ClusterSnapshot) -> list[int]:
    """How many pods of each pod set with GPUs an empty node of each shape in reach holds."""
    workload = opened(root, snapshot=snapshot)
    return [
        pods_per_node(shape, node_request(pods, snapshot, workload.namespace), memory)
        for pods in workload.gpu_pod_sets()
        for shape in shapes_in_reach(pods, node_candidates(pods, snapshot))
        for memory in (shape.memory, shape.least_memory)
    ]


@given(_WORKLOADS, _any_parameters(), _CLUSTERS)
@_MANY
def test_an_empty_node_holds_as_many_pods_as_before(root: Object, bound: tuple[BoundRule, ...], snapshot: ClusterSnapshot) -> None:
    before = _pods_per_node(clone(root), snapshot)
    decided(root, bound, snapshot=snapshot)
    after = _pods_per_node(root, snapshot)
    assert all(now >= then for then, now in zip(before, after, strict=True)), (before, after)


def _amounts(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Every stated amount of CPU and memory by its path; a limit of zero is none."""
    if isinstance(value, list):
        return {place: amount for at, item in enumerate(value) for place, amount in _amounts(item, (*path, at)).items()}
    if not isinstance(value, dict):
        return {}
    found = {
        (*path, key, name): amount
        for key in ("limits", "requests")
        if isinstance(value.get(key), dict)
        for name, amount in value[key].items()
        if name in {"cpu", "memory"} and amount is not None and unit_of(name)(amount)
    }
    for key, item in value.items():
        found |= _amounts(item, (*path, key))
    return found


@given(_WORKLOADS, _CLUSTERS)
@_MANY
def test_what_is_stated_stays_where_nobody_asks_for_alignment(root: Object, snapshot: ClusterSnapshot) -> None:
    stated = _amounts(root)
    decided(root, PolicySet([policy(rules={rule: {} for rule in _WRITING}, mode="Enforce")]).bind({}, {}), snapshot=snapshot)
    after = _amounts(root)
    assert {place: after.get(place) for place in stated} == stated
