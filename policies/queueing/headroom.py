"""Headroom: how far gpugate may raise the requests of a pod before something rejects it that accepts it as it is.

What gpugate adds must never make an object impossible. So the raised pod is compared with everything that bounds it: the nodes
that hold it now, the LimitRanges and ResourceQuotas of its namespace, and the quota of its Kueue queue. Where the pod is over a
bound already, it may stay there and go no further.

Amounts are bytes, millicores or counts. Pods that nothing but nodes bounds need none of this: see :func:`is_bounded`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import NO_AMOUNTS
from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.records.namespaces import ResourceQuota
from gpugate.policies.cluster.records.pod_groups import KUEUE_COUNT
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.queueing.budget import Budget, exceeds_ever, pod_fingerprint
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.queueing.flavor_fit import FlavorFit, FlavorQuota, fit_of
from gpugate.policies.queueing.limit_range import limit_violations
from gpugate.policies.queueing.resource_quota import NamespaceQuota, in_scope, missing_requests, quotas_of, usage_of_pod
from gpugate.policies.queueing.workload_demand import (
    PodSetDemand,
    counted_requests,
    is_managed,
    number_of_pods,
    pod_counts,
    whole_number,
)
from gpugate.policies.scheduling.pod_resources import (
    NO_CHANGES,
    Changes,
    ResolvedResources,
    defaults_for,
    filled,
    resolved_resources,
    states_by_container,
)
from gpugate.policies.workloads.workload import PodSet, Workload

#: Resources that gpugate adds or raises.
ADDED: Final = ("memory", "cpu")
#: Resource names of the kinds that bound a pod, besides nodes.
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


class HeadroomBound(NamedTuple):
    """The most that one pod may request of a resource, and where that is stated, as text."""

    most: int
    source: str


class Size(NamedTuple):
    """The size of one pod.

    Attributes:
        own: its requests and limits, without overhead.
        requests: its requests, with overhead.
        usage: what it counts for, by the names that ResourceQuotas use.
        counted: what Kueue counts for it; nothing where no queue bounds it.
        limit_violations: what it violates of LimitRanges, as text.
    """

    own: ResolvedResources
    requests: Mapping[str, int]
    usage: Mapping[str, int]
    counted: Mapping[str, int]
    limit_violations: frozenset[str]


class Headroom(NamedTuple):
    """The bounds of one pod.

    Attributes:
        usage: bounds of ResourceQuotas, by the names that they use.
        counted: bounds of the Kueue queue, by resource.
        limit_violations: what the pod violates of LimitRanges as it is.
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


class OtherPodSets(NamedTuple):
    """The other pods of the same workload, which share its budgets.

    Attributes:
        taken: what a budget counts for all of them as they are, by resource.
        number: how many of them request a GPU, and so may be raised, too.
    """

    taken: Mapping[str, int]
    number: int

    def share(self, name: str, total: int, each: int, number: int) -> int:
        """Return what each of ``number`` pods may request of ``name``: it requests ``each`` now, and all pods share ``total``."""
        if not self.number and not self.taken.get(name):
            return total // number
        left = total - each * number - self.taken.get(name, 0)
        return each + max(0, left) // (number + self.number)


def other_pod_sets(budget: Budget, workload: Workload, pods: PodSet) -> OtherPodSets:
    """Sum up what ``budget`` counts for the pod sets of ``workload`` other than ``pods``.

    Raises:
        MalformedError: an amount is no quantity.
    """
    taken: dict[str, int] = {}
    number = 0
    for other in workload.pod_sets if len(workload.pod_sets) > 1 else ():
        count = budget.count(other) if other is not pods else 0
        if not count or budget.applies(other) is False:
            continue
        number += count if other.requests_gpu() else 0
        for name, amount in budget.charge(other).items():
            taken[name] = taken.get(name, 0) + amount * count
    return OtherPodSets(taken, number)


