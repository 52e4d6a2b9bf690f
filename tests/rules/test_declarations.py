"""What rules declare of themselves is what they do: reasons and their levels, written and read fields, order."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from gpugate.policies import engine, rules
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.findings import Finding, Mode, not_synced
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import ENGINE_REASONS, FIXED_ACTIONS
from gpugate.policies.framework.rule import COMMON_READS, Rule
from gpugate.policies.kube.fields import MalformedError, clone, dotted, lookup
from gpugate.policies.kube.fields import Path as FieldPath
from gpugate.policies.kube.managers import DEFAULTED_FIELDS
from gpugate.policies.rules.registry import BY_ID, RULES, USER_SET_FIELDS, WRITTEN_FIELDS
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.recorded_edits import RULE_FIELDS
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.admission.redaction import _HIDDEN as HIDDEN_FIELDS
from tests.shared import cases, strategies

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
    for case in cases.all_cases():
        if case.rule != rule:
            continue
        bound = {one.rule.id: one for one in case.bound()}
        workload, snapshot = case.decided()
        if rule in bound:
            found += [(str(case), finding) for finding in bound[rule].findings(workload, snapshot)]
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


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_edits_of_golden_cases_lie_within_what_a_rule_writes(rule: Rule) -> None:
    seen = set()
    for case in cases.all_cases():
        for bound in case.bound():
            if bound.rule is rule:
                snapshot = case.snapshot()
                seen |= _written(rule, case.workload(case.given, snapshot), bound.params, snapshot)
    assert seen == rule.writes | rule.writes_to_pods


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.workloads())
def test_edits_of_random_workloads_lie_within_what_a_rule_writes(root: dict[str, Any]) -> None:
    kind = kind_of(root["apiVersion"], root["kind"])
    assert kind is not None
    for rule in RULES:
        workload = open_workload(kind, clone(root), EMPTY_SNAPSHOT)
        with contextlib.suppress(MalformedError):
            _written(rule, workload, rule.params(), EMPTY_SNAPSHOT)


def _written(rule: Rule, workload: Workload, params: Params, snapshot: ClusterSnapshot) -> set[str]:
    """Return the declared fields that the edits write; fail for an edit outside them."""
    fields = set()
    allowed = rule.writes | (rule.writes_to_pods if workload.is_pod() else frozenset())
    for edit in rule.mutate(workload, params, snapshot):
        field = next((part for part in edit.path if part in allowed), None)
        assert field is not None, f"{rule.id} does not declare that it writes {dotted(edit.path)}"
        fields.add(str(field))
    return fields


def test_lists_far_from_the_rules_agree_with_them() -> None:
    # A security context is looked at more closely there: edits of it only take rights away.
    assert WRITTEN_FIELDS - {"securityContext"} == RULE_FIELDS
    assert USER_SET_FIELDS == DEFAULTED_FIELDS
    assert not any(rule.reads & HIDDEN_FIELDS for rule in RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_fields_that_a_rule_does_not_read_change_nothing(rule: Rule) -> None:
    known = rule.reads | COMMON_READS
    for case in cases.all_cases():
        if case.rule != rule.id:
            continue
        for bound in case.bound():
            if bound.rule is not rule:
                continue
            snapshot = case.snapshot()
            before = _result(case.workload(case.given, snapshot), bound, snapshot)
            without = case.given
            templates = [pods.path for pods in case.workload(case.given, snapshot).pod_sets]
            removed = {field for template in templates for field in _prune(without, template, known)}
            after = _result(case.workload(without, snapshot), bound, snapshot)
            assert after == before, f"{case!s}: one of {sorted(removed)} is read"


def _keys(value: object) -> Iterator[str]:
    """Return the keys of all maps in ``value``."""
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(item)


def test_random_workloads_have_every_field_that_a_rule_reads() -> None:
    seen: set[str] = set()

    @settings(max_examples=500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(strategies.workloads())
    def collect(root: dict[str, Any]) -> None:
        seen.update(_keys(root))

    collect()
    assert {rule.id: rule.reads - seen for rule in RULES if rule.reads - seen} == {}


@settings(max_examples=100, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.workloads(), strategies.clusters())
def test_fields_of_random_workloads_that_a_rule_does_not_read_change_nothing(
    root: dict[str, Any], snapshot: ClusterSnapshot
) -> None:
    kind = kind_of(root["apiVersion"], root["kind"])
    assert kind is not None
    for rule in RULES:
        bound = BoundRule(rule, rule.params(), Mode.ENFORCE)
        pruned = clone(root)
        try:
            templates = [pods.path for pods in open_workload(kind, clone(root), snapshot).pod_sets]
            removed = {field for template in templates for field in _prune(pruned, template, rule.reads | COMMON_READS)}
        except MalformedError:
            continue
        before = _result(open_workload(kind, clone(root), snapshot), bound, snapshot)
        after = _result(open_workload(kind, pruned, snapshot), bound, snapshot)
        assert after == before, f"{rule.id}: one of {sorted(removed)} is read"


def _result(workload: Workload, bound: BoundRule, snapshot: ClusterSnapshot) -> object:
    rule = bound.rule
    try:
        return list(rule.mutate(workload, bound.params, snapshot)), bound.findings(workload, snapshot)
    except MalformedError as error:
        return str(error)


def _prune(root: dict[str, Any], template: FieldPath, known: frozenset[str]) -> Iterator[str]:
    """Remove the fields of a pod template that are not ``known``: of its spec, its containers and its metadata."""
    spec = lookup(root, (*template, "spec")) or {}
    containers = [one for kind in ("containers", "initContainers", "ephemeralContainers") for one in spec.get(kind) or ()]
    for place in (spec, *containers, lookup(root, (*template, "metadata")) or {}):
        for field in [field for field in place if field not in known]:
            del place[field]
            yield field


def test_rules_come_after_those_whose_edits_they_build_on() -> None:
    order = [rule.id for rule in RULES]
    for rule in RULES:
        assert all(order.index(other) < order.index(rule.id) for other in rule.after)
    assert set(BY_ID) == set(order)
