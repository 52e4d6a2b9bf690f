"""Which node shapes a pod may land on, and what share of such a node belongs to one accelerator.

Selection follows the scheduler's NodeAffinity and TaintToleration plugins. Where a shape holds several values of a
label the answer is yes if any node could match: a shape is only ruled out when none of its nodes can.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import Taint, Toleration, toleration_of
from gpugate.policies.cluster.records.devices import RuntimeClass
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, wrong_type
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.kube.taints import is_transient_taint
from gpugate.policies.workloads.node_affinity import required_terms
from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import PodSet


def tolerates_taints(pods: PodSet, shape: NodeShape, more: Iterable[Toleration] = ()) -> bool:
    """Whether the pods tolerate every lasting taint of ``shape`` that keeps pods off; ``more``: what else they will be given."""
    return not untolerated_taints(pods, shape, more)


def untolerated_taints(pods: PodSet, shape: NodeShape, more: Iterable[Toleration] = ()) -> list[Taint]:
    """The lasting taints of ``shape`` that keep the pods off."""
    written = (*mappings(pods.spec, "tolerations", pods.field()), *pods.predicted_tolerations)
    tolerations = (*map(toleration_of, written), *more)
    return [
        taint
        for taint in shape.taints
        if taint.effect != "PreferNoSchedule"
        and not is_transient_taint(taint.key, taint.value)
        and not any(one.covers(taint) for one in tolerations)
    ]


def _values(labels: Mapping[str, frozenset[str | None]], shape: NodeShape, key: str) -> frozenset[str | None]:
    if key == HOSTNAME and key not in labels:
        return frozenset(shape.nodes)
    return labels.get(key, frozenset({None}))


def values_of(shape: NodeShape, key: str) -> frozenset[str | None]:
    """The values of label ``key`` on the nodes of ``shape``, None among them where some node lacks it."""
    return _values(shape.labels, shape, key)


def _number(value: str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def meets(expression: Object, found: frozenset[str | None]) -> bool:
    """Whether a node selector's ``expression`` is met by a label of the values ``found`` (None: nodes without it)."""
    operator = expression.get("operator")
    wanted = {str(value) for value in sequence(expression, "values", ())}
    if operator == "In":
        return bool(wanted & found)
    if operator == "NotIn":
        return any(value not in wanted for value in found)
    if operator == "Exists":
        return any(value is not None for value in found)
    if operator == "DoesNotExist":
        return None in found
    bound = _number(next(iter(wanted), None))
    if bound is None:
        return False
    numbers = [number for number in map(_number, found) if number is not None]
    return (operator == "Gt" and any(number > bound for number in numbers)) or (
        operator == "Lt" and any(number < bound for number in numbers)
    )


def matches_node_selector(pods: PodSet, shape: NodeShape) -> bool:
    """Whether the nodeSelector of ``pods``, which no rule edits, lets them onto some node of ``shape``."""
    for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
        if type(value) is not str:
            raise wrong_type(pods.field("nodeSelector", key), "a string", value)
        if value not in _values(shape.labels, shape, key):
            return False
    return True


def matches_selector(pods: PodSet, shape: NodeShape) -> bool:
    """Whether nodeSelector and required node affinity of ``pods`` let them onto some node of ``shape``."""
    if not matches_node_selector(pods, shape):
        return False
    terms = required_terms(pods)
    return not terms or any(_term_meets(term, shape) for term in terms)


def _term_meets(term: Object, shape: NodeShape) -> bool:
    expressions = mappings(term, "matchExpressions", ())
    fields = mappings(term, "matchFields", ())
    if not expressions and not fields:
        return False
    return all(meets(one, _values(shape.labels, shape, str(one.get("key")))) for one in expressions) and all(
        meets(one, frozenset(shape.nodes)) for one in fields
    )


class NodeCandidates(NamedTuple):
    """The shapes that concern one pod.

    Attributes:
        with_resource: those that offer every accelerator it asks for, in whatever number.
        matching: those among them that its nodeSelector and node affinity let it onto.
        large_enough: those among these with as many accelerators as it asks for.
        taints: the taints of the reachable ones, sorted.
        for_shares: those from which a share of a node is worked out: the roomy ones, those that hand out shares of cards left
            out where others do not.
        runtime: tolerations that the pods' RuntimeClass gives them.
        shared_only: whether every roomy one hands out shares of its cards under the whole card's name.
        memo: what was worked out from these shapes: by rules, with their parameters, and by :func:`open_shapes`.
    """

    with_resource: tuple[NodeShape, ...]
    matching: tuple[NodeShape, ...]
    large_enough: tuple[NodeShape, ...]
    taints: tuple[Taint, ...]
    for_shares: tuple[NodeShape, ...]
    runtime: tuple[Toleration, ...]
    shared_only: bool
    memo: dict[Any, Any]


#: Values of ``nvidia.com/gpu.sharing-strategy`` under which ``nvidia.com/gpu`` is a share of a card.
_SHARING: Final = frozenset({"time-slicing", "mps"})


