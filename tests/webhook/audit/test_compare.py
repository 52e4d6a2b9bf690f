"""What becomes of workloads when one policy takes another's place."""

from __future__ import annotations

import pytest

from gpugate.policies.findings import Mode
from gpugate.policies.policy.models import Policy
from gpugate.webhook.audit.compare import Compared, ComparisonOutcome, compare
from gpugate.webhook.audit.model import Effect, Item
from gpugate.webhook.audit.output.json import comparison_document
from tests.shared.audits import a_pod, audited, item, workload
from tests.shared.reviews import overcommitted_pod, policy

REFUSED = item(mode=Mode.ENFORCE)
CHANGED = item(Effect.CHANGE, mode=Mode.ENFORCE, rule="tolerations")
OTHER = item(mode=Mode.ENFORCE, rule="vram", message="70B parameters")
OTHER_CHANGE = CHANGED._replace(message="something else")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((), (REFUSED,), ComparisonOutcome.NEWLY_REFUSED),
        ((CHANGED,), (REFUSED, CHANGED), ComparisonOutcome.NEWLY_REFUSED),
        ((REFUSED,), (OTHER,), ComparisonOutcome.REFUSED_OTHERWISE),
        ((REFUSED,), (REFUSED, OTHER), ComparisonOutcome.REFUSED_OTHERWISE),
        ((REFUSED,), (REFUSED,), ComparisonOutcome.SAME),
        ((REFUSED,), (), ComparisonOutcome.FREED),
        ((REFUSED,), (CHANGED,), ComparisonOutcome.FREED),
        ((), (CHANGED,), ComparisonOutcome.NEWLY_CHANGED),
        ((CHANGED,), (OTHER_CHANGE,), ComparisonOutcome.CHANGED_OTHERWISE),
        ((CHANGED,), (CHANGED,), ComparisonOutcome.SAME),
        ((CHANGED,), (), ComparisonOutcome.NO_LONGER_CHANGED),
        ((), (), ComparisonOutcome.SAME),
        ((), (item(Effect.WARN), item(Effect.UNKNOWN), item(Effect.EXEMPT)), ComparisonOutcome.SAME),
        ((REFUSED,), (REFUSED._replace(policy="new@2", remedy="Do else."),), ComparisonOutcome.SAME),
        ((REFUSED,), (REFUSED._replace(mode=Mode.DRY_RUN),), ComparisonOutcome.FREED),
        ((REFUSED._replace(mode=Mode.DRY_RUN),), (REFUSED,), ComparisonOutcome.NEWLY_REFUSED),
        ((), (REFUSED._replace(mode=Mode.DRY_RUN),), ComparisonOutcome.SAME),
    ],
)
def test_every_verdict(before: tuple[Item, ...], after: tuple[Item, ...], verdict: ComparisonOutcome) -> None:
    (found,) = compare([workload("w", *before)], [workload("w", *after)])
    assert found.verdict is verdict


def test_as_if_enforced_counts_what_rules_in_dry_run_would_do_on_both_sides() -> None:
    dry = REFUSED._replace(mode=Mode.DRY_RUN)
    verdicts = [
        compare([workload("w", *old)], [workload("w", *new)], as_if_enforced=True)[0].verdict
        for old, new in (((dry,), (REFUSED,)), ((), (dry,)), ((dry,), ()))
    ]
    assert verdicts == [ComparisonOutcome.SAME, ComparisonOutcome.NEWLY_REFUSED, ComparisonOutcome.FREED]


def test_what_only_one_side_says_is_told() -> None:
    (found,) = compare([workload("w", REFUSED, CHANGED)], [workload("w", OTHER, CHANGED)])
    assert (found.gone, found.come) == ((REFUSED,), (OTHER,))


def test_a_workload_that_was_not_there_before_is_new_in_all_that_is_said_of_it() -> None:
    (found,) = compare([], [workload("w", REFUSED)])
    assert found.verdict is ComparisonOutcome.NEWLY_REFUSED


def test_workloads_of_one_name_are_told_apart_by_kind_namespace_and_group() -> None:
    before = [workload("w", REFUSED), workload("w", kind="Job"), workload("w", namespace="b"), workload("w", api_version="x/v1")]
    assert [one.verdict for one in compare(before, before)] == [ComparisonOutcome.SAME] * 4


def compared(old: Policy, new: Policy, *, as_if_enforced: bool = False) -> Compared:
    obj = overcommitted_pod(uid="u")
    (found,) = compare(audited(obj, policies=[old]), audited(obj, policies=[new]), as_if_enforced=as_if_enforced)
    return found


def bound(mode: str = "Enforce", **settings: object) -> Policy:
    return policy("p", mode=None, rules={"host-memory": {"mode": mode, **settings}})


def test_policies_that_differ_in_mode() -> None:
    assert compared(bound("Mutate"), bound("Enforce")).verdict is ComparisonOutcome.NEWLY_REFUSED
    assert compared(bound("Enforce"), bound("DryRun")).verdict is ComparisonOutcome.FREED
    assert compared(bound("DryRun"), bound("Enforce"), as_if_enforced=True).verdict is ComparisonOutcome.SAME


def test_policies_that_differ_in_parameters() -> None:
    assert compared(bound(), bound(maxOvercommitRatio=20)).verdict is ComparisonOutcome.FREED
    assert compared(bound(maxOvercommitRatio=20), bound()).verdict is ComparisonOutcome.NEWLY_REFUSED
    assert compared(bound(), bound(maxOvercommitRatio=3)).verdict is ComparisonOutcome.REFUSED_OTHERWISE


def test_policies_that_differ_in_selectors() -> None:
    elsewhere = policy("p", mode=None, rules={"host-memory": {}}, match={"objectSelector": {"matchLabels": {"team": "b"}}})
    assert compared(bound(), elsewhere).verdict is ComparisonOutcome.FREED
    assert compared(elsewhere, bound()).verdict is ComparisonOutcome.NEWLY_REFUSED


def test_the_same_policy_changes_nothing() -> None:
    for found in compare(audited(a_pod(), overcommitted_pod()), audited(a_pod(), overcommitted_pod())):
        assert (found.verdict, found.gone, found.come) == (ComparisonOutcome.SAME, (), ())


def test_json_has_what_differs_and_leaves_out_what_does_not() -> None:
    found = compare([workload("a"), workload("b")], [workload("a", REFUSED), workload("b")])
    assert [(one["verdict"], one["name"], len(one["newly"]), one["noLonger"]) for one in comparison_document(found)] == [
        ("newly refused", "a", 1, [])
    ]
