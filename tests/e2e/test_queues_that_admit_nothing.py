"""Queues that cannot admit a Job: with their name it waits for ever, and gpugate, which does not write it, lets it run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.controlplane.kueue import UNMANAGED
from tests.e2e.test_door import get, send, wait_running
from tests.e2e.workloads import container, deployment, gpus, job, queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

Json = dict[str, Any]
QUEUE, PREBUILT = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/prebuilt-workload-name"

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("enforcing")]


@pytest.fixture(scope="module")
def enforcing(gate: Gate) -> Iterator[None]:
    """All rules in force, but the one that would refuse a Job for the queue that a test names."""
    gate.set_policy({"mode": "Enforce", "rules": {"queue-quota": {"mode": "DryRun"}}})
    yield
    gate.set_policy({"mode": "Enforce"})


def _spec(objects: list[Json], kind: str, **fields: Any) -> list[Json]:
    """``objects`` with ``fields`` in the spec of the one of this kind."""
    return [{**one, "spec": {**one["spec"], **fields}} if one["kind"] == kind else one for one in objects]


def _without(objects: list[Json], kind: str) -> list[Json]:
    return [one for one in objects if one["kind"] != kind]


#: What a namespace has for a queue, and what gpugate says of it.
STATES: dict[str, tuple[Callable[[str], list[Json]], str]] = {
    "missing": (lambda name: _without(queue(name, "train", 8), "ClusterQueue"), "does not exist"),
    "without-flavor": (lambda name: _without(queue(name, "train", 8), "ResourceFlavor"), "is not active"),
    "held": (lambda name: _spec(queue(name, "train", 8), "ClusterQueue", stopPolicy="Hold"), "is stopped by its stopPolicy"),
    "drained": (lambda name: _spec(queue(name, "train", 8), "ClusterQueue", stopPolicy="HoldAndDrain"), "is stopped by"),
    "held-locally": (lambda name: _spec(queue(name, "train", 8), "LocalQueue", stopPolicy="Hold"), "is stopped by its"),
    "of-others": (
        lambda name: _spec(queue(name, "train", 8), "ClusterQueue", namespaceSelector={"matchLabels": {"team": "other"}}),
        "does not select it",
    ),
    "of-nobody": (lambda name: _spec(queue(name, "train", 8), "ClusterQueue", namespaceSelector=None), "no namespaceSelector"),
    "of-gpus-alone": (lambda name: queue(name, "train", 8, only_gpus=True), "covers no cpu and no memory"),
    "too-small": (lambda name: queue(name, "train", 0), "could ever have"),
}


def _is_suspended(cluster: ControlPlane, namespace: str, name: str) -> bool:
    return get(cluster, "job", name, namespace)["spec"].get("suspend") is True


def _wait_known(cluster: ControlPlane, obj: Json, text: str) -> None:
    """Wait until gpugate says why it puts ``obj`` into no queue."""
    wait_until(lambda: text in send(cluster, obj, "--dry-run=server").stderr, 30, f"gpugate to say {text!r}")


@pytest.mark.parametrize("state", STATES)
def test_a_job_beside_a_queue_that_cannot_admit_it_runs_and_one_that_names_it_waits(
    control_plane: ControlPlane, namespace: str, state: str
) -> None:
    objects, said = STATES[state]
    control_plane.apply(*objects(namespace))
    plain = job("plain", namespace, container(gpus(1)))
    _wait_known(control_plane, plain, said)
    named = job("named", namespace, container(gpus(1)), labels={QUEUE: "train"})
    assert send(control_plane, named).returncode == 0

    assert send(control_plane, plain).returncode == 0
    wait_running(control_plane, namespace, 1, "batch.kubernetes.io/job-name=plain")
    assert QUEUE not in get(control_plane, "job", "plain", namespace)["metadata"].get("labels", {})
    # What gpugate would have made of it.
    assert _is_suspended(control_plane, namespace, "named")


def test_a_job_in_a_namespace_that_kueue_leaves_out_runs_and_one_that_names_a_queue_gets_no_workload(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("label", "namespace", namespace, f"{UNMANAGED}=true")
    control_plane.apply(*queue(namespace, "train", 8))
    named = job("named", namespace, container(gpus(1)), labels={QUEUE: "train"})
    _wait_known(control_plane, named, "managedJobsNamespaceSelector")
    assert send(control_plane, named).returncode == 0

    assert send(control_plane, job("plain", namespace, container(gpus(1)))).returncode == 0
    wait_running(control_plane, namespace, 1, "batch.kubernetes.io/job-name=plain")
    assert QUEUE not in get(control_plane, "job", "plain", namespace)["metadata"].get("labels", {})
    assert _is_suspended(control_plane, namespace, "named")
    assert control_plane.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", namespace)["items"] == []


def test_serving_stays_out_of_the_only_queue_which_a_job_gets(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(*queue(namespace, "train", 8))
    probe = job("probe", namespace, container(gpus(1)))

    def is_known() -> bool:
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All"
        return QUEUE in control_plane.request("POST", path, probe).body["metadata"].get("labels", {})

    wait_until(is_known, 30, "gpugate to know the LocalQueue")
    assert send(control_plane, deployment("serve", namespace, container(gpus(1)), replicas=2)).returncode == 0
    wait_running(control_plane, namespace, 2, "app=serve")
    assert QUEUE not in get(control_plane, "deployment", "serve", namespace)["metadata"].get("labels", {})
    assert control_plane.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", namespace)["items"] == []


def test_what_its_author_suspended_is_not_started_by_kueue(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(*queue(namespace, "train", 8))
    parked = job("parked", namespace, container(gpus(1)))
    parked["spec"]["suspend"] = True
    _wait_known(control_plane, parked, "Kueue would start it")
    assert send(control_plane, parked).returncode == 0
    assert send(control_plane, job("queued", namespace, container(gpus(1)))).returncode == 0
    wait_running(control_plane, namespace, 1, "batch.kubernetes.io/job-name=queued")
    assert get(control_plane, "job", "queued", namespace)["metadata"]["labels"][QUEUE] == "train"
    assert _is_suspended(control_plane, namespace, "parked")


def test_a_job_with_a_prebuilt_workload_is_admitted_as_it_is_and_runs_and_a_forged_one_is_refused(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.apply(*queue(namespace, "train", 8))
    # Two GPUs and no /dev/shm, which gpugate mounts elsewhere, and refuses a pod without. Kueue compares it with the defaults.
    defaults = {"imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log"}
    two = container(gpus(2), **defaults, terminationMessagePolicy="File")
    spec = {"restartPolicy": "Never", "containers": [two]}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "ready", "namespace": namespace},
        "spec": {"queueName": "train", "podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}]},
    }
    forged = job("forged", namespace, two, labels={QUEUE: "train", PREBUILT: "nonexistent"})
    assert "shared-memory" in send(control_plane, forged).stderr
    control_plane.apply(workload)
    honest = job("honest", namespace, two, labels={QUEUE: "train", PREBUILT: "ready"})
    wait_until(lambda: send(control_plane, honest, "--dry-run=server").returncode == 0, 30, "gpugate to see the Workload")
    assert send(control_plane, honest).returncode == 0
    wait_running(control_plane, namespace, 1, "batch.kubernetes.io/job-name=honest")
    stored = get(control_plane, "job", "honest", namespace)
    assert "volumes" not in stored["spec"]["template"]["spec"]
    # The name is not to be had twice.
    assert "shared-memory" in send(control_plane, {**honest, "metadata": {**honest["metadata"], "name": "again"}}).stderr