def hands_out_shares(shape: NodeShape) -> bool:
    """Whether nodes of ``shape`` hand out shares of their cards under the whole card's name."""
    return not _SHARING.isdisjoint(shape.labels.get("nvidia.com/gpu.sharing-strategy", ()))


def node_candidates(pods: PodSet, snapshot: ClusterSnapshot) -> NodeCandidates:
    """The shapes that concern ``pods``, remembered with the facts: equal pods select equal shapes."""
    wanted = pods.totals.accelerators
    key: tuple[Hashable, ...] | None = None
    runtime: RuntimeClass | None = None
    if snapshot.shapes and wanted:
        key = pods.selection_key
        if key is None:
            key = pods.selection_key = _selection_key(pods, wanted)
    if "runtimeClassName" in pods.spec:
        runtime = runtime_class(pods, snapshot)
        if key is not None and runtime is not None:
            key = (*key, *runtime.node_selector.items(), *runtime.tolerations)
    found: NodeCandidates | None = snapshot.memo.get(key)
    if found is None:
        found = _select(pods, wanted, snapshot, runtime)
        remember(snapshot.memo, key, found)
    return found


def runtime_class(pods: PodSet, snapshot: ClusterSnapshot) -> RuntimeClass | None:
    """The RuntimeClass of the pods; None where they name none, or it is not known."""
    return snapshot.runtime_classes.get(str(pods.spec.get("runtimeClassName")))


def _runs(runtime: RuntimeClass, shape: NodeShape) -> bool:
    return all(value in _values(shape.labels, shape, key) for key, value in runtime.node_selector.items())


def _selection_key(pods: PodSet, wanted: Mapping[str, int]) -> tuple[Hashable, ...]:
    selector = pods.spec.get("nodeSelector")
    affinity = pods.spec.get("affinity")
    return (*wanted.items(), _written(selector) if selector else None, _written(affinity) if affinity else None)


def _written(value: Any) -> bytes | str:  # noqa: ANN401 - any JSON value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # A YAML file may hold a number of more than 64 bits.
        return repr(value)


def _select(pods: PodSet, wanted: dict[str, int], snapshot: ClusterSnapshot, runtime: RuntimeClass | None) -> NodeCandidates:
    given = runtime.tolerations if runtime else ()
    if not wanted:
        return NodeCandidates((), (), (), (), (), given, shared_only=False, memo={})
    offering = tuple(shape for shape in snapshot.shapes if all(name in shape.devices for name in wanted))
    matching_shapes = tuple(
        shape for shape in offering if matches_selector(pods, shape) and (runtime is None or _runs(runtime, shape))
    )
    roomy = tuple(shape for shape in matching_shapes if all(shape.devices[name] >= count for name, count in wanted.items()))
    taints = tuple(sorted({taint for shape in matching_shapes for taint in shape.taints}))
    whole = tuple(shape for shape in roomy if not hands_out_shares(shape))
    return NodeCandidates(offering, matching_shapes, roomy, taints, whole or roomy, given, bool(roomy) and not whole, {})


def matching_shapes(pods: PodSet, snapshot: ClusterSnapshot) -> tuple[NodeShape, ...]:
    """Shapes that offer every accelerator the pods ask for and that the pods' own selectors let them onto."""
    return node_candidates(pods, snapshot).matching


def tolerations_key(pods: PodSet) -> bytes | None:
    """A key that only pods with the same tolerations have, written and foreseen; None where they are better read each time."""
    written = pods.spec.get("tolerations") or ()
    return memo_key([written, pods.predicted_tolerations] if pods.predicted_tolerations else written)


def open_shapes(pods: PodSet, chosen: NodeCandidates) -> tuple[NodeShape, ...]:
    """Shapes among the reachable ones whose lasting taints the pods tolerate, remembered by the tolerations as written."""
    if not chosen.matching:
        return ()
    key = tolerations_key(pods)
    if key is None:
        return tuple(shape for shape in chosen.matching if tolerates_taints(pods, shape, chosen.runtime))
    found: tuple[NodeShape, ...] | None = chosen.memo.get(key)
    if found is None:
        found = tuple(shape for shape in chosen.matching if tolerates_taints(pods, shape, chosen.runtime))
        remember(chosen.memo, key, found)
    return found


#: Labels of nodes that are made when pods wait for them, of any size (Karpenter; GKE's flex-start and queued provisioning).
_MADE_ON_DEMAND: Final = (
    "karpenter.sh/nodepool",
    "karpenter.sh/provisioner-name",
    "cloud.google.com/gke-flex-start",
    "cloud.google.com/gke-queued",
)


def are_autoscaled(shapes: Iterable[NodeShape]) -> bool:
    """Whether nodes like some of these come when pods wait for them, and others than these may."""
    return any(key in shape.labels for shape in shapes for key in _MADE_ON_DEMAND)
