"""Resolve requests and limits of one pod with the defaults of the API, of LimitRanges and of the RuntimeClass.

Amounts are bytes, millicores or counts by resource. Formulas, all of Kubernetes 1.36: a missing request is the limit
(``pkg/apis/core/v1/defaults.go`` ``SetDefaults_Pod``); the LimitRanger then puts in what is still missing
(``plugin/pkg/admission/limitranger``); the RuntimeClass plugin adds the overhead; the sums are those of
``k8s.io/component-helpers/resource`` ``PodRequests`` and ``PodLimits``.
"""

from collections.abc import Iterable, Mapping, Sequence
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
        limits: limits by resource.
        requests: requests by resource.
        unsure: resources that several LimitRanges default differently; the smallest counts, the plugin takes any.
    """

    limits: Mapping[str, int]
    requests: Mapping[str, int]
    unsure: frozenset[str]


NO_DEFAULTS: Final = Defaults(NO_AMOUNTS, NO_AMOUNTS, frozenset())


class ContainerBounds(NamedTuple):
    """Bounds of LimitRanges on each container of a namespace.

    Attributes:
        least: the highest ``min`` by resource.
        most: the lowest ``max`` by resource.
        ratio: the lowest ``maxLimitRequestRatio`` by resource.
        most_in_pod: the lowest ``max`` of a whole pod by resource.
    """

    least: Mapping[str, int]
    most: Mapping[str, int]
    ratio: Mapping[str, Fraction]
    most_in_pod: Mapping[str, int]


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


def _items(ranges: Iterable[LimitRange]) -> list[LimitRangeItem]:
    return [item for limit_range in ranges for item in limit_range.limits if item.type == "Container"]


def _defaults_in(item: LimitRangeItem) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the default limits and requests of ``item`` after the API's own defaulting (``SetDefaults_LimitRangeItem``)."""
    limits = {**item.max, **item.default}
    return limits, {**item.min, **limits, **item.default_request}


def _least_of(choices: Sequence[Mapping[str, int]]) -> tuple[dict[str, int], set[str]]:
    least: dict[str, int] = {}
    unsure: set[str] = set()
    for choice in choices:
        for name, amount in choice.items():
            if least.setdefault(name, amount) != amount:
                unsure.add(name)
                least[name] = min(least[name], amount)
    return least, unsure


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
    items = _items(ranges)
    if not items:
        return NO_DEFAULTS
    made = [_defaults_in(item) for item in items]
    limits, unsure_limits = _least_of([one for one, _ in made])
    requests, unsure_requests = _least_of([one for _, one in made])
    return Defaults(limits, requests, frozenset(unsure_limits | unsure_requests))


def _lowest(choices: Iterable[Mapping[str, _Number]]) -> dict[str, _Number]:
    lowest: dict[str, _Number] = {}
    for choice in choices:
        for name, amount in choice.items():
            lowest[name] = min(amount, lowest.get(name, amount))
    return lowest


def _ratios_in(item: LimitRangeItem) -> dict[str, Fraction]:
    ratios = {}
    for name, written in item.ratios.items():
        try:
            ratios[name] = exact(written)
        except QuantityError:
            continue
    return ratios


def limit_range_bounds(snapshot: ClusterSnapshot, namespace: str) -> ContainerBounds:
    """Return the bounds that the LimitRanges of ``namespace`` set for each container and pod; empty if it has none."""
    ranges = snapshot.limit_ranges.get(namespace, ())
    if not ranges:
        return NO_BOUNDS
    items = _items(ranges)
    least: dict[str, int] = {}
    for item in items:
        for name, amount in item.min.items():
            least[name] = max(amount, least.get(name, amount))
    whole = _lowest(item.max for limit_range in ranges for item in limit_range.limits if item.type == "Pod")
    return ContainerBounds(least, _lowest(item.max for item in items), _lowest(map(_ratios_in, items)), whole)


def limit_within(bounds: ContainerBounds, pods: PodSet, container: Container, resource: str, amount: int) -> int:
    """Return ``amount`` as a limit of ``resource`` in ``container``, clamped to ``bounds``, but at least its request.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if bounds is NO_BOUNDS:
        return amount
    request = container.every[1].get(resource)
    if resource in bounds.most_in_pod:
        others = add_up((other.container.role, other.limits) for other in filled(pods) if other.container is not container)
        amount = min(amount, max(1, bounds.most_in_pod[resource] - others.get(resource, 0)))
    if request and resource in bounds.ratio:
        amount = min(amount, int(request * bounds.ratio[resource]))
    amount = max(min(amount, bounds.most.get(resource, amount)), bounds.least.get(resource, 0))
    return max(amount, request or 0)


def filled(pods: PodSet, defaults: Defaults = NO_DEFAULTS, changes: Changes = NO_CHANGES) -> list[ResolvedContainer]:
    """Return the containers of a pod after defaulting: a stated limit goes before a default request.

    Args:
        pods: the pods.
        defaults: defaults of LimitRanges.
        changes: limits and requests that replace those of containers.

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


def requested_parts(containers: Iterable[ResolvedContainer]) -> list[Part]:
    """Return role and requests of each container."""
    return [(container.container.role, container.requests) for container in containers]


def overhead_of(pods: PodSet, snapshot: ClusterSnapshot) -> Mapping[str, int]:
    """Return what the runtime adds to each pod: ``spec.overhead``, or that of its RuntimeClass if the snapshot has it.

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
    stated = pod_level_requests(pods, requested_parts(filled(pods, changes=changes))) if "resources" in pods.spec else NO_AMOUNTS
    limits = add_up([(container.container.role, container.limits) for container in containers], pod_level(pods, "limits"))
    for name, amount in overhead.items():
        if limits.get(name):
            limits[name] += amount
    return ResolvedResources(add_up(requested_parts(containers), stated, overhead), limits)
