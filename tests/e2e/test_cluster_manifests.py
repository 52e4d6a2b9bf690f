"""The pieces of `manifests/cluster` at the real apiserver and Kueue: accepted as they stand, and doing what they say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from ruamel.yaml import YAML

from tests.e2e.controlplane import wait_until
from tests.e2e.controlplane.crds import CLUSTER_KINDS, install_cluster_kind, remove_crd
from tests.e2e.controlplane.programs import CLUSTER_BUILD, build_all
from tests.e2e.gate import Gate
from tests.e2e.test_door import get, send, wait_running
from tests.e2e.workloads import IMAGE, container, cpu_container, deployment, gpus, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.e2e.controlplane import ControlPlane

pytestmark = pytest.mark.e2e

CLUSTER = Path(__file__).resolve().parents[2] / "manifests" / "cluster"
TEAM = "team-a"
#: In the order in which a team applies them.
PIECES = (
    "device-plugin",
    "mig",
    "nodes/karpenter",
    "priorities",
    "kueue",
    "tenants/team-a",
    "policy",
    "monitoring/dcgm-metrics",
    "monitoring/dcgm",
    "monitoring/dashboard",
    "monitoring/gpugate",
)
#: Namespaces that others bring.
ELSEWHERE = ("gpu-operator", "monitoring")
#: Each node with its pool, block, rack and whether its kubelet aligns.
NODES = {
    "piece-1": "training b1 b1-r1 aligned",
    "piece-2": "training b1 b1-r1 aligned",
    "piece-3": "training b1 b1-r2 -",
    "piece-4": "inference b1 b1-r2 -",
    "piece-5": "inference b1 b1-r3 -",
}
RACK = "kueue.x-k8s.io/podset-required-topology"


def label_nodes(cluster: ControlPlane, text: str) -> subprocess.CompletedProcess[str]:
    """Run the script that labels nodes, with this list."""
    listed = cluster.run_dir / "nodes.txt"
    listed.write_text(text, encoding="utf-8")
    env = {**os.environ, "KUBECTL": str(cluster.kubectl_path), "KUBECONFIG": str(cluster.kubeconfig)}
    command = [CLUSTER / "nodes" / "label-nodes.sh", listed]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def machines(control_plane: ControlPlane) -> Iterator[subprocess.CompletedProcess[str]]:
    """Five GPU machines without taints, marked by the script; what it said."""
    for name in NODES:
        control_plane.add_gpu_node(name, taints=[])
    text = "# node pool block rack aligned\n\n" + "".join(f"{name}  {marks}\n" for name, marks in NODES.items())
    yield label_nodes(control_plane, text)
    for name in NODES:
        control_plane.remove_node(name)


@pytest.fixture(scope="module")
def door(control_plane: ControlPlane) -> Iterator[Gate]:
    """gpugate, for the door of the cluster; nothing runs yet."""
    gate = Gate(control_plane, "gpugate-pieces")
    try:
        yield gate
    finally:
        gate.unregister()
        gate.stop()


@pytest.fixture(scope="module")
def applied(
    control_plane: ControlPlane, machines: subprocess.CompletedProcess[str], door: Gate
) -> Iterator[Mapping[str, subprocess.CompletedProcess[str]]]:
    """Every piece applied by the command of its README, and what kubectl said."""
    assert machines.returncode == 0, machines.stderr
    door.install()
    control_plane.kubectl("delete", "gpupolicies", "--all")
    sources = build_all((CLUSTER_BUILD,))
    for name in CLUSTER_KINDS:
        install_cluster_kind(control_plane, sources, name)
    for name in ELSEWHERE:
        control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    how = ("apply", "--server-side", "--validate=strict", "-k")
    try:
        yield {piece: control_plane.kubectl(*how, str(CLUSTER / piece), check=False) for piece in PIECES}
    finally:
        control_plane.kubectl("delete", "namespace", TEAM, "--ignore-not-found", check=False)
        for piece in reversed(PIECES):
            control_plane.kubectl("delete", "--ignore-not-found", "-k", str(CLUSTER / piece), check=False)
        for name in ELSEWHERE:
            control_plane.kubectl("delete", "namespace", name, "--wait=false")
        for name in CLUSTER_KINDS:
            remove_crd(control_plane, name)


@pytest.fixture(scope="module")
def team(control_plane: ControlPlane, applied: Mapping[str, subprocess.CompletedProcess[str]], door: Gate) -> str:
    """The namespace of a team, once gpugate enforces in it and its queues are open."""
    assert all(one.returncode == 0 for one in applied.values())
    door.start()
    door.register()
    wait_until(lambda: "policy tenants: generation 1" in door.get("/readyz?verbose"), 30, "the policy to be in force")
    door.wait_in_force(TEAM)
    for name in ("training", "inference"):
        control_plane.kubectl("wait", "--for=condition=Active", f"localqueue/{name}", "-n", TEAM, "--timeout=60s")
    return TEAM


def rendered(cluster: ControlPlane, piece: str) -> list[dict[str, Any]]:
    """The objects of a piece."""
    return list(YAML(typ="safe").load_all(cluster.kubectl("kustomize", str(CLUSTER / piece)).stdout))


@pytest.mark.parametrize("piece", PIECES)
def test_the_apiserver_takes_every_object_of_a_piece_as_it_stands(
    control_plane: ControlPlane, applied: Mapping[str, subprocess.CompletedProcess[str]], piece: str
) -> None:
    answer = applied[piece]
    assert answer.returncode == 0, answer.stderr
    assert len(answer.stdout.splitlines()) == len(rendered(control_plane, piece)) > 0
    assert "Warning" not in answer.stderr


def test_every_piece_that_there_is_has_been_applied() -> None:
    found = {str(path.parent.relative_to(CLUSTER)) for path in CLUSTER.rglob("kustomization.yaml")}
    assert found - set(PIECES) == {"tenants/base", "tenants/queues", "tenants/egress-https"}


@pytest.mark.usefixtures("applied")
@pytest.mark.parametrize(
    ("piece", "kind", "field"),
    [
        ("kueue", "ClusterQueue", "cohort"),
        ("monitoring/dcgm", "PrometheusRule", "group"),
        ("tenants/team-a", "ResourceQuota", "soft"),
    ],
)
def test_a_field_that_a_kind_does_not_have_would_be_refused(control_plane: ControlPlane, piece: str, kind: str, field: str) -> None:
    wrong = next(one for one in rendered(control_plane, piece) if one["kind"] == kind)
    wrong["spec"][field] = {}
    how = ("apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-")
    answer = control_plane.kubectl(*how, input=orjson.dumps(wrong), check=False)
    assert answer.returncode == 1
    assert f"spec.{field}" in answer.stderr


@pytest.mark.usefixtures("applied")
def test_kueue_finds_nothing_wrong_with_the_queues(control_plane: ControlPlane) -> None:
    for name in ("gpu-training", "gpu-inference"):
        control_plane.kubectl("wait", "--for=condition=Active", f"clusterqueue/{name}", "--timeout=60s")


def test_the_script_marks_nodes_and_may_be_run_again(
    control_plane: ControlPlane, machines: subprocess.CompletedProcess[str]
) -> None:
    assert machines.returncode == 0, machines.stderr
    for _ in range(2):
        node = control_plane.kubectl_json("get", "node", "piece-1")
        labels = {key: value for key, value in node["metadata"]["labels"].items() if key.startswith("gpugate.io/")}
        assert labels == {
            "gpugate.io/pool": "training",
            "gpugate.io/block": "b1",
            "gpugate.io/rack": "b1-r1",
            "gpugate.io/numa-aligned": "true",
        }
        assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
        assert label_nodes(control_plane, f"piece-1 {NODES['piece-1']}").returncode == 0
    assert "gpugate.io/numa-aligned" not in control_plane.kubectl_json("get", "node", "piece-3")["metadata"]["labels"]


@pytest.mark.usefixtures("machines")
def test_the_script_says_which_line_or_node_is_wrong(control_plane: ControlPlane) -> None:
    short = label_nodes(control_plane, "piece-1 training b1\n")
    assert (short.returncode, "piece-1: five words are wanted" in short.stderr) == (2, True)
    unknown = label_nodes(control_plane, "nobody training b1 b1-r1 -\n")
    assert unknown.returncode != 0
    assert "nobody" in unknown.stderr


def gang(name: str, size: int, **fields: Any) -> dict[str, Any]:
    """A Job that takes whole machines in one rack, and says nothing of queues or tolerations."""
    made = job(name, TEAM, container(gpus(8, "512Gi", cpu="64")), size=size, **fields)
    made["spec"]["template"]["metadata"]["annotations"][RACK] = "gpugate.io/rack"
    return made


@pytest.fixture
def running_gang(control_plane: ControlPlane, team: str) -> Iterator[list[dict[str, Any]]]:
    """The pods of a gang that takes all of the team's quota."""
    assert send(control_plane, gang("llm", 2, labels={"kueue.x-k8s.io/priority-class": "gpu-training"})).returncode == 0
    yield wait_running(control_plane, team, 2, "batch.kubernetes.io/job-name=llm")
    control_plane.kubectl("delete", "job", "llm", "-n", team, "--cascade=foreground")


