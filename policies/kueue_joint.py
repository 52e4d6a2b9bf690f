"""Whether what several pod sets of one workload ask for together fits a ClusterQueue: Kueue admits all of them or none.

Each pod set may be given a flavor of its own, so what they ask for together is held against what all flavors could have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpugate.policies.accelerators import is_accelerator
from gpugate.policies.facts import Facts, Known
from gpugate.policies.fields import Path
from gpugate.policies.finding import Finding, Level
from gpugate.policies.kueue_demand import Asked
from gpugate.policies.kueue_fit import Fit
from gpugate.policies.quantity import show_amount
from gpugate.policies.records.queues import ClusterQueue

_SHOWN: Final = 8


class _Part(NamedTuple):
    asked: Asked
    each: int

    @property
    def total(self) -> int:
        return self.asked.fewest * self.each


def check_together(path: Path, fits: Sequence[Fit], queue: ClusterQueue, facts: Facts) -> Iterator[Finding]:
    """Refuse pod sets that fit one by one and not together; ``fits``: how each fits one resource group of ``queue``."""
    names = sorted({name for fit in fits for name in fit.each}, key=lambda one: (not is_accelerator(one), one))
    for name in names:
        parts = [_Part(fit.asked, fit.each[name]) for fit in fits if fit.each.get(name)]
        offers = {offer.flavor: offer for fit in fits if name in fit.each for offer in fit.open}
        total = sum(part.total for part in parts)
        most = sum(max(0, offer.capacities[name].potential) for offer in offers.values())
        if len(parts) < 2 or total <= most:
            continue
        shown = [f"{_title(part)} {part.asked.fewest} x {show_amount(name, part.each)}" for part in parts[:_SHOWN]]
        more = " + ..." if len(parts) > _SHOWN else ""
        where = f"flavor{'s' if len(offers) > 1 else ''} {', '.join(sorted(offers))}"
        yield Finding(
            "QuotaNeverFits",
            path,
            f"{' + '.join(shown)}{more} = {show_amount(name, total)} of {name} > {show_amount(name, most)}, the most that"
            f" ClusterQueue {queue.name} could ever have in {where}: Kueue admits all pods of the workload or none",
            f"Ask for at most {show_amount(name, most)} of {name} in all pods together, or name a queue that has more.",
            Level.DENY if not queue.cohort or facts.state("cohorts") is not Known.NOT_GIVEN else Level.WARN,
            measure=total,
            rests_on=("clusterqueues", "cohorts", "localqueues", "resourceflavors"),
        )
        return


def _title(part: _Part) -> str:
    """A pod set by the part of its path that tells it from the others: ``Worker``."""
    path = part.asked.pods.path
    return next((str(step) for step in reversed(path) if step not in {"template", "spec"}), "pods")
