"""Spot capacity at the real scheduler: only what asks for it and keeps its work goes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gpugate.policies.workloads.kinds import kind_of
from tests.e2e.controlplane import T4, wait_until
from tests.e2e.controlplane.nodes import GPU_TAINT
from tests.e2e.workloads import container, cpu_container, gpus, job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]

LABEL = "kubernetes.azure.com/scalesetpriority"
MARK = "kubernetes.azure.com/agentpool"
NODES = {"spot-t4": {LABEL: "spot", MARK: "cheap"}, "demand-t4": {MARK: "demand"}}
Object = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def pools(control_plane: ControlPlane, gate: Gate) -> Iterator[None]:
    """A spot node as AKS makes them and one on demand, and a policy that names the rule."""
    spot = {"key": LABEL, "value": "spot", "effect": "NoSchedule"}
    for name, labels in NODES.items():
        taints = [GPU_TAINT, spot] if LABEL in labels else [GPU_TAINT]
        control_plane.add_gpu_node(name, product=T4.product, gpus=4, labels=labels, taints=taints)
    gate.set_policy({"mode": "Enforce", "rules": {"spot": {}}})
    yield
    for name in NODES:
        control_plane.remove_node(name)


def a_run(name: str, namespace: str, spot: str, **said: str) -> Object:
    """A Job of one pod on a T4 that says this of spot capacity."""
    annotations = {"gpugate.io/gpu": "t4", "gpugate.io/spot": spot} | {f"gpugate.io/{key}": text for key, text in said.items()}
    return job(name, namespace, container(gpus(1, "8Gi", "2")), annotations=annotations)


def create(cluster: ControlPlane, obj: Object) -> tuple[int, Any]:
    """The apiserver's status and answer to a POST of a Job."""
    answer = cluster.request("POST", f"/apis/batch/v1/namespaces/{obj['metadata']['namespace']}/jobs", obj)
    return answer.status, answer.body


def node_of(cluster: ControlPlane, name: str, namespace: str) -> str:
    """The node on which the Job's pod was bound."""

    def bound() -> str:
        found = cluster.kubectl_json("get", "pods", "-n", namespace, "-l", f"batch.kubernetes.io/job-name={name}")["items"]
        return found[0]["spec"].get("nodeName", "") if found else ""

    return wait_until(bound, 60, f"the pod of {name} to be bound")


def test_a_run_with_a_checkpoint_goes_to_the_spot_node_and_tolerates_its_taint(control_plane: ControlPlane, namespace: str) -> None:
    status, stored = create(control_plane, a_run("cheap", namespace, "required", checkpoint="s3://runs/cheap"))
    assert status == 201, stored
    spec = stored["spec"]["template"]["spec"]
    assert {"key": LABEL, "operator": "Equal", "value": "spot", "effect": "NoSchedule"} in spec["tolerations"]
    assert node_of(control_plane, "cheap", namespace) == "spot-t4"


def test_a_run_that_must_not_be_interrupted_stays_off_it(control_plane: ControlPlane, namespace: str) -> None:
    status, stored = create(control_plane, a_run("dear", namespace, "never"))
    assert status == 201, stored
    assert node_of(control_plane, "dear", namespace) == "demand-t4"


def test_a_run_without_a_checkpoint_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    status, answer = create(control_plane, a_run("lost", namespace, "required"))
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert "spot" in answer["message"]
    assert "Write gpugate.io/checkpoint" in answer["message"]


def test_a_gang_on_both_capacities_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    gang = a_run("mixed", namespace, "preferred", checkpoint="s3://runs/mixed")
    gang["spec"] |= {"parallelism": 2, "completions": 2, "backoffLimit": 9}
    status, answer = create(control_plane, gang)
    assert status == 403
    assert "the gang of 2 pods may run on spot and on-demand nodes at once" in answer["message"]