def test_a_gang_of_a_team_is_queued_admitted_and_placed_in_one_rack(
    control_plane: ControlPlane, running_gang: list[dict[str, Any]]
) -> None:
    assert get(control_plane, "job", "llm", TEAM)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    assert {one["spec"]["nodeName"] for one in running_gang} == {"piece-1", "piece-2"}
    (workload,) = control_plane.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", TEAM)["items"]
    assert workload["spec"]["queueName"] == "training"
    assert workload["spec"]["priority"] == 10_000
    (assigned,) = workload["status"]["admission"]["podSetAssignments"]
    assert set(assigned["flavors"].items()) == {(name, "gpu-training") for name in ("nvidia.com/gpu", "cpu", "memory")}


@pytest.mark.usefixtures("running_gang")
def test_the_quota_refuses_one_gpu_more(control_plane: ControlPlane) -> None:
    answer = send(control_plane, pod("one-more", TEAM, container(gpus(1, "16Gi", cpu="2"))))
    assert answer.returncode == 1
    assert "exceeded quota: team, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=16" in answer.stderr


@pytest.mark.usefixtures("team")
def test_what_the_quota_could_never_hold_is_refused_before_a_job_is_made(control_plane: ControlPlane) -> None:
    answer = send(control_plane, gang("large", 3), "--dry-run=server")
    assert answer.returncode == 1
    assert "namespace-limits" in answer.stderr
    assert "3 pods x 8 = 24 of requests.nvidia.com/gpu > 16" in answer.stderr


