"""Which node shapes a pod may land on, and what share of such a node belongs to one accelerator.

Selection follows the scheduler's NodeAffinity and TaintToleration plugins. Where a shape holds several values of a
label the answer is yes if any node could match: a shape is only ruled out when none of its nodes can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpugate.policies.facts import Facts, Shape, Taint
from gpugate.policies.fields import Object, mapping, mappings, sequence
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
    return all(
        any(tolerates(one, taint) for one in tolerations)
        for taint in shape.taints
        if taint.effect in {"NoSchedule", "NoExecute"} and not taint.key.startswith(_PASSING)
    )


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


def offering(pods: PodSet, facts: Facts) -> list[Shape]:
    """Shapes that offer every accelerator the pods ask for by resource name, in whatever number."""
    wanted = pods.accelerators()
    return [shape for shape in facts.shapes if all(name in shape.devices for name in wanted)] if wanted else []


def reachable(pods: PodSet, facts: Facts) -> list[Shape]:
    """Shapes among :func:`offering` that the pods' own selectors let them onto."""
    return [shape for shape in offering(pods, facts) if selected(pods, shape)]


def roomy(pods: PodSet, facts: Facts) -> list[Shape]:
    """Shapes among :func:`reachable` with as many accelerators as one pod asks for."""
    wanted = pods.accelerators()
    return [shape for shape in reachable(pods, facts) if all(shape.devices[name] >= count for name, count in wanted.items())]


class Share(NamedTuple):
    """What of a node belongs to one accelerator.

    Attributes:
        memory: bytes.
        cpu: millicores.
        source: where the figures come from, for people.
    """

    memory: int
    cpu: int
    source: str


def share_of(shapes: Iterable[Shape], reserve: float) -> Share | None:
    """The smallest share of one accelerator over ``shapes``, ``reserve`` (0 to 1) of each node kept back; None without shapes.

    The smallest, so that a pod fits whichever of the shapes it lands on. Memory is rounded down to whole GiB and CPU to
    whole cores, where at least one is left.
    """
    best: Share | None = None
    for shape in shapes:
        count = shape.accelerators
        memory = _round_down(int(shape.least_memory * (1 - reserve)) // count, 1 << 30)
        cpu = _round_down(int(shape.cpu * (1 - reserve)) // count, 1000)
        if best is None or memory < best.memory:
            best = Share(memory, min(cpu, best.cpu) if best else cpu, f"{shape.title}: node share of 1 of {count}")
        elif cpu < best.cpu:
            best = best._replace(cpu=cpu)
    return best


def _round_down(amount: int, grain: int) -> int:
    return amount // grain * grain if amount >= grain else amount
