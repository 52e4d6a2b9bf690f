"""What a rule in Warn or DryRun says that it would do is what it does once its policy is enforced."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Mode, Severity
from gpugate.policies.framework.decision import BoundRule, Decision
from gpugate.policies.kube.fields import clone
from gpugate.policies.rules.registry import RULES
from tests.shared import cases as golden
from tests.shared.builders import bind, container, decided, every_rule, pod, templated, texts

_REHEARSED = ["DryRun", "Warn"]


def _bound(case: golden.Case, mode: str, *, every: bool) -> tuple[BoundRule, ...]:
    params = dict(case.content.get("params") or {})
    own = params if every else {**params, "mode": mode}
    spec: dict[str, Any] = {"mode": mode} if every else {}
    # Where all rules are bound, the rule of the case is named only if it has parameters: an unnamed one keeps its strongest mode.
    rules = {case.rule: own} if params or not every else {}
    return bind(rules, exemptions={"rules": case.content.get("exemptions", [])}, **spec)


def _decided(case: golden.Case, bound: tuple[BoundRule, ...]) -> tuple[dict[str, Any], Decision]:
    root, snapshot = case.given, case.snapshot()
    return root, decide(case.workload(root, snapshot), bound, snapshot)


def _refusals(decision: Decision, *, forecast: bool) -> list[tuple[Any, ...]]:
    return [
        (judged.rule, judged.finding)
        for judged in decision.findings
        if (judged.would_refuse if forecast else judged.severity is Severity.DENY)
    ]


@pytest.mark.parametrize("mode", _REHEARSED)
@pytest.mark.parametrize("every", [False, True], ids=["the rule alone", "all rules"])
@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_every_golden_case_is_forecast_as_it_is_decided_in_enforce(rule: str, mode: str, *, every: bool) -> None:
    compared = 0
    for case in golden.cases_of(rule):
        untouched, forecast = _decided(case, _bound(case, mode, every=every))
        _, done = _decided(case, _bound(case, "Enforce", every=every))
        if case.content.get("old") is None:
            assert untouched == case.given, case
        assert (forecast.changes, forecast.refused) == ([], False), case
        assert {change.mode for change in forecast.would_change} <= {Mode(mode)}, case
        assert texts(forecast.would_change) == texts(done.changes), case
        assert _refusals(forecast, forecast=True) == _refusals(done, forecast=False), case
        assert [judged.finding for judged in forecast.findings] == [judged.finding for judged in done.findings], case
        compared += bool(done.changes or done.findings)
    assert compared


_HOST_PATH = pod(container(), volumes=[{"name": "data", "hostPath": {"path": "/data"}}])


def test_a_rule_that_only_warns_in_enforce_does_not_forecast_a_refusal() -> None:
    for mode in _REHEARSED:
        decision = decided(clone(_HOST_PATH), every_rule(mode))
        found = [judged for judged in decision.findings if judged.finding.reason == "HostPath"]
        assert [judged.would_refuse for judged in found] == [False]
    named = decided(clone(_HOST_PATH), bind({"isolation": {}}, mode="DryRun"))
    assert any(judged.would_refuse for judged in named.findings if judged.finding.reason == "HostPath")


def test_warn_tells_and_dryrun_records() -> None:
    told, recorded = decided(clone(_HOST_PATH), every_rule("Warn")), decided(clone(_HOST_PATH), every_rule("DryRun"))
    assert {judged.severity for judged in told.findings} <= {Severity.WARN, Severity.UNKNOWN}
    assert {judged.severity for judged in recorded.findings} == {Severity.DRYRUN}
    assert [judged.finding for judged in told.findings] == [judged.finding for judged in recorded.findings]


def test_warn_and_dryrun_of_one_policy_are_told_apart() -> None:
    decision = decided(pod(container()), bind({"tolerations": {"mode": "Warn"}, "shared-memory": {"mode": "DryRun"}}))
    assert decision.patch == []
    assert {change.rule: change.mode for change in decision.would_change} == {
        "tolerations": Mode.WARN,
        "shared-memory": Mode.DRY_RUN,
    }


@pytest.mark.parametrize("mode", _REHEARSED)
def test_the_copy_of_an_exemption_into_a_template_is_rehearsed_as_well(mode: str) -> None:
    root = templated("Job", container())
    root["metadata"]["annotations"] = {"gpugate.io/exempt": "numa", "gpugate.io/exempt-reason": "profiling"}
    before = clone(root)
    decision = decided(root, bind({"numa": {"mode": mode}}, exemptions={"rules": ["numa"]}))
    assert root == before
    assert [(change.rule, change.mode) for change in decision.would_change] == [("exemption", Mode(mode))]
