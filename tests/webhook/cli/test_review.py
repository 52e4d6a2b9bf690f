"""`gpugate review`: what it prints, how it ends, and what no input may do to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonpatch
import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from gpugate.webhook.cli.main import app
from tests.shared.reviews import CLUSTER, EXAMPLES, POLICY, WORKLOADS, admission, cpu_pod, overcommitted_pod, pod
from tests.shared.running import run

ENTRY_KEYS = {"file", "document", "apiVersion", "kind", "namespace", "name", "outcome", "policies", "patch", "findings"}
FINDING_KEYS = {"rule", "reason", "path", "severity", "message", "remedy"}
OUTCOMES = {"clean", "changed", "refused", "skipped", "invalid"}
SEVERITIES = {"deny", "warn", "dryrun", "unknown"}


def review(*arguments: str | Path, stdin: str = "", **environment: str) -> Result:
    """Run `gpugate review` in this process."""
    env = {"FORCE_COLOR": None, "NO_COLOR": None, "TERM": "xterm-256color", **environment}
    return CliRunner().invoke(app, ["review", *map(str, arguments)], input=stdin, env=env)


def entries(*arguments: str | Path, stdin: str = "") -> list[dict[str, Any]]:
    result = review(*arguments, "-o", "json", stdin=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found: list[dict[str, Any]] = orjson.loads(result.stdout)
    return found


@pytest.fixture
def put(tmp_path: Path) -> Any:
    def put_one(content: Any, name: str = "manifest.yaml") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else orjson.dumps(content).decode(), encoding="utf-8")
        return path

    return put_one


def test_it_ends_with_0_where_nothing_is_refused(put: Any) -> None:
    assert review(put(cpu_pod())).exit_code == 0
    assert review(put(pod())).exit_code == 0


def test_it_ends_with_1_where_something_is_refused(put: Any) -> None:
    result = review(put(pod(), "a.yaml"), put(overcommitted_pod(), "b.yaml"))
    assert result.exit_code == 1
    assert "limit 48Gi" in result.stdout
    assert "2 objects: 1 changed, 1 refused" in result.stdout


def test_what_passes_with_warnings_is_counted_beside_the_rest(put: Any) -> None:
    idle = pod()
    idle["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 0
    result = review(put(idle, "a.yaml"), put(pod(), "b.yaml"), put(overcommitted_pod(), "c.yaml"))
    assert result.stdout.endswith("3 objects: 1 clean, 1 changed, 1 refused; 1 of them with warnings\n")


def test_it_ends_with_2_where_an_input_cannot_be_used_and_still_judges_the_others(put: Any) -> None:
    broken, refused = put("a: b: c\n", "a.yaml"), put(overcommitted_pod(), "b.yaml")
    result = review(broken, refused)
    assert result.exit_code == 2
    assert str(broken) in result.stdout
    assert "line 1, column 5" in result.stdout
    assert "refused Pod team-a/greedy" in result.stdout


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n"])
def test_it_ends_with_2_where_there_is_nothing_to_judge(put: Any, content: str) -> None:
    result = review(put(content))
    assert result.exit_code == 2
    assert "contains no document" in result.stderr


def test_warnings_alone_refuse_nothing(put: Any) -> None:
    policy = put(
        "apiVersion: gpugate.io/v1alpha1\nkind: GPUPolicy\nmetadata: {name: mild}\nspec: {profile: recommended, mode: Mutate}\n",
        "policy.yaml",
    )
    result = review(put(overcommitted_pod()), "--policy", policy)
    assert result.exit_code == 0
    assert "warn    host-memory" in result.stdout


def test_dryrun_changes_nothing_and_says_what_it_would_do(put: Any) -> None:
    policy = put(
        "apiVersion: gpugate.io/v1alpha1\nkind: GPUPolicy\nmetadata: {name: mild}\nspec: {profile: recommended, mode: DryRun}\n",
        "policy.yaml",
    )
    (entry,) = entries(put(overcommitted_pod()), "--policy", policy)
    assert (entry["outcome"], entry["patch"]) == ("clean", [])
    assert {"dryrun"} == {finding["severity"] for finding in entry["findings"]}
    assert "tolerations (dry run) would: " in review(put(overcommitted_pod()), "--policy", policy).stdout


def test_the_json_output_has_an_entry_per_object_with_just_these_fields() -> None:
    found = entries(WORKLOADS, "--policy", POLICY, "--cluster", CLUSTER)
    assert len(found) > len(list(WORKLOADS.glob("*.yaml")))
    for entry in found:
        assert set(entry) == ENTRY_KEYS, entry
        assert entry["outcome"] in OUTCOMES
        assert isinstance(entry["document"], int)
        assert entry["document"] >= 1
        for operation in entry["patch"]:
            assert set(operation) <= {"op", "path", "value"}
        for finding in entry["findings"]:
            assert set(finding) == FINDING_KEYS
            assert all(isinstance(text, str) for text in finding.values())
            assert finding["severity"] in SEVERITIES
            assert finding["message"]
            assert finding["remedy"].endswith(".")
        denied = any(finding["severity"] == "deny" for finding in entry["findings"])
        assert denied == (entry["outcome"] == "refused")
        assert bool(entry["patch"]) == (entry["outcome"] == "changed")
        # What is no workload is judged by nobody.
        bound = ["default@0", "research@0"] if entry["namespace"] in {"research", "sandbox"} else ["default@0"]
        assert entry["policies"] == ([] if entry["outcome"] == "skipped" else bound)


def test_an_entry_without_a_rule_says_why_in_a_note(put: Any) -> None:
    found = entries(put("just: data\n---\nkind: Pod\napiVersion: v1\nspec: 7\n---\na: b: c\n"))
    assert [(one["document"], one["outcome"]) for one in found] == [(1, "skipped"), (2, "invalid"), (3, "invalid")]
    for entry in found:
        assert set(entry) == ENTRY_KEYS | {"note"}
        assert entry["note"]
    assert found[2]["findings"][0]["message"] == found[2]["note"]
    assert found[1]["findings"][0]["rule"] == "input"


def test_the_patch_of_the_json_output_makes_the_object_of_the_yaml_output(put: Any) -> None:
    obj = pod()
    (entry,) = entries(put(obj))
    (written,) = yaml.safe_load_all(review(put(obj), "-o", "yaml").stdout)
    assert jsonpatch.apply_patch(obj, entry["patch"]) == written


def test_the_yaml_output_reviewed_again_is_clean_and_comes_out_the_same(tmp_path: Path) -> None:
    first = review(WORKLOADS, "--policy", POLICY, "--cluster", CLUSTER, "-o", "yaml")
    assert first.exit_code == 1
    file = tmp_path / "again.yaml"
    file.write_text(first.stdout, encoding="utf-8")
    before = entries(WORKLOADS, "--policy", POLICY, "--cluster", CLUSTER)
    after = entries(file, "--policy", POLICY, "--cluster", CLUSTER)
    wanted = ["clean" if one["outcome"] == "changed" else one["outcome"] for one in before]
    assert [one["outcome"] for one in after] == wanted
    assert [one["name"] for one in after] == [one["name"] for one in before]
    second = review(file, "--policy", POLICY, "--cluster", CLUSTER, "-o", "yaml")
    assert second.stdout == first.stdout


def test_the_yaml_output_keeps_every_string_a_string(put: Any) -> None:
    tricky = [
        "yes",
        "Y",
        "on",
        "null",
        "1e3",
        "0x1",
        "0o7",
        "1:30",
        "2026-01-01",
        "~",
        "",
        " padded ",
        "a: b",
        "- x",
        "#!",
        "08",
        ".inf",
    ]
    script = "#!/bin/sh\nset -e  \n\n\ttrain --lr 1e-3 \n\n"
    obj = pod(annotations={f"example.com/{at}": text for at, text in enumerate([*tricky, script])}, labels={"y": "no", "1": "on"})
    obj["spec"]["containers"][0] |= {"command": ["sh", "-c", script], "args": tricky}
    result = review(put(obj, "pod.json"), "-o", "yaml")
    (found,) = yaml.safe_load_all(result.stdout)
    assert found["metadata"] == obj["metadata"]
    assert found["spec"]["containers"][0]["args"] == tricky
    assert found["spec"]["containers"][0]["command"] == ["sh", "-c", script]


def test_the_yaml_output_holds_refused_and_foreign_objects_as_they_were_and_tells_of_them_on_stderr(put: Any) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    result = review(put(overcommitted_pod(), "a.json"), put(service, "b.json"), put("a: b: c\n", "c.yaml"), "-o", "yaml")
    assert list(yaml.safe_load_all(result.stdout)) == [overcommitted_pod(), service]
    assert "deny: host-memory" in result.stderr
    assert "c.yaml" in result.stderr
    assert result.exit_code == 2


def test_the_same_file_twice_is_judged_twice(put: Any) -> None:
    file = put(pod())
    assert [one["file"] for one in entries(file, file)] == [str(file), str(file)]


def test_lists_of_every_kind_are_judged_element_by_element(put: Any) -> None:
    typed = {"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": pod()["metadata"], "spec": pod()["spec"]}]}
    nested = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [typed, {"apiVersion": "v1", "kind": "List", "items": [overcommitted_pod()]}],
    }
    found = entries(put(nested))
    assert [(one["kind"], one["name"], one["outcome"]) for one in found] == [
        ("Pod", "train", "changed"),
        ("Pod", "greedy", "refused"),
    ]


def test_standard_input_is_judged() -> None:
    (entry,) = entries("-", stdin=orjson.dumps(pod()).decode())
    assert (entry["file"], entry["outcome"]) == ("-", "changed")


def test_an_admission_review_is_judged_as_the_door_would(put: Any) -> None:
    old = overcommitted_pod()
    labelled = overcommitted_pod(labels={"team": "vision"})
    worse = overcommitted_pod()
    worse["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"
    cases = [
        (admission(overcommitted_pod()), "refused"),
        (admission(labelled, operation="UPDATE", old=old), "clean"),
        (admission(worse, operation="UPDATE", old=old), "refused"),
        (admission(None, operation="DELETE", old=old), "skipped"),
        (admission(overcommitted_pod(), operation="CONNECT"), "skipped"),
        (admission(overcommitted_pod(), operation={"a": 1}), "skipped"),
        (admission(overcommitted_pod(), operation="UPDATE", old=pod(), subResource="status"), "skipped"),
        (admission(worse, operation="UPDATE", old=old, subResource="resize"), "refused"),
        (admission(pod(), operation="UPDATE", old=old, subResource="resize"), "refused"),
        ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "x"}}, "skipped"),
    ]
    for body, outcome in cases:
        (entry,) = entries(put(body, "review.json"))
        assert entry["outcome"] == outcome, body


def test_an_admission_review_without_the_objects_own_kind_takes_the_requests(put: Any) -> None:
    bare = {key: value for key, value in overcommitted_pod().items() if key not in {"apiVersion", "kind"}}
    body = admission(bare, kind={"group": "", "version": "v1", "kind": "Pod"})
    (entry,) = entries(put(body))
    assert (entry["apiVersion"], entry["kind"], entry["outcome"]) == ("v1", "Pod", "refused")


@pytest.mark.parametrize(
    "content",
    [
        "just: data\n",
        "[1, 2]\n",
        "text\n",
        "apiVersion: v1\n",
        "kind: Pod\n",
        "apiVersion: [v1]\nkind: Pod\n",
        "apiVersion: v1\nkind: [Pod]\n",
    ],
)
def test_what_is_no_kubernetes_object_is_named_and_skipped_with_a_warning(put: Any, content: str) -> None:
    file = put(content)
    result = review(file)
    assert result.exit_code == 0
    assert f"{file}" in result.stdout
    assert "is not a Kubernetes object" in result.stdout
    assert "1 skipped" in result.stdout


def test_kinds_that_are_none_of_gpugates_business_are_counted_and_not_listed(put: Any) -> None:
    result = review(put("apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"))
    assert result.stdout == "1 object: 1 skipped\n"


def test_a_malformed_object_is_invalid_and_the_others_are_judged(put: Any) -> None:
    bad = pod()
    bad["spec"]["containers"][0]["resources"]["limits"] = ["nvidia.com/gpu"]
    result = review(put(bad, "a.json"), put(pod(), "b.json"))
    assert result.exit_code == 2
    assert "spec.containers[0].resources.limits: must be a map, is a list" in result.stdout
    assert "1 changed, 1 invalid" in result.stdout


def test_a_malformed_claim_beside_the_workloads_hides_none_of_them(put: Any) -> None:
    claim = put("apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: gpu}\nspec: 7\n", "claim.yaml")
    assert [one["outcome"] for one in entries(claim, put(pod()))] == ["skipped", "changed"]


def test_nothing_but_a_terminal_gets_colour_unless_it_is_asked_for(put: Any) -> None:
    file = put(overcommitted_pod())
    assert "\x1b" not in review(file).stdout
    assert "\x1b[" in review(file, "--color", "always").stdout
    assert "\x1b" not in review(file, "--color", "never").stdout


def test_colour_that_is_asked_for_comes_whatever_the_environment_says(put: Any) -> None:
    file = put(overcommitted_pod())
    wanted = review(file, "--color", "always").stdout
    for environment in ({"TERM": "dumb"}, {"NO_COLOR": "1"}):
        assert review(file, "--color", "always", **environment).stdout == wanted
    assert "\x1b" not in review(file, "--color", "never", FORCE_COLOR="1").stdout


def test_json_and_yaml_are_never_coloured(put: Any) -> None:
    for output in ("json", "yaml"):
        assert "\x1b" not in review(put(pod()), "-o", output, "--color", "always").stdout


def test_a_manifest_cannot_send_escapes_to_the_terminal(put: Any) -> None:
    name = "\x1b[31mred\x07"
    obj = overcommitted_pod(name)
    obj["spec"]["containers"][0]["name"] = name
    for options in ([], ["-o", "yaml"], ["-o", "json"]):
        result = review(put(obj), *options)
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", result.stdout + result.stderr)


def test_the_diff_shows_what_is_added_and_can_be_left_out(put: Any) -> None:
    obj = pod()
    obj["spec"]["containers"][0]["name"] = "[bold]main[/bold]"
    shown, hidden = review(put(obj)).stdout, review(put(obj), "--no-diff").stdout
    assert re.search(r"^ +\+ .*tolerations:$", shown, re.MULTILINE)
    assert "[bold]main[/bold]" in shown
    assert not re.search(r"^ +[+-] ", hidden, re.MULTILINE)
    assert "tolerations: toleration nvidia.com/gpu:NoSchedule" in hidden


def test_long_lines_are_not_broken(put: Any) -> None:
    obj = pod("n" * 200)
    obj["spec"]["containers"][0]["image"] = "registry.example/" + "x" * 300
    assert f"changed Pod team-a/{'n' * 200}  " in review(put(obj), COLUMNS="40").stdout


def test_a_namespace_can_be_given_to_objects_that_state_none(put: Any) -> None:
    obj = pod()
    del obj["metadata"]["namespace"]
    options = ("--policy", POLICY, "--cluster", CLUSTER)
    (in_default,) = entries(put(obj), *options)
    (in_team_a,) = entries(put(obj), *options, "-n", "team-a")
    assert [one["reason"] for one in in_default["findings"]] == ["QueueMissing"]
    assert in_team_a["outcome"] == "changed"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kubeconfig", "NOWHERE"], ["no kubeconfig at", "NOWHERE", "KUBECONFIG"]),
        (["--kubeconfig", "kubeconfig", "--context", "prod"], ["no context prod", "dev"]),
        (["--kubeconfig", "kubeconfig", "--cluster", "cluster.yaml"], ["--cluster", "--kubeconfig", "not both"]),
        (["--kubeconfig", "kubeconfig"], ["apiserver", "127.0.0.1"]),
        (["--cluster", "NOWHERE"], ["NOWHERE", "no such file"]),
        (["--cluster", "cluster.yaml"], ["Node gpu-1", "status", "a map"]),
        (["--policy", "NOWHERE"], ["NOWHERE", "no such file"]),
        (["--policy", "cluster.yaml"], ["cluster.yaml", "GPUPolicy"]),
    ],
)
def test_facts_and_policies_that_cannot_be_had_end_it_with_2_and_one_line(
    tmp_path: Path, put: Any, options: list[str], words: list[str]
) -> None:
    put(pod(), "pod.json")
    put("apiVersion: v1\nkind: Node\nmetadata: {name: gpu-1}\nstatus: [1]\n", "cluster.yaml")
    cluster = {"name": "dev", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "dev", "context": {"cluster": "dev", "user": "dev"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [{"name": "dev", "user": {}}], "current-context": "dev"}
    put({"apiVersion": "v1", "kind": "Config", **config}, "kubeconfig")
    files = {"NOWHERE", "kubeconfig", "cluster.yaml"}
    result = review(tmp_path / "pod.json", *(tmp_path / one if one in files else one for one in options))
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("gpugate: ")
    for word in words:
        assert word in line


def test_the_program_itself_reads_stdin_keeps_its_output_apart_and_ends_with_the_code() -> None:
    done = run("review", "-", "-o", "json", stdin=orjson.dumps(overcommitted_pod()))
    assert done.returncode == 1
    assert done.stderr == "gpugate: no policy is given, so the profile recommended decides (--profile chooses another)\n"
    (entry,) = orjson.loads(done.stdout)
    assert entry["outcome"] == "refused"


def test_the_program_itself_says_of_a_missing_kubeconfig_one_line(tmp_path: Path) -> None:
    done = run("review", str(EXAMPLES / "workloads"), "--kubeconfig", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def table() -> dict[str, tuple[str, str]]:
    """The rows of the examples' README: file to outcome and what stands out."""
    rows = re.findall(
        r"^\| `([^`]+)` \| [^|]* \| ([^|]+) \| *([^|]*) *\|$", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE
    )
    return {name: (outcome.strip(), told) for name, outcome, told in rows}