def add_quota(cluster: ControlPlane, namespace: str, name: str, hard: Mapping[str, str]) -> None:
    """A ResourceQuota, once it is looked at."""
    metadata = {"name": name, "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": dict(hard)}})
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/{name}"
    wait_until(lambda: cluster.request("GET", path).body.get("status", {}).get("hard"), 30, f"the quota {name}")


def test_a_quota_without_the_word_requests_bounds_nothing(control_plane: ControlPlane, namespace: str) -> None:
    two = pod("two", namespace, container(gpus(2, "16Gi")))
    add_quota(control_plane, namespace, "bare", {"nvidia.com/gpu": "1"})
    assert send(control_plane, two, "--dry-run=server").returncode == 0
    add_quota(control_plane, namespace, "right", {"requests.nvidia.com/gpu": "1"})
    assert "exceeded quota: right" in send(control_plane, two, "--dry-run=server").stderr


def test_a_gpu_container_that_states_nothing_gets_its_share_and_a_sidecar_has_to_speak(
    control_plane: ControlPlane, team: str
) -> None:
    beside = {**cpu_container(), "name": "sidecar"}
    answer = send(control_plane, pod("silent", team, container(), beside), "--dry-run=server", "-o", "json")
    assert answer.returncode == 0, answer.stderr
    trainer, sidecar = (one["resources"] for one in orjson.loads(answer.stdout)["spec"]["containers"])
    # An eighth of a machine with 2048Gi, less what is left to the system.
    assert trainer["limits"]["memory"] == trainer["requests"]["memory"] == "230Gi"
    assert sidecar == cpu_container()["resources"]
    mute = send(control_plane, pod("mute", team, container(), {"name": "sidecar", "image": IMAGE}), "--dry-run=server")
    assert mute.returncode == 1
    assert "sidecar" in mute.stderr
    assert "requests.memory" in mute.stderr


