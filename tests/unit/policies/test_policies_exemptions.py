"""Exemptions: asked for by the workload, allowed by the policy, always reported."""

from __future__ import annotations

from typing import Any

import pytest
from builders import bind, container, decided, pod, reasons, templated

from gpugate.policies.exemptions import EXEMPT, REASON
from gpugate.policies.fields import MalformedError, clone

_PLEA = {EXEMPT: "shared-memory", REASON: "mounts its own at run time"}


def _bound(allowed: list[str], **rules: Any) -> Any:
    return bind({"shared-memory": {}, "tolerations": {}, **rules}, exemptions={"rules": allowed})


@pytest.mark.parametrize("allowed", [["shared-memory"], ["*"]])
@pytest.mark.parametrize("names", ["shared-memory", " shared-memory , ", "queue,shared-memory"])
def test_an_exemption_that_the_policy_allows_leaves_the_workload_alone(allowed: list[str], names: str) -> None:
    root = pod(container(), annotations={EXEMPT: names, REASON: "mounts its own at run time."})
    decision = decided(root, _bound(allowed))
    assert reasons(decision) == [("shared-memory", "Exempt", "warn")]
    assert decision.findings[0].finding.message == "exempt from shared-memory: mounts its own at run time"
    assert "volumes" not in root["spec"]
    assert "tolerations" in root["spec"]


def test_a_star_asks_to_be_exempt_from_every_rule() -> None:
    root = pod(container(), annotations={EXEMPT: "*", REASON: "debugging"})
    decision = decided(root, _bound(["*"]))
    assert reasons(decision) == [("shared-memory", "Exempt", "warn"), ("tolerations", "Exempt", "warn")]
    assert decision.patch == []


def test_an_exemption_that_the_policy_does_not_allow_changes_nothing_and_is_reported() -> None:
    root = pod(container(), annotations=_PLEA)
    decision = decided(root, _bound(["tolerations"]))
    assert reasons(decision) == [("shared-memory", "ExemptionNotAllowed", "warn")]
    assert "under exemptions.rules of the policy" in decision.findings[0].finding.remedy
    assert root["spec"]["volumes"]


@pytest.mark.parametrize("reason", [None, "", "  "])
def test_an_exemption_without_a_reason_changes_nothing_and_is_reported(reason: str | None) -> None:
    root = pod(container(), annotations={EXEMPT: "shared-memory", REASON: reason})
    decision = decided(root, _bound(["*"]))
    assert reasons(decision) == [("shared-memory", "ExemptionWithoutReason", "warn")]
    assert root["spec"]["volumes"]


def test_a_name_that_is_no_rule_is_reported_with_the_names_that_are() -> None:
    decision = decided(pod(container(), annotations={EXEMPT: "shm", REASON: "r"}), _bound(["*"]))
    assert reasons(decision) == [("exemption", "UnknownRule", "warn")]
    assert "'shm'" in decision.findings[0].finding.message
    assert "shared-memory" in decision.findings[0].finding.remedy


def test_a_rule_that_the_policy_disables_is_still_a_rule() -> None:
    root = pod(container(), annotations={EXEMPT: "numa", REASON: "r"})
    assert reasons(decided(root, bind({"numa": {"mode": "Disabled"}, "tolerations": {}}, exemptions={"rules": ["*"]}))) == []


@pytest.mark.parametrize("kind", ["Job", "Deployment", "StatefulSet"])
def test_an_exemption_is_carried_to_the_pods_and_honoured_there(kind: str) -> None:
    root = templated(kind, container())
    root["metadata"]["annotations"] = dict(_PLEA)
    decision = decided(root, _bound(["*"]))
    template = root["spec"]["template"]
    assert template["metadata"]["annotations"] == _PLEA
    assert [change.rule for change in decision.changes] == ["tolerations", "exemption"]

    made = pod(*template["spec"]["containers"], annotations=template["metadata"]["annotations"])
    assert reasons(decided(made, _bound(["*"]))) == [("shared-memory", "Exempt", "warn")]


def test_what_the_template_says_of_itself_is_not_overwritten() -> None:
    root = templated("Job", container())
    root["metadata"]["annotations"] = dict(_PLEA)
    root["spec"]["template"]["metadata"] = {"annotations": {EXEMPT: "tolerations"}}
    decided(root, _bound(["*"]))
    assert root["spec"]["template"]["metadata"]["annotations"] == {EXEMPT: "tolerations", REASON: _PLEA[REASON]}


def test_an_exemption_in_the_template_is_one_of_the_workload() -> None:
    root = templated("Job", container())
    root["spec"]["template"]["metadata"] = {"annotations": dict(_PLEA)}
    assert reasons(decided(root, _bound(["*"]))) == [("shared-memory", "Exempt", "warn")]


def test_an_exemption_that_is_not_granted_is_not_carried_to_the_pods() -> None:
    root = templated("Job", container())
    root["metadata"]["annotations"] = dict(_PLEA)
    decided(root, _bound([]))
    assert "metadata" not in root["spec"]["template"]


def test_in_dryrun_an_exemption_is_reported_as_such() -> None:
    decision = decided(
        pod(container(), annotations=_PLEA), bind({"shared-memory": {"mode": "DryRun"}}, exemptions={"rules": ["*"]})
    )
    assert reasons(decision) == [("shared-memory", "Exempt", "dryrun")]
    assert decision.would_change == []


def test_in_dryrun_an_exemption_is_not_carried_to_the_pods() -> None:
    root = templated("Job", container())
    root["metadata"]["annotations"] = dict(_PLEA)
    before = clone(root)
    decided(root, bind({"shared-memory": {"mode": "DryRun"}}, exemptions={"rules": ["*"]}))
    assert root == before


def test_an_annotation_that_is_no_text_is_malformed() -> None:
    with pytest.raises(MalformedError, match="put it in quotes"):
        decided(pod(container(), annotations={EXEMPT: True}), _bound(["*"]))
