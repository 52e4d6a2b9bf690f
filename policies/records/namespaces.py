"""Namespaces and what is bound to them: limits for each pod, and quota for all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpugate.policies.fields import Object, mapping, mappings, sequence, string
from gpugate.policies.records.common import Expression, amounts, frozen, labels_of, name_of, namespace_in


class Namespace(NamedTuple):
    """A namespace and its labels."""

    name: str
    labels: Mapping[str, str]


class Limit(NamedTuple):
    """One item of a LimitRange; amounts in bytes, millicores or counts by resource.

    Attributes:
        type: ``Container``, ``Pod`` or ``PersistentVolumeClaim``.
        most: ``max``.
        least: ``min``.
        default: the limit that a container without one gets.
        default_request: the request that a container without one gets.
        ratios: ``maxLimitRequestRatio``, as text, since it may be fractional.
    """

    type: str
    most: Mapping[str, int]
    least: Mapping[str, int]
    default: Mapping[str, int]
    default_request: Mapping[str, int]
    ratios: Mapping[str, str]


class LimitRange(NamedTuple):
    """A LimitRange: what the LimitRanger plugin defaults and enforces for each pod in a namespace."""

    namespace: str
    name: str
    limits: tuple[Limit, ...]


class ResourceQuota(NamedTuple):
    """A ResourceQuota: what all objects in a namespace, or those in its scopes, may come to.

    Attributes:
        namespace: its namespace.
        name: its name.
        hard: the most by resource as written there (``requests.memory``, ``pods``, ``count/jobs.batch``).
        used: what is used now, by the same names.
        scopes: expressions that a pod must all meet to count (``spec.scopes`` are ``Exists``).
    """

    namespace: str
    name: str
    hard: Mapping[str, int]
    used: Mapping[str, int]
    scopes: tuple[Expression, ...]


def namespace_of(obj: Object) -> Namespace:
    """The record of a Namespace."""
    metadata = mapping(obj, "metadata", ())
    name = name_of(metadata)
    return Namespace(name, frozen({"kubernetes.io/metadata.name": name, **labels_of(metadata)}))


def limit_range_of(obj: Object) -> LimitRange:
    """The record of a LimitRange."""
    metadata = mapping(obj, "metadata", ())
    limits = tuple(
        Limit(
            str(one.get("type") or ""),
            amounts(one, "max"),
            amounts(one, "min"),
            amounts(one, "default"),
            amounts(one, "defaultRequest"),
            frozen({name: str(value) for name, value in mapping(one, "maxLimitRequestRatio", ()).items()}),
        )
        for one in mappings(mapping(obj, "spec", ()), "limits", ("spec",))
    )
    return LimitRange(namespace_in(metadata), name_of(metadata), limits)


def resource_quota_of(obj: Object) -> ResourceQuota:
    """The record of a ResourceQuota.

    The apiserver enforces ``status.hard``, which its controller takes from ``spec.hard`` a moment after that changes: the
    larger of the two counts, and only what both state, so that nothing is refused for a bound that is on its way out.
    """
    metadata, spec, status = mapping(obj, "metadata", ()), mapping(obj, "spec", ()), mapping(obj, "status", ())
    scopes = [Expression(str(name), "Exists", frozenset()) for name in sequence(spec, "scopes", ("spec",))]
    for one in mappings(mapping(spec, "scopeSelector", ("spec",)), "matchExpressions", ("spec", "scopeSelector")):
        name = string(one, "scopeName", ("spec", "scopeSelector")) or ""
        scopes.append(Expression(name, str(one.get("operator")), frozenset(map(str, sequence(one, "values", ())))))
    hard, enforced = amounts(spec, "hard"), amounts(status, "hard")
    if hard and enforced:
        hard = frozen({name: max(amount, enforced[name]) for name, amount in hard.items() if name in enforced})
    return ResourceQuota(namespace_in(metadata), name_of(metadata), hard or enforced, amounts(status, "used"), tuple(scopes))
