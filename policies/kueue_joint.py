"""Whether what several pod sets of one workload ask for together fits a ClusterQueue: Kueue admits all of them or none.

Each pod set may be given a flavor of its own, so what they ask for together is held against what all flavors could have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpugate.policies.accelerators import is_accelerator
from gpugate.policies.facts import Facts, Known
from gpugate.policies.fields import Object, lookup
from gpugate.policies.finding import Finding, Level
from gpugate.policies.kueue_demand import Asked
from gpugate.policies.kueue_fit import Fit
from gpugate.policies.quantity import show_amount
from gpugate.policies.records.queues import ClusterQueue

_SHOWN: Final = 8
#: Where an element of a list has its name: a job or task, a group of a Ray cluster, a component of an AppWrapper.
_NAMED_AT: Final = (("name",), ("groupName",), ("template", "metadata", "name"))


class _Part(NamedTuple):
    asked: Asked
    each: int

    @property
    def total(self) -> int:
        return self.asked.fewest * self.each


def check_together(root: Object, fits: Sequence[Fit], queue: ClusterQueue, facts: Facts) -> Iterator[Finding]:
    """Refuse pod sets of ``root`` that fit one by one and not together; ``fits``: how each fits one resource group of ``queue``."""
    names = sorted({name for fit in fits for name in fit.each}, key=lambda one: (not is_accelerator(one), one))
    for name in names:
        parts = [_Part(fit.asked, fit.each[name]) for fit in fits if fit.each.get(name)]
        offers = {offer.flavor: offer for fit in fits if name in fit.each for offer in fit.open}
        total = sum(part.total for part in parts)
        most = sum(max(0, offer.capacities[name].potential) for offer in offers.values())
        if len(parts) < 2 or total <= most:
            continue
        shown = [f"{_title(root, part)} {part.asked.fewest} x {show_amount(name, part.each)}" for part in parts[:_SHOWN]]
        more = " + ..." if len(parts) > _SHOWN else ""
        where = f"flavor{'s' if len(offers) > 1 else ''} {', '.join(sorted(offers))}"
        yield Finding(
            "QuotaNeverFits",
            parts[0].asked.pods.field("containers"),
            f"{' + '.join(shown)}{more} = {show_amount(name, total)} of {name} > {show_amount(name, most)}, the most that"
            f" ClusterQueue {queue.name} could ever have in {where}: Kueue admits all pods of the workload or none",
            f"Ask for at most {show_amount(name, most)} of {name} in all pods together, or name a queue that has more.",
            Level.DENY if not queue.cohort or facts.state("cohorts") is not Known.NOT_GIVEN else Level.WARN,
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
