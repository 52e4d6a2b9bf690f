"""Headroom: the amount by which gpugate may raise the requests of a pod without making it impossible.

The raised pod is compared with everything that bounds it: the nodes that can hold it as it is, the LimitRanges and
ResourceQuotas of its namespace, and the quota of its Kueue queue. Each of them holds as many of the raised pods as of the pods as
they are. A pod that is above a bound already may stay there.

Amounts are bytes, millicores or counts. Pods that only nodes bound need no headroom: see :func:`is_bounded`.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.records.namespaces import ResourceQuota
from gpugate.policies.cluster.records.pod_groups import KUEUE_COUNT
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import declared_size
from gpugate.policies.kube.fields import whole_number
from gpugate.policies.kube.quantity import NO_AMOUNTS, show_amount
from gpugate.policies.queueing.budget import Budget, exceeds_ever, pod_fingerprint
from gpugate.policies.queueing.cluster_queue import ADDED
from gpugate.policies.queueing.flavor_fit import FlavorFit, FlavorQuota, fit_of, queue_facts
from gpugate.policies.queueing.limit_range import limit_violations
from gpugate.policies.queueing.resource_quota import (
    QuotaBudget,
    in_scope,
    missing_requests,
    namespace_facts,
    quotas_of,
    usage_of_pod,
)
from gpugate.policies.queueing.workload_demand import PodSetDemand, counted_requests, number_of_pods, pod_counts
from gpugate.policies.scheduling.pod_resources import (
    NO_CHANGES,
    Changes,
    ResolvedResources,
    defaults_for,
    filled,
    resolved_resources,
    states_by_container,
)
from gpugate.policies.scheduling.pods_per_node import fewer_pods
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests
from gpugate.policies.workloads.workload import Workload

#: Resource names of the kinds that bound a pod, besides nodes.
BOUNDING: Final = frozenset(
    {
        *("clusterqueues", "cohorts", "configurations", "limitranges", "localqueues"),
        *("priorityclasses", "resourceflavors", "resourcequotas", "runtimeclasses"),
    }
)
#: The maximum request of one pod for a resource, and its source as text.
_Bound: TypeAlias = tuple[int, str]


def is_bounded(workload: Workload, pods: PodSet, queue: ClusterQueue | None, snapshot: ClusterSnapshot) -> bool:
    """Return whether ``queue``, a quota, a LimitRange or a RuntimeClass bounds the pods besides nodes."""
    namespace = workload.namespace
    return (
        queue is not None or namespace in snapshot.limit_ranges or namespace in snapshot.quotas or "runtimeClassName" in pods.spec
    )


def headroom_key(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Hashable | None:
    """Return a key that only pods with the same headroom share; None for pods whose headroom is computed each time."""
    namespace = workload.namespace
    # Other pod sets use a part of each bound. Objects in flight count against the quotas of pods, and change all the time.
    in_flight = namespace in snapshot.quotas and workload.is_pod() and snapshot.in_flight.into_namespace(namespace)
    if len(workload.pod_sets) > 1 or in_flight:
        return None
    fingerprint = pod_fingerprint(workload, pods)
    return fingerprint and (fingerprint, number_together(workload, pods), pod_counts(workload, pods)[0] > 0, _is_new(workload))


def headroom_facts(workload: Workload, queue: ClusterQueue | None, snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Return the records and views that decide the headroom of the workload's pods in ``queue``, nodes aside."""
    return (*queue_facts(queue, snapshot), *namespace_facts(workload, snapshot))


def _is_new(workload: Workload) -> bool:
    """Return whether the object is being created: budgets count the pods of an existing one already."""
    return workload.operation != "UPDATE" and not workload.metadata().get("resourceVersion")


def number_together(workload: Workload, pods: PodSet) -> int | None:
    """Return the number of pods that run at once; None if the object does not state it: a controller's pod, a DaemonSet."""
    if not workload.is_pod():
        return None if pods.count is None else max(1, number_of_pods(workload, pods)[0])
    if workload.controller() is not None:
        return None
    return max(1, whole_number(pods.annotations().get(KUEUE_COUNT)) or 1, declared_size(workload) or 1)


class _Size(NamedTuple):
    """The size of one pod: ``own`` without overhead, ``usage`` by names of quotas, ``counted`` by Kueue, violations as text."""

    own: ResolvedResources
    requests: Mapping[str, int]
    usage: Mapping[str, int]
    counted: Mapping[str, int]
    limit_violations: frozenset[str]


