"""Compare the requests of a pod set with the flavors of a ClusterQueue: with their maximum, and with what is unused now."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.in_flight import InFlight, in_all
from gpugate.policies.cluster.records.common import change_count, toleration_of
from gpugate.policies.cluster.records.kueue import ClusterQueue, ResourceFlavor, ResourceGroup
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import mapping, mappings
from gpugate.policies.queueing.budget import Charge, exceeds_ever, waits_now
from gpugate.policies.queueing.cohort_quota import Capacity, bound_without_cohort, capacity
from gpugate.policies.queueing.workload_demand import PodSetDemand, counted_requests, pod_counts
from gpugate.policies.scheduling.node_selection import meets
from gpugate.policies.workloads.node_affinity import required_terms
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Resource names of the kinds that decide the quota of a ClusterQueue.
QUOTA_FACTS: Final = ("clusterqueues", "cohorts", "localqueues", "resourceflavors")
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


class FlavorQuota(NamedTuple):
    """The budget of a ClusterQueue in one flavor of a resource group.

    Attributes:
        workload: the workload that requests it.
        label_keys: keys of the node labels of the group's flavors.
        flavor: the name of the flavor.
        capacities: the quota of the ClusterQueue in the flavor, by resource.
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

    def count(self, pods: PodSet) -> int:
        """Return the number of pods that Kueue admits together."""
        return pod_counts(self.workload, pods)[0]

    def applies(self, pods: PodSet) -> bool:
        """Return whether Kueue can assign the flavor to the pods; True if they request nothing of the resource group."""
        return not self.charge(pods) or not self.mismatch(pods)

    def mismatch(self, pods: PodSet) -> str:
        """Return why Kueue cannot assign the flavor to the pods; empty if it can or the flavor is unknown."""
        flavor = self.snapshot.flavors.get(self.flavor)
        # Tolerations may still be added to pods; Kueue reads those of a template as they are written.
        reads_tolerations = not self.workload.kind.counted_as_pods
        return "" if flavor is None else _mismatch(pods, flavor, self.label_keys, reads_tolerations=reads_tolerations)

    def charge(self, pods: PodSet) -> Mapping[str, int]:
        """Return the amounts that Kueue counts for one pod, of the resources that the group covers."""
        return _charge_of(self.group, counted_requests(self.workload, pods, self.snapshot))

    def total(self, name: str) -> int:
        """Return the maximum of the ClusterQueue while nothing else is in its cohort (``potentialAvailable``)."""
        return self.capacities[name].potential

    def available(self, name: str, in_flight: int) -> int:
        """Return the amount that the ClusterQueue can get now (``available``), less ``in_flight``."""
        return max(0, self.capacities[name].available - in_flight)


