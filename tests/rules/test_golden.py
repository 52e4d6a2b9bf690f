"""Every rule against its golden cases: ``tests/rules/<theme>/<rule>/cases/*.yaml``."""

from __future__ import annotations

import re
from typing import Any

import jsonpatch
import orjson
import pytest

from gpugate.policies.findings import Judged
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import clone, dotted
from gpugate.policies.rules.registry import RULES
from tests.shared import cases
from tests.shared.paths import ROOT
from tests.shared.yaml_files import read

_RULES = ROOT / "tests" / "rules"
_FEWEST = 12
#: Flux and kubectl with force take these words for "delete it and make it anew".
_FATAL_WORDS = ("is immutable", "immutable field")


def test_every_rule_has_a_folder_of_golden_cases_and_every_folder_is_a_rule() -> None:
    assert {folder.parent for folder in _RULES.glob("*/*/cases")} == {cases.folder_of(rule) for rule in RULES}
    assert len({cases.folder_of(rule) for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_dozen_cases_at_least(rule: Rule) -> None:
    assert len(cases.cases_of(rule.id)) >= _FEWEST


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_reason_that_a_rule_gives_has_a_case(rule: Rule) -> None:
    wanted = [finding for case in cases.cases_of(rule.id) for finding in case.wanted.get("findings") or []]
    assert set(rule.reasons) <= {finding["reason"] for finding in wanted}


def test_nothing_else_lies_among_the_golden_cases() -> None:
    files = {path for path in _RULES.rglob("*.yaml") if path.is_file()}
    bases = {cases.folder_of(rule) / "bases.yaml" for rule in RULES}
    assert files - bases == {case.file for case in cases.all_cases()}
    assert {path for path in _RULES.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}} == files
    assert {path for path in _RULES.rglob("cases/*") if path.is_file()} == {case.file for case in cases.all_cases()}


def test_every_shared_cluster_is_used_by_a_case_and_every_cluster_that_a_case_names_is_there() -> None:
    named = {case.content["facts"] for case in cases.all_cases() if isinstance(case.content.get("facts"), str)}
    assert {path.name for path in cases.CLUSTERS.iterdir()} == {f"{name}.yaml" for name in named}


def test_every_base_is_used_by_two_cases_and_the_shared_ones_by_two_rules() -> None:
    used = {name: [rule.id for rule in RULES for used in _bases_used(rule) if used == name] for name in read(cases.SHARED_BASES)}
    assert [name for name, rules in used.items() if len(set(rules)) < 2] == []
    own = [(rule, name) for rule in RULES for name in set(cases.bases_of(rule)) - set(used)]
    assert [(rule.id, name) for rule, name in own if _bases_used(rule).count(name) < 2] == []


def _bases_used(rule: Rule) -> list[str]:
    """The bases that the rule's files name, once for each case."""
    names = []
    for file in {case.file for case in cases.cases_of(rule.id)}:
        listed = dict(read(file))
        defaults = listed.pop("defaults", {})
        for stated in listed.values():
            case = stated if {"base", "given", "old"} & set(stated) else {**defaults, **stated}
            facts = case.get("facts", defaults.get("facts", []))
            objects = [case, *(facts if isinstance(facts, list) else [])]
            names += [one["base"] for one in objects if "base" in one]
    return names


@pytest.mark.parametrize("case", cases.all_cases(), ids=str)
def test_golden_case(case: cases.Case) -> None:
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
