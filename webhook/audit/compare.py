"""Compare two policies over the same workloads: newly refused, changed, freed."""

import enum
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gpugate.webhook.audit.model import AuditedWorkload, Effect, Item


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
    """One workload under both policies.

    Attributes:
        verdict: the outcome.
        workload: the workload under the new policy.
        gone: items of the old policy only.
        come: items of the new policy only.
    """

    verdict: ComparisonOutcome
    workload: AuditedWorkload
    gone: tuple[Item, ...]
    come: tuple[Item, ...]


def compare(before: Iterable[AuditedWorkload], after: Iterable[AuditedWorkload], *, as_if_enforced: bool = False) -> list[Compared]:
    """Compare each workload of ``after`` with ``before``: two audits of the same objects.

    Items of rules in DryRun do not count, unless ``as_if_enforced``: then they count on both sides.
    """
    old = {one.key: one for one in before}
    return [_compare(old.get(one.key), one, as_if_enforced=as_if_enforced) for one in after]


def _compare(old: AuditedWorkload | None, new: AuditedWorkload, *, as_if_enforced: bool) -> Compared:
    was = {_said(item): item for item in _acting(old, as_if_enforced=as_if_enforced)} if old is not None else {}
    now = {_said(item): item for item in _acting(new, as_if_enforced=as_if_enforced)}
    gone = tuple(item for key, item in was.items() if key not in now)
    come = tuple(item for key, item in now.items() if key not in was)
    return Compared(_verdict(was.values(), now.values(), differs=bool(gone or come)), new, gone, come)


def _acting(workload: AuditedWorkload, *, as_if_enforced: bool) -> list[Item]:
    """Return the items that refuse or change the workload."""
    return [
        item for item in workload.items if item.effect in {Effect.REFUSE, Effect.CHANGE} and (as_if_enforced or not item.rehearsed)
    ]


def _said(item: Item) -> tuple[str, ...]:
    return (item.rule, item.effect.value, item.reason, item.path, item.message)


def _verdict(was: Iterable[Item], now: Iterable[Item], *, differs: bool) -> ComparisonOutcome:
    before, after = {item.effect for item in was}, {item.effect for item in now}
    if Effect.REFUSE in after:
        if Effect.REFUSE not in before:
            return ComparisonOutcome.NEWLY_REFUSED
        return ComparisonOutcome.REFUSED_OTHERWISE if differs else ComparisonOutcome.SAME
    if Effect.REFUSE in before:
        return ComparisonOutcome.FREED
    if Effect.CHANGE in after:
        if Effect.CHANGE not in before:
            return ComparisonOutcome.NEWLY_CHANGED
        return ComparisonOutcome.CHANGED_OTHERWISE if differs else ComparisonOutcome.SAME
    return ComparisonOutcome.NO_LONGER_CHANGED if Effect.CHANGE in before else ComparisonOutcome.SAME


def as_json(compared: Iterable[Compared]) -> list[dict[str, Any]]:
    """Return the comparison for JSON, without unchanged workloads."""
    return [
        {
            "verdict": comparison.verdict.value,
            "apiVersion": comparison.workload.api_version,
            "kind": comparison.workload.kind,
            "namespace": comparison.workload.namespace,
            "name": comparison.workload.name,
            "team": comparison.workload.team,
            "accelerators": comparison.workload.accelerators,
            "noLonger": [_item(item) for item in comparison.gone],
            "newly": [_item(item) for item in comparison.come],
        }
        for comparison in compared
        if comparison.verdict is not ComparisonOutcome.SAME
    ]


def _item(item: Item) -> Mapping[str, str]:
    return {
        "rule": item.rule,
        "policy": item.policy,
        "effect": item.effect.value,
        "reason": item.reason,
        "path": item.path,
        "message": item.message,
        "remedy": item.remedy,
    }
