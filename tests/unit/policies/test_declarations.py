"""What rules declare of themselves is what they do: reasons and their levels, written and read fields, order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import cases
import pytest

from gpugate.policies import engine, rules
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.framework.reasons import ENGINE_REASONS, FIXED_ACTIONS
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.registry import BY_ID, RULES

_MAKERS = {Finding.__name__, not_synced.__name__}


def _reasons_named_in(modules: Iterator[Path] | list[Path]) -> set[str]:
    """Return the reasons that the modules name where they make a finding."""
    calls = (
        node for path in modules for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    )
    makers = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id in _MAKERS and call.args)
    return {str(call.args[0].value) for call in makers if isinstance(call.args[0], ast.Constant)}


@cache
def _findings_of(rule: str) -> tuple[tuple[str, Finding], ...]:
    """Return the findings of a rule on the edited objects of its golden cases, before the engine relaxes any of them."""
    found = []
    for path in cases.all_paths():
        case = cases.load(path)
        if case.rule != rule:
            continue
        bound = {one.rule.id: one for one in case.bound()}
        workload, snapshot = case.decided()
        if rule in bound:
            found += [(path.stem, finding) for finding in bound[rule].rule.findings(workload, bound[rule].params, snapshot)]
    return tuple(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_reasons_are_declared_whole(rule: Rule) -> None:
    for name, reason in rule.reasons.items():
        assert name.isalnum()
        assert name[0].isupper()
        assert reason.title.endswith(".")
        assert reason.action in FIXED_ACTIONS or reason.action in rule.params.model_fields
        assert set(reason.facts) <= rule.needs


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_findings_have_the_levels_that_their_reasons_declare(rule: Rule) -> None:
    for case, finding in _findings_of(rule.id):
        assert rule.reasons[finding.reason].may_be(finding.level), f"{case}: {finding.reason} is {finding.level}"


def test_every_reason_that_a_rule_names_is_declared_by_some_rule() -> None:
    declared = {reason for rule in RULES for reason in rule.reasons}
    assert _reasons_named_in(Path(rules.__file__).parent.rglob("*.py")) <= declared


def test_the_engine_declares_its_reasons() -> None:
    assert _reasons_named_in(Path(engine.__file__).parent.rglob("*.py")) == set(ENGINE_REASONS)


def test_rules_come_after_those_whose_edits_they_build_on() -> None:
    order = [rule.id for rule in RULES]
    for rule in RULES:
        assert all(order.index(other) < order.index(rule.id) for other in rule.after)
    assert set(BY_ID) == set(order)
