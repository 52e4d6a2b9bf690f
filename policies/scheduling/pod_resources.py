"""Resolve requests and limits of one pod with the defaults of the API, of LimitRanges and of the RuntimeClass.

Amounts are bytes, millicores or counts by resource. Formulas, all of Kubernetes 1.36: a missing request is the limit
(``pkg/apis/core/v1/defaults.go`` ``SetDefaults_Pod``); the LimitRanger then adds missing requests and limits
(``plugin/pkg/admission/limitranger``); the RuntimeClass plugin adds the overhead; the sums are those of
``k8s.io/component-helpers/resource`` ``PodRequests`` and ``PodLimits``.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Final, NamedTuple, TypeAlias, TypeVar

from gpugate.policies.cluster.records.namespaces import LimitRange, LimitRangeItem
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.memo import keep, recall
from gpugate.policies.kube.quantity import NO_AMOUNTS, QuantityError, exact
from gpugate.policies.scheduling.node_selection import runtime_class
from gpugate.policies.workloads.container import EPHEMERAL, Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import Part, add_up, pod_level, pod_level_requests, stated_overhead

_Number = TypeVar("_Number", int, Fraction)
#: Fields of a pod spec that change the sum of its containers.
_BESIDE: Final = frozenset({"overhead", "resources", "runtimeClassName"})

#: Limits and requests that replace those of containers, by index of the container.
Changes: TypeAlias = Mapping[int, tuple[Mapping[str, int], Mapping[str, int]]]
NO_CHANGES: Final[Changes] = {}


class Defaults(NamedTuple):
    """Default limits and requests of the LimitRanges of a namespace.

    Attributes:
        unsure: resources with different defaults in several LimitRanges; the smallest counts, the plugin takes any.
    """

    limits: Mapping[str, int]
    requests: Mapping[str, int]
    unsure: frozenset[str]


NO_DEFAULTS: Final = Defaults(NO_AMOUNTS, NO_AMOUNTS, frozenset())


class ContainerBounds(NamedTuple):
    """Bounds of LimitRanges on each container of a namespace, by resource.

    Attributes:
        min: the highest ``min``.
        max: the lowest ``max``.
        ratio: the lowest ``maxLimitRequestRatio``.
        pod_max: the lowest ``max`` of a whole pod.
    """

    min: Mapping[str, int]
    max: Mapping[str, int]
    ratio: Mapping[str, Fraction]
    pod_max: Mapping[str, int]


NO_BOUNDS: Final = ContainerBounds(NO_AMOUNTS, NO_AMOUNTS, {}, NO_AMOUNTS)


class ResolvedContainer(NamedTuple):
    """A container with its requests and limits after defaulting; ``stated``: its limits and requests before."""

    container: Container
    requests: Mapping[str, int]
    limits: Mapping[str, int]
    stated: tuple[Mapping[str, int], Mapping[str, int]]


class ResolvedResources(NamedTuple):
    """Requests and limits of one pod by resource."""

    requests: Mapping[str, int]
    limits: Mapping[str, int]


def _items(ranges: Iterable[LimitRange], kind: str = "Container") -> list[LimitRangeItem]:
    return [item for limit_range in ranges for item in limit_range.limits if item.type == kind]


def _defaults_in(item: LimitRangeItem) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the default limits and requests of ``item`` after the API's own defaulting (``SetDefaults_LimitRangeItem``)."""
    limits = {**item.max, **item.default}
    return limits, {**item.min, **limits, **item.default_request}


def _lowest(choices: Iterable[Mapping[str, _Number]]) -> dict[str, _Number]:
    lowest: dict[str, _Number] = {}
    for choice in choices:
        for name, amount in choice.items():
            lowest[name] = min(amount, lowest.get(name, amount))
    return lowest


def defaults_for(snapshot: ClusterSnapshot, namespace: str) -> Defaults:
    """Return the defaults of the LimitRanges of ``namespace``; empty if it has none."""
    ranges = snapshot.limit_ranges.get(namespace)
    if ranges is None:
        return NO_DEFAULTS
    defaults: Defaults | None = recall(snapshot.memo, "defaults", namespace, snapshot.limit_ranges)
    if defaults is None:
        defaults = _defaults_of(ranges)
        keep(snapshot.memo, "defaults", namespace, defaults, snapshot.limit_ranges)
    return defaults


def _defaults_of(ranges: Iterable[LimitRange]) -> Defaults:
    defaults = [_defaults_in(item) for item in _items(ranges)]
    if not defaults:
        return NO_DEFAULTS
    limits, requests = _lowest(limits for limits, _ in defaults), _lowest(requests for _, requests in defaults)
    unsure = frozenset(
        name
        for pair in defaults
        for amounts, lowest in zip(pair, (limits, requests), strict=True)
        for name, amount in amounts.items()
        if amount != lowest[name]
    )
    return Defaults(limits, requests, unsure)


