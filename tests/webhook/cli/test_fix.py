"""`gpugate fix`: what it prints, what it writes, how it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from gpugate.webhook.cli.main import app
from gpugate.webhook.files import atomic_write as replace
from gpugate.webhook.files.atomic_write import FileReplacement, replace_all
from gpugate.webhook.runtime.errors import InputError
from tests.shared.reviews import CLUSTER, POLICY, WORKLOADS, cpu_pod, overcommitted_pod, pod

JOB = """\
# The comment stays.
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: team-a}  # so does this one
spec:
  containers:
    - name: main
      image: 'registry.example/train:1'
      resources:
        limits:
          nvidia.com/gpu: "1"   # a device
          memory: 64Gi
"""


def fix(*arguments: str | Path, stdin: str | bytes = "") -> Result:
    """Run `gpugate fix` in this process."""
    env = {"FORCE_COLOR": None, "NO_COLOR": None, "TERM": "xterm-256color"}
    result = CliRunner().invoke(app, ["fix", *map(str, arguments)], input=stdin, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pod.yaml"
    path.write_bytes(JOB.encode())
    return path


def put(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else orjson.dumps(content).decode(), encoding="utf-8")
    return path


def test_it_shows_a_diff_and_changes_nothing_without_being_told_to(file: Path) -> None:
    result = fix(file)
    assert result.exit_code == 0
    assert f"--- {file}\n+++ {file}\n" in result.stdout
    assert "+      volumeMounts:\n" in result.stdout
    assert file.read_text() == JOB
    assert "1 file to fix of 1 file" in result.stderr


def test_a_check_ends_with_1_and_the_diff_until_it_is_fixed(file: Path) -> None:
    before = fix(file, "--check")
    assert before.exit_code == 1
    assert "+      volumeMounts:\n" in before.stdout
    assert file.read_text() == JOB
    written = fix(file, "--write")
    assert written.exit_code == 0
    assert written.stdout == f"fixed {file}\n"
    after = fix(file, "--check")
    assert (after.exit_code, after.stdout) == (0, "")
    assert "0 files to fix of 1 file" in after.stderr


def test_patch_takes_the_diff(file: Path) -> None:
    if shutil.which("patch") is None:
        pytest.skip("patch is not installed")
    twin = put(file.parent, "twin.yaml", JOB.replace("\n", "\r\n").removesuffix("\r\n"))
    for one in (file, twin):
        diff = fix(one).stdout_bytes
        wanted = fix("-", stdin=one.read_bytes()).stdout_bytes
        subprocess.run(["patch", "--binary", str(one)], input=diff, check=True, capture_output=True)
        assert one.read_bytes() == wanted


def test_what_is_written_keeps_all_that_it_does_not_change(file: Path) -> None:
    fix(file, "--write")
    after = file.read_text()
    for line in JOB.splitlines():
        if not line.startswith("metadata:"):
            assert line in after.splitlines()
    assert after.startswith("# The comment stays.\n")


def test_a_diff_is_printed_beside_the_writing_where_it_is_asked_for(file: Path) -> None:
    result = fix(file, "--write", "--diff")
    assert "+      volumeMounts:\n" in result.stdout
    assert f"fixed {file}\n" in result.stdout
    assert fix(file, "--no-diff", "--check").stdout == ""


def test_standard_input_is_fixed_to_standard_output(file: Path) -> None:
    result = fix("-", stdin=JOB)
    assert result.exit_code == 0
    assert result.stdout.startswith("# The comment stays.\n")
    fix(file, "--write")
    assert result.stdout == file.read_text()
    diff = fix("-", "--diff", stdin=JOB)
    assert diff.stdout.startswith("--- stdin\n+++ stdin\n")
    check = fix("-", "--check", stdin=JOB)
    assert (check.exit_code, check.stdout) == (1, diff.stdout)


def test_standard_input_that_is_right_comes_out_as_it_went_in() -> None:
    text = "\ufeffa:   1 # odd\r\n\r\n"
    assert fix("-", stdin=text.encode()).stdout_bytes == text.encode()


def test_a_byte_order_mark_and_windows_line_breaks_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + JOB.replace("\n", "\r\n").encode())
    fix(path, "--write")
    raw = path.read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf# The comment stays.\r\n")
    assert raw.count(b"\r\n") == raw.count(b"\n")
    assert fix(path, "--check").exit_code == 0


def test_what_remains_is_said_on_standard_error_and_ends_with_1(tmp_path: Path) -> None:
    path = put(tmp_path, "greedy.json", overcommitted_pod())
    result = fix(path)
    assert result.exit_code == 1
    assert "limit 48Gi" in result.stderr
    assert "limit 48Gi" not in result.stdout
    assert "1 object refused" in result.stderr
    # What can be fixed is, all the same.
    assert '"tolerations"' in result.stdout


def test_the_same_facts_and_policies_are_taken_as_by_review() -> None:
    result = fix(WORKLOADS / "23-unknown-queue.yaml", "--policy", POLICY, "--cluster", CLUSTER)
    assert result.exit_code == 1
    assert "it has LocalQueue team-a-train" in result.stderr


def test_the_namespace_of_objects_that_state_none_can_be_given(tmp_path: Path) -> None:
    obj = pod(memory="64Gi")
    del obj["metadata"]["namespace"]
    path = put(tmp_path, "pod.json", obj)
    assert "team-a-train" in fix(path, "--policy", POLICY, "--cluster", CLUSTER, "-n", "team-a").stdout


@pytest.mark.parametrize("mode", ["DryRun", "Disabled"])
def test_what_a_policy_does_not_enforce_is_not_written(tmp_path: Path, file: Path, mode: str) -> None:
    policy = {
        "apiVersion": "gpugate.io/v1alpha1",
        "kind": "GPUPolicy",
        "metadata": {"name": "p"},
        "spec": {"profile": "recommended", "mode": mode},
    }
    result = fix(file, "--check", "--policy", put(tmp_path, "policy.json", policy))
    assert (result.exit_code, result.stdout) == (0, "")


def test_what_a_policy_warns_of_is_written(tmp_path: Path, file: Path) -> None:
    policy = {
        "apiVersion": "gpugate.io/v1alpha1",
        "kind": "GPUPolicy",
        "metadata": {"name": "p"},
        "spec": {"profile": "recommended", "mode": "Mutate"},
    }
    assert fix(file, "--check", "--policy", put(tmp_path, "policy.json", policy)).exit_code == 1


def test_a_file_that_is_named_twice_is_fixed_once(file: Path) -> None:
    link = file.parent / "link.yaml"
    link.symlink_to(file)
    result = fix(file, file.parent, link, "--write")
    assert result.stdout == f"fixed {file}\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("broken.yaml", "a: [1\nb: 2\n", "line 2"),
        ("latin.yaml", b"a: \xe4\n", "is not UTF-8 text"),
        ("twice.yaml", "kind: A\nkind: B\n", "duplicate key"),
        ("deep.json", "[" * 300 + "]" * 300, "nested deeper than 256 levels"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_line_and_the_others_are_fixed(
    file: Path, name: str, content: str | bytes, said: str
) -> None:
    bad = file.parent / name
    bad.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = fix(bad, file, "--write")
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == f"fixed {file}\n"
    assert bad.read_bytes() == (content if isinstance(content, bytes) else content.encode())


def test_what_is_not_there_is_said() -> None:
    result = fix("no-such-file.yaml")
    assert result.exit_code == 2
    assert "there is no such file or directory" in result.stderr


def test_an_input_without_documents_is_unusable(tmp_path: Path) -> None:
    assert fix(put(tmp_path, "empty.yaml", "# nothing\n")).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.yaml", "--check", "--write"], "give one of them"),
        (["-", "a.yaml"], "give it alone"),
        (["-", "--write"], "cannot be changed in place"),
    ],
)
def test_contradictions_are_refused_in_one_line(arguments: list[str], said: str) -> None:
    result = fix(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_cannot_be_written_is_told_with_its_line_and_what_to_write(tmp_path: Path) -> None:
    text = JOB.replace(
        """        limits:
          nvidia.com/gpu: "1"   # a device
          memory: 64Gi
