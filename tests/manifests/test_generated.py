"""What is generated from the models and rules: current, complete, and taken by the API server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML
from typer.testing import CliRunner

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import ENGINE_REASONS
from gpugate.policies.policy import crd
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import SETTINGS, default_policy, parse_policy
from gpugate.policies.policy.reference import parameters, reference_markdown
from gpugate.policies.rules.registry import RULES
from gpugate.webhook.cli import policies
from tests.manifests.installation import BASE, ROOT, the

HOW = "is stale: run `make docs`"
app = typer.Typer()
app.command()(policies.policies)


def run(*args: str) -> str:
    done = CliRunner().invoke(app, args)
    assert done.exit_code == 0, done.output
    return done.output


def schema() -> Any:
    (version,) = crd.gpupolicy_crd()["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def walk(node: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema."""
    yield node
    for child in node.get("properties", {}).values():
        yield from walk(child)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from walk(node[key])


def test_the_crd_is_current() -> None:
    path = BASE / "crd" / "gpugate.io_gpupolicies.yaml"
    assert path.read_text(encoding="utf-8") == run("--format", "crd"), f"{path.relative_to(ROOT)} {HOW}"
    assert the("CustomResourceDefinition") == crd.gpupolicy_crd()


@pytest.mark.parametrize("door", ["mutating", "validating"])
def test_the_webhook_configurations_are_current(door: str) -> None:
    path = BASE / "webhook" / f"{door}.yaml"
    assert path.read_text(encoding="utf-8") == run("--format", f"{door}-webhook"), f"{path.relative_to(ROOT)} {HOW}"


def test_the_reference_is_current() -> None:
    path = ROOT / "docs" / "reference" / "rules.md"
    assert path.read_text(encoding="utf-8") == run("--format", "markdown"), f"{path.relative_to(ROOT)} {HOW}"


def test_the_comparison_of_profiles_is_current() -> None:
    path = ROOT / "docs" / "reference" / "profiles.md"
    assert path.read_text(encoding="utf-8") == run("--profiles", "--format", "markdown"), f"{path.relative_to(ROOT)} {HOW}"


def test_another_process_generates_the_same() -> None:
    code = "from gpugate.webhook.cli.policies import *; print(crd_yaml() + reference_markdown() + default_yaml(), end='')"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert other.stdout == policies.crd_yaml() + policies.reference_markdown() + policies.default_yaml()


def test_the_crd_has_every_rule_and_parameter() -> None:
    rules = schema()["properties"]["spec"]["properties"]["rules"]["properties"]
    assert list(rules) == [rule.id for rule in RULES]
    for rule in RULES:
        wanted = {field.alias or name for name, field in SETTINGS[rule.id].model_fields.items()}
        assert set(rules[rule.id]["properties"]) == wanted
        assert wanted >= {"mode", "onGitConflict"}


def test_the_schema_is_structural() -> None:
    for node in walk(schema()):
        assert not {"$ref", "$defs", "title", "const", "nullable", "oneOf", "allOf"} & set(node)
        assert node.get("additionalProperties") is not False
        assert ("anyOf" in node) is ("x-kubernetes-int-or-string" in node)
        assert "type" in node or "x-kubernetes-int-or-string" in node
        assert all(isinstance(node.get(key, True), bool) for key in ("exclusiveMinimum", "exclusiveMaximum"))
        if node.get("type") == "array":
            assert "x-kubernetes-list-type" in node


def test_the_api_server_writes_no_defaults_into_policies() -> None:
    assert not [node for node in walk(schema()) if "default" in node]


def test_every_field_is_described_with_its_default() -> None:
    for rule in RULES:
        fields = schema()["properties"]["spec"]["properties"]["rules"]["properties"][rule.id]["properties"]
        assert all(field["description"] for field in fields.values())
    memory = schema()["properties"]["spec"]["properties"]["rules"]["properties"]["host-memory"]["properties"]
    assert memory["defaultLimits"]["description"].endswith("Default: WhenNodesAgree.")


def test_exemptions_name_rules_that_there_are() -> None:
    names = schema()["properties"]["spec"]["properties"]["exemptions"]["properties"]["rules"]["items"]["enum"]
    assert set(names) == {"*", *(rule.id for rule in RULES)}


def test_status_is_what_flux_and_argo_read() -> None:
    spec = crd.gpupolicy_crd()["spec"]
    assert spec["scope"] == "Cluster"
    assert spec["versions"][0]["subresources"] == {"status": {}}
    shown = [column["name"] for column in spec["versions"][0]["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == ["Mode", "Priority", "Ready", "Reason", "Namespaces", "Would-Change", "Would-Refuse", "Age"]
    status = schema()["properties"]["status"]["properties"]
    assert {"conditions", "observedGeneration"} <= set(status)
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


@pytest.mark.parametrize("unknown", [{"oneOf": []}, {"const": 1}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}])
def test_what_a_structural_schema_cannot_say_is_refused(unknown: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no structural schema"):
        crd._structural({"description": "A field.", **unknown})


def test_the_default_policy_is_the_one_that_holds() -> None:
    printed = parse_policy(YAML(typ="safe").load(run("--default")))
    built_in = default_policy(Mode.DRY_RUN)
    mine, theirs = (PolicySet([one]).bind({}, {}) for one in (printed, built_in))
    # The one that is printed names the mode of rules that wait to be named.
    assert [(one.rule.id, one.mode, one.params.model_copy(update={"mode": None}), one.deny_on_git_conflict) for one in mine] == [
        (one.rule.id, one.mode, one.params, one.deny_on_git_conflict) for one in theirs
    ]


def test_the_reference_has_every_rule_parameter_and_reason() -> None:
    page = policies.reference_markdown()
    for rule in RULES:
        assert f"\n## {rule.id}\n" in page
        assert all(f"| `{one.name}` |" in page for one in parameters(rule))
    assert "| `LegacyName` | refused |" in page
    assert "| `ZeroCount` | a warning |" in page
    assert "`HeldBack`" in page


def test_every_finding_of_every_rule_has_a_reason_that_can_be_read() -> None:
    found = {one["id"]: one["reasons"] for one in json.loads(run("--format", "json"))}
    assert set(found) == {rule.id for rule in RULES}
    for reasons in found.values():
        assert all(one["reason"].isalnum() and one["reason"][0].isupper() for one in reasons)
        assert not [one for one in reasons if one["outcome"] == "depends on the policy"]


def test_the_reference_lists_the_reasons_of_the_engine() -> None:
    page = reference_markdown()
    assert "| `HeldBack` | refused; a warning if `onGitConflict` is not Refuse |" in page
    assert all(f"| `{reason}` |" in page for reason in ENGINE_REASONS)


def test_text_is_plain_where_nobody_looks() -> None:
    text = run()
    assert "\x1b" not in text
    assert "host-memory: " in text
    assert "  maxSize (quantity) = 16Gi: " in text


def test_json_has_defaults_as_values() -> None:
    rules = {one["id"]: one for one in json.loads(run("--format", "json"))}
    defaults = {one["name"]: one["default"] for one in rules["host-memory"]["parameters"]}
    assert defaults["defaultLimits"] == "WhenNodesAgree"
    assert defaults["memoryPerAccelerator"] is None
    assert defaults["mode"] is None
