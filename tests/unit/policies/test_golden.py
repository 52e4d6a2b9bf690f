"""Every rule against its golden cases: ``tests/golden/<rule>/<case>.yaml``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import cases
import jsonpatch
import orjson
import pytest

from gpugate.policies.findings import Judged
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import clone, dotted
from gpugate.policies.rules.registry import RULES

_EVERY_CASE = cases.all_paths()
_FEWEST = 12
#: Flux and kubectl with force take these words for "delete it and make it anew".
_FATAL_WORDS = ("is immutable", "immutable field")


def test_every_rule_has_a_folder_of_golden_cases_and_every_folder_is_a_rule() -> None:
    assert cases.folders() == cases.rule_ids()


@pytest.mark.parametrize("rule", sorted(cases.rule_ids()))
def test_every_rule_has_a_dozen_cases_at_least(rule: str) -> None:
    assert len([path for path in _EVERY_CASE if path.parent.name == rule]) >= _FEWEST


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_reason_that_a_rule_gives_has_a_case(rule: Rule) -> None:
    wanted = [cases.load(path).wanted.get("findings") or [] for path in _EVERY_CASE if path.parent.name == rule.id]
    assert cases.reasons_in(rule) <= {one["reason"] for findings in wanted for one in findings}


def test_nothing_else_lies_among_the_golden_cases() -> None:
    found = {path for path in cases.GOLDEN.rglob("*") if path.is_file()}
    assert found == {*_EVERY_CASE, *cases.SHARED_FACTS.glob("*.yaml")}


def test_every_shared_facts_file_is_used_by_a_case() -> None:
    named = {str(cases.load(path).content.get("facts")) for path in _EVERY_CASE}
    assert {path.stem for path in cases.SHARED_FACTS.glob("*.yaml")} <= named


@pytest.mark.parametrize("path", _EVERY_CASE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden_case(path: Path) -> None:
    case = cases.load(path)
    root = case.given
    decision = case.decide(root)

    assert decision.failures == []
    _assert_object(case, root, decision.patch)
    if "group" in case.wanted:
        assert case.pod_group(root) == case.wanted["group"]
    _assert_findings(case.wanted.get("findings") or [], decision.findings)
    _assert_laws(case, root, decision.patch, decision.findings)


def _assert_object(case: cases.Case, root: dict[str, Any], patch: list[dict[str, Any]]) -> None:
    wanted = case.wanted
    assert len({"changed", "patch", "clean"} & set(wanted)) == 1, "a case wants one of: changed, patch, clean"
    if "changed" in wanted:
        assert cases.without_record(root) == wanted["changed"]
    elif "patch" in wanted:
        assert cases.patch_without_record(patch) == wanted["patch"]
    else:
        assert patch == []
        assert root == case.given


def _assert_findings(wanted: list[dict[str, Any]], found: list[Judged]) -> None:
    def key(reason: str, path: str) -> tuple[str, str]:
        return (reason, path)

    shown = [f"{one.severity.value} {one.finding.reason} {dotted(one.finding.path)}: {one.finding.message}" for one in found]
    wanted = sorted(wanted, key=lambda one: key(one["reason"], one["path"]))
    found = sorted(found, key=lambda one: key(one.finding.reason, dotted(one.finding.path)))
    assert [(one["reason"], one["path"], one["severity"]) for one in wanted] == [
        (one.finding.reason, dotted(one.finding.path), one.severity.value) for one in found
    ], shown
    for want, one in zip(wanted, found, strict=True):
        assert want.get("rule", one.rule) == one.rule
        assert want.get("message", one.finding.message) == one.finding.message
        assert want.get("message_has", "") in one.finding.message
        assert want.get("remedy", one.finding.remedy) == one.finding.remedy
        assert want.get("remedy_has", "") in one.finding.remedy


def _assert_laws(case: cases.Case, root: dict[str, Any], patch: list[dict[str, Any]], findings: list[Judged]) -> None:
    """What holds for every decision whatever."""
    assert jsonpatch.apply_patch(case.given, patch) == root

    again = clone(root)
    repeated = case.decide(again)
    assert repeated.patch == [], "deciding again on the decided object changes it"
    assert again == root

    twin = case.given
    same = case.decide(twin)
    assert orjson.dumps([same.patch, twin]) == orjson.dumps([patch, root])
    assert same.findings == findings

    for one in findings:
        assert re.fullmatch(r"(?:[A-Z][a-z]+)+", one.finding.reason), f"{one.finding.reason} is not CamelCase"
        assert one.finding.remedy.endswith(".")
        assert one.finding.message
        for text in (one.finding.message, one.finding.remedy):
            assert not any(word in text.lower() for word in _FATAL_WORDS)