""",
        """        limits:
          <<: {alpha.kubernetes.io/nvidia-gpu: 1}
          memory: 64Gi
""",
    )
    path = put(tmp_path, "merged.yaml", text)
    result = fix(path, "--write")
    assert result.exit_code == 1
    assert path.read_text() == text
    assert "fix: the changes could not be written into" in result.stderr
    assert "line 11: spec.containers[0].resources.limits[alpha.kubernetes.io/nvidia-gpu]: comes from a merge key" in result.stderr
    assert "Write them by hand: " in result.stderr
    assert "1 object not written" in result.stderr


KUSTOMIZATION = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [pod.yaml]
patches:
  - path: more.yaml
  - patch: |-
      - op: remove
        path: /spec
"""


def test_a_patch_of_a_kustomization_is_no_manifest(tmp_path: Path) -> None:
    put(tmp_path, "kustomization.yaml", KUSTOMIZATION)
    put(tmp_path, "pod.yaml", JOB)
    patch = put(tmp_path, "more.yaml", JOB)
    walked = fix(tmp_path, "--write")
    assert walked.exit_code == 0
    assert "more.yaml: input: is a patch of" in walked.stderr
    assert patch.read_text() == JOB
    assert fix(tmp_path / "pod.yaml", "--check").exit_code == 0
    named = fix(patch)
    assert named.exit_code == 2
    assert "review it by `gpugate review -k DIR`" in named.stderr


