"""Exemptions: asked for by the workload, allowed by the policy, always reported."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.engine.exemptions import EXEMPT, OWNER, REASON, UNTIL, report_of, requested_exemption
from gpugate.policies.kube.fields import MalformedError, clone
from gpugate.policies.kube.times import instant_of
from tests.shared.builders import bind, container, decided, opened, pod, reasons, templated

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


def _at(text: str) -> int:
    """The time ``text``, which is one."""
    found = instant_of(text)
    assert found is not None
    return found


def _until(end: str, now: str, **exemptions: Any) -> tuple[list[tuple[str, str, str]], str, bool]:
    """What is found at ``now`` of an exemption that ends at ``end``, in words, and whether the rule left the pod alone."""
    root = pod(container(), annotations={**_PLEA, UNTIL: end})
    bound = bind({"shared-memory": {}}, exemptions={"rules": ["*"], **exemptions})
    decision = decided(root, bound, now=_at(now))
    return reasons(decision), decision.findings[0].finding.message, "volumes" not in root["spec"]


@pytest.mark.parametrize(
    ("end", "last", "first"),
    [
        ("2026-01-31", "2026-01-31T23:59:59Z", "2026-02-01T00:00:00Z"),
        ("2026-01-31T18:00:00Z", "2026-01-31T17:59:59Z", "2026-01-31T18:00:00Z"),
        ("2026-01-31T18:00:00+02:00", "2026-01-31T15:59:59Z", "2026-01-31T16:00:00Z"),
        ("2026-01-31t18:00:00.75z", "2026-01-31T17:59:59Z", "2026-01-31T18:00:00Z"),
        ("2024-02-29", "2024-02-29T12:00:00Z", "2024-03-01T00:00:00Z"),
    ],
)
def test_an_exemption_holds_up_to_its_end_and_says_so_and_then_no_longer(end: str, last: str, first: str) -> None:
    found, message, alone = _until(end, last)
    assert (found, alone) == ([("shared-memory", "Exempt", "warn")], True)
    assert message == f"exempt from shared-memory until {end}: mounts its own at run time"
    found, message, alone = _until(end, first)
    assert (found, alone) == ([("shared-memory", "ExemptionEnded", "warn")], False)
    assert message == f"the exemption from shared-memory has ended ({end}), so the rule applies"


@pytest.mark.parametrize(
    "end",
    [
        "tomorrow",
        "2026-02-30",
        "2026-1-31",
        "31.01.2026",
        "2026-01-31 18:00:00Z",
        "2026-01-31T18:00:00",
        "20260131",
        "9999-99-99",
        "2026-W05-6",
        "2026-01-31T25:00:00Z",
        "2026-01-31T18:00Z",
        "\u0662\u0660\u0662\u0666-01-31",
        "2026-01-31T18:00:00+99:00",
    ],
)
def test_an_end_that_is_no_date_is_said_to_be_none_and_the_exemption_does_not_hold(end: str) -> None:
    found, message, alone = _until(end, "2026-01-01")
    assert (found, alone) == ([("shared-memory", "ExemptionUnreadable", "warn")], False)
    assert "which is not a date" in message


def test_without_a_time_no_exemption_has_ended() -> None:
    root = pod(container(), annotations={**_PLEA, UNTIL: "1999-12-31"})
    assert reasons(decided(root, _bound(["*"]))) == [("shared-memory", "Exempt", "warn")]


def test_whoever_answers_for_an_exemption_is_named() -> None:
    root = pod(container(), annotations={**_PLEA, OWNER: "ml-platform"})
    (one,) = decided(root, _bound(["*"])).findings
    assert one.finding.message.endswith("(contact: ml-platform)")


def test_a_policy_may_ask_that_exemptions_end() -> None:
    root = pod(container(), annotations=_PLEA)
    decision = decided(root, bind({"shared-memory": {}}, exemptions={"rules": ["*"], "requireUntil": True}))
    assert reasons(decision) == [("shared-memory", "ExemptionWithoutEnd", "warn")]
    assert root["spec"]["volumes"]
    assert _until("2026-01-31", "2026-01-01", requireUntil=True)[2]


def test_an_exemption_may_end_as_many_days_ahead_as_the_policy_says_and_no_more() -> None:
    assert _until("2026-01-31", "2026-01-01T12:00:00Z", longestDays=30)[2]
    assert _until("2026-01-31T23:59:59Z", "2026-01-01T00:00:00Z", longestDays=30)[2]
    root = pod(container(), annotations={**_PLEA, UNTIL: "2026-02-01"})
    bound = bind({"shared-memory": {}}, exemptions={"rules": ["*"], "longestDays": 30})
    decision = decided(root, bound, now=_at("2026-01-01T12:00:00Z"))
    assert reasons(decision) == [("shared-memory", "ExemptionTooLong", "warn")]
    assert "at most 30 days ahead" in decision.findings[0].finding.message
    assert decision.findings[0].finding.remedy.startswith("Write 2026-01-31 or an earlier day")
    assert root["spec"]["volumes"]


def test_where_the_longest_time_is_given_an_exemption_must_end() -> None:
    root = pod(container(), annotations=_PLEA)
    decision = decided(root, bind({"shared-memory": {}}, exemptions={"rules": ["*"], "longestDays": 30}))
    assert reasons(decision) == [("shared-memory", "ExemptionWithoutEnd", "warn")]


def test_an_exemption_that_holds_goes_on_holding_until_it_ends() -> None:
    """How far ahead it ends only shrinks: who was exempt at creation stays so."""
    days = [_until("2026-03-01", f"2026-02-{day:02}T12:00:00Z", longestDays=28)[2] for day in range(1, 29)]
    assert days == [True] * 28


def test_the_end_and_the_owner_are_carried_to_the_pods() -> None:
    root = templated("Job", container())
    plea = {**_PLEA, UNTIL: "2026-01-31", OWNER: "ml-platform"}
    root["metadata"]["annotations"] = dict(plea)
    decided(root, _bound(["*"]), now=_at("2026-01-01"))
    assert root["spec"]["template"]["metadata"]["annotations"] == plea


def test_an_exemption_that_has_ended_is_not_carried_to_the_pods() -> None:
    root = templated("Job", container())
    root["metadata"]["annotations"] = {**_PLEA, UNTIL: "2026-01-31"}
    decided(root, _bound(["*"]), now=_at("2026-02-01"))
    assert "metadata" not in root["spec"]["template"]


def test_a_plea_tells_all_that_an_audit_shows() -> None:
    root = pod(container(), annotations={EXEMPT: "gang, numa", REASON: "r", OWNER: " team-a ", UNTIL: "2026-01-31"})
    plea = requested_exemption(opened(root))
    assert (plea.rules, plea.reason, plea.owner, plea.until) == ({"gang", "numa"}, "r", "team-a", "2026-01-31")
    assert plea.end == _at("2026-02-01T00:00:00Z") == _at("2026-01-31")
    assert [plea.has_ended(now) for now in (None, plea.end - 1, plea.end)] == [False, False, True]
    bound = bind({"gang": {}, "numa": {}, "queue": {}}, exemptions={"rules": ["numa"]})
    reports = [(one.rule.id, one.policy, report_of(plea, one, plea.end - 1)) for one in bound]
    found = [(rule, policy, report.reason) for rule, policy, report in reports if report is not None]
    assert found == [("numa", "test", "Exempt"), ("gang", "test", "ExemptionNotAllowed")]