@pytest.fixture(scope="module")
def example_entries() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in entries(WORKLOADS, "--policy", POLICY, "--cluster", CLUSTER):
        found.setdefault(Path(entry["file"]).stem, []).append(entry)
    return found


def test_the_table_of_the_examples_names_every_file_and_no_other() -> None:
    assert sorted(table()) == sorted(path.stem for path in WORKLOADS.iterdir())


@pytest.mark.parametrize("name", sorted(table()))
def test_every_example_has_the_outcome_that_its_table_says(name: str, example_entries: dict[str, list[dict[str, Any]]]) -> None:
    stated = table()[name][0]
    judged = example_entries[name]
    outcomes = [part.strip() for part in stated.partition(",")[0].split(";")]
    if stated.endswith(", twice"):
        outcomes *= 2
    assert [one["outcome"] for one in judged] == outcomes
    warned = any(finding["severity"] == "warn" for one in judged for finding in one["findings"])
    assert warned == ("warning" in stated or "exemption reported" in stated)


@pytest.mark.parametrize("name", sorted(name for name, (outcome, _) in table().items() if outcome == "refused"))
def test_every_refused_example_is_refused_by_the_rule_that_its_table_says(
    name: str, example_entries: dict[str, list[dict[str, Any]]]
) -> None:
    (judged,) = example_entries[name]
    assert {finding["rule"] for finding in judged["findings"]} == set(table()[name][1].partition(":")[0].split(", "))
