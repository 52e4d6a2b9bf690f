"""The records and alerts of `manifests/cluster/monitoring`, held against series by the real promtool."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from ruamel.yaml import YAML

from tests.e2e.monitoring.alert_cases import DCGM_CASES, OWN_CASES, Case, dcgm, own, text
from tests.e2e.monitoring.programs import MissingError, ensure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

pytestmark = pytest.mark.e2e

MONITORING = Path(__file__).resolve().parents[2] / "manifests" / "cluster" / "monitoring"
ALL_CASES = {"dcgm": DCGM_CASES, "gpugate": OWN_CASES}


@cache
def groups(folder: str) -> list[dict[str, Any]]:
    """The groups of a PrometheusRule, as Prometheus itself reads them."""
    found: list[dict[str, Any]] = YAML(typ="safe").load(MONITORING / folder / "rules.yaml")["spec"]["groups"]
    return found


def rules(folder: str, sort: str) -> Iterator[dict[str, Any]]:
    """The rules of a PrometheusRule that are alerts, or records."""
    return (rule for group in groups(folder) for rule in group["rules"] if sort in rule)


def promtool(*args: str) -> subprocess.CompletedProcess[str]:
    """Run promtool; where there is none and none can be had, the test fails with the way out."""
    try:
        program = ensure().promtool
    except MissingError as error:
        pytest.fail(str(error))
    return subprocess.run([program, *args], capture_output=True, text=True, check=False, timeout=60)


def judge(tmp_path: Path, folder: str, series: Mapping[str, str], **tests: Any) -> None:
    """Run one group of promtool's unit tests against the rules of a folder."""
    (tmp_path / "rules.json").write_bytes(orjson.dumps({"groups": groups(folder)}))
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    whole = {"rule_files": ["rules.json"], "tests": [{"interval": "30s", "input_series": inputs, **tests}]}
    (tmp_path / "test.json").write_bytes(orjson.dumps(whole))
    done = promtool("test", "rules", str(tmp_path / "test.json"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", ALL_CASES)
def test_promtool_finds_nothing_wrong_with_the_rules(tmp_path: Path, folder: str) -> None:
    (tmp_path / "rules.json").write_bytes(orjson.dumps({"groups": groups(folder)}))
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.json"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", ALL_CASES)
def test_every_alert_has_series_for_which_it_fires_and_for_which_it_does_not(folder: str) -> None:
    names = {rule["alert"] for rule in rules(folder, "alert")}
    assert {case.alert for case in ALL_CASES[folder] if case.fires} == names
    assert {case.alert for case in ALL_CASES[folder] if not case.fires} == names


@pytest.mark.parametrize("folder", ALL_CASES)
def test_every_alert_says_what_is_wrong_what_to_do_and_how_grave_it_is(folder: str) -> None:
    for rule in rules(folder, "alert"):
        assert rule["annotations"].keys() == {"summary", "runbook"}, rule["alert"]
        assert rule["annotations"]["runbook"].endswith("."), rule["alert"]
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}


@pytest.mark.parametrize(
    ("folder", "case"),
    [pytest.param(folder, case, id=f"{case.alert}: {case.says}") for folder, cases in ALL_CASES.items() for case in cases],
)
def test_an_alert_fires_when_it_should(tmp_path: Path, folder: str, case: Case) -> None:
    (severity,) = (rule["labels"]["severity"] for rule in rules(folder, "alert") if rule["alert"] == case.alert)
    known = {"alertname": case.alert, "alertstate": "firing", "severity": severity}
    wanted = [{"labels": text("ALERTS", **known, **labels), "value": 1} for labels in case.fires]
    asked = text("ALERTS", alertname=case.alert, alertstate="firing")
    judge(tmp_path, folder, case.series, promql_expr_test=[{"expr": asked, "eval_time": case.at, "exp_samples": wanted}])


@pytest.mark.parametrize(
    ("folder", "alert", "series", "values", "summary"),
    [
        (
            "dcgm",
            "GPUXidNeedsReset",
            dcgm("DCGM_FI_DEV_XID_ERRORS", err_code="79", err_msg="GPU has fallen off the bus"),
            "79x60",
            "NVIDIA H100 80GB HBM3 0 on gpu-node-1: Xid 79, GPU has fallen off the bus",
        ),
        (
            "gpugate",
            "GpugatePolicyInvalid",
            own("gpugate_policy_invalid", policy="team-a"),
            "1x60",
            "The newest generation of GPUPolicy team-a does not parse",
        ),
    ],
)
def test_people_read_which_card_or_policy_it_is_about(
    tmp_path: Path, folder: str, alert: str, series: str, values: str, summary: str
) -> None:
    (rule,) = (rule for rule in rules(folder, "alert") if rule["alert"] == alert)
    runbook = rule["annotations"]["runbook"].replace("{{ $labels.policy }}", "team-a")
    labels = {**rule["labels"], **_labels_of(series, rule["expr"])}
    wanted = {"exp_labels": labels, "exp_annotations": {"summary": summary, "runbook": runbook}}
    asked = {"eval_time": "20m", "alertname": alert, "exp_alerts": [wanted]}
    judge(tmp_path, folder, {series: values}, alert_rule_test=[asked])


