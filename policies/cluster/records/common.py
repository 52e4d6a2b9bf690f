"""Readers for all kinds: names, labels, amounts, selectors, tolerations."""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from gpugate.policies.kube.fields import Object, Path, mapping, mappings, sequence, string
from gpugate.policies.kube.memo import cached
from gpugate.policies.kube.quantity import NO_AMOUNTS, QuantityError, unit_of

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def frozen(items: Mapping[_Key, _Value]) -> Mapping[_Key, _Value]:
    """Return a read-only copy of ``items``."""
    return MappingProxyType(dict(items))


@cached(1 << 16)
def shared_text(text: str) -> str:
    """Return ``text``, or an equal string seen before: thousands of objects share names of nodes and values of labels."""
    return text


def change_count(counts: dict[Any, int], key: Any, change: int) -> None:  # noqa: ANN401 - any hashable
    """Add ``change`` to the count of ``key``; a count of zero is removed."""
    total = counts.get(key, 0) + change
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


#: Node labels for the capacity type by platform, and their values for spot.
CAPACITY: Final = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}


def name_of(metadata: Object) -> str:
    """Return the name in ``metadata``; empty if there is none."""
    return string(metadata, "name", ("metadata",)) or ""


def namespace_in(metadata: Object) -> str:
    """Return the namespace in ``metadata``; ``default`` if there is none."""
    return string(metadata, "namespace", ("metadata",)) or "default"


def labels_of(metadata: Object) -> Mapping[str, str]:
    """Return the labels in ``metadata``, values as text."""
    return MappingProxyType({key: shared_text(str(value)) for key, value in mapping(metadata, "labels", ("metadata",)).items()})


def texts(parent: Object, key: str) -> Mapping[str, str]:
    """Return the map of strings at ``key``, values as text."""
    return frozen({name: str(value) for name, value in mapping(parent, key, ()).items()})


def amount_of(quantity: object, resource: str) -> int | None:
    """Return ``quantity`` of ``resource`` in bytes, millicores or as a count; None if it is absent or invalid."""
    if quantity is None:
        return None
    try:
        return unit_of(resource)(quantity)
    except QuantityError:
        return None


def amounts(parent: Object, key: str) -> Mapping[str, int]:
    """Return the amounts at ``key`` by resource name; invalid ones are left out."""
    stated = mapping(parent, key, ())
    if not stated:
        return NO_AMOUNTS
    return frozen({name: amount for name, quantity in stated.items() if (amount := amount_of(quantity, name)) is not None})


class Taint(NamedTuple):
    """A node's taint."""

    key: str
    value: str
    effect: str


def taints_in(parent: Object, key: str, path: Path = ()) -> tuple[Taint, ...]:
    """Return the taints in the list at ``key`` of ``parent`` (which lies at ``path``), sorted."""
    taints = (
        Taint(str(taint.get("key") or ""), str(taint.get("value") or ""), str(taint.get("effect") or ""))
        for taint in mappings(parent, key, path)
    )
    return tuple(sorted(taints))


class Toleration(NamedTuple):
    """A toleration; an empty ``key`` or ``effect`` covers all, an ``operator`` is ``Equal`` or ``Exists``."""

    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: Taint) -> bool:
        """Return whether the toleration covers ``taint`` (``k8s.io/api/core/v1`` ``Toleration.ToleratesTaint``, 1.36)."""
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        if self.key != taint.key:
            return False
        # An unknown operator covers nothing.
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


def toleration_of(written: Object) -> Toleration:
    """Return a toleration as ``written`` in a pod spec."""
    return Toleration(
        str(written.get("key") or ""),
        str(written.get("operator") or "Equal"),
        str(written.get("value") or ""),
        str(written.get("effect") or ""),
    )


def tolerations_in(parent: Object, key: str) -> tuple[Toleration, ...]:
    """Return the tolerations in the list at ``key``."""
    return tuple(map(toleration_of, mappings(parent, key, ())))


class Expression(NamedTuple):
    """One expression of a label selector."""

    key: str
    operator: str
    values: frozenset[str]


class Selector(NamedTuple):
    """A label selector: every expression must be met; none select everything."""

    expressions: tuple[Expression, ...]

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Return whether ``labels`` are selected (``k8s.io/apimachinery/pkg/labels``, 1.36)."""
        return all(meets(*expression, labels) for expression in self.expressions)


def meets(key: str, operator: str, values: Collection[str], labels: Mapping[str, Any]) -> bool:
    """Return whether ``labels`` meet one expression of a label selector; a label that is not a string has none of ``values``."""
    if operator in {"In", "NotIn"}:
        value = labels.get(key)
        return (type(value) is str and value in values) == (operator == "In")
    return (key in labels) == (operator == "Exists")


def selector_in(parent: Object, key: str) -> Selector | None:
    """Return the label selector at ``key``; None if there is none."""
    if parent.get(key) is None:
        return None
    selector = mapping(parent, key, ())
    equal = [Expression(name, "In", frozenset({str(value)})) for name, value in mapping(selector, "matchLabels", ()).items()]
    more = [
        Expression(
            str(expression.get("key")), str(expression.get("operator")), frozenset(map(str, sequence(expression, "values", ())))
        )
        for expression in mappings(selector, "matchExpressions", ())
    ]
    return Selector((*sorted(equal), *more))
