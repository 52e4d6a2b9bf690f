"""The harness itself: the control plane is real, does what a cluster does, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import (
    A100,
    FINISH_ANNOTATION,
    GPU_TAINT,
    H100,
    ControlPlane,
    ManagedProcess,
    ProcessFailed,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def node(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """An H100 machine that only the pods of one test select."""
    name = f"{namespace}-h100"
    control_plane.add_gpu_node(name, labels={"e2e": namespace})
    yield name
    control_plane.remove_node(name)


def pod_spec(selector: str, *, gpus: int = 1, tolerate: bool = True) -> dict[str, Any]:
    """A pod that asks for GPUs on the machines of one test."""
    resources = {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": str(gpus)}
    return {
        "restartPolicy": "Never",
        "nodeSelector": {"e2e": selector},
        "tolerations": [dict(GPU_TAINT)] if tolerate else [],
        "initContainers": [{"name": "prepare", "image": "busybox"}],
        "containers": [{"name": "train", "image": "train", "resources": {"requests": resources, "limits": resources}}],
    }


def pod(name: str, namespace: str, annotations: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
    """A bare pod around `pod_spec`."""
    metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(namespace, **options)}


def phase(cluster: ControlPlane, namespace: str, name: str) -> str:
    """The pod's phase."""
    return str(cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}").body["status"]["phase"])


def test_the_control_plane_is_up_at_1_36(control_plane: ControlPlane) -> None:
    version = control_plane.request("GET", "/version").body
    assert version["gitVersion"].startswith("v1.36.")
    assert (version["major"], version["minor"]) == ("1", "36")
    assert control_plane.kubectl_json("version")["serverVersion"] == version
    assert "apiserver_request_total{" in control_plane.metrics()


