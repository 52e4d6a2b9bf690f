"""What is found in objects that teams set up around workloads: ``tests/lint/cases/<check>.yaml``."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.kube.fields import clone, dotted
from gpugate.policies.lint import registry as catalogue
from gpugate.policies.lint.context import LintContext
from gpugate.webhook.files.documents import Document, parse
from tests.shared.paths import ROOT

FOLDER = ROOT / "tests" / "lint" / "cases"
MODULES = ROOT / "policies" / "lint"


@dataclass(frozen=True)
class Case:
    check: str
    content: dict[str, Any]


def all_cases() -> list[Case]:
    reader = YAML(typ="safe")
    return [Case(file.stem, one) for file in sorted(FOLDER.glob("*.yaml")) for one in reader.load(file.read_text(encoding="utf-8"))]


CASES = all_cases()


def reasons_in(module: Path) -> set[str]:
    """The reasons of the findings that a module makes: the first argument of `Finding`, or of the function that makes one."""
    calls = [node for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(node, ast.Call) and node.args]
    made = [one.args[0] for one in calls if isinstance(one.func, ast.Name) and one.func.id in {"Finding", "_missing"}]
    return {first.value for first in made if isinstance(first, ast.Constant)}


REASONS = {module.stem: reasons_in(module) for module in MODULES.glob("*.py")}


def read_yaml(text: str) -> Any:
    found = next(parse("", text), None)
    return found.value if isinstance(found, Document) else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}: {case.content['name']}")
def test_review_finds_in_what_stands_around_workloads_what_the_case_wants(case: Case) -> None:
    content = case.content
    assert set(content) <= {"name", "given", "beside", "facts", "wanted"}
    given = clone(content["given"])
    around = LintContext([given, *content.get("beside", [])], snapshot_from_objects(content.get("facts", [])), "default", read_yaml)
    found = catalogue.findings_of(given, around)
    shown = [(one.finding.reason, one.severity.value, dotted(one.finding.path)) for one in found]
    assert sorted(shown) == sorted((one["reason"], one["severity"], one["path"]) for one in content["wanted"]), found
    for want in content["wanted"]:
        texts = [f"{one.finding.message}. {one.finding.remedy}" for one in found if one.finding.reason == want["reason"]]
        assert any(want["has"] in text for text in texts), texts
    assert given == content["given"]
    assert catalogue.findings_of(given, around) == found
    for one in found:
        assert one.rule == catalogue.RULE
        assert one.finding.remedy.endswith(".")
        assert not one.finding.message.endswith(".")


def test_every_module_with_findings_has_cases_and_every_file_of_cases_is_of_a_module() -> None:
    assert {file.stem for file in FOLDER.glob("*.yaml")} == {name for name, reasons in REASONS.items() if reasons}


@pytest.mark.parametrize("check", sorted(name for name, reasons in REASONS.items() if reasons))
def test_every_reason_has_a_case_and_every_check_is_silent_in_some(check: str) -> None:
    wanted = [case.content["wanted"] for case in CASES if case.check == check]
    assert REASONS[check] <= {one["reason"] for findings in wanted for one in findings}
    assert [] in wanted


def test_the_page_about_review_names_every_reason() -> None:
    text = (ROOT / "docs" / "guide" / "review.md").read_text(encoding="utf-8")
    assert [reason for reasons in REASONS.values() for reason in sorted(reasons) if f"`{reason}`" not in text] == []


@pytest.mark.parametrize("kind", sorted(catalogue.CHECKS))
@pytest.mark.parametrize(
    "odd", [None, 7, "x", [], [7], {"": None}, {"hard": 7, "groups": [{"rules": 7}], "accessModes": ["ReadWriteOnce"]}]
)
def test_no_odd_object_breaks_a_check(kind: tuple[str, str], odd: Any) -> None:
    group, name = kind
    obj = {"apiVersion": f"{group}/v1" if group else "v1", "kind": name, "metadata": odd, "spec": odd, "data": odd}
    beside = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": odd, "spec": odd},
        {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [], "volumes": odd, "tolerations": odd}},
        {"apiVersion": "v1", "kind": "Service", "spec": odd},
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": odd},
    ]
    assert isinstance(catalogue.findings_of(obj, LintContext([obj, *beside], read_yaml=read_yaml)), list)
