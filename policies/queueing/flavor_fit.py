"""Whether what a pod set asks for fits the flavors of a ClusterQueue: ever, and now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.kueue import ClusterQueue, ResourceGroup
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.fields import Object, lookup
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.queueing.cohort_quota import Capacity, bound_without_cohort, capacity
from gpugate.policies.queueing.flavors import flavor_mismatch, label_keys
from gpugate.policies.queueing.workload_demand import PodSetDemand
from gpugate.policies.workloads.workload import Workload


class FlavorOffer(NamedTuple):
    """What one flavor offers for what is asked of one resource group.

    Attributes:
        flavor: its name.
        mismatch: why the pods can not be given it; empty where they can.
        capacities: what the ClusterQueue has there, by resource.
    """

    flavor: str
    mismatch: str
    capacities: Mapping[str, Capacity]

    def lacking(self, totals: Mapping[str, int]) -> list[str]:
        """Resources of ``totals`` of which there will never be enough, sorted."""
        return [name for name, total in sorted(totals.items()) if total > self.capacities[name].potential]


class FlavorFit(NamedTuple):
    """How what is asked of one resource group fits its flavors, all of which one pod set gets from the same one.

    Attributes:
        asked: the pod set.
        each: what one pod asks of the group, by resource.
        totals: what the fewest pods that Kueue would admit together ask.
        offers: the flavors, in the order in which Kueue tries them.
    """

    asked: PodSetDemand
    each: Mapping[str, int]
    totals: Mapping[str, int]
    offers: Sequence[FlavorOffer]

    @property
    def open(self) -> list[FlavorOffer]:
        """The flavors that the pods may be given."""
        return [offer for offer in self.offers if not offer.mismatch]

    @property
    def fits_ever(self) -> bool:
        """Whether some flavor that the pods may be given could ever have enough of all."""
        return any(not offer.lacking(self.totals) for offer in self.open)

    def most_pods(self, offer: FlavorOffer) -> int:
        """How many of the pods ``offer`` could ever have room for."""
        return min(max(0, offer.capacities[name].potential) // each for name, each in self.each.items())

    def left_now(self, offer: FlavorOffer, name: str, in_flight: int) -> int:
        """What is left of resource ``name`` in ``offer``, if what is ``in_flight`` takes first what other flavors have."""
        elsewhere = sum(max(0, one.capacities[name].available) for one in self.open if one is not offer)
        return max(0, offer.capacities[name].available - max(0, in_flight - elsewhere))

    def lacking_now(self, offer: FlavorOffer, in_flight: Mapping[str, int]) -> list[str]:
        """Resources of which ``offer`` has not enough now, sorted."""
        return [name for name, total in self.totals.items() if total > self.left_now(offer, name, in_flight.get(name, 0))]


def fit_of(
    workload: Workload, asked: PodSetDemand, queue: ClusterQueue, group: ResourceGroup, snapshot: ClusterSnapshot
) -> FlavorFit | None:
    """How ``asked`` fits ``group`` of ``queue``; None where it asks nothing of it, or the quota can not be worked out."""
    each = {name: amount for name, amount in sorted(asked.each.items()) if name in group.covered}
    if "pods" in group.covered:
        each["pods"] = 1
    if not each:
        return None
    keys = label_keys(group, snapshot)
    # Pods may still be given tolerations; what is written in a template is what Kueue sees.
    taints_hold = not workload.kind.counted_as_pods
    offers = []
    for flavor, _ in group.flavors:
        found = {name: capacity(snapshot.cohort_tree, queue, flavor, name) for name in each}
        capacities = {name: one for name, one in found.items() if one is not None}
        if len(capacities) < len(each):
            return None
        offers.append(
            FlavorOffer(
                flavor, flavor_mismatch(asked.pods, snapshot.flavors.get(flavor), keys, taints_hold=taints_hold), capacities
            )
        )
    return FlavorFit(asked, each, {name: amount * asked.min_count for name, amount in each.items()}, offers)


def is_certain(fit: FlavorFit, queue: ClusterQueue, snapshot: ClusterSnapshot) -> bool:
    """Whether ``fit`` would not be better for a Cohort object that is not among the facts."""
    if not queue.cohort or snapshot.sync_state("cohorts") is not SyncState.NOT_GIVEN:
        return True
    return all(any(_is_beyond(fit, queue, offer, name) for name in offer.lacking(fit.totals)) for offer in fit.open)


def _is_beyond(fit: FlavorFit, queue: ClusterQueue, offer: FlavorOffer, name: str) -> bool:
    bound = bound_without_cohort(queue, offer.flavor, name)
    return bound is not None and fit.totals[name] > bound


def uncovered_of(asked: PodSetDemand, queue: ClusterQueue) -> list[str]:
    """Resources that ``asked`` counts and ``queue`` does not cover, sorted."""
    return sorted(name for name in asked.each if name not in queue.covered)


def in_flight_into(queue: ClusterQueue, snapshot: ClusterSnapshot) -> dict[str, int]:
    """What was just admitted into the LocalQueues that lead to ``queue``, by resource."""
    found: dict[str, int] = {}
    for (namespace, name), amounts in snapshot.in_flight.queues():
        local = snapshot.queue(namespace, name)
        if local is not None and local.cluster_queue == queue.name:
            for resource, amount in amounts.items():
                found[resource] = found.get(resource, 0) + amount
    return found


_SHOWN: Final = 8
#: Where an element of a list has its name: a job or task, a group of a Ray cluster, a component of an AppWrapper.
_NAMED_AT: Final = (("name",), ("groupName",), ("template", "metadata", "name"))


class _Part(NamedTuple):
    asked: PodSetDemand
    each: int

    @property
    def total(self) -> int:
        return self.asked.min_count * self.each


def check_together(root: Object, fits: Sequence[FlavorFit], queue: ClusterQueue, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse pod sets of ``root`` that fit one by one and not together; ``fits``: how each fits one resource group of ``queue``."""
    names = sorted({name for fit in fits for name in fit.each}, key=lambda one: (not is_accelerator(one), one))
    for name in names:
        parts = [_Part(fit.asked, fit.each[name]) for fit in fits if fit.each.get(name)]
        offers = {offer.flavor: offer for fit in fits if name in fit.each for offer in fit.open}
        total = sum(part.total for part in parts)
        most = sum(max(0, offer.capacities[name].potential) for offer in offers.values())
        if len(parts) < 2 or total <= most:
            continue
        shown = [f"{_title(root, part)} {part.asked.min_count} x {show_amount(name, part.each)}" for part in parts[:_SHOWN]]
        more = " + ..." if len(parts) > _SHOWN else ""
        where = f"flavor{'s' if len(offers) > 1 else ''} {', '.join(sorted(offers))}"
        yield Finding(
            "QuotaNeverFits",
            parts[0].asked.pods.field("containers"),
            f"{' + '.join(shown)}{more} = {show_amount(name, total)} of {name} > {show_amount(name, most)}, the most that"
            f" ClusterQueue {queue.name} could ever have in {where}: Kueue admits all pods of the workload or none",
            f"Ask for at most {show_amount(name, most)} of {name} in all pods together, or name a queue that has more.",
            Level.DENY if not queue.cohort or snapshot.sync_state("cohorts") is not SyncState.NOT_GIVEN else Level.WARN,
            measure=total,
            rests_on=("clusterqueues", "cohorts", "localqueues", "resourceflavors"),
        )
        return


def _title(root: Object, part: _Part) -> str:
    """A pod set by the step of its path that tells it from the others: ``Worker``, or the name of an element of a list."""
    path = part.asked.pods.path
    depth = next((at for at in reversed(range(len(path))) if path[at] not in {"template", "spec"}), None)
    if depth is None:
        return "pods"
    if type(path[depth]) is not int:
        return str(path[depth])
    element = lookup(root, path[: depth + 1])
    names = (lookup(element, place) for place in _NAMED_AT)
    return next((name for name in names if type(name) is str), f"{path[depth - 1]}[{path[depth]}]")
