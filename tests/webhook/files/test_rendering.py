"""`gpugate review` of what the user's own kustomize or helm renders: here small programs that stand for them."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from gpugate.webhook.cli.main import app
from gpugate.webhook.files import rendering
from tests.shared.reviews import ROOT, pod

POD = orjson.dumps(pod(memory="64Gi")).decode()
HELM_OUTPUT = (
    f"---\n# Source: c/templates/service.yaml\nkind: Service\napiVersion: v1\n---\n# Source: c/templates/pod.yaml\n{POD}\n"
)


def review(*arguments: str | Path) -> Result:
    env = {"FORCE_COLOR": None, "NO_COLOR": None, "TERM": "xterm-256color"}
    result = CliRunner().invoke(app, ["review", *map(str, arguments)], env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def tool(folder: Path, name: str, body: str) -> Path:
    """A program called ``name`` that writes its arguments to a file and does what ``body`` says."""
    program = folder / name
    record = folder.parent / "arguments.json"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys, time\nfrom pathlib import Path\n"
        f"Path({str(record)!r}).write_text(json.dumps(sys.argv[1:]))\n{body}\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def prints(text: str) -> str:
    return f"sys.stdout.buffer.write({text.encode()!r})"


def arguments(folder: Path) -> list[str]:
    found: list[str] = orjson.loads((folder.parent / "arguments.json").read_bytes())
    return found


def test_kustomize_builds_what_is_judged(tools: Path) -> None:
    tool(tools, "kustomize", prints(POD))
    tool(tools, "kubectl", "sys.exit(9)")
    result = review("-k", "overlay")
    assert result.exit_code == 0
    assert "changed Pod team-a/train  kustomize build overlay" in result.stdout
    assert arguments(tools) == ["build", "overlay"]


def test_kubectl_does_where_kustomize_is_missing(tools: Path) -> None:
    tool(tools, "kubectl", prints(POD))
    result = review("--kustomize", "overlay")
    assert "changed Pod team-a/train  kubectl kustomize overlay" in result.stdout
    assert arguments(tools) == ["kustomize", "overlay"]


def test_the_file_that_kustomize_says_an_object_comes_from_is_named(tools: Path) -> None:
    made = pod(memory="64Gi", annotations={"config.kubernetes.io/origin": "path: ../base/pod.yaml\n"})
    tool(tools, "kustomize", prints(orjson.dumps(made).decode()))
    assert "changed Pod team-a/train  overlay (../base/pod.yaml)" in review("-k", "overlay").stdout


def test_helm_renders_what_is_judged_and_findings_name_the_template(tools: Path) -> None:
    tool(tools, "helm", prints(HELM_OUTPUT))
    result = review("--helm", "chart", "--values", "a.yaml", "-f", "b.yaml", "--set", "x=1", "-n", "team-a", "--release-name", "r")
    assert result.exit_code == 0
    assert "changed Pod team-a/train  chart (c/templates/pod.yaml)" in result.stdout
    assert arguments(tools) == [
        *("template", "r", "chart", "--values", "a.yaml", "--values", "b.yaml", "--set", "x=1", "--namespace", "team-a")
    ]


def test_objects_without_a_namespace_go_where_the_release_does(tools: Path) -> None:
    made = pod(memory="64Gi")
    del made["metadata"]["namespace"]
    tool(tools, "helm", prints(orjson.dumps(made).decode()))
    examples = ROOT / "examples"
    result = review("--helm", "chart", "-n", "team-a", "--cluster", examples / "cluster.yaml", "--policy", examples / "policy.yaml")
    assert "the only LocalQueue in team-a" in result.stdout


def test_files_and_rendered_sources_are_judged_together(tools: Path, tmp_path: Path) -> None:
    tool(tools, "kustomize", prints(POD))
    tool(tools, "helm", prints(HELM_OUTPUT))
    file = tmp_path / "pod.json"
    file.write_text(POD)
    result = review(file, "-k", "overlay", "--helm", "chart")
    assert "4 objects: 3 changed, 1 skipped" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-k", "overlay"], "-k needs kustomize or kubectl, and neither is on the PATH: install kustomize"),
        (["--helm", "chart"], "--helm needs helm, which is not on the PATH: install Helm 3"),
    ],
)
def test_a_missing_tool_is_named_with_the_way_to_get_it(tools: Path, options: list[str], said: str) -> None:
    result = review(*options)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert tools.exists()


def test_what_a_tool_says_when_it_fails_is_shown(tools: Path) -> None:
    tool(tools, "helm", "print('half of it'); sys.stderr.write('\\x1b[31mError: chart not found\\x1b[0m'); sys.exit(1)")
    result = review("--helm", "chart")
    assert result.exit_code == 2
    assert result.stderr == "gpugate: helm template chart failed: Error: chart not found\n"
    assert result.stdout == ""


def test_a_tool_that_says_nothing_when_it_fails_is_told_so(tools: Path) -> None:
    tool(tools, "kustomize", "sys.exit(3)")
    assert review("-k", ".").stderr == "gpugate: kustomize build . failed: no error output\n"


def test_a_tool_that_does_not_end_is_given_up(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "TIMEOUT", 0.2)
    tool(tools, "helm", "time.sleep(60)")
    result = review("--helm", "chart")
    assert result.exit_code == 2
    assert "helm template chart did not end within 0.2 seconds" in result.stderr


@pytest.mark.parametrize("options", [["-k", "-rf"], ["--helm", "--post-renderer=x"], ["--helm", "c", "--release-name", "-x"]])
def test_nothing_that_is_named_is_taken_for_an_option_of_the_tool(tools: Path, options: list[str]) -> None:
    tool(tools, "kustomize", prints(POD))
    tool(tools, "helm", prints(POD))
    result = review(*options)
    assert result.exit_code == 2
    assert not (tools.parent / "arguments.json").exists()


def test_no_shell_sees_what_is_named(tools: Path) -> None:
    tool(tools, "kustomize", prints(POD))
    review("-k", "$(touch oops); x & y")
    assert arguments(tools) == ["build", "$(touch oops); x & y"]


def test_what_is_rendered_and_does_not_parse_is_said(tools: Path) -> None:
    tool(tools, "helm", prints("a: [1\n"))
    result = review("--helm", "chart")
    assert result.exit_code == 2
    assert "line 2" in result.stdout
    tool(tools, "helm", "sys.stdout.buffer.write(b'\\xff')")
    assert "is not UTF-8 text" in review("--helm", "chart").stderr


def test_a_tool_that_cannot_be_run_is_said(tools: Path) -> None:
    program = tool(tools, "helm", "")
    program.write_text("#!/no/such/interpreter\n")
    assert "helm template chart cannot be run" in review("--helm", "chart").stderr


def test_values_without_a_chart_are_refused() -> None:
    assert "--values and --set need --helm" in review("--values", "x.yaml", "a.yaml").stderr


def test_nothing_to_judge_is_said() -> None:
    result = review()
    assert result.exit_code == 2
    assert "give files or directories, -k DIR or --helm CHART" in result.stderr


def test_the_refused_end_with_1_as_with_files(tools: Path) -> None:
    tool(tools, "kustomize", prints(orjson.dumps(pod(memory="48Gi", request="4Gi")).decode()))
    assert review("-k", ".").exit_code == 1
    assert os.environ["PATH"] == str(tools)
