"""`gpugate review` of what is no workload: what it prints, how it ends, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonpatch
import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from gpugate.webhook.cli.main import app
from tests.shared.reviews import admission

QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"nvidia.com/gpu": "4"}}}
RESOURCES = {"resources": {"limits": {"nvidia.com/gpu": 2}}}


def run(command: str, value: Any, *options: str) -> Result:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    result = CliRunner().invoke(app, [command, "-", *options], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def entries(value: Any, *options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(run("review", value, "-o", "json", *options).stdout)
    return found


def test_what_can_never_work_ends_with_1_and_a_warning_with_0() -> None:
    assert run("review", QUOTA).exit_code == 1
    claim = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": {"spec": {}}}}
    image = {"name": "e", "image": "dcgm-exporter:4"}
    claim["spec"] = {"template": {"spec": {"containers": [image]}}}
    result = run("review", claim)
    assert "warn    setup: " in result.stdout
    assert result.exit_code == 0


def test_objects_of_the_same_input_are_looked_at_together(tmp_path: Path) -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": "q"}, "spec": {"clusterQueue": "c"}}
    there = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "c"}, "spec": {}}
    (tmp_path / "a.json").write_bytes(orjson.dumps(queue))
    alone = CliRunner().invoke(app, ["review", str(tmp_path)]).stdout
    (tmp_path / "b.json").write_bytes(orjson.dumps(there))
    both = CliRunner().invoke(app, ["review", str(tmp_path)]).stdout
    assert "ClusterQueue c is not among these objects" in alone
    assert "ClusterQueue c is not among these objects" not in both


def test_a_workload_of_a_version_that_is_gone_is_told_all_that_it_would_be_in_the_right_one() -> None:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpus": 1}}}
    old = {"apiVersion": "extensions/v1beta1", "kind": "Deployment", "metadata": {"name": "d"}}
    (entry,) = entries({**old, "spec": {"template": {"spec": {"containers": [container]}}}})
    assert (entry["outcome"], entry["patch"]) == ("refused", [])
    assert [(one["rule"], one["reason"]) for one in entry["findings"] if one["severity"] == "deny"] == [
        ("accelerator-names", "UnservedName"),
        ("setup", "RetiredVersion"),
    ]


def test_fix_and_admission_reviews_leave_such_objects_alone() -> None:
    for value in (QUOTA, RESOURCES, {"apiVersion": "batch/v1beta1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {}}):
        fixed = run("fix", value)
        assert fixed.exit_code == 0
        assert orjson.loads(fixed.stdout) == value
        assert "setup" not in fixed.stderr
    (entry,) = entries(admission(QUOTA))
    assert entry["outcome"] == "skipped"


def test_a_part_is_changed_by_a_patch_of_its_own_and_comes_out_as_a_part() -> None:
    (entry,) = entries(RESOURCES)
    (written,) = yaml.safe_load_all(run("review", RESOURCES, "-o", "yaml").stdout)
    assert jsonpatch.apply_patch(RESOURCES, entry["patch"]) == written
    assert set(written) == {"resources"}
    assert written["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert written["resources"]["limits"]["memory"] == "64Gi"


def test_a_part_of_two_places_is_judged_in_both() -> None:
    wrong = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    term = {"matchExpressions": [{"key": "nvidia.com/gpu.count", "operator": "Gte", "values": ["4"]}]}
    wrong["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] = [term]
    (entry,) = entries({"affinity": wrong, "resources": {"limits": {"nvidia.com/gpus": 1}}})
    assert entry["outcome"] == "refused"
    denied = {one["path"].partition(".")[0] for one in entry["findings"] if one["severity"] == "deny"}
    assert denied == {"affinity", "resources"}


@pytest.mark.parametrize("key", ["spec", "containers"])
def test_the_spec_of_a_pod_is_a_part_as_well(key: str) -> None:
    containers = [{"name": "train", "image": "x", "resources": {"limits": {"nvidia.com/gpus": 1}}}]
    (entry,) = entries({"spec": {"containers": containers}} if key == "spec" else {"containers": containers})
    assert entry["findings"][0]["path"].startswith(key)
    assert entry["outcome"] == "refused"


@pytest.mark.parametrize(
    "values",
    [
        {"resources": {}, "nodeSelector": {}, "tolerations": [], "affinity": {}},
        {"replicaCount": 2, "resources": {"limits": {"nvidia.com/gpus": 1}}},
        {"resources": {"limits": {"nvidia.com/gpus": 1}}, "image": {"repository": "x"}},
        {"resources": {"gpu": 1}},
        {"metadata": {"name": "x"}},
        {"annotations": None, "labels": {"a": "b"}, "template": "x"},
        {"resources": None, "limits": 7, "env": []},
        {"version": "v1", "images": []},
        {"spec": {"containers": [{"name": "c"}]}, "nodeSelector": {"a": "b"}},
        {"containers": [{"name": "c"}], "resources": {"limits": {"nvidia.com/gpus": 1}}},
    ],
)
def test_the_values_of_a_chart_are_no_part_of_a_manifest(values: Any) -> None:
    (entry,) = entries(values)
    assert (entry["outcome"], entry["note"]) == ("skipped", "is not a Kubernetes object (no apiVersion and kind)")


def test_findings_of_a_part_are_told_on_stderr_beside_the_rewritten_manifests() -> None:
    result = run("review", {"resources": {"limits": {"nvidia.com/gpus": 1}}}, "-o", "yaml")
    assert "is a part of a manifest" in result.stderr
    assert "deny: accelerator-names" in result.stderr
    assert run("review", "a: b: c\n", "-o", "yaml").stderr.count("line 1, column 5") == 1


def test_a_line_that_stands_too_far_left_is_told_so() -> None:
    result = run("review", "a:\n    b:\n  - c\n")
    assert "line 3, column 3: expected <block end>" in result.stdout
    assert ": the line is not indented like the lines above it\n" in result.stdout


@pytest.mark.parametrize(
    "part",
    ['resources: {limits: {nvidia.com/gpu: "x"}}', "tolerations: [{key: 7}]", "volumes: [{name: 7}]", "spec: {containers: [{}]}"],
)
def test_no_part_that_the_api_would_not_take_ends_in_a_traceback(part: str) -> None:
    (entry,) = entries(part)
    assert entry["outcome"] in {"clean", "changed", "refused", "invalid"}
    assert (entry["outcome"] == "invalid") == ('"x"' in part)
    assert not entry["note"].startswith("spec.containers[0].resources")
