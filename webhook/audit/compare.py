"""Compare two policies over the same workloads: newly refused, changed, freed."""

import enum
from collections.abc import Iterable
from typing import NamedTuple

from gpugate.webhook.audit.model import AuditedWorkload, Effect, Item, most_severe


class ComparisonOutcome(enum.Enum):
    """Outcome of a workload when one policy replaces the other."""

    NEWLY_REFUSED = "newly refused"
    NEWLY_CHANGED = "newly changed"
    CHANGED_OTHERWISE = "changed otherwise"
    REFUSED_OTHERWISE = "refused for other reasons"
    NO_LONGER_CHANGED = "no longer changed"
    FREED = "freed"
    SAME = "the same"


class Compared(NamedTuple):
    """One workload under both policies, with the items of the old policy only (``gone``) and of the new one only (``come``)."""

    verdict: ComparisonOutcome
    workload: AuditedWorkload
    gone: tuple[Item, ...]
    come: tuple[Item, ...]


def compare(before: Iterable[AuditedWorkload], after: Iterable[AuditedWorkload], *, as_if_enforced: bool = False) -> list[Compared]:
    """Compare each workload of ``after`` with ``before``: two audits of the same objects.

    Items of rules in Warn and DryRun do not count, unless ``as_if_enforced``: then they count on both sides.
    """
    old = {workload.key: workload for workload in before}
    return [_compare(old.get(workload.key), workload, as_if_enforced=as_if_enforced) for workload in after]


def _compare(old: AuditedWorkload | None, new: AuditedWorkload, *, as_if_enforced: bool) -> Compared:
    before = {} if old is None else _acting(old, as_if_enforced=as_if_enforced)
    after = _acting(new, as_if_enforced=as_if_enforced)
    gone = tuple(item for key, item in before.items() if key not in after)
    come = tuple(item for key, item in after.items() if key not in before)
    return Compared(_outcome(before.values(), after.values(), differs=bool(gone or come)), new, gone, come)


def _acting(workload: AuditedWorkload, *, as_if_enforced: bool) -> dict[tuple[str, ...], Item]:
    """Return the items that refuse or change the workload, by what a comparison of policies sees of them."""
    return {
        (item.rule, item.effect.value, item.reason, item.path, item.message): item
        for item in workload.items
        if item.effect in {Effect.REFUSE, Effect.CHANGE} and (as_if_enforced or not item.rehearsed)
    }


def _outcome(before: Iterable[Item], after: Iterable[Item], *, differs: bool) -> ComparisonOutcome:
    old, new = most_severe(before), most_severe(after)
    if old is new:
        otherwise = ComparisonOutcome.REFUSED_OTHERWISE if new is Effect.REFUSE else ComparisonOutcome.CHANGED_OTHERWISE
        return otherwise if differs else ComparisonOutcome.SAME
    if new is Effect.REFUSE:
        return ComparisonOutcome.NEWLY_REFUSED
    if old is Effect.REFUSE:
        return ComparisonOutcome.FREED
    return ComparisonOutcome.NEWLY_CHANGED if new is Effect.CHANGE else ComparisonOutcome.NO_LONGER_CHANGED
