"""Namespaces, LimitRanges and ResourceQuotas."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import Expression, amounts, frozen, labels_of, name_of, namespace_in, shared_text
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, string
from gpugate.policies.kube.names import NAMESPACE_NAME

_NO_TEXTS: Final[Mapping[str, str]] = frozen({})
#: Maximum length in characters and number of kept annotations of a namespace.
_LONGEST: Final = 128
_MOST: Final = 64


class Namespace(NamedTuple):
    """A namespace with its labels and short annotations."""

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = _NO_TEXTS


class LimitRangeItem(NamedTuple):
    """One item of a LimitRange; amounts in bytes, millicores or counts by resource.

    Attributes:
        type: ``Container``, ``Pod`` or ``PersistentVolumeClaim``.
        default: the limit that a container without one gets.
        default_request: the request that a container without one gets.
        ratios: ``maxLimitRequestRatio``, as text, since it may be fractional.
    """

    type: str
    max: Mapping[str, int]
    min: Mapping[str, int]
    default: Mapping[str, int]
    default_request: Mapping[str, int]
    ratios: Mapping[str, str]


class LimitRange(NamedTuple):
    """A LimitRange: defaults and bounds of each pod in a namespace."""

    namespace: str
    name: str
    limits: tuple[LimitRangeItem, ...]


class ResourceQuota(NamedTuple):
    """A ResourceQuota: bounds on all objects in a namespace, or on those in its scopes.

    Attributes:
        hard: hard limits by name as written there (``requests.memory``, ``pods``, ``count/jobs.batch``).
        used: current usage by the same names.
        scopes: expressions that a pod must all meet to count (``spec.scopes`` are ``Exists``).
    """

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    scopes: tuple[Expression, ...]


def namespace_of(obj: Object) -> Namespace:
    """Return the record of a Namespace."""
    metadata = mapping(obj, "metadata", ())
    name = name_of(metadata)
    labels = frozen({NAMESPACE_NAME: name, **labels_of(metadata)})
    return Namespace(name, labels, _annotations_of(metadata))


def _annotations_of(metadata: Object) -> Mapping[str, str]:
    """Return the short annotations without JSON, gpugate's own first if there are too many."""
    stated = mapping(metadata, "annotations", ("metadata",))
    short = [key for key, value in stated.items() if type(value) is str and 0 < len(value) <= _LONGEST and value[0] not in "{["]
    short.sort(key=lambda key: (not key.startswith("gpugate.io/"), key))
    return frozen({key: shared_text(stated[key]) for key in short[:_MOST]}) if short else _NO_TEXTS


def limit_range_of(obj: Object) -> LimitRange:
    """Return the record of a LimitRange."""
    metadata = mapping(obj, "metadata", ())
    limits = tuple(
        LimitRangeItem(
            str(item.get("type") or ""),
            amounts(item, "max"),
            amounts(item, "min"),
            amounts(item, "default"),
            amounts(item, "defaultRequest"),
            frozen({name: str(value) for name, value in mapping(item, "maxLimitRequestRatio", ()).items()}),
        )
        for item in mappings(mapping(obj, "spec", ()), "limits", ("spec",))
    )
    return LimitRange(namespace_in(metadata), name_of(metadata), limits)


def resource_quota_of(obj: Object) -> ResourceQuota:
    """Return the record of a ResourceQuota.

    The API server enforces ``status.hard``, which its controller takes from ``spec.hard`` a moment after that changes: the
    larger of the two counts, and only what both state, so that no object is denied for a bound being removed.
    """
    metadata, spec, status = mapping(obj, "metadata", ()), mapping(obj, "spec", ()), mapping(obj, "status", ())
    scopes = [Expression(str(name), "Exists", frozenset()) for name in sequence(spec, "scopes", ("spec",))]
    path = ("spec", "scopeSelector")
    for scope in mappings(mapping(spec, "scopeSelector", ("spec",)), "matchExpressions", path):
        name, values = string(scope, "scopeName", path) or "", frozenset(map(str, sequence(scope, "values", ())))
        scopes.append(Expression(name, str(scope.get("operator")), values))
    hard, enforced = amounts(spec, "hard"), amounts(status, "hard")
    if hard and enforced:
        hard = frozen({name: max(amount, enforced[name]) for name, amount in hard.items() if name in enforced})
    return ResourceQuota(namespace_in(metadata), name_of(metadata), hard or enforced, amounts(status, "used"), tuple(scopes))