@pytest.mark.parametrize(
    "kustomization",
    ["patchesStrategicMerge:\n  - ../base/more.yaml\n", "patches:\n  - path: ../base/more.yaml\n    target: {kind: Pod}\n"],
)
def test_a_patch_that_an_overlay_elsewhere_names_is_none_either(tmp_path: Path, kustomization: str) -> None:
    patch = put(tmp_path, "base/more.yaml", JOB)
    put(tmp_path, "overlay/kustomization.yaml", kustomization)
    fix(tmp_path, "--write")
    assert patch.read_text() == JOB


CHART_TEMPLATE = JOB.replace("name: main", "name: {{ .Values.name }}")


def test_a_template_of_a_chart_is_told_from_a_manifest(tmp_path: Path) -> None:
    put(tmp_path, "chart/Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n")
    put(tmp_path, "chart/values.yaml", "name: main\n")
    template = put(tmp_path, "chart/templates/pod.yaml", CHART_TEMPLATE)
    plain = put(tmp_path, "chart/templates/plain.yaml", JOB)
    walked = fix(tmp_path, "--write")
    assert walked.exit_code == 0
    assert walked.stderr.count("is a template of the Helm chart") == 1
    assert f"`gpugate review --helm {tmp_path}/chart`" in walked.stderr
    assert template.read_text() == CHART_TEMPLATE
    assert plain.read_text() != JOB
    # Values are no manifests, and nobody asked for them.
    assert "values.yaml" not in walked.stderr
    named = fix(template)
    assert named.exit_code == 2
    assert f"`gpugate review --helm {tmp_path}/chart`" in named.stderr


def test_a_template_without_a_chart_names_the_way_to_render_one(tmp_path: Path) -> None:
    result = fix(put(tmp_path, "pod.yaml", "{{- if .Values.on }}\n" + JOB + "{{- end }}\n"))
    assert result.exit_code == 2
    assert "is a template, not YAML; `gpugate review --helm CHART --values FILE`" in result.stderr


def test_the_mode_of_a_file_and_a_link_to_it_stay(file: Path) -> None:
    file.chmod(0o640)
    link = file.parent / "elsewhere" / "link.yaml"
    link.parent.mkdir()
    link.symlink_to(file)
    fix(link, "--write")
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert fix(file, "--check").exit_code == 0
    assert sorted(one.name for one in file.parent.iterdir()) == ["elsewhere", "pod.yaml"]


