"""Reports as objects of the cluster: bounded, the gravest first, whatever the findings hold."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.findings import Mode
from gpugate.webhook.audit.model import AuditedWorkload, Effect
from gpugate.webhook.audit.output.policy_reports import (
    LEFT_OUT,
    MOST_BYTES,
    MOST_RESULTS,
    NAME,
    OPEN_REPORT,
    POLICY_REPORT,
    ReportKind,
    report_of,
    reports_of,
)
from tests.shared.audits import item, workload

Report = dict[str, Any]
#: What etcd takes by default.
ETCD = 1_500_000
BOTH = pytest.mark.parametrize("kind", [POLICY_REPORT, OPEN_REPORT], ids=lambda kind: kind.kind)


def fields(value: dict[str, Any], **types: type | tuple[type, ...]) -> None:
    """No other fields than these, of these types."""
    assert value.keys() <= types.keys()
    for key, found in value.items():
        assert isinstance(found, types[key]), (key, found)


def check(report: Report) -> None:
    """What the schemas of both kinds ask for: names, types and the words that they know."""
    assert (report["apiVersion"], report["kind"]) in {
        ("wgpolicyk8s.io/v1alpha2", "PolicyReport"),
        ("openreports.io/v1alpha1", "Report"),
    }
    fields(report, apiVersion=str, kind=str, metadata=dict, source=str, summary=dict, results=list)
    assert ("source" in report) is (report["kind"] == "Report"), "the older kind has none"
    summary = report["summary"]
    fields(summary, **dict.fromkeys(("pass", "fail", "warn", "error", "skip"), int))
    assert all(isinstance(text, str) for text in report["metadata"].get("annotations", {}).values())
    texts = dict.fromkeys(("source", "policy", "rule", "category", "severity", "result", "message"), str)
    for one in report["results"]:
        fields(one, **texts, scored=bool, resources=list, properties=dict)
        assert one["policy"]
        assert one["result"] in {"pass", "fail", "warn", "error", "skip"}
        assert one["severity"] in {"critical", "high", "medium", "low", "info"}
        assert all(isinstance(text, str) for text in one["properties"].values())
        for resource in one["resources"]:
            fields(resource, **dict.fromkeys(("apiVersion", "kind", "namespace", "name", "uid"), str))
    assert len(report["results"]) <= MOST_RESULTS
    assert len(orjson.dumps(report)) < MOST_BYTES + 4096 < ETCD


EVERY = [
    workload(
        "a", item(Effect.EXEMPT, reason="Exempt"), item(Effect.CHANGE, mode=Mode.ENFORCE, reason="Changed", path="", remedy="")
    ),
    workload("b", item(Effect.UNKNOWN), item(Effect.REFUSE), item(Effect.WARN, mode=Mode.MUTATE)),
    workload("c", item(Effect.REFUSE, mode=Mode.ENFORCE), team="vision", uid=""),
    workload("d", item(Effect.WARN, policy="", rule="exemption")),
    workload("clean"),
]


@BOTH
def test_a_report_says_all_that_an_audit_found_in_the_words_of_its_kind(kind: ReportKind) -> None:
    report = report_of("team-a", EVERY, kind)
    check(report)
    assert (report["apiVersion"], report["kind"]) == (kind.api_version, kind.kind)
    assert report["metadata"]["name"] == NAME
    assert report["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "gpugate"}
    assert "annotations" not in report["metadata"]
    assert report["summary"] == {"pass": 1, "fail": 2, "warn": 3, "error": 1, "skip": 1}
    assert len(report["results"]) == 7


def test_the_gravest_come_first() -> None:
    effects = [one["properties"]["effect"] for one in report_of("team-a", EVERY, POLICY_REPORT)["results"]]
    assert effects == ["refuse", "refuse", "change", "warn", "warn", "unknown", "exempt"]


def test_a_result_names_its_workload_policy_team_and_place() -> None:
    by_name = {one["resources"][0]["name"]: one for one in report_of("team-a", EVERY, POLICY_REPORT)["results"]}
    assert by_name["c"]["properties"] == {
        "effect": "refuse",
        "mode": "Enforce",
        "reason": "Overcommit",
        "path": "spec.containers[0]",
        "team": "vision",
        "accelerators": "1 nvidia.com/gpu",
    }
    assert "uid" not in by_name["c"]["resources"][0]
    assert by_name["b"]["resources"][0]["uid"] == "uid-b"
    assert (by_name["c"]["policy"], by_name["d"]["policy"]) == ("default", NAME)


@pytest.mark.parametrize(
    ("effect", "mode", "start"),
    [
        (Effect.REFUSE, Mode.DRY_RUN, "would be refused: limit"),
        (Effect.REFUSE, Mode.ENFORCE, "refused: limit"),
        (Effect.CHANGE, Mode.DRY_RUN, "would be changed: limit"),
        (Effect.CHANGE, Mode.MUTATE, "changed: limit"),
        (Effect.WARN, Mode.DRY_RUN, "limit"),
        (Effect.UNKNOWN, Mode.ENFORCE, "limit"),
    ],
)
def test_a_message_says_whether_it_has_come_to_that(effect: Effect, mode: Mode, start: str) -> None:
    (result,) = report_of("team-a", [workload("w", item(effect, mode=mode))], POLICY_REPORT)["results"]
    assert result["message"].startswith(start)
    assert result["message"].endswith(". Lower the limit.")


def many(number: int, message: str = "m", effect: Effect = Effect.CHANGE) -> list[AuditedWorkload]:
    return [workload(f"w-{at:05}", item(effect, message=f"{message}{at}")) for at in range(number)]


@BOTH
@pytest.mark.parametrize("message", ["m", "x" * 10_000, "é" * 10_000, "\N{GRINNING FACE}" * 10_000, '"\\\n' * 5000])
def test_a_report_of_very_much_is_bounded_and_says_what_it_left_out(kind: ReportKind, message: str) -> None:
    grave = workload("zz", item(Effect.REFUSE))
    report = report_of("team-a", [*many(10_000, message), grave], kind)
    check(report)
    left = int(report["metadata"]["annotations"][LEFT_OUT])
    assert left == 10_001 - len(report["results"])
    assert report["results"][0]["resources"][0]["name"] == "zz", "the gravest is in it"
    assert report["summary"] == {"pass": 0, "fail": 1, "warn": 10_000, "error": 0, "skip": 0}
    assert len(report["results"]) > 50


@pytest.mark.parametrize("field", ["name", "kind", "api_version", "uid", "team"])
def test_no_text_is_too_large_for_a_report_nor_takes_the_room_of_others(field: str) -> None:
    huge = {"name": "a", field: "\N{GRINNING FACE}" * MOST_BYTES}
    found = workload(huge.pop("name"), item(Effect.REFUSE, path="x" * MOST_BYTES), **huge)
    report = report_of("team-a", [found, *many(3)], POLICY_REPORT)
    check(report)
    assert len(report["results"]) == 4
    assert "annotations" not in report["metadata"]


def test_a_report_that_just_fits_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpugate.webhook.audit.output.policy_reports.MOST_RESULTS", 100)
    assert "annotations" not in report_of("team-a", many(100), POLICY_REPORT)["metadata"]
    assert report_of("team-a", many(101), POLICY_REPORT)["metadata"]["annotations"] == {LEFT_OUT: "1"}


def test_there_is_a_report_for_each_namespace_with_workloads_and_no_other() -> None:
    found = reports_of([workload("x", namespace="b"), workload("y", item(), namespace="a")], OPEN_REPORT)
    assert [(one["metadata"]["namespace"], len(one["results"]), one["summary"]["pass"]) for one in found] == [
        ("a", 1, 0),
        ("b", 0, 1),
    ]
    assert list(reports_of([], OPEN_REPORT)) == []


@given(st.permutations(EVERY))
def test_the_order_of_the_workloads_changes_no_byte(workloads: list[AuditedWorkload]) -> None:
    same, found = (list(reports_of(ones, POLICY_REPORT)) for ones in (EVERY, workloads))
    assert orjson.dumps(found) == orjson.dumps(same)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=2000)


@given(st.lists(st.tuples(st.sampled_from(Effect), TEXT, TEXT, TEXT), max_size=5), st.sampled_from([POLICY_REPORT, OPEN_REPORT]))
def test_whatever_the_texts_hold_a_report_is_what_its_kind_takes(
    said: list[tuple[Effect, str, str, str]], kind: ReportKind
) -> None:
    items = [item(effect, message=message, remedy=remedy, path=path) for effect, message, remedy, path in said]
    report = report_of("team-a", [workload("w", *items, team="t")], kind)
    check(report)
    assert len(report["results"]) == len(items)
