"""Priority classes at the real apiserver, scheduler and Kueue: what gpugate writes counts there, and what it refuses is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.test_door import get, send, wait_running
from tests.e2e.workloads import container, deployment, gpus, job, pod, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate", "classes")]

_RULE = {
    "training": {"pods": "e2e-batch", "workload": "e2e-research"},
    "inference": {"pods": "e2e-production"},
    "interactive": {"pods": "e2e-desk"},
}


def _class(name: str, value: int, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}


def _kueue_class(name: str, value: int) -> dict[str, Any]:
    version = "kueue.x-k8s.io/v1beta1"
    return {"apiVersion": version, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


@pytest.fixture(scope="module")
def classes(control_plane: ControlPlane, gate: Gate) -> Iterator[None]:
    """Three classes for pods, two for Kueue, and a policy that gives them by what a workload is for."""
    made = [
        _class("e2e-production", 1000),
        _class("e2e-batch", 100),
        _class("e2e-desk", 50, preemptionPolicy="Never"),
        _kueue_class("e2e-urgent", 10000),
        _kueue_class("e2e-research", 10),
    ]
    control_plane.apply(*made)
    gate.set_policy({"mode": "Enforce", "rules": {"priority": _RULE}})

    def known() -> bool:
        answer = control_plane.request("POST", "/apis/batch/v1/namespaces/default/jobs?dryRun=All", job("probe", "default"))
        labels = answer.body.get("metadata", {}).get("labels", {})
        return "priorityClassName" in str(answer.body.get("spec")) and "kueue.x-k8s.io/priority-class" in labels

    wait_until(known, 30, "gpugate to know the classes")
    yield
    gate.set_policy({"mode": "Enforce"})
    for one in made:
        control_plane.kubectl("delete", one["kind"].lower(), one["metadata"]["name"], "--ignore-not-found")


def _wait_bounded(cluster: ControlPlane, namespace: str, **said: str) -> None:
    """Say the highest of the namespace, and wait until gpugate knows it."""
    cluster.kubectl(
        "label", "namespace", namespace, *(f"gpugate.io/{key.replace('_', '-')}={value}" for key, value in said.items())
    )
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All"
    labels = {"kueue.x-k8s.io/priority-class": "e2e-urgent"}
    bad = job("probe", namespace, container(gpus(1)), labels=labels, priorityClassName="e2e-production")
    wait_until(lambda: cluster.request("POST", path, bad).status == 403, 30, "gpugate to know the namespace's highest")


def test_a_pod_that_names_no_class_has_the_integer_of_the_one_that_it_gets(control_plane: ControlPlane, namespace: str) -> None:
    assert send(control_plane, pod("train", namespace)).returncode == 0
    spec = get(control_plane, "pod", "train", namespace)["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("e2e-batch", 100, "PreemptLowerPriority")
    wait_running(control_plane, namespace, 1, "app=train")


def test_a_class_that_never_preempts_takes_the_place_of_the_policy_worked_out_before(
    control_plane: ControlPlane, namespace: str
) -> None:
    assert send(control_plane, pod("shell", namespace, container(gpus(1), tty=True, stdin=True))).returncode == 0
    spec = get(control_plane, "pod", "shell", namespace)["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("e2e-desk", 50, "Never")


def test_the_apiserver_refuses_a_class_beside_the_integer_of_none(control_plane: ControlPlane, namespace: str) -> None:
    answer = send(control_plane, pod("train", namespace, priorityClassName="e2e-batch", priority=0))
    assert answer.returncode == 1
    assert "the integer value of priority (0) must not be provided in pod spec" in answer.stderr


def test_pods_of_a_job_and_of_a_deployment_have_the_priority_of_their_templates(
    control_plane: ControlPlane, namespace: str
) -> None:
    assert send(control_plane, deployment("serve", namespace)).returncode == 0
    (serving,) = wait_running(control_plane, namespace, 1, "app=serve")
    assert serving["spec"]["priority"] == 1000
    assert send(control_plane, job("train", namespace)).returncode == 0
    (training,) = wait_running(control_plane, namespace, 1, "job-name=train")
    assert training["spec"]["priority"] == 100


def test_kueue_gives_the_workload_of_a_job_the_priority_of_the_class_that_it_gets(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.apply(*queue(namespace, "here", 8))
    labels = {"kueue.x-k8s.io/queue-name": "here"}
    wait_until(
        lambda: send(control_plane, job("train", namespace, container(gpus(1)), labels=labels), "--dry-run=server").returncode == 0,
        30,
        "gpugate to know the queue",
    )
    assert send(control_plane, job("train", namespace, container(gpus(1)), labels=labels)).returncode == 0

    def workload() -> dict[str, Any]:
        items = control_plane.kubectl_json("get", "workloads.v1beta2.kueue.x-k8s.io", "-n", namespace)["items"]
        found: dict[str, Any] = items[0]["spec"] if items else {}
        return found

    spec = wait_until(workload, 30, "Kueue to make the Workload")
    assert spec["priority"] == 10
    assert (spec["priorityClassRef"]["kind"], spec["priorityClassRef"]["name"]) == ("WorkloadPriorityClass", "e2e-research")
    wait_running(control_plane, namespace, 1, "job-name=train")


def test_above_what_the_namespace_may_use_is_refused_at_the_pod_and_at_the_template(
    control_plane: ControlPlane, namespace: str
) -> None:
    _wait_bounded(control_plane, namespace, highest_priority="e2e-batch", highest_workload_priority="e2e-research")
    bare = send(control_plane, pod("train", namespace, priorityClassName="e2e-production"))
    assert bare.returncode == 1
    assert f"namespace {namespace} may use at most e2e-batch: 1000 > 100" in bare.stderr
    templated = send(control_plane, job("train", namespace, priorityClassName="e2e-production"))
    assert "spec.template.spec.priorityClassName" in templated.stderr
    assert "available: e2e-batch (100), e2e-desk (50)" in templated.stderr
    queued = send(control_plane, job("train", namespace, labels={"kueue.x-k8s.io/priority-class": "e2e-urgent"}))
    assert f"namespace {namespace} may use at most e2e-research: 10000 > 10" in queued.stderr
    assert send(control_plane, pod("allowed", namespace, priorityClassName="e2e-desk")).returncode == 0


def test_a_job_with_a_class_that_does_not_exist_is_refused_since_all_of_its_pods_would_be(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    wrong = job("train", namespace, priorityClassName="e2e-gold")
    answer = send(control_plane, wrong)
    assert answer.returncode == 1
    assert "there is no PriorityClass e2e-gold, so the API server accepts the Job and rejects all its pods" in answer.stderr
    gate.set_policy({"mode": "Enforce", "rules": {"priority": {**_RULE, "mode": "Mutate"}}})
    try:
        taken = send(control_plane, wrong)
        assert taken.returncode == 0
        assert "there is no PriorityClass e2e-gold" in taken.stderr
        selector = "involvedObject.name=train,reason=FailedCreate"

        def why() -> str:
            events = control_plane.kubectl_json("get", "events", "-n", namespace, "--field-selector", selector)["items"]
            return "; ".join(str(one["message"]) for one in events)

        assert "no PriorityClass with name e2e-gold was found" in wait_until(why, 30, "the Job controller to fail")
    finally:
        gate.set_policy({"mode": "Enforce", "rules": {"priority": _RULE}})
