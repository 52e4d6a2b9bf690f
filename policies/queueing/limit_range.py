"""Find the bounds of LimitRanges that a pod violates (``k8s.io/kubernetes`` 1.36.3, ``plugin/pkg/admission/limitranger``)."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from gpugate.policies.cluster.records.namespaces import LimitRange, LimitRangeItem
from gpugate.policies.kube.quantity import QuantityError, exact
from gpugate.policies.scheduling.pod_resources import Defaults, ResolvedContainer, ResolvedResources


class LimitViolation(NamedTuple):
    """A bound that a container or pod violates.

    Attributes:
        bound: ``max``, ``min``, ``ratio``, or ``default`` (a request above the LimitRange's default limit).
        container: the container; None for the pod as a whole.
        kind: ``requests`` or ``limits``: the one that is out of bounds or missing.
        found: its amount; None if it is missing.
        allowed: the bound; for a ratio the other amount of the two.
        ratio: the maximum ratio, as text; empty for another bound.
        source: the name of the LimitRange.
    """

    bound: Literal["max", "min", "ratio", "default"]
    container: ResolvedContainer | None
    kind: str
    resource: str
    found: int | None
    allowed: int
    ratio: str
    source: str


def limit_violations(
    ranges: Sequence[LimitRange], containers: Sequence[ResolvedContainer], pod: ResolvedResources, defaults: Defaults
) -> Iterator[LimitViolation]:
    """Yield the bounds of ``ranges`` that a pod or its containers violate.

    Args:
        ranges: the LimitRanges of the namespace.
        containers: the containers, with all defaults.
        pod: requests and limits of the pod, without overhead.
        defaults: the defaults of the LimitRanges; resources with uncertain defaults are skipped.
    """
    for limit_range in ranges:
        for item in limit_range.limits:
            if item.type == "Container":
                for container in containers:
                    yield from _of_item(limit_range.name, item, container, container, _unsure(container, defaults))
            elif item.type == "Pod":
                yield from _of_item(limit_range.name, item, None, pod, defaults.unsure)
    for container in containers if ranges else ():
        yield from _of_default(ranges[0].name, container, defaults)


def _unsure(container: ResolvedContainer, defaults: Defaults) -> frozenset[str]:
    limits, requests = container.stated
    return frozenset(name for name in defaults.unsure if name not in limits or name not in requests)


def _of_item(
    source: str,
    item: LimitRangeItem,
    container: ResolvedContainer | None,
    resources: ResolvedContainer | ResolvedResources,
    unsure: frozenset[str],
) -> Iterator[LimitViolation]:
    requests, limits = resources.requests, resources.limits
    for name in sorted(item.min.keys() - unsure):
        minimum = item.min[name]
        if name not in requests or requests[name] < minimum:
            yield LimitViolation("min", container, "requests", name, requests.get(name), minimum, "", source)
        elif name in limits and limits[name] < minimum:
            yield LimitViolation("min", container, "limits", name, limits[name], minimum, "", source)
    for name in sorted(item.max.keys() - unsure):
        maximum = item.max[name]
        if name not in limits or limits[name] > maximum:
            yield LimitViolation("max", container, "limits", name, limits.get(name), maximum, "", source)
        elif requests.get(name, 0) > maximum:
            yield LimitViolation("max", container, "requests", name, requests[name], maximum, "", source)
    for name in sorted(item.ratios.keys() - unsure):
        yield from _of_ratio(source, item.ratios[name], container, name, requests.get(name, 0), limits.get(name, 0))


def _of_ratio(
    source: str, ratio: str, container: ResolvedContainer | None, name: str, request: int, limit: int
) -> Iterator[LimitViolation]:
    try:
        allowed = exact(ratio)
    except QuantityError:
        return
    if not request:
        yield LimitViolation("ratio", container, "requests", name, None, limit, ratio, source)
    elif not limit:
        yield LimitViolation("ratio", container, "limits", name, None, request, ratio, source)
    elif Fraction(limit, request) > allowed:
        yield LimitViolation("ratio", container, "limits", name, limit, request, ratio, source)


def _of_default(source: str, container: ResolvedContainer, defaults: Defaults) -> Iterator[LimitViolation]:
    """Yield requests above the default limit of the LimitRange: the API rejects a request above its limit."""
    limits, requests = container.stated
    for name, request in sorted(requests.items()):
        default = defaults.limits.get(name)
        if name not in limits and name not in defaults.unsure and default is not None and request > default:
            yield LimitViolation("default", container, "requests", name, request, default, "", source)
