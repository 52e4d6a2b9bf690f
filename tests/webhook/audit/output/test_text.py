"""An audit at a terminal, and its sums: figures, names of nobody, and what hostile names may not do."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gpugate.policies.findings import Mode
from gpugate.policies.gangs.status import GangState
from gpugate.webhook.audit.compare import compare
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect, NodeSummary, PolicyLine, ShapeSummary
from gpugate.webhook.audit.output.text import headline, print_audit, print_comparison
from gpugate.webhook.audit.totals import Totals, totals_by, totals_by_rule, totals_of
from tests.shared.audits import audit, item, workload

GREEDY = workload("greedy", item(), item(Effect.CHANGE, rule="tolerations"), team="vision", devices=(("nvidia.com/gpu", 8),))
CHANGED = workload("changed", item(Effect.CHANGE, rule="tolerations"), item(Effect.WARN, rule="numa"), team="vision")
EXEMPT = workload("exempt", item(Effect.EXEMPT), item(Effect.UNKNOWN, rule="vram"), namespace="team-b")
CLEAN = workload("clean", devices=(("amd.com/gpu", 2), ("nvidia.com/gpu", 1)))
ALL = (GREEDY, CHANGED, EXEMPT, CLEAN)


def printed(found: Audit, **options: Any) -> str:
    stream = io.StringIO()
    print_audit(found, Console(file=stream, width=200, highlight=False, markup=False, no_color=True), **options)
    return stream.getvalue()


def figures(totals: Totals) -> tuple[int, ...]:
    counts = (totals.effects[effect] for effect in ("refuse", "warn", "unknown", "exempt"))
    return (totals.workloads, totals.changed, *counts, totals.accelerators, totals.refused_accelerators)


def test_sums_of_workloads() -> None:
    assert figures(totals_of(ALL)) == (4, 1, 1, 1, 1, 1, 13, 8)
    assert figures(totals_of([])) == (0, 0, 0, 0, 0, 0, 0, 0)


def test_sums_by_team_and_rule() -> None:
    by_team = totals_by(ALL, lambda one: one.team)
    assert {team: one.workloads for team, one in by_team.items()} == {"": 2, "vision": 2}
    by_rule = totals_by_rule(ALL)
    assert list(by_rule) == ["host-memory", "numa", "tolerations", "vram"]
    assert figures(by_rule["tolerations"]) == (2, 2, 0, 0, 0, 0, 9, 0), "a rule's own sums, whatever others say"
    assert figures(by_rule["host-memory"]) == (2, 0, 1, 0, 0, 1, 9, 8)


WORKLOADS = st.lists(
    st.builds(
        lambda at, effects, gpus, team: workload(f"w{at}", *map(item, effects), devices=(("nvidia.com/gpu", gpus),), team=team),
        st.integers(0, 99),
        st.lists(st.sampled_from(Effect), max_size=4),
        st.integers(0, 64),
        st.sampled_from(["", "a", "b"]),
    ),
    max_size=12,
)


@given(WORKLOADS)
def test_sums_of_parts_come_to_the_sums_of_the_whole(workloads: list[AuditedWorkload]) -> None:
    parts = totals_by(workloads, lambda one: one.team).values()
    whole = totals_of(workloads)
    sums = tuple(map(sum, zip(*map(figures, parts), strict=True)))
    assert sums == (figures(whole) if workloads else ())
    assert whole.effects["refuse"] + whole.changed <= whole.workloads == len(workloads)
    assert whole.refused_accelerators <= whole.accelerators


@pytest.mark.parametrize(
    ("workloads", "text"),
    [
        ((), "No workload requests accelerators."),
        ((CLEAN,), "Enforcing would refuse 0 of 1 workload (0 accelerators) and change 0; 0 exempt."),
        (
            (workload("w", item()),),
            "Enforcing would refuse 1 of 1 workload (1 accelerator) and change 0; 0 exempt.",
        ),
        (ALL, "Enforcing would refuse 1 of 4 workloads of 1 team (8 accelerators) and change 1; 1 exempt."),
        (
            (GREEDY, workload("w", item(), team="b")),
            "Enforcing would refuse 2 of 2 workloads of 2 teams (9 accelerators) and change 0; 0 exempt.",
        ),
    ],
)
def test_the_headline_in_singular_and_plural(workloads: tuple[AuditedWorkload, ...], text: str) -> None:
    assert headline(audit(*workloads)) == text


def test_the_tables_have_a_line_for_each_rule_team_and_namespace() -> None:
    lines = [line.split() for line in printed(audit(*ALL)).splitlines()]
    assert ["rule", "workloads", "refused", "changed", "warned", "exempt", "accelerators"] in lines
    assert ["host-memory", "2", "1", "-", "-", "1", "9"] in lines
    assert ["vision", "2", "1", "1", "1", "-", "9"] in lines
    assert ["(none)", "2", "-", "-", "-", "1", "4"] in lines
    assert ["team-b", "1", "-", "-", "-", "1", "1"] in lines


def test_each_workload_that_a_rule_has_something_to_say_of_is_told_with_its_fix() -> None:
    text = printed(audit(*ALL))
    assert "Pod team-a/greedy  8 accelerators, team vision\n" in text
    assert "  refuse  host-memory (DryRun): spec.containers[0]: limit 48Gi / request 4Gi = 12. Lower the limit.\n" in text
    assert "Pod team-b/exempt  1 accelerator\n" in text
    assert "Pod team-a/clean" not in text
    assert "greedy" not in printed(audit(*ALL), findings=False)


def test_what_the_engine_says_of_its_own_accord_names_no_mode() -> None:
    found = workload("w", item(Effect.WARN, policy="", mode=Mode.MUTATE, rule="exemption", path="", remedy="", message="names 'x'"))
    assert "  warn    exemption: names 'x'\n" in printed(audit(found))


def test_remarks_and_stuck_gangs_and_stranded_accelerators_are_told() -> None:
    nodes = (NodeSummary("n1", 8, 1, 7, 100, 100, 100, 8000, 1000), NodeSummary("n2", 8, 8, 0, 100, 100, 100, 8000, 1000))
    shape = ShapeSummary("H100", "nvidia.com/gpu", nodes, "7 free accelerators are stranded")
    text = printed(audit(shapes=(shape,), remarks=("pods cannot be read: no",)))
    assert ["H100", "2", "16", "9", "0", "7"] in [line.split() for line in text.splitlines()]
    assert "H100: 7 free accelerators are stranded\n" in text
    assert "remark: pods cannot be read: no\n" in text


def test_a_policy_that_is_not_in_force_is_told() -> None:
    lines = (PolicyLine("fine", 1, 0, (), ""), PolicyLine("broken", 0, 0, (), "broken: spec.mode: must be one of Enforce"))
    text = printed(audit(CLEAN, policies=lines))
    assert "GPUPolicy broken is not fully in force: broken: spec.mode: must be one of Enforce\n" in text
    assert "fine" not in text


HOSTILE = "\x1b[31mred\x07\nEnforcing would refuse 0\r\x9b2J[bold]x[/bold]"


def test_hostile_texts_neither_reach_the_terminal_nor_begin_a_line() -> None:
    found = workload(
        HOSTILE, item(message=HOSTILE, path=HOSTILE, remedy=HOSTILE, rule=HOSTILE), namespace=HOSTILE, team=HOSTILE, kind=HOSTILE
    )
    node = NodeSummary(HOSTILE, 8, 1, 7, 1, 1, 1, 1, 1)
    gang = GangState("ns", "Job", HOSTILE, *_rest_of_a_gang())
    whole = audit(
        found,
        remarks=(HOSTILE,),
        shapes=(ShapeSummary(HOSTILE, HOSTILE, (node,), HOSTILE),),
        policies=(PolicyLine(HOSTILE, 1, 0, (), HOSTILE),),
        gangs=(gang,),
    )
    stream = io.StringIO()
    print_comparison(
        compare([], [found], as_if_enforced=True), Console(file=stream, width=200, highlight=False, markup=False, no_color=True)
    )
    for text in (printed(whole), stream.getvalue()):
        assert not set(text) & {"\x1b", "\x07", "\r", "\x9b"}
        assert "[bold]x[/bold]" in text
        assert [line for line in text.splitlines() if line.startswith("Enforcing would refuse 0")] == []


def _rest_of_a_gang() -> tuple[Any, ...]:
    given_ = {"state": "stuck", "reason": HOSTILE}
    kinds = {name: given_.get(name, 0) for name in GangState._fields[3:]}
    return tuple(kinds.values())


def test_a_comparison_is_told_by_verdict_with_what_comes_and_goes() -> None:
    enforced = item(mode=Mode.ENFORCE)
    before = [workload("a"), workload("b", enforced), workload("c")]
    after = [workload("a", enforced), workload("b"), workload("c")]
    stream = io.StringIO()
    print_comparison(compare(before, after), Console(file=stream, width=200, highlight=False, markup=False, no_color=True))
    text = stream.getvalue()
    assert text.startswith("3 workloads: 1 newly refused, 1 freed, 1 the same\n")
    assert "newly refused: Pod team-a/a\n  +   refuse  host-memory (Enforce): " in text
    assert "freed: Pod team-a/b\n  -   refuse  host-memory" in text
    assert "team-a/c" not in text


def test_a_comparison_of_nothing() -> None:
    stream = io.StringIO()
    print_comparison([], Console(file=stream, width=80))
    assert stream.getvalue() == "0 workloads: none\n"