class Headroom:
    """The bounds of one pod of a pod set."""

    def __init__(
        self,
        workload: Workload,
        pods: PodSet,
        queue: ClusterQueue | None,
        snapshot: ClusterSnapshot,
        shapes: Iterable[NodeShape],
    ) -> None:
        """Compute the bounds of a pod, whose quota is that of ``queue``, that can be placed on ``shapes``.

        Raises:
            MalformedError: an amount is no quantity.
        """
        self._workload, self._pods, self._queue, self._snapshot = workload, pods, queue, snapshot
        self._is_new = _is_new(workload)
        size = self._size(NO_CHANGES)
        self._violations = size.limit_violations
        self._shapes = shapes
        self._ask = self._requests_for_nodes(size)
        #: ResourceQuotas that count the pod once it states memory or CPU, and do not count it yet.
        self._entered: list[ResourceQuota] = []
        self._usage: dict[str, _Bound] = {}
        for budget in quotas_of(workload, snapshot):
            for name, bound in self._bounds_of_quota(budget, size):
                self._usage[name] = min(bound, self._usage.get(name, bound))
        self._counted = dict(self._bounds_of_queue(self._queue, size.counted)) if self._queue else {}

    def _size(self, changes: Changes) -> _Size:
        """Return the size of the pod once its containers state ``changes``."""
        pods, snapshot, namespace = self._pods, self._snapshot, self._workload.namespace
        own = resolved_resources(pods, snapshot, namespace, with_overhead=False, changes=changes)
        total = own if states_by_container(pods) else resolved_resources(pods, snapshot, namespace, changes=changes)
        ranges, defaults = snapshot.limit_ranges.get(namespace, ()), defaults_for(snapshot, namespace)
        violations = frozenset(
            f"the {violation.bound} of LimitRange {violation.source} for {violation.resource} of"
            f" {violation.container.container.name if violation.container else 'the pod'}"
            for violation in (limit_violations(ranges, filled(pods, defaults, changes), own, defaults) if ranges else ())
        )
        usage = usage_of_pod(total) if namespace in snapshot.quotas else NO_AMOUNTS
        counted = counted_requests(self._workload, pods, snapshot, changes) if self._queue else NO_AMOUNTS
        return _Size(own, total.requests, usage, counted, violations)

    def _bounds_of_quota(self, budget: QuotaBudget, size: _Size) -> Iterator[tuple[str, _Bound]]:
        """Bound each pod by its share of the hard limit, and a plain pod by the unused part of the limit, too."""
        quota, pods, before = budget.quota, self._pods, size.usage
        # A pod that states memory or CPU is not BestEffort.
        requests = size.own.requests
        stating = size.own._replace(requests={**requests, "memory": max(1, requests.get("memory", 0))})
        if in_scope(quota, pods, stating, self._snapshot) is False:
            return
        if in_scope(quota, pods, size.own, self._snapshot) is False:
            # The quota counts nothing for the pod yet, so all of its hard limit is unused.
            self._entered.append(quota)
            before = NO_AMOUNTS
        number = number_together(self._workload, pods)
        if number is None and self._lacks_requests(quota, NO_CHANGES):
            # The API rejects all of them as they are.
            number = 1
        each = {name: before.get(name, 0) for name in quota.hard}
        yield from self._bounds(budget, each, number, budget.in_flight() if self._workload.is_pod() else None)

    def _lacks_requests(self, quota: ResourceQuota, changes: Changes) -> bool:
        defaults = defaults_for(self._snapshot, self._workload.namespace)
        return bool(missing_requests(quota, self._pods, filled(self._pods, defaults, changes)))

    def _bounds_of_queue(self, queue: ClusterQueue, before: Mapping[str, int]) -> Iterator[tuple[str, _Bound]]:
        """Bound each pod by its share of the flavor with the most memory and CPU that holds the pods as they are."""
        workload, pods, kueue = self._workload, self._pods, self._snapshot.kueue
        transformed = [name for rule in (kueue.transformations if kueue else ()) for name in rule.outputs]
        amounts = {**dict.fromkeys((*ADDED, *transformed), 0), **before}
        for name in amounts.keys() - queue.covered:
            yield name, (amounts[name], f"ClusterQueue {queue.name}, which covers no {name}")
        count, min_count = pod_counts(workload, pods)
        # Each pod of a Deployment, and each group of a LeaderWorkerSet, is admitted by itself.
        number = number_together(workload, pods) if workload.is_pod() else count
        demand = PodSetDemand(pods, count, min_count, amounts)
        for group in queue.groups if count else ():
            fit = fit_of(workload, demand, queue, group, self._snapshot)
            budget = fit and _largest_flavor(fit, number)
            if fit and budget:
                yield from self._bounds(budget, fit.charge.each, number)
            elif fit:
                # If the quota is raised to the pods' requests, Kueue admits them as they are, but not with more.
                source = f"ClusterQueue {queue.name}, which can never admit the pods even as they are"
                yield from ((name, (amount, source)) for name, amount in fit.charge.each.items())

    def _bounds(
        self, budget: Budget, each: Mapping[str, int], number: int | None, in_flight: Mapping[str, int] | None = None
    ) -> Iterator[tuple[str, _Bound]]:
        """Bound each pod by its share of ``budget``, never below its requests now.

        Args:
            budget: the budget.
            each: the amounts that the budget counts for one pod now.
            number: number of pods; None if the object does not state it, so their share is unknown.
            in_flight: admitted and not counted yet, if the unused part of the budget bounds the pods, too.
        """
        used, others = self._other_pod_sets(budget)
        count = number + others if number else None
        sharing = "all pods together" if count is None else f"{count} pod{'s' if count > 1 else ''}"
        totals = {name: budget.total(name) for name in each}
        unused = {name: budget.available(name, (in_flight or NO_AMOUNTS).get(name, 0)) for name in each}
        held, held_now = _pods_held(totals, each), _pods_held(unused, each)
        for name, amount in each.items():
            total, source = totals[name], sharing
            more = max(0, total - amount * number - used.get(name, 0)) // (number + others) if number else 0
            if held > (count or 0) and total // held - amount < more:
                more, source = total // held - amount, f"the {held} pods that it can hold as they are"
            if held_now and self._is_new and unused[name] // held_now - amount < more:
                more, total = unused[name] // held_now - amount, unused[name]
                source = f"the {held_now} pods that it can hold now as they are"
            elif in_flight is not None:
                more = min(more, max(0, unused[name] - amount))
            yield name, (amount + more, f"{budget.source}, which has {show_amount(name, total)} for {source}")

    def _other_pod_sets(self, budget: Budget) -> tuple[dict[str, int], int]:
        """Return the amounts of ``budget`` that the workload's other pods use, and the number of those that request a GPU."""
        used: dict[str, int] = {}
        number = 0
        for other in self._workload.pod_sets:
            count = budget.count(other) if other is not self._pods else 0
            if not count or budget.applies(other) is False:
                continue
            number += count if other.requests_gpu() else 0
            for name, amount in budget.charge(other).items():
                used[name] = used.get(name, 0) + amount * count
        return used, number

    def violation(self, changes: Changes) -> str:
        """Return the first bound that the pod violates once its containers state ``changes``, with the amounts; empty for none.

        Raises:
            MalformedError: an amount is no quantity.
        """
        size = self._size(changes)
        for amounts, bounds in ((size.usage, self._usage), (size.counted, self._counted)):
            for name, amount in sorted(amounts.items()):
                bound, source = bounds.get(name, (amount, ""))
                if amount > bound:
                    return f"{show_amount(name, amount)} of {name} > {show_amount(name, bound)}, the maximum per pod in {source}"
        violations = sorted(size.limit_violations - self._violations)
        if violations:
            return f"it would violate {violations[0]}"
        for quota in self._entered:
            if self._lacks_requests(quota, changes):
                return f"ResourceQuota {quota.name} would count the pod, which lacks a request or limit that the quota requires"
        return fewer_pods(self._shapes, self._ask, self._requests_for_nodes(size))

    def _requests_for_nodes(self, size: _Size) -> PodRequests:
        return PodRequests(size.requests.get("memory", 0), size.requests.get("cpu", 0), self._pods.totals.accelerators)


def _pods_held(has: Mapping[str, int], each: Mapping[str, int]) -> int:
    """Return how many pods that each use ``each`` the amounts ``has`` hold; zero if they hold none, or the pods use nothing."""
    return min((max(0, has[name]) // amount for name, amount in each.items() if amount > 0), default=0)


def _largest_flavor(fit: FlavorFit, number: int | None) -> FlavorQuota | None:
    """Return the flavor with the most memory and CPU that holds ``number`` pods as they are; None if none holds them."""
    charge = fit.charge._replace(number=number or 1)
    holding = [budget for budget in fit.open if not exceeds_ever(budget, charge)]
    return max(holding, key=lambda budget: [budget.total(name) if name in budget.capacities else 0 for name in ADDED], default=None)