def _labels_of(series: str, expr: str) -> dict[str, str]:
    """The labels of a series that an expression keeps."""
    kept = re.findall(r"by \(([^)]*)\)", expr)[0].split(", ")
    return {name: value for name, value in re.findall(r'(\w+)="([^"]*)"', series) if name in kept}


#: Three cards: two that team-a holds, three quarters busy, one that nobody holds, and a slice that team-b holds.
FLEET = {
    dcgm("DCGM_FI_DEV_GPU_UTIL", 0, "team-a/train-0"): "100x9",
    dcgm("DCGM_FI_DEV_GPU_UTIL", 1, "team-a/train-0"): "50x9",
    dcgm("DCGM_FI_DEV_GPU_UTIL", 2): "0x9",
    dcgm("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 3, "team-b/serve-0", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb"): "0.25x9",
    text("kube_node_status_allocatable", node="gpu-node-1", resource="nvidia_com_gpu", unit="integer"): "8x9",
    text("kube_node_status_allocatable", node="gpu-node-1", resource="cpu", unit="core"): "192x9",
    text("kube_pod_container_resource_requests", namespace="team-a", pod="train-0", resource="nvidia_com_gpu"): "2x9",
    text("kube_pod_container_resource_requests", namespace="team-a", pod="done-0", resource="nvidia_com_gpu"): "4x9",
    text("kube_pod_status_phase", namespace="team-a", pod="train-0", phase="Running"): "1x9",
    text("kube_pod_status_phase", namespace="team-a", pod="train-0", phase="Pending"): "0x9",
    text("kube_pod_status_phase", namespace="team-a", pod="done-0", phase="Running"): "0x9",
    text("kube_pod_status_phase", namespace="team-a", pod="done-0", phase="Pending"): "0x9",
}
RECORDS: Mapping[str, list[tuple[dict[str, str], float]]] = {
    "cluster:gpus:count": [({}, 4)],
    "cluster:gpus_held:count": [({}, 3)],
    "cluster:gpus_used:sum": [({}, 1.75)],
    "cluster:gpus_used_of_held:ratio": [({}, 1.75 / 3)],
    "cluster:gpus_allocatable:sum": [({}, 8)],
    "cluster:gpus_requested:sum": [({}, 2)],
    "namespace:gpus_held:count": [({"exported_namespace": "team-a"}, 2), ({"exported_namespace": "team-b"}, 1)],
    "namespace:gpus_used:sum": [({"exported_namespace": "team-a"}, 1.5), ({"exported_namespace": "team-b"}, 0.25)],
}


@pytest.mark.parametrize("record", RECORDS)
def test_gpus_that_are_held_and_used_are_counted_once_each(tmp_path: Path, record: str) -> None:
    samples = [{"labels": text(record, **labels), "value": value} for labels, value in RECORDS[record]]
    asked = {"expr": record, "eval_time": "4m", "exp_samples": samples}
    judge(tmp_path, "dcgm", FLEET, promql_expr_test=[asked])


def panels() -> Iterator[tuple[str, str]]:
    """The title of each panel of the dashboard, and an expression that it shows."""
    dashboard = orjson.loads((MONITORING / "dashboard" / "gpus.json").read_bytes())
    return ((panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"])


def test_the_dashboard_asks_in_promql_for_what_is_recorded_or_collected(tmp_path: Path) -> None:
    shown = [{"record": f"panel:{number}", "expr": expr} for number, (_, expr) in enumerate(panels())]
    (tmp_path / "rules.json").write_bytes(orjson.dumps({"groups": [{"name": "dashboard", "rules": shown}]}))
    done = promtool("check", "rules", str(tmp_path / "rules.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    known = {rule["record"] for rule in rules("dcgm", "record")} | collected()
    for title, expr in panels():
        assert set(re.findall(r"\w+:\w+:\w+|DCGM_\w+", expr)) <= known, title


def test_every_record_is_tested_or_what_an_alert_rests_on() -> None:
    alerts = " ".join(rule["expr"] for rule in rules("dcgm", "alert"))
    assert all(rule["record"] in RECORDS or rule["record"] in alerts for rule in rules("dcgm", "record"))


def collected() -> set[str]:
    """The fields that our list has dcgm-exporter collect."""
    listed = (MONITORING / "dcgm-metrics" / "dcgm-metrics.csv").read_text(encoding="utf-8")
    return {line.split(",")[0].strip() for line in listed.splitlines() if not line.startswith("#")}


def test_alerts_rest_on_nothing_that_our_list_does_not_collect() -> None:
    used = {name for group in groups("dcgm") for rule in group["rules"] for name in re.findall(r"DCGM_\w+", rule["expr"])}
    assert used
    assert used <= collected()