def _ratios_in(item: LimitRangeItem) -> dict[str, Fraction]:
    ratios = {}
    for name, ratio in item.ratios.items():
        with suppress(QuantityError):
            ratios[name] = exact(ratio)
    return ratios


def limit_range_bounds(snapshot: ClusterSnapshot, namespace: str) -> ContainerBounds:
    """Return the bounds of the LimitRanges of ``namespace`` for each container and pod; empty if it has none."""
    ranges = snapshot.limit_ranges.get(namespace, ())
    if not ranges:
        return NO_BOUNDS
    items = _items(ranges)
    minimum: dict[str, int] = {}
    for item in items:
        for name, amount in item.min.items():
            minimum[name] = max(amount, minimum.get(name, amount))
    return ContainerBounds(
        minimum,
        _lowest(item.max for item in items),
        _lowest(map(_ratios_in, items)),
        _lowest(item.max for item in _items(ranges, "Pod")),
    )


def limit_within(bounds: ContainerBounds, pods: PodSet, container: Container, resource: str, amount: int) -> int:
    """Return ``amount`` as a limit of ``resource`` in ``container``, clamped to ``bounds``, but at least its request.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if bounds is NO_BOUNDS:
        return amount
    request = container.every[1].get(resource)
    if resource in bounds.pod_max:
        others = add_up((other.container.role, other.limits) for other in filled(pods) if other.container is not container)
        amount = min(amount, max(1, bounds.pod_max[resource] - others.get(resource, 0)))
    if request and resource in bounds.ratio:
        amount = min(amount, int(request * bounds.ratio[resource]))
    return max(min(amount, bounds.max.get(resource, amount)), bounds.min.get(resource, 0), request or 0)


def filled(pods: PodSet, defaults: Defaults = NO_DEFAULTS, changes: Changes = NO_CHANGES) -> list[ResolvedContainer]:
    """Return the containers of a pod after defaulting; ``changes`` replace limits and requests before.

    A stated limit goes before a default request.

    Raises:
        MalformedError: an amount is no quantity.
    """
    containers = []
    for at, container in enumerate(pods.containers):
        if container.role is not EPHEMERAL:
            limits, requests = container.every
            if at in changes:
                limits, requests = {**limits, **changes[at][0]}, {**requests, **changes[at][1]}
            all_requests = {**defaults.requests, **limits, **requests}
            containers.append(ResolvedContainer(container, all_requests, {**defaults.limits, **limits}, (limits, requests)))
    return containers


def _requested_parts(containers: Iterable[ResolvedContainer]) -> list[Part]:
    return [(container.container.role, container.requests) for container in containers]


def overhead_of(pods: PodSet, snapshot: ClusterSnapshot) -> Mapping[str, int]:
    """Return the overhead of each pod: ``spec.overhead``, or that of its RuntimeClass if the snapshot has it.

    Raises:
        MalformedError: an amount is no quantity.
    """
    stated = stated_overhead(pods)
    if stated or "runtimeClassName" not in pods.spec:
        return stated
    runtime = runtime_class(pods, snapshot)
    return runtime.overhead if runtime else NO_AMOUNTS


def resolved_resources(
    pods: PodSet, snapshot: ClusterSnapshot, namespace: str, *, with_overhead: bool = True, changes: Changes = NO_CHANGES
) -> ResolvedResources:
    """Return the requests and limits of one pod of ``pods`` created in ``namespace``; ``changes`` as for :func:`filled`.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if changes or not states_by_container(pods):
        return _resolve(pods, snapshot, namespace, with_overhead=with_overhead, changes=changes)
    # Pods whose containers state the same have the identical totals, and nothing else changes the sum.
    key = (namespace if namespace in snapshot.limit_ranges else "", pods.totals)
    resolved: ResolvedResources | None = recall(snapshot.memo, "effective", key, snapshot.limit_ranges)
    if resolved is None:
        resolved = _resolve(pods, snapshot, namespace, with_overhead=False, changes=NO_CHANGES)
        keep(snapshot.memo, "effective", key, resolved, snapshot.limit_ranges)
    return resolved


def states_by_container(pods: PodSet) -> bool:
    """Return whether the pod has neither pod-level resources nor overhead nor a RuntimeClass."""
    return _BESIDE.isdisjoint(pods.spec)


def _resolve(
    pods: PodSet, snapshot: ClusterSnapshot, namespace: str, *, with_overhead: bool, changes: Changes
) -> ResolvedResources:
    containers = filled(pods, defaults_for(snapshot, namespace), changes)
    overhead = overhead_of(pods, snapshot) if with_overhead else NO_AMOUNTS
    # The API fills in pod-level requests before the LimitRanger sees the pod.
    stated = pod_level_requests(pods, _requested_parts(filled(pods, changes=changes))) if "resources" in pods.spec else NO_AMOUNTS
    limits = add_up([(container.container.role, container.limits) for container in containers], pod_level(pods, "limits"))
    for name, amount in overhead.items():
        if limits.get(name):
            limits[name] += amount
    return ResolvedResources(add_up(_requested_parts(containers), stated, overhead), limits)
