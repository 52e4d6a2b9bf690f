"""How much one pod may come to before something would turn it away that lets it in as it is.

What gpugate puts in or raises must never make an object impossible. So before it does, what the pod would come to is held
against everything that bounds it: the nodes that hold it now, the LimitRanges and ResourceQuotas of its namespace, and the
quota of its Kueue queue. Nothing that holds the pod as it is may cease to; what does not hold it anyway is made no worse.

Amounts are bytes, millicores or counts. Where nothing bounds the pods but nodes, nothing is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.records.namespaces import ResourceQuota
from gpugate.policies.cluster.records.pod_groups import KUEUE_COUNT
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import whole_number
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.queueing.flavor_fit import FlavorFit, FlavorOffer, fit_of
from gpugate.policies.queueing.headroom import others_in_queue, others_in_quota
from gpugate.policies.queueing.limit_range import limit_violations
from gpugate.policies.queueing.resource_quota import in_scope, missing_requests, usage_in_flight, usage_of_pod
from gpugate.policies.queueing.workload_demand import (
    PodSetDemand,
    counted_requests,
    is_managed,
    number_of_pods,
    pod_counts,
)
from gpugate.policies.scheduling.node_fit import holds
from gpugate.policies.scheduling.pod_resources import (
    NO_CHANGES,
    Changes,
    ResolvedResources,
    defaults_for,
    filled,
    resolved_resources,
    states_by_container,
)
from gpugate.policies.workloads.requests import PodRequests
from gpugate.policies.workloads.workload import PodSet, Workload

#: What gpugate itself puts in or raises.
ADDED: Final = ("memory", "cpu")
#: The facts that say what bounds a pod, besides nodes.
BOUNDING: Final = frozenset(
    {
        "clusterqueues",
        "cohorts",
        "configurations",
        "limitranges",
        "localqueues",
        "priorityclasses",
        "resourceflavors",
        "resourcequotas",
        "runtimeclasses",
    }
)
_NOTHING: Final[Mapping[str, int]] = {}


class HeadroomBound(NamedTuple):
    """The most that one pod may come to of something, and whose bound that is."""

    most: int
    source: str


class Size(NamedTuple):
    """What one pod comes to.

    Attributes:
        own: its requests and limits, without overhead.
        requests: its requests, with overhead.
        usage: what it counts for, by the names that ResourceQuotas use.
        counted: what Kueue counts for it; nothing where no queue bounds it.
        limit_violations: what of its LimitRanges it does not keep to, in words.
    """

    own: ResolvedResources
    requests: Mapping[str, int]
    usage: Mapping[str, int]
    counted: Mapping[str, int]
    limit_violations: frozenset[str]


class Headroom(NamedTuple):
    """The most that one pod may come to.

    Attributes:
        usage: bounds of ResourceQuotas, by the names that they use.
        counted: bounds of the Kueue queue, by resource.
        limit_violations: what of its LimitRanges the pod does not keep to as it is.
        shapes: nodes that hold the pod as it is.
        entered: ResourceQuotas whose scope the pod enters once it states memory or CPU.
        queue: the ClusterQueue whose quota counts the pod; None where there is none.
    """

    usage: Mapping[str, HeadroomBound]
    counted: Mapping[str, HeadroomBound]
    limit_violations: frozenset[str]
    shapes: Sequence[NodeShape]
    entered: Sequence[ResourceQuota]
    queue: ClusterQueue | None


def is_bounded(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Whether anything but nodes, by what the pods state themselves, bounds what they may come to."""
    return bounding_queue(workload, snapshot) is not None or is_bounded_without_queue(workload, pods, snapshot)