def test_an_inference_deployment_runs_on_its_own_pool(control_plane: ControlPlane, team: str) -> None:
    service = deployment("serve", team, container(gpus(1, "32Gi", cpu="8")), replicas=2)
    service["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "inference", "kueue.x-k8s.io/priority-class": "gpu-inference"}
    service["spec"]["template"]["spec"]["priorityClassName"] = "gpu-inference"
    assert send(control_plane, service).returncode == 0
    try:
        pods = wait_running(control_plane, team, 2, "app=serve")
        assert {one["spec"]["nodeName"] for one in pods} <= {"piece-4", "piece-5"}
        assert {one["spec"]["priority"] for one in pods} == {100_000}
    finally:
        control_plane.kubectl("delete", "deployment", "serve", "-n", team, "--cascade=foreground")


@pytest.fixture
def second_team(control_plane: ControlPlane, team: str) -> Iterator[str]:
    """Another team, made as the README says: the folder copied, the name and the quota changed."""
    copied = control_plane.run_dir / "tenants"
    shutil.copytree(CLUSTER / "tenants", copied)
    overlay = copied / "team-a" / "kustomization.yaml"
    text = overlay.read_text(encoding="utf-8")
    overlay.write_text(text.replace(team, "team-b").replace('"16"', '"32"'), encoding="utf-8")
    control_plane.kubectl("apply", "--server-side", "--validate=strict", "-k", str(overlay.parent))
    control_plane.kubectl("wait", "--for=condition=Active", "localqueue/training", "-n", "team-b", "--timeout=60s")
    yield "team-b"
    control_plane.kubectl("delete", "namespace", "team-b")


def flavors_of(cluster: ControlPlane, namespace: str, name: str) -> set[str]:
    """The flavors that Kueue has given to a Job."""
    for one in cluster.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", namespace)["items"]:
        if one["metadata"]["ownerReferences"][0]["name"] == name:
            admission = one.get("status", {}).get("admission", {})
            return {flavor for pods in admission.get("podSetAssignments", ()) for flavor in pods["flavors"].values()}
    return set()


def test_training_borrows_an_idle_machine_of_inference_and_gives_it_back(
    control_plane: ControlPlane, team: str, second_team: str
) -> None:
    resources = gpus(8, "512Gi", cpu="64")
    assert send(control_plane, job("full", second_team, container(resources), size=3)).returncode == 0
    wait_running(control_plane, second_team, 3, "batch.kubernetes.io/job-name=full")
    assert flavors_of(control_plane, second_team, "full") == {"gpu-training"}
    assert send(control_plane, job("guest", second_team, container(resources))).returncode == 0
    (guest,) = wait_running(control_plane, second_team, 1, "batch.kubernetes.io/job-name=guest")
    assert guest["spec"]["nodeName"] in {"piece-4", "piece-5"}
    assert flavors_of(control_plane, second_team, "guest") == {"gpu-inference"}

    service = deployment("busy", team, container(gpus(1, "32Gi", cpu="8")), replicas=9)
    service["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "inference"}
    assert send(control_plane, service).returncode == 0
    try:
        pods = wait_running(control_plane, team, 9, "app=busy")
        assert {one["spec"]["nodeName"] for one in pods} == {"piece-4", "piece-5"}
        assert get(control_plane, "job", "guest", second_team)["spec"]["suspend"] is True
        assert get(control_plane, "job", "full", second_team)["spec"]["suspend"] is False
    finally:
        control_plane.kubectl("delete", "deployment", "busy", "-n", team, "--cascade=foreground")


@pytest.mark.usefixtures("team")
@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "allowed"),
    [
        ("create", "pytorchjobs.kubeflow.org", TEAM, True),
        ("delete", "jobs.batch", TEAM, True),
        ("get", "workloads.kueue.x-k8s.io", TEAM, True),
        ("update", "resourcequotas", TEAM, False),
        ("delete", "networkpolicies.networking.k8s.io", TEAM, False),
        ("create", "rolebindings.rbac.authorization.k8s.io", TEAM, False),
        ("create", "localqueues.kueue.x-k8s.io", TEAM, False),
        ("create", "pytorchjobs.kubeflow.org", "default", False),
    ],
)
def test_an_engineer_of_the_team_may_run_work_there_and_nothing_else(
    control_plane: ControlPlane, verb: str, resource: str, namespace: str, allowed: bool
) -> None:
    who = ("--as=someone", "--as-group=team-a")
    answer = control_plane.kubectl("auth", "can-i", verb, resource, "-n", namespace, *who, check=False)
    assert answer.stdout.strip() == ("yes" if allowed else "no")


def test_a_privileged_pod_of_a_team_is_refused(control_plane: ControlPlane, team: str) -> None:
    bold = pod("bold", team, {**cpu_container(), "securityContext": {"privileged": True}})
    answer = send(control_plane, bold, "--dry-run=server")
    assert answer.returncode == 1
    assert 'violates PodSecurity "baseline:latest"' in answer.stderr