def test_a_gpu_machine_shows_what_feature_discovery_would(control_plane: ControlPlane, namespace: str) -> None:
    name = f"{namespace}-a100"
    machine = control_plane.add_gpu_node(name, A100.product)
    try:
        assert machine["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        assert machine["status"]["allocatable"]["memory"] == "1152Gi"
        assert machine["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
        assert GPU_TAINT in machine["spec"]["taints"]
    finally:
        control_plane.remove_node(name)


def test_a_gpu_pod_that_tolerates_the_taint_runs_on_the_gpu_machine(control_plane: ControlPlane, namespace: str, node: str) -> None:
    control_plane.apply(pod("train", namespace))
    wait_until(lambda: phase(control_plane, namespace, "train") == "Running", 30, "the pod to run")
    assert control_plane.kubectl_json("get", "pod", "train", "-n", namespace)["spec"]["nodeName"] == node


@pytest.mark.usefixtures("node")
def test_a_gpu_pod_without_the_toleration_is_not_scheduled(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(pod("train", namespace, tolerate=False))

    def why_not() -> str:
        conditions = control_plane.kubectl_json("get", "pod", "train", "-n", namespace)["status"].get("conditions", [])
        return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")

    assert "untolerated taint" in wait_until(why_not, 30, "the scheduler's verdict")


@pytest.mark.usefixtures("node")
def test_a_running_pod_finishes_only_when_it_is_annotated_to(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(pod("lasting", namespace), pod("short", namespace, {FINISH_ANNOTATION: "true"}))
    wait_until(lambda: phase(control_plane, namespace, "short") == "Succeeded", 30, "the annotated pod to succeed")
    wait_until(lambda: phase(control_plane, namespace, "lasting") == "Running", 30, "the other pod to run")


def test_a_certificate_makes_a_caller_someone_with_only_the_rights_rbac_grants(control_plane: ControlPlane, namespace: str) -> None:
    kubeconfig = control_plane.kubeconfig_for("dana", ["ml-team", "researchers"])
    me = control_plane.kubectl_json("auth", "whoami", kubeconfig=kubeconfig)["status"]["userInfo"]
    assert me["username"] == "dana"
    assert {"ml-team", "researchers", "system:authenticated"} == set(me["groups"])
    refused = control_plane.kubectl("get", "pods", "-n", namespace, kubeconfig=kubeconfig, check=False)
    assert "Forbidden" in refused.stderr


def queue(namespace: str, gpus: int) -> list[dict[str, Any]]:
    """A queue in the namespace with room for so many GPUs."""
    quota = {"cpu": "192", "memory": "2048Gi", "nvidia.com/gpu": str(gpus)}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in quota.items()]
    flavors = [{"name": namespace, "resources": resources}]
    group = {"coveredResources": list(quota), "flavors": flavors}
    api = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    labels = {"e2e": namespace, "nvidia.com/gpu.product": H100.product}
    return [
        {**api, "kind": "ResourceFlavor", "metadata": {"name": namespace}, "spec": {"nodeLabels": labels}},
        {
            **api,
            "kind": "ClusterQueue",
            "metadata": {"name": namespace},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            **api,
            "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
    ]


def job(name: str, namespace: str, *, pods: int, gpus: int) -> dict[str, Any]:
    """A Job in the queue `team`."""
    template = {"spec": pod_spec(namespace, gpus=gpus)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


@pytest.mark.usefixtures("node")
def test_a_job_with_a_queue_name_is_admitted_by_kueue_and_its_pods_run(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(*queue(namespace, gpus=8))
    control_plane.apply(job("fits", namespace, pods=2, gpus=4), job("too-big", namespace, pods=2, gpus=8))

    def status(field: str) -> int:
        return int(control_plane.kubectl_json("get", "job", "fits", "-n", namespace)["status"].get(field, 0))

    wait_until(lambda: status("ready") == 2, 60, "the job to be admitted and its pods to run")
    workloads = control_plane.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", namespace)["items"]
    admitted = next(w for w in workloads if w["metadata"]["ownerReferences"][0]["name"] == "fits")
    assert admitted["status"]["admission"]["clusterQueue"] == namespace
    waiting = control_plane.kubectl_json("get", "job", "too-big", "-n", namespace)
    assert waiting["spec"]["suspend"] is True
    assert not waiting["status"].get("active")

    annotation = f"{FINISH_ANNOTATION}=true"
    control_plane.kubectl("annotate", "pod", "-n", namespace, "-l", "batch.kubernetes.io/job-name=fits", annotation)
    wait_until(lambda: status("succeeded") == 2, 30, "the job's pods to succeed once they are annotated")


@pytest.mark.usefixtures("node")
def test_a_plain_pod_with_a_queue_name_is_gated_and_let_go_by_kueue(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(*queue(namespace, gpus=8))
    queued = pod("queued", namespace)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    control_plane.apply(queued)
    wait_until(lambda: phase(control_plane, namespace, "queued") == "Running", 30, "the pod to be let go and run")
    seen = control_plane.kubectl_json("get", "pod", "queued", "-n", namespace)
    assert seen["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"


def test_a_jobset_with_a_queue_name_is_suspended_and_then_admitted_by_kueue(control_plane: ControlPlane, namespace: str) -> None:
    replicated = {"name": "workers", "replicas": 1, "template": {"spec": {"template": {"spec": pod_spec(namespace)}}}}
    control_plane.apply(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "gang", "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
            "spec": {"replicatedJobs": [replicated]},
        }
    )

    def suspended() -> bool:
        return bool(control_plane.kubectl_json("get", "jobset", "gang", "-n", namespace)["spec"]["suspend"])

    assert suspended()
    control_plane.apply(*queue(namespace, gpus=8))
    wait_until(lambda: not suspended(), 30, "the JobSet to be admitted")


def test_kueues_older_api_version_is_converted_not_cut(control_plane: ControlPlane, namespace: str) -> None:
    objects = queue(namespace, gpus=1)
    objects[1]["spec"]["cohortName"] = "everyone"
    control_plane.apply(*objects)
    path = f"/apis/kueue.x-k8s.io/v1beta1/clusterqueues/{namespace}"
    assert control_plane.request("GET", path).body["spec"]["cohort"] == "everyone"


def processes_of(run_dir: Path) -> dict[int, str]:
    """Processes whose command line or environment names the folder, apart from this one and zombies."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if command and str(run_dir).encode() in command + environment:
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_ending_the_harness_by_a_signal_leaves_no_child_behind(tmp_path: Path, number: signal.Signals) -> None:
    run_dir = tmp_path / "cluster"
    program = (
        "import pathlib, signal; from tests.e2e.controlplane import ControlPlane\n"
        f"cluster = ControlPlane.start(pathlib.Path({str(run_dir)!r}), kueue=True)\n"
        "print('up', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == "up\n"
        commands = " ".join(command for pid, command in processes_of(run_dir).items() if pid != harness.pid)
        for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kueue"):
            assert f"/{name} " in commands
        harness.send_signal(number)
        assert harness.wait(30) == -number
    wait_until(lambda: not processes_of(run_dir), 10, "every child to be gone")


def test_a_start_that_fails_halfway_shows_the_log_and_stops_what_runs(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="unknown flag: --no-such-flag"):
        ControlPlane.start(tmp_path / "cluster", apiserver_args=["--no-such-flag"])
    assert not processes_of(tmp_path / "cluster")


def test_a_process_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 600 & echo started; exec sleep 601 # {tmp_path}"
    log = tmp_path / "stubborn.log"
    with ManagedProcess.start("stubborn", ["sh", "-c", script], log=log, env={"MARK": str(tmp_path)}) as process:
        process.wait_ready(lambda: "\nstarted" in log.read_text(), 10)
        assert len(processes_of(tmp_path)) == 2
        process.stop(grace=0.2)
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not processes_of(tmp_path), 5, "its children to be gone")


def test_two_clusters_run_side_by_side(control_plane: ControlPlane, tmp_path: Path) -> None:
    with ControlPlane.start(tmp_path / "second", kueue=True) as second:
        assert second.server != control_plane.server
        second.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-there"}})
        assert control_plane.request("GET", "/api/v1/namespaces/only-there").status == 404
    assert control_plane.request("GET", "/readyz").status == 200