def is_bounded_without_queue(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Whether the pods' namespace or RuntimeClass bounds what they may come to."""
    namespace = workload.namespace
    return namespace in snapshot.limit_ranges or namespace in snapshot.quotas or "runtimeClassName" in pods.spec


def bounding_queue(workload: Workload, snapshot: ClusterSnapshot) -> ClusterQueue | None:
    """The ClusterQueue whose quota counts the pods; None where there is none."""
    found = cluster_queue_of(workload, snapshot)
    return None if found is None or is_managed(workload, snapshot) is False else found


def _size_of(
    workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, queue: ClusterQueue | None, changes: Changes = NO_CHANGES
) -> Size:
    """What one pod of ``pods`` comes to, were its containers to state ``changes``, and what ``queue`` counts of that."""
    namespace = workload.namespace
    own = resolved_resources(pods, snapshot, namespace, with_overhead=False, changes=changes)
    whole = own if states_by_container(pods) else resolved_resources(pods, snapshot, namespace, changes=changes)
    found = frozenset[str]()
    if namespace in snapshot.limit_ranges:
        defaults = defaults_for(snapshot, namespace)
        broken = limit_violations(snapshot.limit_ranges[namespace], filled(pods, defaults, changes), own, defaults)
        found = frozenset(
            f"the {one.bound} of LimitRange {one.source} for {one.resource} of"
            f" {one.container.container.name if one.container else 'the pod'}"
            for one in broken
        )
    usage = usage_of_pod(whole) if namespace in snapshot.quotas else _NOTHING
    counted = counted_requests(workload, pods, snapshot, changes) if queue else _NOTHING
    return Size(own, whole.requests, usage, counted, found)


def headroom_for(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, shapes: Iterable[NodeShape]) -> Headroom:
    """The most that one pod of ``pods`` may come to; ``shapes``: the nodes that it may land on.

    Raises:
        MalformedError: an amount is no quantity.
    """
    queue = bounding_queue(workload, snapshot)
    now = _size_of(workload, pods, snapshot, queue)
    about = [quota for quota in snapshot.quotas.get(workload.namespace, ()) if _may_count(quota, pods, now, snapshot)]
    entered = [quota for quota in about if in_scope(quota, pods, now.own, snapshot) is False]
    usage: dict[str, HeadroomBound] = {}
    for quota in about:
        # What counts nowhere yet is bounded by all that the quota says.
        before = _NOTHING if quota in entered else now.usage
        for name, bound in _bounds_of(quota, workload, pods, snapshot, before):
            usage[name] = min(bound, usage.get(name, bound))
    counted = dict(_bounds_in(queue, workload, pods, snapshot, now.counted)) if queue else {}
    needed = _memory_and_cpu(now.requests)
    held = [shape for shape in shapes if holds(shape, needed)]
    return Headroom(usage, counted, now.limit_violations, held, entered, queue)


def _memory_and_cpu(requests: Mapping[str, int]) -> PodRequests:
    return PodRequests(requests.get("memory", 0), requests.get("cpu", 0), _NOTHING)


def _may_count(quota: ResourceQuota, pods: PodSet, now: Size, snapshot: ClusterSnapshot) -> bool:
    """Whether ``quota`` may count the pods once they state memory or CPU, so that they are not BestEffort."""
    stating = now.own._replace(requests={**now.own.requests, "memory": max(1, now.own.requests.get("memory", 0))})
    return in_scope(quota, pods, stating, snapshot) is not False


def number_together(workload: Workload, pods: PodSet) -> int | None:
    """How many pods there are to be at once; None where the object does not say: a controller's pod, a DaemonSet."""
    if not workload.is_pod():
        return None if pods.count is None else max(1, number_of_pods(workload, pods)[0])
    if workload.controller() is not None:
        return None
    return max(1, whole_number(pods.annotations().get(KUEUE_COUNT)) or 1, number_of_pods(workload, pods)[0])


def _bounds_of(
    quota: ResourceQuota, workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, before: Mapping[str, int]
) -> Iterator[tuple[str, HeadroomBound]]:
    """What ``quota`` bounds for each pod: its share of the hard limit, and for a pod itself what is left of that now."""
    number = number_together(workload, pods)
    if number is None and missing_requests(quota, pods, filled(pods, defaults_for(snapshot, workload.namespace))):
        # As they are, not one of them is let in.
        number = 1
    flying = usage_in_flight(snapshot.in_flight, quota.namespace) if workload.is_pod() and not quota.scopes else _NOTHING
    others = others_in_quota(quota, workload, pods, snapshot)
    for name, hard in quota.hard.items():
        most = others.share(name, hard, before.get(name, 0), number) if number else 0
        if workload.is_pod():
            most = min(most, hard - quota.used.get(name, 0) - flying.get(name, 0))
        amount = show_amount(name, hard)
        all_pods = _pods(number + others.number if number else None)
        yield name, HeadroomBound(max(most, before.get(name, 0)), f"by ResourceQuota {quota.name}, {amount} for {all_pods}")


def _pods(number: int | None) -> str:
    return "all pods together" if number is None else f"{number} pod{'s' if number > 1 else ''}"


def _bounds_in(
    queue: ClusterQueue, workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, before: Mapping[str, int]
) -> Iterator[tuple[str, HeadroomBound]]:
    """What ``queue`` could ever give each pod, in the flavor that holds them as they are and has most."""
    made = [name for one in (snapshot.kueue.transformations if snapshot.kueue else ()) for name in one.outputs]
    amounts = {**dict.fromkeys((*ADDED, *made), 0), **before}
    for name in amounts.keys() - queue.covered:
        yield name, HeadroomBound(amounts[name], f"by ClusterQueue {queue.name}, which covers no {name}")
    count, fewest = pod_counts(workload, pods)
    # Each pod of a Deployment, and each group of a LeaderWorkerSet, is admitted by itself.
    number = number_together(workload, pods) if workload.is_pod() else count
    asked = PodSetDemand(pods, count, fewest, amounts)
    for group in queue.groups if count else ():
        fit = fit_of(workload, asked, queue, group, snapshot)
        if fit is None:
            continue
        offer = _best(fit, number)
        if offer is None:
            # Were the quota raised to what the pods state, they would still not be admitted with more.
            source = f"by ClusterQueue {queue.name}, which could never admit the pods even as they are"
            yield from ((name, HeadroomBound(amount, source)) for name, amount in fit.each.items())
            continue
        others = others_in_queue(workload, pods, snapshot, queue, group, offer.flavor)
        for name, amount in fit.each.items():
            potential = offer.capacities[name].potential
            most = others.share(name, potential, amount, number) if number else 0
            all_pods = _pods(number + others.number if number else None)
            has = f", {show_amount(name, potential)} for {all_pods}"
            yield name, HeadroomBound(max(most, amount), f"by ClusterQueue {queue.name}{has}")


def _best(fit: FlavorFit, number: int | None) -> FlavorOffer | None:
    """The flavor that holds ``number`` pods as they are, and has most memory and CPU; None where none does."""
    holding = [
        offer
        for offer in fit.open
        if all(offer.capacities[name].potential >= amount * (number or 1) for name, amount in fit.each.items())
    ]
    return max(
        holding,
        key=lambda offer: [offer.capacities[name].potential if name in offer.capacities else 0 for name in ADDED],
        default=None,
    )


def first_violation(room: Headroom, workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, changes: Changes) -> str:
    """What stands in the way of ``changes``, with the sums; empty where nothing does.

    Raises:
        MalformedError: an amount is no quantity.
    """
    size = _size_of(workload, pods, snapshot, room.queue, changes)
    for amounts, bounds in ((size.usage, room.usage), (size.counted, room.counted)):
        for name, amount in sorted(amounts.items()):
            bound = bounds.get(name)
            if bound is not None and amount > bound.most:
                most = show_amount(name, bound.most)
                return f"{show_amount(name, amount)} of {name} > {most}, what is set for one pod {bound.source}"
    broken = sorted(size.limit_violations - room.limit_violations)
    if broken:
        return f"against {broken[0]}"
    containers = filled(pods, defaults_for(snapshot, workload.namespace), changes) if room.entered else []
    for quota in room.entered:
        if missing_requests(quota, pods, containers):
            return f"ResourceQuota {quota.name} would count the pod, and not all that it must state for that is stated"
    needed = _memory_and_cpu(size.requests)
    for shape in room.shapes:
        if not holds(shape, needed):
            return f"more than a node {shape.title} has"
    return ""
