"""gpugate at the door of a real apiserver: what it rewrites, what it refuses, and what never reaches it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import container, cpu_container, deployment, gpus, job, pod, queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]


def send(cluster: ControlPlane, obj: dict[str, Any], *args: str) -> subprocess.CompletedProcess[str]:
    """What `kubectl create` answers a user who sends ``obj``."""
    return cluster.kubectl("create", "-f", "-", *args, input=orjson.dumps(obj).decode(), check=False)


def get(cluster: ControlPlane, kind: str, name: str, namespace: str) -> dict[str, Any]:
    """The stored object."""
    found: dict[str, Any] = cluster.kubectl_json("get", kind, name, "-n", namespace)
    return found


def wait_running(cluster: ControlPlane, namespace: str, count: int, selector: str) -> list[dict[str, Any]]:
    """Wait until ``count`` pods with these labels run on nodes."""

    def running() -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = cluster.kubectl_json("get", "pods", "-n", namespace, "-l", selector)["items"]
        found = [one for one in pods if one["status"].get("phase") == "Running" and one["spec"].get("nodeName")]
        return found if len(found) == count else []

    return wait_until(running, 60, f"{count} pods with {selector} to run")


def test_a_gpu_pod_is_rewritten_and_runs(control_plane: ControlPlane, namespace: str) -> None:
    assert send(control_plane, pod("train", namespace)).returncode == 0
    stored = get(control_plane, "pod", "train", namespace)["spec"]
    trainer = stored["containers"][0]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in stored["tolerations"]
    assert trainer["resources"]["limits"]["memory"] == trainer["resources"]["requests"]["memory"] == "230Gi"
    assert trainer["resources"]["limits"]["cpu"].isdigit()
    assert {"name": "gpugate-shm", "mountPath": "/dev/shm"} in trainer["volumeMounts"]
    assert {"name": "gpugate-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}} in stored["volumes"]
    (running,) = wait_running(control_plane, namespace, 1, "app=train")
    assert running["spec"]["nodeName"].startswith("door-h100")
    assert running["status"]["qosClass"] == "Guaranteed"


def test_a_pod_with_the_legacy_name_runs_because_it_was_renamed(control_plane: ControlPlane, namespace: str) -> None:
    legacy = container({"limits": {"alpha.kubernetes.io/nvidia-gpu": "1"}})
    assert send(control_plane, pod("old", namespace, legacy)).returncode == 0
    limits = get(control_plane, "pod", "old", namespace)["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "1"
    assert "alpha.kubernetes.io/nvidia-gpu" not in limits
    wait_running(control_plane, namespace, 1, "app=old")


#: What is refused: how to make it in a namespace, and texts that the user must read.
REFUSALS: dict[str, tuple[Callable[[str], dict[str, Any]], list[str]]] = {
    "a name that no device plugin serves": (
        lambda ns: pod("x", ns, container({"limits": {"nvidia.com/gpu.mig-1g.5gb": "1"}})),
        [
            "accelerator-names",
            "spec.containers[0].resources.limits[nvidia.com/gpu.mig-1g.5gb]",
            "Write nvidia.com/mig-1g.5gb instead",
        ],
    ),
    "a memory limit far above its request": (
        lambda ns: pod("x", ns, container(gpus(1, "64Gi", request="8Gi"))),
        ["host-memory", "limit 64Gi / request 8Gi = 8, above the ratio of 2", "Write resources.requests.memory: 32Gi or more"],
    ),
    "a pod that no node could hold": (
        lambda ns: pod("x", ns, container(gpus(8, "3Ti"))),
        ["host-memory", "memory 3Ti (train) > 2Ti allocatable", "Request at most 2Ti of memory per pod"],
    ),
    "a /dev/shm above the memory limit": (
        lambda ns: pod(
            "x",
            ns,
            container(gpus(1, "32Gi"), volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}]),
            volumes=[{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}],
        ),
        ["host-memory", "is larger: 64Gi > 32Gi", "Write sizeLimit: 16Gi"],
    ),
    "a gang whose completions are not its parallelism": (
        lambda ns: job("x", ns, container(gpus(8)), size=2, completions=4),
        ["gang", "completions 4 != parallelism 2", 'gpugate.io/gang-size: "1"'],
    ),
    "a gang whose declared size is another": (
        lambda ns: job("x", ns, container(gpus(8)), size=2, annotations={"gpugate.io/gang-size": "8"}),
        ["gang", "declares 8 pods, but the workload makes 2: 8 != 2", 'Write gpugate.io/gang-size: "2"'],
    ),
    "a gang that may start in part": (
        lambda ns: job("x", ns, container(gpus(8)), size=2, annotations={"kueue.x-k8s.io/job-min-parallelism": "1"}),
        ["gang", "lets 1 of 2 pods start, and the gang needs 2: 1 < 2", 'Write "2"'],
    ),
    "a gang that leaves fragments on every node": (
        lambda ns: job("x", ns, container(gpus(3)), size=2),
        ["gang", "8 = 2 x 3 + 2", "Request 1 or 2 or 4 or 8 nvidia.com/gpu per pod"],
    ),
    "a queue that does not exist": (
        lambda ns: job("x", ns, container(gpus(1)), labels={"kueue.x-k8s.io/queue-name": "nowhere"}),
        ["queue", "has no LocalQueue nowhere", "it has LocalQueue here. Write kueue.x-k8s.io/queue-name: here."],
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_the_user_reads_why_it_is_refused_with_the_sums_and_the_remedy(
    control_plane: ControlPlane, namespace: str, what: str
) -> None:
    if what == "a queue that does not exist":
        # Without any LocalQueue in the cluster nothing is known of them by name; with one, a wrong name is wrong.
        control_plane.apply(*queue(namespace, "here", 8))
    make, wanted = REFUSALS[what]
    answer = send(control_plane, make(namespace))
    assert answer.returncode == 1
    assert "denied the request: gpugate refuses" in answer.stderr
    for text in wanted:
        assert text in answer.stderr
    kind = make(namespace)["kind"].lower()
    assert control_plane.kubectl("get", kind, "x", "-n", namespace, check=False).returncode == 1


def test_a_refusal_is_403_forbidden_to_a_client(control_plane: ControlPlane, namespace: str) -> None:
    bad = pod("x", namespace, container(gpus(1, "64Gi", request="8Gi")))
    answer = control_plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", bad)
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")


def test_a_cpu_workload_is_never_sent_to_gpugate(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    before = gate.reviews()
    assert send(control_plane, pod("web", namespace, cpu_container())).returncode == 0
    assert send(control_plane, deployment("api", namespace, cpu_container(), replicas=3)).returncode == 0
    wait_running(control_plane, namespace, 3, "app=api")
    assert gate.reviews() == before
    assert send(control_plane, pod("train", namespace)).returncode == 0
    assert gate.reviews() >= before + 2


def test_with_gpugate_down_cpu_pods_are_created_and_gpu_pods_are_refused(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    gate.kill()
    try:
        assert send(control_plane, pod("web", namespace, cpu_container())).returncode == 0
        refused = send(control_plane, pod("train", namespace))
        assert refused.returncode == 1
        assert "pods.validate.gpugate.io" in refused.stderr
    finally:
        gate.start()
    assert send(control_plane, pod("train", namespace)).returncode == 0
    wait_running(control_plane, namespace, 1, "app=train")


def test_a_job_gets_its_queue_here_is_admitted_by_kueue_and_runs(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(*queue(namespace, "training", 16))
    wait_until(lambda: f"{namespace}" in control_plane.kubectl("get", "clusterqueues").stdout, 20, "the queue")
    gang = job("llm", namespace, container(gpus(8, "512Gi", cpu="64")), size=2)

    def queued() -> dict[str, Any]:
        answer = control_plane.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All", gang)
        return answer.body if answer.body["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name") else {}

    wait_until(queued, 20, "gpugate to know the LocalQueue")
    assert send(control_plane, gang).returncode == 0
    stored = get(control_plane, "job", "llm", namespace)
    assert stored["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    pods = wait_running(control_plane, namespace, 2, "batch.kubernetes.io/job-name=llm")
    assert {one["spec"]["nodeName"] for one in pods} == {"door-h100-1", "door-h100-2"}
    workloads = control_plane.kubectl_json("get", "workloads", "-n", namespace)["items"]
    assert [one["spec"]["queueName"] for one in workloads] == ["training"]
    # Kueue counted what the template says; the pods it started say the same.
    for one in pods:
        assert one["spec"]["containers"][0]["resources"] == stored["spec"]["template"]["spec"]["containers"][0]["resources"]


def test_a_server_dry_run_answers_as_the_real_request_would_and_stores_nothing(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    rehearsed = orjson.loads(send(control_plane, pod("train", namespace), "--dry-run=server", "-o", "json").stdout)
    assert control_plane.kubectl("get", "pod", "train", "-n", namespace, check=False).returncode == 1
    stored = orjson.loads(send(control_plane, pod("train", namespace), "-o", "json").stdout)
    assert rehearsed["spec"] == stored["spec"]
    wait_until(lambda: gate.events(namespace=namespace, name="train", dryRun=True), 10, "the review in the log")
    refused = send(control_plane, pod("x", namespace, container(gpus(1, "64Gi", request="8Gi"))), "--dry-run=server")
    assert "host-memory" in refused.stderr


def test_an_ephemeral_container_that_takes_more_devices_is_refused(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    send(control_plane, pod("train", namespace))
    wait_running(control_plane, namespace, 1, "app=train")
    debugger = {"name": "debug", "image": "busybox", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    patch = {"spec": {"ephemeralContainers": [debugger]}}
    path = f"/api/v1/namespaces/{namespace}/pods/train/ephemeralcontainers"
    answer = control_plane.request("PATCH", path, patch, content_type="application/strategic-merge-patch+json")
    assert answer.status == 403
    assert "ephemeral container debug sets NVIDIA_VISIBLE_DEVICES=all" in answer.body["message"]
    wait_until(lambda: gate.events(namespace=namespace, subresource="ephemeralcontainers"), 10, "the review in the log")


def test_a_resize_that_takes_the_memory_from_under_the_shared_memory_is_refused(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    # KWOK reports no resources of running containers, and without them the API takes no resize: this pod waits.
    waiting = send(control_plane, pod("train", namespace, container(gpus(1, "64Gi")), nodeSelector={"waits": "for-ever"}))
    assert waiting.returncode == 0, waiting.stderr
    path = f"/api/v1/namespaces/{namespace}/pods/train/resize"

    def resize(memory: str) -> Any:
        resources = {"limits": {"memory": memory}, "requests": {"memory": memory}}
        patch = {"spec": {"containers": [{"name": "train", "resources": resources}]}}
        return control_plane.request("PATCH", path, patch, content_type="application/strategic-merge-patch+json")

    assert resize("48Gi").status == 200
    refused = resize("8Gi")
    assert refused.status == 403
    assert "is larger: 16Gi > 8Gi" in refused.body["message"]
    wait_until(lambda: gate.events(namespace=namespace, subresource="resize", outcome="refused"), 10, "the review in the log")


def test_applying_the_same_deployment_twice_starts_no_rollout(control_plane: ControlPlane, namespace: str) -> None:
    manifest = orjson.dumps(deployment("serve", namespace, container(gpus(1, "32Gi", request="16Gi")))).decode()
    control_plane.kubectl("apply", "-f", "-", input=manifest)
    wait_running(control_plane, namespace, 1, "app=serve")
    before = get(control_plane, "deployment", "serve", namespace)
    control_plane.kubectl("apply", "-f", "-", input=manifest)
    after = get(control_plane, "deployment", "serve", namespace)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["spec"]["template"] == before["spec"]["template"]
    assert "gpugate.io/mutations" in after["metadata"]["annotations"]


def test_replacing_a_deployment_by_its_own_manifest_starts_no_rollout_though_the_policy_changed(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    main = {**container({"limits": {"nvidia.com/gpu": "1"}}), "env": [{"name": "EMPTY", "value": ""}]}
    manifest = orjson.dumps(deployment("again", namespace, main)).decode()
    control_plane.kubectl("create", "-f", "-", input=manifest)
    before = get(control_plane, "deployment", "again", namespace)
    assert before["spec"]["template"]["spec"]["volumes"]
    gate.set_policy({"mode": "DryRun"})
    try:
        control_plane.kubectl("replace", "-f", "-", input=manifest)
    finally:
        gate.set_policy({"mode": "Enforce"})
    after = get(control_plane, "deployment", "again", namespace)
    assert after["spec"]["template"] == before["spec"]["template"]


@pytest.mark.parametrize("way", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_a_limit_that_git_states_later_is_not_crossed_by_what_was_put_in(
    control_plane: ControlPlane, namespace: str, way: tuple[str, ...]
) -> None:
    for limits, expected in (({}, "16Gi"), ({"memory": "8Gi", "cpu": "2"}, "4Gi")):
        main = container({"limits": {"nvidia.com/gpu": "1", **limits}})
        manifest = orjson.dumps(deployment("later", namespace, main)).decode()
        control_plane.kubectl("apply", *way, "-f", "-", input=manifest)
        spec = get(control_plane, "deployment", "later", namespace)["spec"]["template"]["spec"]
        assert spec["volumes"] == [{"name": "gpugate-shm", "emptyDir": {"medium": "Memory", "sizeLimit": expected}}]
        resources = spec["containers"][0]["resources"]
        assert resources["limits"].items() >= limits.items()
        assert resources.get("requests", {}).get("memory", resources["limits"]["memory"]) == resources["limits"]["memory"]


def test_the_manifest_of_a_running_job_can_be_replaced_after_the_policy_changed(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    manifest = orjson.dumps(job("once", namespace, container(gpus(1, "32Gi")))).decode()
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=manifest)
    before = get(control_plane, "job", "once", namespace)["spec"]["template"]
    gate.set_policy(
        {"mode": "Enforce", "rules": {"shared-memory": {"maxSize": "4Gi"}, "tolerations": {"taints": [{"key": "sku"}]}}}
    )
    try:
        # A full replace states the template without what gpugate added: only the exact replay leaves it unchanged.
        live = get(control_plane, "job", "once", namespace)
        full = job("once", namespace, container(gpus(1, "32Gi")))
        full["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        full["spec"] |= {key: live["spec"][key] for key in ("selector", "manualSelector", "suspend") if key in live["spec"]}
        full["spec"]["template"]["metadata"]["labels"] = live["spec"]["template"]["metadata"]["labels"]
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/once"
        answer = control_plane.request("PUT", path, full)
        assert answer.status == 200, answer.body
        assert answer.body["spec"]["template"]["spec"] == before["spec"]
    finally:
        gate.set_policy({"mode": "Enforce"})


def test_what_was_bad_before_gpugate_came_can_still_be_labelled_scaled_and_deleted(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    gate.set_policy({"mode": "DryRun"})
    bad = deployment("bad", namespace, container(gpus(1, "64Gi", request="8Gi")))
    bare = pod("bare", namespace, container(gpus(1, "64Gi", request="8Gi")))
    assert send(control_plane, bad).returncode == 0
    assert send(control_plane, bare).returncode == 0
    gate.set_policy({"mode": "Enforce"})
    for command in (
        ("label", "deployment", "bad", "seen=yes"),
        ("scale", "deployment", "bad", "--replicas=2"),
        ("annotate", "pod", "bare", "seen=yes"),
        ("delete", "pod", "bare", "--wait=false"),
    ):
        answer = control_plane.kubectl(*command, "-n", namespace, check=False)
        assert answer.returncode == 0, answer.stderr
    worse = {"spec": {"template": {"spec": {"containers": [{"name": "train", "resources": {"requests": {"memory": "1Gi"}}}]}}}}
    answer = control_plane.kubectl("patch", "deployment", "bad", "-n", namespace, "-p", orjson.dumps(worse).decode(), check=False)
    assert "limit 64Gi / request 1Gi = 64" in answer.stderr


def test_in_dry_run_nothing_is_changed_and_the_audit_log_says_what_would_be(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    gate.set_policy({"mode": "DryRun"})
    try:
        assert send(control_plane, pod("train", namespace, container(gpus(1, "64Gi", request="8Gi")))).returncode == 0
        stored = get(control_plane, "pod", "train", namespace)["spec"]
        assert all(volume["name"] != "gpugate-shm" for volume in stored.get("volumes", []))
    finally:
        gate.set_policy({"mode": "Enforce"})
    annotations = audit_annotations(control_plane, namespace)
    assert "would change: toleration nvidia.com/gpu:NoSchedule" in annotations["pods.mutate.gpugate.io/tolerations.dryrun"]
    assert "Overcommit" in annotations["pods.validate.gpugate.io/host-memory.dryrun-deny"]


def test_every_mutation_is_in_the_audit_log_and_warns_nobody(control_plane: ControlPlane, namespace: str) -> None:
    answer = send(control_plane, pod("train", namespace))
    assert "Warning" not in answer.stderr
    annotations = audit_annotations(control_plane, namespace)
    assert annotations["pods.mutate.gpugate.io/shared-memory"] == "/dev/shm of 16Gi in train"
    assert annotations["pods.mutate.gpugate.io/tolerations"] == "toleration nvidia.com/gpu:NoSchedule"


def audit_annotations(cluster: ControlPlane, namespace: str) -> dict[str, str]:
    """Annotations of the audit events in ``namespace``, once there are any of gpugate's."""

    def read() -> dict[str, str]:
        found: dict[str, str] = {}
        for line in cluster.audit_log.read_bytes().splitlines():
            event = orjson.loads(line)
            if event.get("objectRef", {}).get("namespace") == namespace:
                found |= event.get("annotations") or {}
        return found if any("mutate.gpugate.io/" in key for key in found) else {}

    return wait_until(read, 10, "the audit log")