def is_bounded(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Return whether a queue, a quota, a LimitRange or a RuntimeClass bounds the pods, and not nodes alone."""
    namespace = workload.namespace
    return (
        namespace in snapshot.limit_ranges
        or namespace in snapshot.quotas
        or "runtimeClassName" in pods.spec
        or bounding_queue(workload, snapshot) is not None
    )


def bounding_queue(workload: Workload, snapshot: ClusterSnapshot) -> ClusterQueue | None:
    """Return the ClusterQueue whose quota counts the pods; None where there is none."""
    queue = cluster_queue_of(workload, snapshot)
    return None if queue is None or is_managed(workload, snapshot) is False else queue


def headroom_key(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Hashable | None:
    """Return a key that only pods with the same headroom have; None for pods whose headroom is better worked out each time."""
    namespace = workload.namespace
    # Other pod sets take a part of each bound. What is in flight counts against the quotas of pods, and changes all the time.
    in_flight = namespace in snapshot.quotas and workload.is_pod() and snapshot.in_flight.namespace(namespace)
    if len(workload.pod_sets) > 1 or in_flight:
        return None
    fingerprint = pod_fingerprint(workload, pods)
    return fingerprint and (fingerprint, number_together(workload, pods), pod_counts(workload, pods)[0] > 0)


def headroom_facts(workload: Workload, snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Return the records and views that decide the headroom of the workload's pods, nodes aside."""
    queue = bounding_queue(workload, snapshot)
    return (
        queue,
        # What a ClusterQueue without a cohort has depends on no other.
        snapshot.cohort_tree if queue and queue.cohort else None,
        snapshot.flavors if queue else None,
        snapshot.kueue,
        snapshot.runtime_classes,
        snapshot.priorities,
        snapshot.sync_state("priorityclasses"),
        *snapshot.limit_ranges.get(workload.namespace, ()),
        *snapshot.quotas.get(workload.namespace, ()),
    )


def headroom_for(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, shapes: Iterable[NodeShape]) -> Headroom:
    """Work out the bounds of one pod of ``pods``; ``shapes``: the nodes that it may land on.

    Raises:
        MalformedError: an amount is no quantity.
    """
    queue = bounding_queue(workload, snapshot)
    now = _size_of(workload, pods, snapshot, queue)
    usage: dict[str, HeadroomBound] = {}
    entered = []
    for budget in quotas_of(workload, snapshot):
        if not _may_count(budget.quota, pods, now, snapshot):
            continue
        before = now.usage
        if in_scope(budget.quota, pods, now.own, snapshot) is False:
            # The quota counts nothing for the pod yet, so all of its hard limit is there.
            entered.append(budget.quota)
            before = NO_AMOUNTS
        for name, bound in _bounds_of_quota(budget, workload, pods, snapshot, before):
            usage[name] = min(bound, usage.get(name, bound))
    counted = dict(_bounds_of_queue(queue, workload, pods, snapshot, now.counted)) if queue else {}
    holding = [shape for shape in shapes if _holds(shape, now.requests)]
    return Headroom(usage, counted, now.limit_violations, holding, entered, queue)


def _size_of(
    workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, queue: ClusterQueue | None, changes: Changes = NO_CHANGES
) -> Size:
    """Return the size of one pod once its containers state ``changes``, and what ``queue`` counts for it."""
    namespace = workload.namespace
    own = resolved_resources(pods, snapshot, namespace, with_overhead=False, changes=changes)
    whole = own if states_by_container(pods) else resolved_resources(pods, snapshot, namespace, changes=changes)
    violations = frozenset[str]()
    if namespace in snapshot.limit_ranges:
        defaults = defaults_for(snapshot, namespace)
        found = limit_violations(snapshot.limit_ranges[namespace], filled(pods, defaults, changes), own, defaults)
        violations = frozenset(
            f"the {violation.bound} of LimitRange {violation.source} for {violation.resource} of"
            f" {violation.container.container.name if violation.container else 'the pod'}"
            for violation in found
        )
    usage = usage_of_pod(whole) if namespace in snapshot.quotas else NO_AMOUNTS
    counted = counted_requests(workload, pods, snapshot, changes) if queue else NO_AMOUNTS
    return Size(own, whole.requests, usage, counted, violations)


def _holds(shape: NodeShape, requests: Mapping[str, int]) -> bool:
    return requests.get("memory", 0) <= shape.memory and requests.get("cpu", 0) <= shape.cpu


def _may_count(quota: ResourceQuota, pods: PodSet, now: Size, snapshot: ClusterSnapshot) -> bool:
    """Return whether ``quota`` may count the pods once they state memory or CPU, so that they are not BestEffort."""
    stating = now.own._replace(requests={**now.own.requests, "memory": max(1, now.own.requests.get("memory", 0))})
    return in_scope(quota, pods, stating, snapshot) is not False


def number_together(workload: Workload, pods: PodSet) -> int | None:
    """Return how many pods run at once; None where the object does not say: a controller's pod, a DaemonSet."""
    if not workload.is_pod():
        return None if pods.count is None else max(1, number_of_pods(workload, pods)[0])
    if workload.controller() is not None:
        return None
    return max(1, whole_number(pods.annotations().get(KUEUE_COUNT)) or 1, number_of_pods(workload, pods)[0])


def _bounds_of_quota(
    budget: NamespaceQuota, workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, before: Mapping[str, int]
) -> Iterator[tuple[str, HeadroomBound]]:
    """Bound each pod by its share of the hard limit, and a pod on its own by what is left of that now as well."""
    number = number_together(workload, pods)
    if number is None and missing_requests(budget.quota, pods, filled(pods, defaults_for(snapshot, workload.namespace))):
        # The API accepts none of them as they are.
        number = 1
    each = {name: before.get(name, 0) for name in budget.quota.hard}
    return _bounds(budget, workload, pods, each, number, budget.in_flight() if workload.is_pod() else None)


def _bounds_of_queue(
    queue: ClusterQueue, workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, before: Mapping[str, int]
) -> Iterator[tuple[str, HeadroomBound]]:
    """Bound each pod by its share of the flavor that holds the pods as they are and has most memory and CPU."""
    transformed = [name for rule in (snapshot.kueue.transformations if snapshot.kueue else ()) for name in rule.outputs]
    amounts = {**dict.fromkeys((*ADDED, *transformed), 0), **before}
    for name in amounts.keys() - queue.covered:
        yield name, HeadroomBound(amounts[name], f"by ClusterQueue {queue.name}, which covers no {name}")
    count, min_count = pod_counts(workload, pods)
    # Each pod of a Deployment, and each group of a LeaderWorkerSet, is admitted by itself.
    number = number_together(workload, pods) if workload.is_pod() else count
    demand = PodSetDemand(pods, count, min_count, amounts)
    for group in queue.groups if count else ():
        fit = fit_of(workload, demand, queue, group, snapshot)
        if fit is None:
            continue
        budget = _roomiest(fit, number)
        if budget is not None:
            yield from _bounds(budget, workload, pods, fit.charge.each, number)
            continue
        # Were the quota raised to what the pods request, they would still not be admitted with more.
        source = f"by ClusterQueue {queue.name}, which could never admit the pods even as they are"
        yield from ((name, HeadroomBound(amount, source)) for name, amount in fit.charge.each.items())


def _roomiest(fit: FlavorFit, number: int | None) -> FlavorQuota | None:
    """Return the flavor that holds ``number`` pods as they are and has most memory and CPU; None where none holds them."""
    charge = fit.charge._replace(number=number or 1)
    holding = [budget for budget in fit.open if not exceeds_ever(budget, charge)]
    return max(holding, key=lambda budget: [budget.total(name) if name in budget.capacities else 0 for name in ADDED], default=None)


def _bounds(
    budget: Budget,
    workload: Workload,
    pods: PodSet,
    each: Mapping[str, int],
    number: int | None,
    in_flight: Mapping[str, int] | None = None,
) -> Iterator[tuple[str, HeadroomBound]]:
    """Bound each pod by its share of ``budget``, never below what it requests now.

    Args:
        budget: the budget.
        workload: the object.
        pods: the pods.
        each: what one of them counts for now, by resource.
        number: how many of them there are; None where the object does not say, so that their share is not known.
        in_flight: admitted and not counted yet, where what is unused now bounds the pods, too.
    """
    others = other_pod_sets(budget, workload, pods)
    count = number + others.number if number else None
    sharing = "all pods together" if count is None else f"{count} pod{'s' if count > 1 else ''}"
    for name, amount in each.items():
        total = budget.total(name)
        most = others.share(name, total, amount, number) if number else 0
        if in_flight is not None:
            most = min(most, budget.available(name, in_flight.get(name, 0)))
        yield name, HeadroomBound(max(most, amount), f"by {budget.source}, {show_amount(name, total)} for {sharing}")


def first_violation(room: Headroom, workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, changes: Changes) -> str:
    """Return the first bound that one pod violates once its containers state ``changes``, with the sums; empty for none.

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
    violations = sorted(size.limit_violations - room.limit_violations)
    if violations:
        return f"against {violations[0]}"
    containers = filled(pods, defaults_for(snapshot, workload.namespace), changes) if room.entered else []
    for quota in room.entered:
        if missing_requests(quota, pods, containers):
            return f"ResourceQuota {quota.name} would count the pod, and not all that it must state for that is stated"
    for shape in room.shapes:
        if not _holds(shape, size.requests):
            return f"more than a node {shape.title} has"
    return ""
