"""The examples of rendered sources, with the real kustomize, kubectl and helm. No cluster is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.controlplane.programs import find_programs
from tests.e2e.renderers import find_renderers

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GPUGATE = Path(sys.executable).with_name("gpugate")
SURROUNDINGS = ("--policy", "examples/policy.yaml", "--cluster", "examples/cluster.yaml", "-n", "team-a", "-o", "json")


@pytest.fixture(scope="session")
def kustomize() -> Path:
    return find_renderers()["kustomize"].parent


@pytest.fixture(scope="session")
def helm() -> Path:
    return find_renderers()["helm"].parent


@pytest.fixture(scope="session")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with kubectl alone, so that no kustomize is found beside it."""
    folder = tmp_path_factory.mktemp("kubectl")
    (folder / "kubectl").symlink_to(find_programs(kueue=False)["kubectl"])
    return folder


def reviewed(path: Path, *arguments: str) -> list[dict[str, Any]]:
    """What `gpugate review` says, with the programs of one folder at hand."""
    done = subprocess.run(
        [GPUGATE, "review", *arguments, *SURROUNDINGS],
        cwd=ROOT,
        env={**os.environ, "PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def outcomes(entries: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["kind"], one["outcome"]) for one in entries]


@pytest.mark.parametrize("tool", ["kustomize", "kubectl"])
def test_the_component_leaves_the_webhook_nothing_to_change(tool: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(tool)
    without = reviewed(path, "-k", "examples/kustomize/before")
    assert outcomes(without) == [("Deployment", "changed"), ("Job", "changed")]
    within = reviewed(path, "-k", "examples/kustomize/overlay")
    assert outcomes(within) == [("Deployment", "clean"), ("Job", "clean")]
    assert [one["patch"] for one in within] == [[], []]
    assert all(tool in one["file"] for one in within)


def test_the_values_leave_the_webhook_nothing_to_change(helm: Path) -> None:
    chart = ("--helm", "examples/helm/chart", "--values")
    (before,) = reviewed(helm, *chart, "examples/helm/values-before.yaml")
    assert before["outcome"] == "changed"
    assert before["file"] == "examples/helm/chart (trainer/templates/job.yaml)"
    assert before["namespace"] == "team-a"
    (after,) = reviewed(helm, *chart, "examples/helm/values-gpugate.yaml")
    assert (after["outcome"], after["patch"]) == ("clean", [])


def test_the_operations_of_a_review_are_a_patch_that_kustomize_takes(kustomize: Path, tmp_path: Path) -> None:
    entries = reviewed(kustomize, "-k", "examples/kustomize/before")
    patches = [{"target": {"kind": one["kind"], "name": one["name"]}, "patch": json.dumps(one["patch"])} for one in entries]
    resources = [os.path.relpath(EXAMPLES / "kustomize" / "before", tmp_path)]
    content = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources, "patches": patches}
    (tmp_path / "kustomization.yaml").write_text(json.dumps(content))
    assert outcomes(reviewed(kustomize, "-k", str(tmp_path))) == [("Deployment", "clean"), ("Job", "clean")]


def test_what_the_tools_say_of_an_error_is_shown(kustomize: Path, helm: Path, tmp_path: Path) -> None:
    for path, arguments, said in (
        (kustomize, ("-k", str(tmp_path)), "unable to find one of 'kustomization.yaml'"),
        (helm, ("--helm", str(tmp_path)), "Chart.yaml file is missing"),
    ):
        done = subprocess.run(
            [GPUGATE, "review", *arguments], env={**os.environ, "PATH": str(path)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
