"""What gpugate says about quota is what Kueue and the apiserver do: what it refuses never runs, the most that it allows does."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.test_door import send, wait_running
from tests.e2e.workloads import container, gpus, job, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]


@contextmanager
def _only_recorded(gate: Gate) -> Iterator[None]:
    """What bounds a workload in DryRun, so that what would be refused shows what becomes of it."""
    dry = {"mode": "DryRun"}
    gate.set_policy({"mode": "Enforce", "rules": {"queue-quota": dry, "namespace-limits": dry, "gang-packing": dry}})
    try:
        yield
    finally:
        gate.set_policy({"mode": "Enforce"})


def _wait_refused(cluster: ControlPlane, obj: dict[str, Any], text: str) -> str:
    """Wait until gpugate knows what it needs to refuse ``obj``, and give its answer."""

    def answer() -> str:
        found = send(cluster, obj, "--dry-run=server")
        return found.stderr if found.returncode and text in found.stderr else ""

    return wait_until(answer, 30, f"gpugate to refuse with {text!r}")


def _queue_in_cohort(namespace: str) -> list[dict[str, Any]]:
    """A queue with 8 GPUs that may borrow 8 of the 12 that another one lends."""
    objects = queue(namespace, "train", 8)
    (lender,) = (one for one in queue(namespace, "train", 16) if one["kind"] == "ClusterQueue")
    lender["metadata"] = {"name": f"{namespace}-lender"}
    for one, limit in ((objects[1], {"borrowingLimit": "8"}), (lender, {"lendingLimit": "12"})):
        one["spec"]["cohort"] = f"{namespace}-cohort"
        one["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] |= limit
    return [*objects, lender]


def _why_pending(cluster: ControlPlane, namespace: str, name: str) -> str:
    """What Kueue says of the Workload of the Job ``name`` without quota."""
    for one in cluster.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", namespace)["items"]:
        if any(owner["name"] == name for owner in one["metadata"].get("ownerReferences", ())):
            for condition in one.get("status", {}).get("conditions", ()):
                if condition["type"] == "QuotaReserved" and condition["status"] == "False":
                    return str(condition["message"])
    return ""


def _why_not_made(cluster: ControlPlane, namespace: str, name: str) -> str:
    """What the Job controller says of pods of the Job ``name`` that the apiserver did not take."""
    selector = f"involvedObject.name={name},reason=FailedCreate"
    events = cluster.kubectl_json("get", "events", "-n", namespace, "--field-selector", selector)["items"]
    return "; ".join(str(one["message"]) for one in events)


def test_what_a_queue_could_never_have_is_refused_and_kueue_never_admits_it(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    control_plane.apply(*_queue_in_cohort(namespace))
    labels = {"kueue.x-k8s.io/queue-name": "train"}
    too_many = job("large", namespace, container(gpus(8)), size=3, labels=labels)
    answer = _wait_refused(control_plane, too_many, "queue-quota")
    assert "3 pods x 8 = 24 of nvidia.com/gpu > 16" in answer
    assert "(nominal 8 + borrowing 8 from cohort (name withheld))" in answer
    assert "Request at most 16 of nvidia.com/gpu (2 pods of 8)." in answer

    with _only_recorded(gate):
        assert send(control_plane, too_many).returncode == 0
    reason = wait_until(lambda: _why_pending(control_plane, namespace, "large"), 30, "Kueue to say why it does not admit")
    assert "maximum capacity (16)" in reason

    assert send(control_plane, job("most", namespace, container(gpus(8)), size=2, labels=labels)).returncode == 0
    wait_running(control_plane, namespace, 2, "batch.kubernetes.io/job-name=most")
    assert "maximum capacity (16)" in _why_pending(control_plane, namespace, "large")


def test_what_a_resource_quota_never_takes_is_refused_and_its_pods_are_not_made(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus", "namespace": namespace}}
    control_plane.apply(quota | {"spec": {"hard": {"requests.nvidia.com/gpu": "8"}}})
    too_many = job("large", namespace, container(gpus(8)), size=2, annotations={"gpugate.io/gang-size": "2"})
    answer = _wait_refused(control_plane, too_many, "namespace-limits")
    assert "2 pods x 8 = 16 of requests.nvidia.com/gpu > 8, the hard limit of ResourceQuota gpus" in answer

    assert send(control_plane, job("most", namespace, container(gpus(8)))).returncode == 0
    wait_running(control_plane, namespace, 1, "batch.kubernetes.io/job-name=most")
    control_plane.kubectl("delete", "job", "most", "-n", namespace)
    with _only_recorded(gate):
        assert send(control_plane, too_many).returncode == 0
    reason = wait_until(lambda: _why_not_made(control_plane, namespace, "large"), 30, "the apiserver to turn a pod away")
    assert "exceeded quota: gpus" in reason


def test_what_a_limit_range_never_takes_is_refused_and_a_limit_that_is_put_in_keeps_to_it(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    bounds = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds", "namespace": namespace}}
    control_plane.apply(bounds | {"spec": {"limits": [{"type": "Container", "max": {"memory": "64Gi"}}]}})
    too_large = job("large", namespace, container(gpus(1, "128Gi")))
    answer = _wait_refused(control_plane, too_large, "namespace-limits")
    assert "memory limit 128Gi > 64Gi, the maximum that LimitRange bounds allows a container" in answer
    with _only_recorded(gate):
        assert send(control_plane, too_large).returncode == 0
    reason = wait_until(lambda: _why_not_made(control_plane, namespace, "large"), 30, "the apiserver to turn the pod away")
    assert "maximum memory usage per Container is 64Gi, but limit is 128Gi" in reason

    assert send(control_plane, job("most", namespace)).returncode == 0
    (running,) = wait_running(control_plane, namespace, 1, "batch.kubernetes.io/job-name=most")
    assert running["spec"]["containers"][0]["resources"]["limits"]["memory"] == "64Gi"
