"""Which node shapes a pod may land on, and what share of such a node belongs to one accelerator.

Selection follows the scheduler's NodeAffinity and TaintToleration plugins. Where a shape holds several values of a
label the answer is yes if any node could match: a shape is only ruled out when none of its nodes can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from gpugate.policies.facts import Facts
from gpugate.policies.fields import Object, mapping, mappings, sequence, wrong_type
from gpugate.policies.nodes import Shape, Taint
from gpugate.policies.resources import memo_key
from gpugate.policies.workload import PodSet

HOSTNAME: Final = "kubernetes.io/hostname"
#: Taints that come and go with a node's condition: they say nothing about what the node could ever hold.
_PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node.cilium.io/")


def tolerates(toleration: Object, taint: Taint) -> bool:
    """Whether ``toleration`` covers ``taint`` (``k8s.io/api/core/v1`` ``Toleration.ToleratesTaint``)."""
    effect = toleration.get("effect") or ""
    if effect and effect != taint.effect:
        return False
    key = toleration.get("key") or ""
    operator = toleration.get("operator") or "Equal"
    if not key:
        return bool(operator == "Exists")
    if key != taint.key:
        return False
    return bool(operator == "Exists") or (operator == "Equal" and (toleration.get("value") or "") == taint.value)


def tolerated(pods: PodSet, shape: Shape) -> bool:
    """Whether the pods tolerate every lasting taint of ``shape`` that keeps pods off."""
    tolerations = mappings(pods.spec, "tolerations", pods.field())
    for taint in shape.taints:
        if taint.effect == "PreferNoSchedule" or taint.key.startswith(_PASSING):
            continue
        for one in tolerations:
            if tolerates(one, taint):
                break
        else:
            return False
    return True


def _values(labels: Mapping[str, frozenset[str | None]], shape: Shape, key: str) -> frozenset[str | None]:
    if key == HOSTNAME and key not in labels:
        return frozenset(shape.nodes)
    return labels.get(key, frozenset({None}))


def _number(value: str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def _meets(expression: Object, found: frozenset[str | None]) -> bool:
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


def selected(pods: PodSet, shape: Shape) -> bool:
    """Whether nodeSelector and required node affinity of ``pods`` let them onto some node of ``shape``."""
    for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
        if type(value) is not str:
            raise wrong_type(pods.field("nodeSelector", key), "a string", value)
        if value not in _values(shape.labels, shape, key):
            return False
    affinity = mapping(pods.spec, "affinity", pods.field())
    node_affinity = mapping(affinity, "nodeAffinity", pods.field("affinity"))
    path = pods.field("affinity", "nodeAffinity")
    required = mapping(node_affinity, "requiredDuringSchedulingIgnoredDuringExecution", path)
    terms = mappings(required, "nodeSelectorTerms", path)
    return not terms or any(_term_meets(term, shape) for term in terms)


def _term_meets(term: Object, shape: Shape) -> bool:
    expressions = mappings(term, "matchExpressions", ())
    fields = mappings(term, "matchFields", ())
    if not expressions and not fields:
        return False
    return all(_meets(one, _values(shape.labels, shape, str(one.get("key")))) for one in expressions) and all(
        _meets(one, frozenset(shape.nodes)) for one in fields
    )


class Selection(NamedTuple):
    """The shapes that concern one pod.

    Attributes:
        offering: those that offer every accelerator it asks for, in whatever number.
        reachable: those among them that its nodeSelector and node affinity let it onto.
        roomy: those among these with as many accelerators as it asks for.
        taints: the taints of the reachable ones, sorted.
        sharing: those from which a share of a node is worked out: the roomy ones, those that hand out shares of cards left
            out where others do not.
        shared_only: whether every roomy one hands out shares of its cards under the whole card's name.
        memo: what was worked out from these shapes: by rules, with their parameters, and by :func:`open_shapes`.
    """

    offering: tuple[Shape, ...]
    reachable: tuple[Shape, ...]
    roomy: tuple[Shape, ...]
    taints: tuple[Taint, ...]
    sharing: tuple[Shape, ...]
    shared_only: bool
    memo: dict[Any, Any]


#: Values of ``nvidia.com/gpu.sharing-strategy`` under which ``nvidia.com/gpu`` is a share of a card.
_SHARING: Final = frozenset({"time-slicing", "mps"})
#: Different selections remembered for one snapshot; workloads of one team are much alike.
_REMEMBERED: Final = 2048


def selection(pods: PodSet, facts: Facts) -> Selection:
    """The shapes that concern ``pods``, remembered with the facts: equal pods select equal shapes."""
    found: Selection | None = pods.selection
    if found is not None:
        return found
    wanted = pods.totals.accelerators
    # Without nodes or wanted accelerators there is nothing to select from.
    key = _selection_key(pods, wanted) if facts.shapes and wanted else None
    found = facts.memo.get(key)
    if found is None:
        found = _select(pods, wanted, facts)
        remember(facts.memo, key, found)
    pods.selection = found
    return found


def _selection_key(pods: PodSet, wanted: dict[str, int]) -> Any:  # noqa: ANN401 - any hashable
    selector = pods.spec.get("nodeSelector")
    affinity = pods.spec.get("affinity")
    return (
        *wanted.items(),
        orjson.dumps(selector, option=orjson.OPT_SORT_KEYS) if selector else None,
        orjson.dumps(affinity) if affinity else None,
    )


def _select(pods: PodSet, wanted: dict[str, int], facts: Facts) -> Selection:
    if not wanted:
        return Selection((), (), (), (), (), shared_only=False, memo={})
    offering = tuple(shape for shape in facts.shapes if all(name in shape.devices for name in wanted))
    reachable = tuple(shape for shape in offering if selected(pods, shape))
    roomy = tuple(shape for shape in reachable if all(shape.devices[name] >= count for name, count in wanted.items()))
    taints = tuple(sorted({taint for shape in reachable for taint in shape.taints}))
    whole = tuple(shape for shape in roomy if _SHARING.isdisjoint(shape.labels.get("nvidia.com/gpu.sharing-strategy", ())))
    return Selection(offering, reachable, roomy, taints, whole or roomy, bool(roomy) and not whole, {})


def offering(pods: PodSet, facts: Facts) -> tuple[Shape, ...]:
    """Shapes that offer every accelerator the pods ask for by resource name, in whatever number."""
    return selection(pods, facts).offering


def reachable(pods: PodSet, facts: Facts) -> tuple[Shape, ...]:
    """Shapes among :func:`offering` that the pods' own selectors let them onto."""
    return selection(pods, facts).reachable


def roomy(pods: PodSet, facts: Facts) -> tuple[Shape, ...]:
    """Shapes among :func:`reachable` with as many accelerators as one pod asks for."""
    return selection(pods, facts).roomy


def open_shapes(pods: PodSet, chosen: Selection) -> tuple[Shape, ...]:
    """Shapes among the reachable ones whose lasting taints the pods tolerate, remembered by the tolerations as written."""
    if not chosen.reachable:
        return ()
    key = memo_key(pods.spec.get("tolerations") or ())
    if key is None:
        return tuple(shape for shape in chosen.reachable if tolerated(pods, shape))
    found: tuple[Shape, ...] | None = chosen.memo.get(key)
    if found is None:
        found = tuple(shape for shape in chosen.reachable if tolerated(pods, shape))
        remember(chosen.memo, key, found)
    return found


def remember(memo: dict[Any, Any], key: Any, value: Any) -> None:  # noqa: ANN401 - any hashable, anything
    """Keep ``value`` in a memo, which stays small."""
    if len(memo) >= _REMEMBERED:
        memo.clear()
    memo[key] = value
