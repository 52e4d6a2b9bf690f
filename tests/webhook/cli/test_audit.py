"""`gpugate audit`: what it prints, how it ends, and what no input may do to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from gpugate.webhook.cli.main import app
from tests.shared.audits import Json, a_pod, deployment, job, named, owned, replica_set
from tests.shared.reviews import CLUSTER, WORKLOADS, cpu_pod, overcommitted_pod

POLICY: Json = {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": "p"}}


def gpu_policy(name: str = "p", **spec: Any) -> Json:
    return {**POLICY, "metadata": {"name": name}, "spec": spec}


STRICT = gpu_policy(mode="Enforce")
MILD = gpu_policy(mode="Mutate")
BROKEN = gpu_policy("broken", mode="Sometimes")


def audit(*arguments: str | Path, stdin: str = "", command: str = "audit", **environment: str) -> Result:
    env = {"FORCE_COLOR": None, "NO_COLOR": None, "TERM": "xterm-256color", "COLUMNS": "200", **environment}
    result = CliRunner().invoke(app, [command, *map(str, arguments)], input=stdin, env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def found(*arguments: str | Path, stdin: str = "") -> Json:
    document: Json = orjson.loads(audit(*arguments, "-o", "json", stdin=stdin).stdout)
    return document


def fails(*arguments: str | Path, stdin: str = "", command: str = "audit") -> str:
    """The one line by which the program says that it cannot use what it was given."""
    result = audit(*arguments, stdin=stdin, command=command)
    assert result.exit_code == 2, (result.exit_code, result.output)
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if "so the profile recommended decides" not in line]
    assert line.startswith("gpugate: ")
    assert "Traceback" not in line
    return line


@pytest.fixture
def put(tmp_path: Path) -> Any:
    def put_one(*objects: Any, name: str = "objects.yaml") -> Path:
        path = tmp_path / name
        whole = "---\n".join(one if isinstance(one, str) else orjson.dumps(one).decode() + "\n" for one in objects)
        path.write_text(whole, encoding="utf-8")
        return path

    return put_one


GREEDY = overcommitted_pod(uid="u")
#: Ready to be read, with nothing to refuse.
FINE = a_pod("fine")


def listed(*objects: Json) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": [*objects]}


def test_what_comes_to_more_than_64_bits_hold_is_told_as_the_most_that_they_do(put: Any) -> None:
    many = deployment("huge", replicas=2**31 - 1)
    many["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(2**63 - 1)}}
    path, strict, mild = put(many), put(STRICT, name="strict.yaml"), put(MILD, name="mild.yaml")
    (one,) = found(path)["workloads"]
    assert one["devices"] == {"nvidia.com/gpu": 2**63 - 1}
    compared = orjson.loads(audit(path, "--policy", strict, "--compare", mild, "-o", "json", "--cluster", CLUSTER).stdout)
    assert [line["accelerators"] for line in compared] == [2**63 - 1]


def test_it_ends_with_0_where_nothing_would_be_refused_and_with_1_where_something_would(put: Any) -> None:
    assert audit(put(FINE)).exit_code == 0
    result = audit(put(FINE, GREEDY))
    assert result.exit_code == 1
    assert "Enforcing would refuse 1 of 2 workloads (1 accelerator)" in result.stdout
    assert "Pod team-a/greedy" in result.stdout
    assert "host-memory (DryRun)" in result.stdout, "without a policy, the built-in one in DryRun"


def test_lists_of_both_forms_and_standard_input_are_read(put: Any) -> None:
    typed = {"apiVersion": "v1", "kind": "PodList", "items": [{key: FINE[key] for key in ("metadata", "spec")}]}
    for whole in (listed(FINE), typed):
        assert [one["name"] for one in found(put(whole))["workloads"]] == ["fine"]
        assert [one["name"] for one in found("-", stdin=orjson.dumps(whole).decode())["workloads"]] == ["fine"]


def test_an_empty_list_is_a_cluster_without_workloads(put: Any) -> None:
    result = audit(put(listed()))
    assert (result.exit_code, result.stdout) == (0, "No workload requests accelerators.\n")
    assert audit(put(cpu_pod())).stdout == "No workload requests accelerators.\n"


def test_pods_of_a_deployment_in_the_same_dump_are_no_workloads_of_their_own(put: Any) -> None:
    part = owned(replica_set(), deployment())
    whole = found(put(listed(deployment(), part, owned(a_pod(), part))))
    assert [(one["kind"], one["name"]) for one in whole["workloads"]] == [("Deployment", "serve")]


@pytest.mark.parametrize(("form", "kind"), [("policyreport", "PolicyReport"), ("openreport", "Report")])
def test_reports_as_objects(put: Any, form: str, kind: str) -> None:
    other = {**GREEDY, "metadata": {**GREEDY["metadata"], "namespace": "team-b"}}
    result = audit(put(GREEDY, other), "-o", form)
    assert result.exit_code == 1
    reports = [*yaml.safe_load_all(result.stdout)]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in reports] == [(kind, "team-a"), (kind, "team-b")]
    assert all(one["summary"]["fail"] == 1 for one in reports)


def test_a_namespace_narrows_workloads(put: Any) -> None:
    other = {**GREEDY, "metadata": {**GREEDY["metadata"], "namespace": "team-b"}}
    file = put(FINE, other)
    assert audit(file, "--namespace", "team-a").exit_code == 0
    assert [one["namespace"] for one in found(file, "-n", "team-b")["workloads"]] == ["team-b"]
    assert len(found(file, "-n", "team-b", "-n", "team-a")["workloads"]) == 2
    assert found(file, "-n", "team-c")["workloads"] == []


def test_another_label_names_the_team(put: Any) -> None:
    labelled = {**GREEDY, "metadata": {**GREEDY["metadata"], "labels": {"team": "a", "squad": "b"}}}
    assert found(put(labelled))["workloads"][0]["team"] == "a"
    assert found(put(labelled), "--team-label", "squad")["workloads"][0]["team"] == "b"


def test_policies_come_from_files_else_from_what_is_there_else_built_in(put: Any) -> None:
    objects, strict = put(GREEDY, MILD), put(STRICT, name="strict.yaml")
    assert found(objects)["workloads"][0]["outcome"] != "refuse"
    assert audit(objects, "--policy", strict).exit_code == 1
    assert {one["mode"] for one in found(objects, "--policy", strict)["workloads"][0]["items"]} == {"Enforce"}


def test_a_policy_that_does_not_parse_shows_in_table_json_and_page(put: Any, tmp_path: Path) -> None:
    objects, page = put(GREEDY, BROKEN, STRICT), tmp_path / "page.html"
    result = audit(objects, "--html", page)
    assert result.exit_code == 1
    assert "GPUPolicy broken is not fully in force: broken: spec.mode" in result.stdout
    (line,) = [one for one in found(objects)["policies"] if one["problem"]]
    assert line["name"] == "broken"
    assert "spec.mode" in line["problem"]
    text = page.read_text(encoding="utf-8")
    assert "broken" in text
    assert "spec.mode" in text


@pytest.mark.parametrize("metadata", [["p"], "p", None, {}, {"name": 7}])
def test_a_policy_without_a_name_is_told_of_and_ends_nothing(put: Any, metadata: Any) -> None:
    whole = found(put(GREEDY, {**STRICT, "metadata": metadata}))
    assert [one["problem"] != "" for one in whole["policies"]].count(True) == 1
    assert len(whole["workloads"]) == 1


def test_colour_is_for_terminals_alone(put: Any) -> None:
    assert "\x1b" not in audit(put(GREEDY)).stdout
    assert "\x1b" in audit(put(GREEDY), "--color", "always").stdout


def test_the_sums_alone_where_that_is_asked_for(put: Any) -> None:
    assert "team-a/greedy" not in audit(put(GREEDY), "--no-findings").stdout


def test_the_examples_are_audited_as_they_are() -> None:
    result = audit(WORKLOADS, "--cluster", CLUSTER)
    assert result.exit_code == 1
    assert "would refuse" in result.stdout


def test_the_same_input_gives_the_same_bytes(put: Any) -> None:
    objects = [FINE, GREEDY, job(), deployment(), {**a_pod("broken"), "spec": []}, BROKEN]
    first, second = (found(put(*ones)) for ones in (objects, objects[::-1]))
    assert {**first, "at": ""} == {**second, "at": ""}


# Comparing --------------------------------------------------------------------------------------------------


def test_a_comparison_ends_with_1_where_something_would_newly_be_refused(put: Any) -> None:
    objects, strict, mild = put(FINE, GREEDY), put(STRICT, name="s.yaml"), put(MILD, name="m.yaml")
    stricter = audit(objects, "--policy", strict, "--compare", mild)
    assert stricter.exit_code == 1
    assert "newly refused: Pod team-a/greedy" in stricter.stdout
    milder = audit(objects, "--policy", mild, "--compare", strict)
    assert milder.exit_code == 0
    assert "freed: Pod team-a/greedy" in milder.stdout
    same = audit(objects, "--policy", strict, "--compare", strict)
    assert (same.exit_code, same.stdout) == (0, "2 workloads: 2 the same\n")


def test_a_comparison_as_json_names_what_differs(put: Any) -> None:
    objects, strict, mild = put(FINE, GREEDY), put(STRICT, name="s.yaml"), put(MILD, name="m.yaml")
    result = audit(objects, "--policy", strict, "--compare", mild, "-o", "json")
    assert [(one["verdict"], one["name"]) for one in orjson.loads(result.stdout)][-1] == ("newly refused", "greedy")


def test_a_comparison_counts_rules_in_dry_run_where_that_is_asked_for(put: Any) -> None:
    objects, dry, strict = put(GREEDY), put(gpu_policy(mode="DryRun"), name="d.yaml"), put(STRICT, name="s.yaml")
    assert audit(objects, "--policy", strict, "--compare", dry).exit_code == 1
    assert audit(objects, "--policy", strict, "--compare", dry, "--as-if-enforced").exit_code == 0


@pytest.mark.parametrize("form", ["policyreport", "openreport"])
def test_a_comparison_is_no_report_and_leaves_no_page_behind(put: Any, tmp_path: Path, form: str) -> None:
    objects, strict, page = put(GREEDY), put(STRICT, name="s.yaml"), tmp_path / "page.html"
    line = fails(objects, "--policy", strict, "--compare", strict, "-o", form, "--html", page)
    assert "--compare is printed as a table or as json" in line
    assert not page.exists()


# What cannot be used -------------------------------------------------------------------------------------------


def test_a_missing_file() -> None:
    assert "no-such-file.yaml: there is no such file" in fails("no-such-file.yaml")


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n---\n"])
def test_an_input_without_any_document(put: Any, content: str) -> None:
    assert "the input contains no document" in fails(put(content))
    assert "the input contains no document" in fails("-", stdin=content)
    assert audit(put(content), put(FINE, name="fine.yaml")).exit_code == 0


def test_an_input_that_does_not_parse(put: Any) -> None:
    assert "line 1, column 5" in fails(put("a: b: c\n"))


def test_a_bad_policy(put: Any) -> None:
    assert "spec.mode" in fails(put(FINE), "--policy", put(BROKEN, name="b.yaml"))
    assert "contains no GPUPolicy" in fails(put(FINE), "--policy", put(GREEDY, name="g.yaml"))
    assert "contains no GPUPolicy" in fails(put(FINE), "--compare", put(GREEDY, name="g.yaml"))
    assert "there is no such file" in fails(put(FINE), "--policy", "no-such-policy.yaml")


def test_facts_without_workloads() -> None:
    assert "--cluster is for workloads in files" in fails("--cluster", CLUSTER)


def test_facts_from_two_places(put: Any) -> None:
    assert "not both" in fails(put(FINE), "--cluster", CLUSTER, "--context", "x")


def test_a_kubeconfig_that_does_not_exist(put: Any, tmp_path: Path) -> None:
    missing = tmp_path / "no-kubeconfig"
    assert str(missing) in fails("--kubeconfig", missing)
    assert str(missing) in fails(put(FINE), "--kubeconfig", missing)
    assert str(missing) in fails("--kubeconfig", missing, command="controller")


def test_a_kubeconfig_that_is_none(put: Any) -> None:
    kubeconfig = put("just text\n", name="kubeconfig")
    assert str(kubeconfig) in fails("--kubeconfig", kubeconfig)


def test_a_page_that_cannot_be_written(put: Any, tmp_path: Path) -> None:
    for page in (tmp_path / "no" / "such" / "page.html", tmp_path, Path("/proc/page.html")):
        assert f"--html {page}: cannot be written" in fails(put(FINE), "--html", page)


def test_facts_that_cannot_be_read(put: Any) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": []}
    assert "Node n1" in fails(put(FINE), "--cluster", put(node, name="n.yaml"))


def broken(**metadata: Any) -> Json:
    return {**a_pod("broken"), "metadata": {"name": "broken", "namespace": "team-a", **metadata}}


@pytest.mark.parametrize(
    ("spoilt", "told"),
    [
        ({**broken(), "metadata": ["broken"]}, True),
        ({**broken(), "status": "Running"}, True),
        ({**broken(), "spec": []}, True),
        (broken(ownerReferences="me"), True),
        (broken(labels={"team": 7}), False),
        (broken(labels=[7]), True),
        ({**job("broken"), "spec": {"template": 7}}, True),
        ({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "broken"}, "status": []}, True),
        ({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "broken"}, "spec": []}, True),
        ({"apiVersion": "v1", "kind": "Pod"}, False),
        ({"kind": 7}, False),
        ({}, False),
    ],
)
def test_one_malformed_object_in_a_dump_spoils_no_other(put: Any, spoilt: Json, told: bool) -> None:
    file = put(listed(spoilt, GREEDY))
    whole = found(file)
    assert [one["outcome"] for one in whole["workloads"] if one["name"] == "greedy"] == ["refuse"]
    assert bool(whole["remarks"]) is told
    assert ("remark: " in audit(file).stdout) is told


def test_a_huge_dump_of_one_workload(put: Any) -> None:
    huge = a_pod("huge")
    huge["spec"]["containers"] *= 1000
    for at, one in enumerate(huge["spec"]["containers"]):
        huge["spec"]["containers"][at] = {**one, "name": f"c{at}"}
    (one,) = found(put(huge))["workloads"]
    assert one["devices"] == {"nvidia.com/gpu": 1000}


def test_what_is_nested_too_deeply_for_anybody(put: Any) -> None:
    assert "nested" in fails(put('{"a":' * 5000 + "1" + "}" * 5000))


def test_hostile_names_do_not_reach_the_terminal(put: Any) -> None:
    hostile = {**GREEDY, "metadata": {"name": "x\x1b[2J\ninvented line", "namespace": "n\x07"}}
    text = audit(put(hostile)).stdout
    assert not set(text) & {"\x1b", "\x07"}
    assert "\ninvented" not in text


def test_an_owner_of_an_unknown_kind_is_told_of_in_every_form(put: Any, tmp_path: Path) -> None:
    pods = [
        owned({**overcommitted_pod(f"etl-{at}", uid=f"u{at}")}, named("spark/v1", "SparkApplication", "etl")) for at in range(2)
    ]
    file, page = put(*pods), tmp_path / "page.html"
    assert "SparkApplication team-a/etl  2 accelerators" in audit(file, "--html", page).stdout
    assert found(file)["workloads"][0]["pods"] == 2
    (report,) = yaml.safe_load_all(audit(file, "-o", "policyreport").stdout)
    assert report["results"][0]["resources"][0]["kind"] == "SparkApplication"
    assert "etl" in page.read_text(encoding="utf-8")


# The controller -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["8080", "host:", "host:port", "host:65536", ":-1", ""])
def test_a_controller_with_no_address(listen: str) -> None:
    assert f"--listen {listen}: write HOST:PORT" in fails("--listen", listen, command="controller")


def test_a_controller_with_a_bad_policy(put: Any) -> None:
    assert "spec.mode" in fails("--policy", put(BROKEN), command="controller")
    assert "there is no such file" in fails("--policy", "no-such-policy.yaml", command="controller")


@pytest.mark.parametrize(
    "option",
    [
        "--interval=0",
        "--interval=soon",
        "--interval=nan",
        "--rate=0",
        "--rate=nan",
        "--settle=-1",
        "--settle=nan",
        "--lease-duration=1",
        "--report-spacing=-1",
        "--report-spacing=nan",
        "--no-such-option",
    ],
)
def test_a_controller_with_figures_that_make_no_sense(option: str) -> None:
    result = audit(option, command="controller")
    assert result.exit_code == 2
    assert option.partition("=")[0] in result.stderr
    assert "Traceback" not in result.output
