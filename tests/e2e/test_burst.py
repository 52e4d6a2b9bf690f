"""A burst of Jobs at a door with two replicas: none is lost or refused, and Kueue runs what its quota holds."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import FINISH_ANNOTATION, wait_until
from tests.e2e.forwarder import Forwarder
from tests.e2e.gate import Gate
from tests.e2e.workloads import container, gpus, job, queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.access import ApiResponse

pytestmark = pytest.mark.e2e

JOBS, QUOTA, SENDERS = 50, 10, 16
NOT_NOW = "does not fit now"
_MACHINES = ("burst-h100-1", "burst-h100-2")


@pytest.fixture(scope="module")
def replicas(control_plane: ControlPlane) -> Iterator[tuple[Gate, Gate]]:
    """Two replicas of gpugate behind one address, which know the apiserver by its certificate, with 16 GPUs behind them."""
    authenticating = Gate.authenticating(control_plane)
    first, second = found = (Gate(control_plane, "gpugate", *authenticating), Gate(control_plane, "gpugate-2", *authenticating))
    with Forwarder([gate.port for gate in found]) as address:
        try:
            first.install()
            for machine in _MACHINES:
                control_plane.add_gpu_node(machine)
            for gate in found:
                gate.start()
            first.register(address.url)
            for gate in found:
                gate.set_policy({"mode": "Enforce"})
            first.wait_in_force()
            yield first, second
        finally:
            first.unregister()
            for gate in found:
                gate.stop()
            for machine in _MACHINES:
                control_plane.remove_node(machine)


def promises_of_room(answers: Iterable[ApiResponse]) -> int:
    """How many creations were answered without the warning that the object does not fit now."""
    return sum(1 for one in answers if one.status == 201 and not any(NOT_NOW in warning for warning in one.warnings))


def _send_all(cluster: ControlPlane, path: str, objects: list[dict[str, Any]]) -> list[ApiResponse]:
    """Create the objects, many at once."""
    with ThreadPoolExecutor(SENDERS) as pool:
        return list(pool.map(lambda one: cluster.request("POST", path, one), objects))


def _listed(cluster: ControlPlane, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.request("GET", path).body["items"]
    return found


def _has(obj: dict[str, Any], condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in obj.get("status", {}).get("conditions", []))


def _running(pods: list[dict[str, Any]]) -> list[str]:
    return [one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Running"]


def _holding(workloads: list[dict[str, Any]]) -> int:
    return sum(1 for one in workloads if _has(one, "QuotaReserved") and not _has(one, "Finished"))


def _finish(cluster: ControlPlane, namespace: str, name: str) -> None:
    patch = {"metadata": {"annotations": {FINISH_ANNOTATION: "true"}}}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    answer = cluster.request("PATCH", path, patch, content_type="application/merge-patch+json")
    assert answer.status == 200, answer.body


def test_a_burst_at_two_replicas_loses_nothing_and_runs_what_the_quota_holds(
    control_plane: ControlPlane, replicas: tuple[Gate, Gate], namespace: str
) -> None:
    control_plane.apply(*queue(namespace, "training", QUOTA))
    cluster_queue = f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{namespace}"
    wait_until(lambda: _has(control_plane.request("GET", cluster_queue).body, "Active"), 20, "the ClusterQueue to be active")
    labels = {"kueue.x-k8s.io/queue-name": "training"}
    jobs = [job(f"burst-{number:02d}", namespace, container(gpus(1, "32Gi", "4")), labels=labels) for number in range(JOBS)]
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"

    def queue_is_known() -> bool:
        """Whether both replicas answer, and none of them misses the LocalQueue."""
        before = [gate.reviews(kind="Job") for gate in replicas]
        answers = _send_all(control_plane, f"{path}?dryRun=All", jobs[:SENDERS])
        asked = [gate.reviews(kind="Job") > count for gate, count in zip(replicas, before, strict=True)]
        return all(asked) and all(answer.status == 201 for answer in answers)

    wait_until(queue_is_known, 30, "both replicas to know the LocalQueue")
    reviewed = [gate.reviews(kind="Job") for gate in replicas]
    begun = time.monotonic()
    answers = _send_all(control_plane, path, jobs)
    sent = time.monotonic() - begun
    refused = [answer.body for answer in answers if answer.status != 201]
    assert not refused, refused[0]
    each = [gate.reviews(kind="Job") - before for gate, before in zip(replicas, reviewed, strict=True)]
    promised = promises_of_room(answers)
    print(f"burst: {JOBS} Jobs in {sent:.2f} s; reviews of each replica {each}")
    print(f"burst: {JOBS - promised} answers warned '{NOT_NOW}', {promised} promised room for {QUOTA}", flush=True)
    assert all(count > 0 for count in each), each
    # Each replica counts what it admitted itself: none promises the same room twice. Between the moment that Kueue's Workload is
    # seen to have its quota and the moment that the ClusterQueue's status says so, a slow machine may let one more through.
    assert QUOTA <= promised <= len(replicas) * (QUOTA + 1)
    _watch_to_the_end(control_plane, namespace)
    print(f"burst: all complete after {time.monotonic() - begun:.1f} s", flush=True)


def _watch_to_the_end(cluster: ControlPlane, namespace: str) -> None:
    """See the quota filled and never passed, then let what runs finish until all have run."""
    workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"
    pods, jobs = f"/api/v1/namespaces/{namespace}/pods", f"/apis/batch/v1/namespaces/{namespace}/jobs"
    wait_until(lambda: len(_listed(cluster, workloads)) == JOBS, 60, "a Workload for every Job")
    wait_until(lambda: len(_running(_listed(cluster, pods))) == QUOTA, 60, f"{QUOTA} pods to run")
    reserved = [_has(one, "QuotaReserved") for one in _listed(cluster, workloads)]
    assert (reserved.count(True), reserved.count(False)) == (QUOTA, JOBS - QUOTA)
    most = 0
    finished: set[str] = set()

    def is_over() -> bool:
        nonlocal most
        running = _running(_listed(cluster, pods))
        most = max(most, len(running), _holding(_listed(cluster, workloads)))
        for name in running:
            if name not in finished:
                _finish(cluster, namespace, name)
                finished.add(name)
        return all(_has(one, "Complete") for one in _listed(cluster, jobs))

    wait_until(is_over, 180, "all Jobs to complete", interval=0.1)
    assert len(_listed(cluster, jobs)) == len(finished) == JOBS
    assert most == QUOTA