class FlavorFit(NamedTuple):
    """A pod set and the flavors of one resource group, of which Kueue assigns one to all pods.

    Attributes:
        demand: the pod set.
        charge: the amounts for the fewest pods that Kueue admits together, of the resources that the group covers.
        open: the flavors that Kueue can assign, in the order in which it tries them.
        mismatches: why Kueue cannot assign the other flavors, by flavor.
    """

    demand: PodSetDemand
    charge: Charge
    open: Sequence[FlavorQuota]
    mismatches: Mapping[str, str]

    @property
    def fits_ever(self) -> bool:
        """True if some open flavor can ever have enough of all resources."""
        return any(not exceeds_ever(budget, self.charge) for budget in self.open)

    def most_pods(self, budget: FlavorQuota) -> int:
        """Return the maximum number of pods that ``budget`` can hold."""
        return min(max(0, budget.total(name)) // each for name, each in self.charge.each.items())

    def in_flight_in(self, budget: FlavorQuota, in_flight: Mapping[str, int]) -> dict[str, int]:
        """Return the part of ``in_flight`` that reaches ``budget`` once the other open flavors are used up."""
        others = [other for other in self.open if other is not budget]
        return {
            name: max(0, in_flight[name] - sum(other.available(name, 0) for other in others))
            for name in self.charge.each.keys() & in_flight.keys()
        }

    def waits_now(self, budget: FlavorQuota, in_flight: Mapping[str, int]) -> list[str]:
        """Return the resources of which ``budget`` has too little now, sorted."""
        return waits_now(budget, self.charge, self.in_flight_in(budget, in_flight))


def _label_keys(group: ResourceGroup, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return the keys of the node labels of the flavors of ``group``: Kueue ignores selectors of other keys."""
    known = (snapshot.flavors.get(name) for name, _ in group.flavors)
    return frozenset(key for flavor in known if flavor for key in flavor.labels)


def _mismatch(pods: PodSet, flavor: ResourceFlavor, keys: frozenset[str], *, reads_tolerations: bool) -> str:
    """Return why Kueue cannot assign the flavor to ``pods``; empty if it can (v0.15.0, ``pkg/scheduler/flavorassigner``).

    Args:
        pods: the pods.
        flavor: the flavor.
        keys: the label keys of its group.
        reads_tolerations: whether Kueue reads the tolerations of ``pods`` as they are now.
    """
    taints = [taint for taint in flavor.taints if reads_tolerations and taint.effect in _REPELLING]
    stated = mappings(pods.spec, "tolerations", pods.field()) if taints else ()
    tolerations = (*flavor.tolerations, *map(toleration_of, stated))
    for taint in taints:
        if not any(toleration.covers(taint) for toleration in tolerations):
            value = f"={taint.value}" if taint.value else ""
            return f"its taint {taint.key}{value}:{taint.effect} is not tolerated"
    if _selected(pods, flavor, keys):
        return ""
    labels = ", ".join(f"{key}={value}" for key, value in sorted(flavor.labels.items())) or "(none)"
    return f"its node labels {labels} do not match the pods' nodeSelector or affinity"


def _selected(pods: PodSet, flavor: ResourceFlavor, keys: frozenset[str]) -> bool:
    """Return whether the flavor's labels match nodeSelector and required node affinity, as far as these select ``keys``."""
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    if any(key in keys and flavor.labels.get(key) != value for key, value in selector.items()):
        return False
    path = pods.field("affinity", "nodeAffinity")
    # Terms are alternatives: a term without any of the keys matches every flavor.
    terms = [mappings(term, "matchExpressions", path) for term in required_terms(pods)]
    return not terms or any(
        all(
            meets(expression, frozenset({flavor.labels.get(str(expression.get("key")))}))
            for expression in term
            if str(expression.get("key")) in keys
        )
        for term in terms
    )


def _charge_of(group: ResourceGroup, requests: Mapping[str, int]) -> dict[str, int]:
    each = {name: requests[name] for name in sorted(requests) if name in group.covered}
    if "pods" in group.covered:
        each["pods"] = 1
    return each


def fit_of(
    workload: Workload, demand: PodSetDemand, queue: ClusterQueue, group: ResourceGroup, snapshot: ClusterSnapshot
) -> FlavorFit | None:
    """Compare ``demand`` with the flavors of ``group``; None if it requests nothing there, or the quota is unknown."""
    each = _charge_of(group, demand.each)
    if not each:
        return None
    keys, tree = _label_keys(group, snapshot), snapshot.cohort_tree
    budgets, mismatches = [], {}
    for flavor, _ in group.flavors:
        capacities = {name: quota for name in each if (quota := capacity(tree, queue, flavor, name)) is not None}
        if len(capacities) < len(each):
            return None
        budget = FlavorQuota(workload, snapshot, queue, group, keys, flavor, capacities)
        if mismatch := budget.mismatch(demand.pods):
            mismatches[flavor] = mismatch
        else:
            budgets.append(budget)
    return FlavorFit(demand, Charge(demand.min_count, each), budgets, mismatches)


def is_certain(fit: FlavorFit, queue: ClusterQueue, snapshot: ClusterSnapshot) -> bool:
    """Return whether no Cohort object that was not given could improve ``fit``."""
    if not queue.cohort or snapshot.sync_state("cohorts") is not SyncState.NOT_GIVEN:
        return True
    return all(any(_exceeds_queue(fit, budget, name) for name in exceeds_ever(budget, fit.charge)) for budget in fit.open)


def _exceeds_queue(fit: FlavorFit, budget: FlavorQuota, name: str) -> bool:
    bound = bound_without_cohort(budget.queue, budget.flavor, name)
    return bound is not None and fit.charge.total(name) > bound


def queue_facts(queue: ClusterQueue | None, snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Return the records and views that decide the quota of ``queue`` for a pod set, besides the pods' requests."""
    return (
        queue,
        # The quota of a ClusterQueue without a cohort depends on no other.
        snapshot.cohort_tree if queue and queue.cohort else None,
        snapshot.sync_state("cohorts"),
        snapshot.flavors if queue else None,
        snapshot.kueue,
    )


def in_flight_into(queue: ClusterQueue, snapshot: ClusterSnapshot) -> dict[str, int]:
    """Return the amounts in flight into the LocalQueues of ``queue``, which are not reserved there yet, by resource."""
    in_flight = snapshot.in_flight
    confirmed = _sum_into(queue, in_flight, snapshot)
    unconfirmed = _sum_into(queue, in_flight.unconfirmed, snapshot) if in_flight.unconfirmed is not None else {}
    if not (confirmed or unconfirmed):
        return confirmed
    return in_all(confirmed, unconfirmed, {name: _nominal(queue, name) for name in confirmed.keys() | unconfirmed.keys()})


def _sum_into(queue: ClusterQueue, in_flight: InFlight, snapshot: ClusterSnapshot) -> dict[str, int]:
    sums: dict[str, int] = {}
    for (namespace, name), amounts in in_flight.queues():
        local = snapshot.queue(namespace, name)
        if local is not None and local.cluster_queue == queue.name:
            for resource, amount in amounts.items():
                change_count(sums, resource, amount)
    return sums


def _nominal(queue: ClusterQueue, resource: str) -> int:
    """Return the nominal quota of ``queue`` for ``resource`` in all flavors."""
    return sum(quotas[resource].nominal for group in queue.groups for _, quotas in group.flavors if resource in quotas)