def test_a_policy_that_does_not_parse_is_refused_and_the_last_good_one_stays(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    assert gate.url  # enforcing
    bad = {"mode": "Enforce", "rules": {"shared-memory": {"minSize": "8Gi", "maxSize": "1Gi"}}}
    answer = control_plane.request(
        "PATCH",
        "/apis/gpugate.io/v1alpha1/gpupolicies/default",
        {"spec": bad},
        content_type="application/merge-patch+json",
    )
    assert answer.status == 422
    assert "minSize must not be above maxSize" in answer.body["message"]
    assert send(control_plane, pod("train", namespace)).returncode == 0
    assert any(volume["name"] == "gpugate-shm" for volume in get(control_plane, "pod", "train", namespace)["spec"]["volumes"])


def test_the_pods_of_a_rewritten_template_need_no_further_edit(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    assert send(control_plane, deployment("serve", namespace, container(gpus(1, "32Gi")), replicas=2)).returncode == 0
    wait_running(control_plane, namespace, 2, "app=serve")

    def kinds() -> set[tuple[str, str]]:
        mine = gate.events(message="review", namespace=namespace, endpoint="mutate")
        return {(event["kind"], event["outcome"]) for event in mine}

    # The ReplicaSet is its Deployment's own affair and never sent.
    wanted = {("Deployment", "changed"), ("Pod", "passed")}
    wait_until(lambda: len(kinds()) >= len(wanted), 10, "the reviews in the log")
    assert kinds() == wanted


def test_what_git_states_is_not_overwritten_and_the_line_to_commit_reaches_the_user(
    control_plane: ControlPlane, namespace: str
) -> None:
    tracked = deployment("serve", namespace, container(gpus(1, "32Gi", request="16Gi")))
    tracked["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": f"app:apps/Deployment:{namespace}/serve"}
    answer = send(control_plane, tracked)
    assert answer.returncode == 0
    assert "Warning: numa:" in answer.stderr
    assert "Commit spec.template.spec.containers[0].resources.requests.memory: 32Gi." in answer.stderr
    stored = get(control_plane, "deployment", "serve", namespace)["spec"]["template"]["spec"]
    assert stored["containers"][0]["resources"]["requests"]["memory"] == "16Gi"
    assert any(volume["name"] == "gpugate-shm" for volume in stored["volumes"])
    # The template is Git's; the pods made from it are not, and no Kueue accounts for them.
    (running,) = wait_running(control_plane, namespace, 1, "app=serve")
    assert running["spec"]["containers"][0]["resources"]["requests"]["memory"] == "32Gi"
    # The Deployment's controller knows its ReplicaSet by an equal template: one that was edited it would replace for ever.
    (replica_set,) = control_plane.kubectl_json("get", "replicasets", "-n", namespace)["items"]
    assert replica_set["spec"]["template"]["spec"] == stored


def replica_sets(cluster: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    """The ReplicaSets in ``namespace``."""
    found: list[dict[str, Any]] = cluster.kubectl_json("get", "replicasets", "-n", namespace)["items"]
    return found


@pytest.mark.parametrize("tracked", [True, False], ids=["stated-by-git", "older-than-gpugate"])
def test_a_deployment_whose_template_is_left_as_it_is_gets_one_replica_set_and_its_pods_run(
    control_plane: ControlPlane, gate: Gate, namespace: str, *, tracked: bool
) -> None:
    served = deployment("serve", namespace, container(gpus(1, "32Gi", request="16Gi")), replicas=2)
    served["spec"]["template"]["spec"]["tolerations"] = [{"key": "example.com/own", "operator": "Exists"}]
    if tracked:
        served["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": f"app:apps/Deployment:{namespace}/serve"}
        assert send(control_plane, served).returncode == 0
    else:
        gate.set_policy({"mode": "DryRun"})
        served["spec"]["replicas"] = 0
        assert send(control_plane, served).returncode == 0
        wait_until(lambda: replica_sets(control_plane, namespace), 20, "the ReplicaSet")
        gate.set_policy({"mode": "Enforce"})
        control_plane.kubectl("delete", "replicasets", "--all", "-n", namespace)
        control_plane.kubectl("scale", "deployment", "serve", "--replicas=2", "-n", namespace)
    pods = wait_running(control_plane, namespace, 2, "app=serve")
    assert all(any(one["key"] == "nvidia.com/gpu" for one in pod_["spec"]["tolerations"] if "key" in one) for pod_ in pods)
    control_plane.kubectl("rollout", "status", "deployment/serve", "-n", namespace, "--timeout=30s")
    assert len(replica_sets(control_plane, namespace)) == 1
    assert "collisionCount" not in get(control_plane, "deployment", "serve", namespace)["status"]


def test_a_job_in_a_queue_that_covers_only_gpus_is_still_admitted_by_kueue(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(*queue(namespace, "gpus-only", 8, only_gpus=True))
    plain = job("plain", namespace)

    def warned() -> tuple[str, ...]:
        answer = control_plane.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All", plain)
        return tuple(one for one in answer.warnings if "covers no memory" in one)

    wait_until(warned, 20, "gpugate to know what the ClusterQueue covers")
    assert send(control_plane, plain).returncode == 0
    stored = get(control_plane, "job", "plain", namespace)
    assert stored["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus-only"
    assert set(stored["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]) == {"nvidia.com/gpu"}
    wait_running(control_plane, namespace, 1, "batch.kubernetes.io/job-name=plain")


def test_a_gang_is_stopped_by_the_remedies_that_a_refusal_offers(control_plane: ControlPlane, namespace: str) -> None:
    gang = job("gang", namespace, container(gpus(1, "32Gi")), size=2)
    assert send(control_plane, gang).returncode == 0
    wait_running(control_plane, namespace, 2, "batch.kubernetes.io/job-name=gang")
    smaller = '{"spec": {"parallelism": 1, "completions": 1}}'
    refused = control_plane.kubectl("patch", "job", "gang", "-n", namespace, "-p", smaller, check=False)
    assert "the gang runs with 2 pods and would continue with 1, but needs 2: 1 < 2" in refused.stderr
    for stop in ('{"spec": {"suspend": true}}', '{"spec": {"suspend": false}}', '{"spec": {"parallelism": 0}}'):
        answer = control_plane.kubectl("patch", "job", "gang", "-n", namespace, "-p", stop, check=False)
        assert answer.returncode == 0, answer.stderr


def test_an_offline_review_takes_its_facts_and_policies_from_the_live_cluster(
    control_plane: ControlPlane, gate: Gate, namespace: str, tmp_path: Path
) -> None:
    gate.set_policy({"mode": "Enforce", "rules": {"queue": {"required": True}}})
    try:
        control_plane.apply(*queue(namespace, "here", 8))
        manifest = tmp_path / "job.json"
        manifest.write_bytes(orjson.dumps(job("offline", namespace, container(gpus(8, "3Ti")))))
        command = [str(Path(sys.executable).with_name("gpugate")), "review", str(manifest), "-o", "json"]
        done = subprocess.run([*command, f"--kubeconfig={control_plane.kubeconfig}"], capture_output=True, check=False)
        assert done.returncode == 1, done.stderr
        (entry,) = orjson.loads(done.stdout)
        assert [(one["rule"], one["reason"]) for one in entry["findings"] if one["severity"] == "deny"] == [
            ("host-memory", "NeverFits")
        ]
        manifest.write_bytes(orjson.dumps(job("offline", "kube-public", container(gpus(1)))))
        done = subprocess.run([*command, f"--kubeconfig={control_plane.kubeconfig}"], capture_output=True, check=False)
        (entry,) = orjson.loads(done.stdout)
        assert [one["reason"] for one in entry["findings"] if one["severity"] == "deny"] == ["QueueMissing"]
    finally:
        gate.set_policy({"mode": "Enforce"})


def test_removing_gpugate_leaves_the_cluster_as_if_it_had_never_been(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    gate.unregister()
    try:
        bad = pod("x", namespace, container(gpus(1, "64Gi", request="8Gi")))
        wait_until(lambda: send(control_plane, bad).returncode == 0, 20, "the apiserver to forget the webhooks")
        assert "gpugate-shm" not in orjson.dumps(get(control_plane, "pod", "x", namespace)).decode()
    finally:
        gate.register()
