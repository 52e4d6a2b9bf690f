"""The figures of an audit in the status of a policy."""

from __future__ import annotations

from gpugate.policies.findings import Mode
from gpugate.webhook.audit.model import AuditedWorkload, Effect, Item
from gpugate.webhook.audit.totals import totals_by_policy

AT = "2026-11-02T08:00:00Z"


def item(policy: str, effect: Effect) -> Item:
    return Item("numa", policy, Mode.DRY_RUN, effect, "R", "", "m", "r")


def last_audit(workloads: int, change: int, refuse: int, exempt: int) -> dict[str, int | str]:
    return {"time": AT, "workloads": workloads, "wouldChange": change, "wouldRefuse": refuse, "exempt": exempt}


def workload(name: str, *items: Item, bound: tuple[str, ...] = ("default@3",)) -> AuditedWorkload:
    return AuditedWorkload("v1", "Pod", "a", name, "", "", "", 1, (), items, bound_by=bound)


def test_each_policy_counts_the_workloads_that_it_binds_and_what_its_own_rules_say() -> None:
    refuse, change = item("default@3", Effect.REFUSE), item("default@3", Effect.CHANGE)
    found = totals_by_policy(
        [
            workload("a", refuse, change),
            workload("b", change, item("team@1", Effect.REFUSE), bound=("default@3", "team@1")),
            workload("c", item("default@3", Effect.EXEMPT)),
            workload("d"),
            workload("e", bound=()),
        ],
        AT,
    )
    assert found == {"default": last_audit(4, 1, 1, 1), "team": last_audit(1, 0, 1, 0)}


def test_what_no_policy_says_counts_for_none() -> None:
    assert totals_by_policy([workload("a", item("", Effect.WARN))], AT) == {"default": last_audit(1, 0, 0, 0)}
