"""The sums behind a finding about Kueue's quota, for people."""

from __future__ import annotations

from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.queueing.cohort_quota import Capacity
from gpugate.policies.queueing.flavor_fit import FlavorFit, FlavorOffer
from gpugate.policies.queueing.workload_demand import PodSetDemand


def sum_of(asked: PodSetDemand, each: int, name: str) -> str:
    """What the pods ask for together: ``4 pods x 8 = 32 of nvidia.com/gpu``; ``each`` is what one asks for."""
    if asked.min_count == 1:
        return f"{show_amount(name, each)} of {name}"
    least = " at least" if asked.min_count < asked.number else ""
    total = show_amount(name, each * asked.min_count)
    return f"{asked.min_count} pods{least} x {show_amount(name, each)} = {total} of {name}"


def beyond(fit: FlavorFit, offer: FlavorOffer, name: str, queue: ClusterQueue) -> str:
    """That the pods ask for more of ``name`` than ``queue`` could ever have in the flavor of ``offer``."""
    has = offer.capacities[name]
    return (
        f"{sum_of(fit.asked, fit.each[name], name)} > {show_amount(name, has.potential)}, the most that ClusterQueue {queue.name}"
        f" could ever have in flavor {offer.flavor} ({_origin(has, name, queue)})"
    )


def _origin(has: Capacity, name: str, queue: ClusterQueue) -> str:
    nominal = f"nominal {show_amount(name, has.nominal)}"
    if not queue.cohort:
        return f"{nominal}, and no cohort to borrow from"
    return f"{nominal} + borrowing {show_amount(name, has.potential - has.nominal)} from cohort {queue.cohort}"


def remedy_of(fit: FlavorFit) -> str:
    """The most that would fit, in the flavor with room for the most pods."""
    best = max(fit.open, key=fit.most_pods)
    name = max(best.lacking(fit.totals), key=lambda one: (is_accelerator(one), one))
    most, each = best.capacities[name].potential, fit.each[name]
    if most <= 0:
        return f"Name a queue that has quota for {name}."
    pods = fit.most_pods(best)
    if pods and fit.asked.number > 1:
        whole = show_amount(name, each * pods)
        return f"Ask for at most {whole} of {name}: {pods} pod{'s' if pods > 1 else ''} of {show_amount(name, each)}."
    together = " in all pods together" if fit.asked.number > 1 else ""
    return f"Ask for at most {show_amount(name, most)} of {name}{together}."


def short_now(fit: FlavorFit, offer: FlavorOffer, name: str, queue: ClusterQueue, in_flight: int) -> str:
    """That less of ``name`` is left now in the flavor of ``offer`` than the pods ask for."""
    has = offer.capacities[name]
    taken = [f"{show_amount(name, has.reserved)} reserved"]
    if has.reserved_by_others:
        taken.append(f"{show_amount(name, has.reserved_by_others)} reserved by others in cohort {queue.cohort}")
    if in_flight:
        taken.append(f"{show_amount(name, in_flight)} in flight")
    left = show_amount(name, fit.left_now(offer, name, in_flight))
    return (
        f"{sum_of(fit.asked, fit.each[name], name)} > {left} left of {show_amount(name, has.potential)} in flavor {offer.flavor} of"
        f" ClusterQueue {queue.name} ({', '.join(taken)})"
    )