GANG = {"replicas": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [container(gpus(1, "8Gi", "2"))]}}}
HEAD = {"rayStartParams": {}, "template": {"spec": {"containers": [container(gpus(1, "8Gi", "2"))]}}}
LAUNCHER = {"restartPolicy": "Never", "template": {"spec": {"containers": [cpu_container()]}}}
RESTART = {"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}
#: Kinds whose operators count interruptions: the version, what does not survive three, words of the refusal, and the cure in them.
COUNTED: dict[str, tuple[str, Object, str, Object]] = {
    "MPIJob": (
        "kubeflow.org/v2beta1",
        {"runPolicy": {"backoffLimit": 1}, "mpiReplicaSpecs": {"Launcher": LAUNCHER, "Worker": GANG}},
        "Write backoffLimit: 3 or more.",
        {"runPolicy": {"backoffLimit": 3}},
    ),
    "Job": (
        "batch.volcano.sh/v1alpha1",
        {"tasks": [{"name": "worker", **GANG}]},
        "Add {events: [PodEvicted, PodFailed], action: RestartJob} to the policies of the job, and maxRetry: 4 or more.",
        {"policies": [RESTART], "maxRetry": 4},
    ),
    "RayJob": (
        "ray.io/v1",
        {"entrypoint": "python x.py", "rayClusterSpec": {"headGroupSpec": HEAD}},
        "Write backoffLimit: 3 or more, or keep the head off spot nodes",
        {"backoffLimit": 3},
    ),
}


def post(cluster: ControlPlane, kind: str, version: str, namespace: str, spec: Object) -> tuple[int, Any]:
    """The apiserver's status and answer to a strict POST of an object on spot capacity."""
    known = kind_of(version, kind)
    assert known is not None
    metadata = {
        "name": "counted",
        "namespace": namespace,
        "annotations": {"gpugate.io/spot": "required", "gpugate.io/checkpoint": "s3://runs/counted"},
    }
    obj = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    answer = cluster.request("POST", f"/apis/{version}/namespaces/{namespace}/{known.resource}?fieldValidation=Strict", obj)
    return answer.status, answer.body


@pytest.mark.parametrize("kind", COUNTED)
def test_what_does_not_survive_interruptions_is_refused_and_what_is_to_be_written_is_accepted(
    control_plane: ControlPlane, namespace: str, kind: str
) -> None:
    version, spec, words, cure = COUNTED[kind]
    status, answer = post(control_plane, kind, version, namespace, spec)
    assert status == 403, answer
    assert words in answer["message"]
    status, stored = post(control_plane, kind, version, namespace, spec | cure)
    assert status == 201, stored
    # Kueue's webhooks fill in switches of their own beside it.
    for key, item in cure.items():
        assert stored["spec"][key] == (stored["spec"][key] | item if isinstance(item, dict) else item)
    assert LABEL in str(stored["spec"]), "sent to spot nodes"


def test_the_head_of_a_ray_job_that_stays_on_demand_needs_no_retries(control_plane: ControlPlane, namespace: str) -> None:
    template = {**HEAD["template"], "metadata": {"annotations": {"gpugate.io/spot": "never"}}}
    worker = {"groupName": "gpus", "replicas": 1, "minReplicas": 0, "maxReplicas": 1, **HEAD}
    cluster = {"headGroupSpec": {**HEAD, "template": template}, "workerGroupSpecs": [worker]}
    spec = {"entrypoint": "python x.py", "rayClusterSpec": cluster}
    status, stored = post(control_plane, "RayJob", "ray.io/v1", namespace, spec)
    assert status == 201, stored


FOR_EVER: dict[str, tuple[str, Object]] = {
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        {
            "replicas": 1,
            "rolloutStrategy": {"type": "RollingUpdate"},
            "leaderWorkerTemplate": {"size": 2, "restartPolicy": "None", "workerTemplate": HEAD["template"]},
        },
    ),
    "RayCluster": ("ray.io/v1", {"headGroupSpec": HEAD}),
    "RayService": ("ray.io/v1", {"rayClusterConfig": {"headGroupSpec": HEAD}}),
}


@pytest.mark.parametrize("kind", FOR_EVER)
def test_what_is_made_anew_for_ever_goes_to_spot_nodes_unasked(control_plane: ControlPlane, namespace: str, kind: str) -> None:
    version, spec = FOR_EVER[kind]
    status, stored = post(control_plane, kind, version, namespace, spec)
    assert status == 201, stored
    assert LABEL in str(stored["spec"])
