"""Select the node shapes that match a pod.

Selection follows the scheduler's NodeAffinity and TaintToleration plugins. A shape with several values of a label matches if any
of its nodes can match.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import Taint, Toleration, toleration_of
from gpugate.policies.cluster.records.devices import RuntimeClass
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, wrong_type
from gpugate.policies.kube.memo import keep, recall, remember
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.kube.taints import is_transient_taint
from gpugate.policies.workloads.node_affinity import required_terms
from gpugate.policies.workloads.pod_set import NO_KEY, PodSet
from gpugate.policies.workloads.resources import memo_key

#: Fields of a pod spec that decide which nodes match.
SCHEDULING_FIELDS: Final = frozenset({"affinity", "nodeSelector", "runtimeClassName", "tolerations"})
#: Values of the label ``nvidia.com/gpu.sharing-strategy`` under which ``nvidia.com/gpu`` is a share of a card.
SHARING_STRATEGIES: Final = frozenset({"time-slicing", "mps"})


def tolerated_shapes(pods: PodSet, shapes: Iterable[NodeShape], more: Iterable[Toleration] = ()) -> tuple[NodeShape, ...]:
    """Return those of ``shapes`` whose permanent taints that repel pods are all tolerated by the pods and ``more``."""
    tolerations = _tolerations(pods, more)
    return tuple(shape for shape in shapes if not _untolerated(tolerations, shape))


def untolerated_taints(pods: PodSet, shape: NodeShape) -> list[Taint]:
    """Return the permanent taints of ``shape`` that the pods do not tolerate."""
    return _untolerated(_tolerations(pods), shape)


def _tolerations(pods: PodSet, more: Iterable[Toleration] = ()) -> dict[str, list[Toleration]]:
    """Return the tolerations of the pods, stated and predicted, and ``more``, by their keys."""
    stated = (*mappings(pods.spec, "tolerations", pods.field()), *pods.predicted_tolerations)
    by_key: dict[str, list[Toleration]] = {}
    for toleration in dict.fromkeys((*map(toleration_of, stated), *more)):
        by_key.setdefault(toleration.key, []).append(toleration)
    return by_key


def _untolerated(tolerations: Mapping[str, Sequence[Toleration]], shape: NodeShape) -> list[Taint]:
    """Return the permanent taints of ``shape`` that repel pods and that none of ``tolerations``, by their keys, covers."""
    return [
        taint
        for taint in shape.taints
        if taint.effect != "PreferNoSchedule"
        and not is_transient_taint(taint.key, taint.value)
        and not any(toleration.covers(taint) for toleration in (*tolerations.get(taint.key, ()), *tolerations.get("", ())))
    ]


def values_of(shape: NodeShape, key: str) -> frozenset[str | None]:
    """Return the values of label ``key`` on the nodes of ``shape``, with None if some node lacks it."""
    if key == HOSTNAME and key not in shape.labels:
        return frozenset(shape.nodes)
    return shape.labels.get(key, frozenset({None}))


def _number(value: str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def meets(expression: Object, values: frozenset[str | None]) -> bool:
    """Return whether label ``values`` (None: nodes without the label) meet the ``expression`` of a node selector."""
    operator = expression.get("operator")
    stated = {str(value) for value in sequence(expression, "values", ())}
    if operator == "In":
        return bool(stated & values)
    if operator == "NotIn":
        return any(value not in stated for value in values)
    if operator == "Exists":
        return any(value is not None for value in values)
    if operator == "DoesNotExist":
        return None in values
    bound = _number(next(iter(stated), None))
    numbers = [number for number in map(_number, values) if number is not None]
    if bound is None or not numbers:
        return False
    return (operator == "Gt" and max(numbers) > bound) or (operator == "Lt" and min(numbers) < bound)


def matches_node_selector(pods: PodSet, shape: NodeShape) -> bool:
    """Return whether the nodeSelector of ``pods``, which no rule edits, matches some node of ``shape``."""
    for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
        if type(value) is not str:
            raise wrong_type(pods.field("nodeSelector", key), "a string", value)
        if value not in values_of(shape, key):
            return False
    return True


def matches_selector(pods: PodSet, shape: NodeShape) -> bool:
    """Return whether nodeSelector and required node affinity of ``pods`` match some node of ``shape``."""
    if not matches_node_selector(pods, shape):
        return False
    terms = required_terms(pods)
    return not terms or any(_term_matches(term, shape) for term in terms)


def _term_matches(term: Object, shape: NodeShape) -> bool:
    expressions, fields = mappings(term, "matchExpressions", ()), mappings(term, "matchFields", ())
    return (
        bool(expressions or fields)
        and all(meets(expression, values_of(shape, str(expression.get("key")))) for expression in expressions)
        and all(meets(expression, frozenset(shape.nodes)) for expression in fields)
    )


class NodeCandidates(NamedTuple):
    """Node shapes for one pod, by stage of node filtering.

    Attributes:
        with_resource: shapes with every requested accelerator, in any number.
        matching: those of with_resource that match its nodeSelector and required node affinity.
        large_enough: those of matching with enough accelerators.
        taints: the taints of the matching shapes, sorted.
        for_shares: shapes from which shares of a node are computed: those of large_enough, without shapes of shared cards if
            others remain.
        runtime: tolerations of the pods' RuntimeClass.
        shared_only: True if every shape of large_enough offers shares of its cards under the name of the whole card.
        memo: results computed from these shapes by rules, with their parameters, and by :func:`open_shapes`.
    """

    with_resource: tuple[NodeShape, ...]
    matching: tuple[NodeShape, ...]
    large_enough: tuple[NodeShape, ...]
    taints: tuple[Taint, ...]
    for_shares: tuple[NodeShape, ...]
    runtime: tuple[Toleration, ...]
    shared_only: bool
    memo: dict[Any, Any]


def hands_out_shares(shape: NodeShape) -> bool:
    """Return whether nodes of ``shape`` offer shares of their cards under the name of the whole card."""
    return not SHARING_STRATEGIES.isdisjoint(shape.labels.get("nvidia.com/gpu.sharing-strategy", ()))


def node_candidates(pods: PodSet, snapshot: ClusterSnapshot) -> NodeCandidates:
    """Return the node candidates of ``pods``, stored in the snapshot by accelerators and node selectors.

    There are none for devices that a DeviceClass serves: these may be in ResourceSlices, on nodes whose counts do not show them.
    """
    accelerators = pods.totals.accelerators
    if not snapshot.served_by_claims.isdisjoint(accelerators):
        accelerators = {}
    key: tuple[Hashable, ...] | None = None
    runtime: RuntimeClass | None = None
    if snapshot.shapes and accelerators:
        key = pods.selection_key
        if key is None:
            selectors = [pods.spec.get(field) for field in ("nodeSelector", "affinity")]
            stated = [_json(selector) if selector else None for selector in selectors]
            key = pods.selection_key = (*accelerators.items(), *stated)
    if "runtimeClassName" in pods.spec:
        runtime = runtime_class(pods, snapshot)
        if key is not None and runtime is not None:
            key = (*key, *runtime.node_selector.items(), *runtime.tolerations)
    candidates: NodeCandidates | None = snapshot.memo.get(key)
    if candidates is None:
        candidates = _select(pods, accelerators, snapshot, runtime)
        remember(snapshot.memo, key, candidates)
    return candidates


def runtime_class(pods: PodSet, snapshot: ClusterSnapshot) -> RuntimeClass | None:
    """Return the RuntimeClass of the pods; None if they name none, or an unknown one."""
    return snapshot.runtime_classes.get(str(pods.spec.get("runtimeClassName")))


def _json(value: Any) -> bytes | str:  # noqa: ANN401 - any JSON value
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # A YAML file may hold a number of more than 64 bits.
        return repr(value)


def _select(pods: PodSet, accelerators: dict[str, int], snapshot: ClusterSnapshot, runtime: RuntimeClass | None) -> NodeCandidates:
    tolerations, selector = (runtime.tolerations, runtime.node_selector) if runtime else ((), {})
    if not accelerators:
        return NodeCandidates((), (), (), (), (), tolerations, shared_only=False, memo={})
    with_resource = tuple(shape for shape in snapshot.shapes if all(name in shape.devices for name in accelerators))
    matching = tuple(
        shape
        for shape in with_resource
        if matches_selector(pods, shape) and all(value in values_of(shape, key) for key, value in selector.items())
    )
    large = tuple(shape for shape in matching if all(shape.devices[name] >= count for name, count in accelerators.items()))
    taints = tuple(sorted({taint for shape in matching for taint in shape.taints}))
    whole = tuple(shape for shape in large if not hands_out_shares(shape))
    return NodeCandidates(with_resource, matching, large, taints, whole or large, tolerations, bool(large) and not whole, {})


def matching_shapes(pods: PodSet, snapshot: ClusterSnapshot) -> tuple[NodeShape, ...]:
    """Return the shapes with every requested accelerator that match the pods' selectors."""
    return node_candidates(pods, snapshot).matching


def tolerations_key(pods: PodSet) -> bytes | None:
    """Return a key of the stated and predicted tolerations; None if they have no short key."""
    key = pods.tolerations_key
    if key is NO_KEY:
        stated = pods.spec.get("tolerations") or ()
        key = memo_key([stated, pods.predicted_tolerations] if pods.predicted_tolerations else stated)
        pods.tolerations_key = key
    return key


def open_shapes(pods: PodSet, chosen: NodeCandidates) -> tuple[NodeShape, ...]:
    """Return the matching shapes whose permanent taints the pods tolerate, stored by the tolerations."""
    if not chosen.matching:
        return ()
    key = tolerations_key(pods)
    shapes: tuple[NodeShape, ...] | None = recall(chosen.memo, "open", key)
    if shapes is None:
        shapes = tolerated_shapes(pods, chosen.matching, chosen.runtime)
        keep(chosen.memo, "open", key, shapes)
    return shapes
