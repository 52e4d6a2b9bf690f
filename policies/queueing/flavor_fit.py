"""Compare the requests of a pod set with the flavors of a ClusterQueue: what they could ever hold, and what they hold now."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.kueue import ClusterQueue, ResourceGroup
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.queueing.budget import Charge, exceeds_ever, waits_now
from gpugate.policies.queueing.cohort_quota import Capacity, bound_without_cohort, capacity
from gpugate.policies.queueing.flavors import flavor_mismatch, label_keys
from gpugate.policies.queueing.workload_demand import PodSetDemand, counted_requests, pod_counts
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Resource names of the kinds that decide what a ClusterQueue has.
QUOTA_FACTS: Final = ("clusterqueues", "cohorts", "localqueues", "resourceflavors")


class FlavorQuota(NamedTuple):
    """The budget of a ClusterQueue in one flavor of a resource group.

    Attributes:
        workload: the workload that requests it.
        snapshot: the cluster.
        queue: the ClusterQueue.
        group: the resource group, which covers some of the resources.
        label_keys: keys of the node labels that the flavors of the group have.
        flavor: the name of the flavor.
        capacities: what the ClusterQueue has in the flavor, by resource.
    """

    workload: Workload
    snapshot: ClusterSnapshot
    queue: ClusterQueue
    group: ResourceGroup
    label_keys: frozenset[str]
    flavor: str
    capacities: Mapping[str, Capacity]

    @property
    def source(self) -> str:
        """The ClusterQueue."""
        return f"ClusterQueue {self.queue.name}"

    @property
    def facts(self) -> tuple[str, ...]:
        """Resource names of the kinds that the amounts are read from."""
        return QUOTA_FACTS

    def count(self, pods: PodSet) -> int:
        """Return how many of the pods Kueue admits together."""
        return pod_counts(self.workload, pods)[0]

    def applies(self, pods: PodSet) -> bool:
        """Return whether Kueue may give the pods the flavor; True where they request nothing of the resource group."""
        return not self.charge(pods) or not self.mismatch(pods)

    def mismatch(self, pods: PodSet) -> str:
        """Return why Kueue can not give the pods the flavor; empty where it can."""
        # Pods may still be given tolerations; Kueue reads those of a template as they are written.
        taints_hold = not self.workload.kind.counted_as_pods
        return flavor_mismatch(pods, self.snapshot.flavors.get(self.flavor), self.label_keys, taints_hold=taints_hold)

    def charge(self, pods: PodSet) -> Mapping[str, int]:
        """Return what Kueue counts for one pod, of the resources that the group covers."""
        return _charge_of(self.group, counted_requests(self.workload, pods, self.snapshot))

    def total(self, name: str) -> int:
        """Return the most that the ClusterQueue could ever have, with nothing else in its cohort (``potentialAvailable``)."""
        return self.capacities[name].potential

    def available(self, name: str, in_flight: int) -> int:
        """Return how much the ClusterQueue could get now (``available``), less what is ``in_flight``."""
        return max(0, self.capacities[name].available - in_flight)


class FlavorFit(NamedTuple):
    """A pod set beside the flavors of one resource group, of which Kueue gives all its pods the same one.

    Attributes:
        demand: the pod set.
        charge: what the fewest pods that Kueue would admit together count for, of the resources that the group covers.
        open: the flavors that the pods may be given, in the order in which Kueue tries them.
        mismatches: why the pods can not be given the other flavors, by flavor.
    """

    demand: PodSetDemand
    charge: Charge
    open: Sequence[FlavorQuota]
    mismatches: Mapping[str, str]

    @property
    def fits_ever(self) -> bool:
        """Whether some flavor that the pods may be given could ever have enough of all resources."""
        return any(not exceeds_ever(budget, self.charge) for budget in self.open)

    def most_pods(self, budget: FlavorQuota) -> int:
        """Return how many of the pods ``budget`` could ever hold."""
        return min(max(0, budget.total(name)) // each for name, each in self.charge.each.items())

    def in_flight_in(self, budget: FlavorQuota, in_flight: Mapping[str, int]) -> dict[str, int]:
        """Return the part of ``in_flight`` that reaches ``budget`` if it takes first what the other open flavors have."""
        others = [other for other in self.open if other is not budget]
        return {
            name: max(0, in_flight[name] - sum(other.available(name, 0) for other in others))
            for name in self.charge.each.keys() & in_flight.keys()
        }

    def waits_now(self, budget: FlavorQuota, in_flight: Mapping[str, int]) -> list[str]:
        """Return the resources of which ``budget`` has too little unused now, sorted."""
        return waits_now(budget, self.charge, self.in_flight_in(budget, in_flight))


def _charge_of(group: ResourceGroup, requests: Mapping[str, int]) -> dict[str, int]:
    each = {name: requests[name] for name in sorted(requests) if name in group.covered}
    if "pods" in group.covered:
        each["pods"] = 1
    return each


def fit_of(
    workload: Workload, demand: PodSetDemand, queue: ClusterQueue, group: ResourceGroup, snapshot: ClusterSnapshot
) -> FlavorFit | None:
    """Compare ``demand`` with the flavors of ``group``; None where it requests nothing there or the quota is not known."""
    each = _charge_of(group, demand.each)
    if not each:
        return None
    keys = label_keys(group, snapshot)
    budgets, mismatches = [], {}
    for flavor, _ in group.flavors:
        capacities = {name: has for name in each if (has := capacity(snapshot.cohort_tree, queue, flavor, name)) is not None}
        if len(capacities) < len(each):
            return None
        budget = FlavorQuota(workload, snapshot, queue, group, keys, flavor, capacities)
        mismatch = budget.mismatch(demand.pods)
        if mismatch:
            mismatches[flavor] = mismatch
        else:
            budgets.append(budget)
    return FlavorFit(demand, Charge(demand.min_count, each), budgets, mismatches)


def is_certain(fit: FlavorFit, queue: ClusterQueue, snapshot: ClusterSnapshot) -> bool:
    """Return whether ``fit`` could be no better if there were a Cohort object that was not given."""
    if not queue.cohort or snapshot.sync_state("cohorts") is not SyncState.NOT_GIVEN:
        return True
    return all(any(_exceeds_queue(fit, budget, name) for name in exceeds_ever(budget, fit.charge)) for budget in fit.open)


def _exceeds_queue(fit: FlavorFit, budget: FlavorQuota, name: str) -> bool:
    bound = bound_without_cohort(budget.queue, budget.flavor, name)
    return bound is not None and fit.charge.total(name) > bound


def queue_facts(queue: ClusterQueue | None, snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Return the records and views that decide what ``queue`` has for a pod set, apart from what the pods request."""
    return (
        queue,
        # What a ClusterQueue without a cohort has depends on no other.
        snapshot.cohort_tree if queue and queue.cohort else None,
        snapshot.sync_state("cohorts"),
        snapshot.flavors if queue else None,
        snapshot.kueue,
    )


def in_flight_into(queue: ClusterQueue, snapshot: ClusterSnapshot) -> dict[str, int]:
    """Return what was just admitted into the LocalQueues of ``queue`` and is not reserved there yet, by resource."""
    in_flight: dict[str, int] = {}
    for (namespace, name), amounts in snapshot.in_flight.queues():
        local = snapshot.queue(namespace, name)
        if local is not None and local.cluster_queue == queue.name:
            for resource, amount in amounts.items():
                in_flight[resource] = in_flight.get(resource, 0) + amount
    return in_flight
