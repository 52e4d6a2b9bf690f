"""Findings of the rule `queue-quota`."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.fields import Object, lookup
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.queueing.budget import exceeds_ever, show_sum
from gpugate.policies.queueing.cohort_quota import Capacity
from gpugate.policies.queueing.flavor_fit import QUOTA_FACTS, FlavorFit, FlavorQuota, is_certain
from gpugate.policies.queueing.workload_demand import PodSetDemand
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: The most flavors that a message lists, and the most pod sets.
_SHOWN: Final = 4
_SHOWN_POD_SETS: Final = 8
#: The name of a list element: a job or task, a group of a Ray cluster, a component of an AppWrapper.
_NAMED_AT: Final = (("name",), ("groupName",), ("template", "metadata", "name"))


def not_covered(demand: PodSetDemand, queue: ClusterQueue, names: list[str], snapshot: ClusterSnapshot) -> Finding:
    """Report requests for resources that no flavor of the ClusterQueue covers."""
    sums = ", ".join(_sum(demand, demand.each[name], name) for name in names)
    return Finding(
        "NotCovered",
        demand.pods.field("containers"),
        f"ClusterQueue {queue.name} covers no {' and no '.join(names)}, so Kueue never admits a workload that requests"
        f" {sums}; it covers {', '.join(sorted(queue.covered)) or 'nothing'}",
        f"Remove the requests for {' and '.join(names)}, use a queue that covers them, or exclude them from Kueue's accounting"
        " with excludeResourcePrefixes.",
        # Kueue's Configuration may exclude the resource.
        Level.WARN if snapshot.kueue is None else Level.DENY,
        measure=len(names),
        rests_on=("clusterqueues", "configurations", "localqueues"),
    )


def no_flavor_matches(fit: FlavorFit, queue: ClusterQueue, workload: Workload) -> Finding:
    """Report pods that tolerate or select none of the flavors."""
    reasons = [f"flavor {flavor}: {mismatch}" for flavor, mismatch in fit.mismatches.items()][:_SHOWN]
    taint = any(" taint " in mismatch for mismatch in fit.mismatches.values())
    return Finding(
        "NoFlavorMatches",
        fit.demand.pods.field("tolerations" if taint else "nodeSelector"),
        f"no flavor of ClusterQueue {queue.name} with {', '.join(fit.charge.each)} matches the pods"
        + "".join(f"; {reason}" for reason in reasons),
        "Tolerate the taint of the flavor that you want, in the template that Kueue reads."
        if taint
        else "Select node labels that one of the flavors has, or use another queue.",
        Level.WARN if workload.kind.counted_as_pods else Level.DENY,
        rests_on=QUOTA_FACTS,
    )


def never_fits(fit: FlavorFit, queue: ClusterQueue, snapshot: ClusterSnapshot) -> Finding:
    """Report pods that request more than any flavor that they may use could ever have."""
    sums = [" and ".join(_excess(fit, budget, name) for name in exceeds_ever(budget, fit.charge)) for budget in fit.open[:_SHOWN]]
    sums += [f"flavor {flavor} does not match: {mismatch}" for flavor, mismatch in fit.mismatches.items()][:_SHOWN]
    return Finding(
        "QuotaNeverFits",
        fit.demand.pods.field("containers"),
        "; ".join(sums),
        _remedy(fit),
        Level.DENY if is_certain(fit, queue, snapshot) else Level.WARN,
        measure=sum(map(fit.charge.total, fit.charge.each)),
        rests_on=QUOTA_FACTS,
        names=_names_of_cohort(queue),
    )


def _sum(demand: PodSetDemand, each: int, name: str) -> str:
    return show_sum(name, each, demand.min_count, " at least" if demand.min_count < demand.number else "")


def _excess(fit: FlavorFit, budget: FlavorQuota, name: str) -> str:
    return (
        f"{_sum(fit.demand, fit.charge.each[name], name)} > {show_amount(name, budget.total(name))}, the most that"
        f" {budget.source} could ever have in flavor {budget.flavor} ({_origin(budget.capacities[name], name, budget.queue)})"
    )


def _origin(capacity: Capacity, name: str, queue: ClusterQueue) -> str:
    nominal = f"nominal {show_amount(name, capacity.nominal)}"
    if not queue.cohort:
        return f"{nominal}, and no cohort to borrow from"
    return f"{nominal} + borrowing {show_amount(name, capacity.potential - capacity.nominal)} from cohort {queue.cohort}"


def _remedy(fit: FlavorFit) -> str:
    """Return the largest request that fits, in the flavor that could hold the most pods."""
    best = max(fit.open, key=fit.most_pods)
    name = max(exceeds_ever(best, fit.charge), key=lambda name: (is_accelerator(name), name))
    most, each = best.total(name), fit.charge.each[name]
    if most <= 0:
        return f"Use a queue that has quota for {name}."
    pods = fit.most_pods(best)
    if pods and fit.demand.number > 1:
        amount = show_amount(name, each * pods)
        return f"Request at most {amount} of {name} ({pods} pod{'s' if pods > 1 else ''} of {show_amount(name, each)})."
    together = " in all pods together" if fit.demand.number > 1 else ""
    return f"Request at most {show_amount(name, most)} of {name}{together}."


def waits_for_quota(fit: FlavorFit, queue: ClusterQueue, in_flight: Mapping[str, int]) -> Finding:
    """Report pods for which no flavor has enough unused now, with the sums of the flavor that lacks the fewest resources."""
    budget = min(fit.open, key=lambda budget: len(fit.waits_now(budget, in_flight)))
    sums = "; ".join(_shortage(fit, budget, name, in_flight) for name in fit.waits_now(budget, in_flight))
    waiting = f"; {queue.pending} workload{'s' if queue.pending > 1 else ''} already pending" if queue.pending else ""
    return Finding(
        "WaitsForQuota",
        fit.demand.pods.field("containers"),
        f"the workload does not fit now: {sums}{waiting}",
        "Wait until Kueue admits the workload, or request what is left to start sooner.",
        Level.WARN,
        rests_on=QUOTA_FACTS,
        names=_names_of_cohort(queue),
    )


def _names_of_cohort(queue: ClusterQueue) -> tuple[str, ...]:
    """Return the name of the cohort of ``queue``, if any, which a LocalQueue does not show."""
    return (queue.cohort,) if queue.cohort else ()


def _shortage(fit: FlavorFit, budget: FlavorQuota, name: str, in_flight: Mapping[str, int]) -> str:
    capacity = budget.capacities[name]
    taken = [f"{show_amount(name, capacity.reserved)} reserved"]
    if capacity.reserved_by_others:
        taken.append(f"{show_amount(name, capacity.reserved_by_others)} reserved by others in cohort {budget.queue.cohort}")
    if in_flight.get(name):
        taken.append(f"{show_amount(name, in_flight[name])} in flight")
    left = budget.available(name, fit.in_flight_in(budget, in_flight).get(name, 0))
    return (
        f"{_sum(fit.demand, fit.charge.each[name], name)} > {show_amount(name, left)} left of"
        f" {show_amount(name, capacity.potential)} in flavor {budget.flavor} of {budget.source} ({', '.join(taken)})"
    )


def never_fits_together(
    root: Object,
    fits: Sequence[FlavorFit],
    queue: ClusterQueue,
    name: str,
    total: int,
    flavors: Sequence[str],
    snapshot: ClusterSnapshot,
) -> Finding:
    """Report pod sets of ``root`` that together request more of ``name`` than ``total``, the most in their ``flavors``."""
    requested = sum(fit.charge.total(name) for fit in fits)
    shown = [
        f"{_title(root, fit.demand.pods)} {fit.charge.number} x {show_amount(name, fit.charge.each[name])}"
        for fit in fits[:_SHOWN_POD_SETS]
    ]
    more = " + ..." if len(fits) > _SHOWN_POD_SETS else ""
    most, where = show_amount(name, total), f"flavor{'s' if len(flavors) > 1 else ''} {', '.join(flavors)}"
    return Finding(
        "QuotaNeverFits",
        fits[0].demand.pods.field("containers"),
        f"{' + '.join(shown)}{more} = {show_amount(name, requested)} of {name} > {most}, the most that"
        f" ClusterQueue {queue.name} could ever have in {where}; Kueue admits all pods of the workload or none",
        f"Request at most {most} of {name} in all pods together, or use a queue that has more.",
        Level.DENY if not queue.cohort or snapshot.sync_state("cohorts") is not SyncState.NOT_GIVEN else Level.WARN,
        measure=requested,
        rests_on=QUOTA_FACTS,
    )


def _title(root: Object, pods: PodSet) -> str:
    """Return the name of a pod set: the step of its path that is unique, such as ``Worker``, or the name of a list element."""
    path = pods.path
    depth = next((at for at in reversed(range(len(path))) if path[at] not in {"template", "spec"}), None)
    if depth is None:
        return "pods"
    if type(path[depth]) is not int:
        return str(path[depth])
    element = lookup(root, path[: depth + 1])
    names = (lookup(element, path) for path in _NAMED_AT)
    return next((name for name in names if type(name) is str), f"{path[depth - 1]}[{path[depth]}]")