def test_a_read_only_file_keeps_every_file_from_being_changed(file: Path) -> None:
    other = put(file.parent, "other.yaml", JOB)
    file.chmod(0o444)
    result = fix(other, file, "--write", "--profile", "recommended")
    assert result.exit_code == 2
    assert result.stderr == f"gpugate: {file}: is read-only; no file was changed\n"
    assert other.read_text() == JOB
    assert sorted(one.name for one in file.parent.iterdir()) == ["other.yaml", "pod.yaml"]


def test_a_file_that_somebody_changes_meanwhile_is_not_overwritten(file: Path) -> None:
    with pytest.raises(InputError, match="another program has changed the file"):
        replace_all([FileReplacement(str(file), b"what was read", b"new")])
    assert file.read_text() == JOB


def test_a_file_that_vanishes_meanwhile_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.yaml: cannot be written: No such file or directory; no file was changed"):
        replace_all([FileReplacement(str(tmp_path / "gone.yaml"), b"", b"new")])


def test_a_full_disk_leaves_every_file_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = put(file.parent, "other.yaml", JOB)
    synced: list[int] = []

    def fail_at_the_second(handle: int) -> None:
        synced.append(handle)
        if len(synced) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(replace.os, "fsync", fail_at_the_second)
    result = fix(file, other, "--write")
    assert result.exit_code == 2
    assert "No space left on device; no file was changed" in result.stderr
    assert file.read_text() == other.read_text() == JOB
    assert sorted(one.name for one in file.parent.iterdir()) == ["other.yaml", "pod.yaml"]


KILLED_HALF_WAY = """
import os, signal, sys
from gpugate.webhook.files import atomic_write as replace
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
replace.os.fsync = kill
replace.replace_all([replace.FileReplacement(sys.argv[1], open(sys.argv[1], "rb").read(), b"new" * 100_000)])
"""


def test_a_kill_half_way_leaves_the_old_file_whole(file: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_HALF_WAY, str(file)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert file.read_text() == JOB
    # What it leaves behind is hidden, and no later run takes it for a manifest.
    left = [one.name for one in file.parent.iterdir() if one.name != file.name]
    assert all(name.startswith(".pod.yaml.") for name in left)
    assert fix(file.parent, "--write").exit_code == 0


def test_colour_is_for_people(file: Path) -> None:
    assert "\x1b[32m+" in fix(file, "--color", "always").stdout
    assert "\x1b" not in fix(file).stdout


def test_an_object_that_is_right_is_not_touched(tmp_path: Path) -> None:
    path = put(tmp_path, "cpu.json", cpu_pod())
    before = path.stat()
    assert fix(path, "--write").stdout == ""
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def test_a_list_of_typed_elements_keeps_its_form(tmp_path: Path) -> None:
    one = pod(memory="64Gi")
    del one["apiVersion"], one["kind"]
    path = put(tmp_path, "list.json", {"apiVersion": "v1", "kind": "PodList", "items": [one, one]})
    assert fix(path, "--write").exit_code == 0
    items = orjson.loads(path.read_bytes())["items"]
    assert "kind" not in items[0]
    assert all("tolerations" in item["spec"] for item in items)


def test_elements_of_a_list_that_share_a_text_are_each_what_they_should_be(tmp_path: Path) -> None:
    text = """\
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Pod
    metadata: {name: a}
    spec: &spec
      containers:
        - {name: main, image: i, resources: &gpu {limits: {nvidia.com/gpu: 1, memory: 64Gi}}}
        - {name: more, image: i, resources: *gpu}
  - apiVersion: v1
    kind: Pod
    metadata: {name: b}
    spec: *spec
"""
    path = put(tmp_path, "list.yaml", text)
    assert fix(path, "--write").exit_code == 0
    # Both pods want the same, so it is written once and the alias stays.
    assert "    spec: *spec\n" in path.read_text()
    assert "resources: *gpu" in path.read_text()
    assert fix(path, "--check").exit_code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_said(file: Path) -> None:
    file.parent.chmod(0o555)
    try:
        result = fix(file, "--write")
    finally:
        file.parent.chmod(0o755)
    assert result.exit_code == 2
    assert "Permission denied; no file was changed" in result.stderr
