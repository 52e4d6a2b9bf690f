"""How much one pod may come to."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.in_flight import Admitted
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.kube.quantity import GIB
from gpugate.policies.queueing.cluster_queue import bounding_queue
from gpugate.policies.queueing.headroom import Headroom, is_bounded, number_together
from tests.shared.builders import container, node, opened, pod, templated

Object = dict[str, Any]

_OWNER = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "o", "uid": "u", "controller": True}


def _quota(hard: Object, used: Object | None = None, **spec: Any) -> Object:
    place = {"name": "quota", "namespace": "team-a"}
    return {
        "kind": "ResourceQuota",
        "metadata": place,
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


def _stands_in_the_way(root: Object, snapshot: ClusterSnapshot, memory: int, cpu: int = 1000) -> str:
    """What keeps the only container from coming to so much memory (GiB) and CPU."""
    workload = opened(root, snapshot=snapshot)
    pods = workload.pod_sets[0]
    amounts = {"memory": memory * GIB, "cpu": cpu}
    return Headroom(workload, pods, bounding_queue(workload, snapshot), snapshot, snapshot.shapes).violation(
        {0: (amounts, amounts)}
    )


@pytest.mark.parametrize(
    ("root", "number"),
    [
        (pod(container()), 1),
        (pod(container(), annotations={"gpugate.io/gang-size": "4"}), 4),
        (pod(container(), annotations={"kueue.x-k8s.io/pod-group-total-count": "3"}), 3),
        (pod(container(), annotations={"kueue.x-k8s.io/pod-group-total-count": "many"}), 1),
        (templated("Job", container(), parallelism=4, completions=4), 4),
        (templated("Job", container(), parallelism=4, completions=2), 2),
        (templated("Deployment", container(), replicas=3), 3),
        (templated("Deployment", container(), replicas=0), 1),
        (templated("DaemonSet", container()), None),
    ],
)
def test_the_number_of_pods_that_share_a_bound(root: Object, number: int | None) -> None:
    workload = opened(root)
    assert number_together(workload, workload.pod_sets[0]) == number


def test_how_many_pods_a_controller_makes_is_not_known_from_one_of_them() -> None:
    root = pod(container())
    root["metadata"]["ownerReferences"] = [_OWNER]
    workload = opened(root)
    assert number_together(workload, workload.pod_sets[0]) is None


def test_without_quota_limit_range_or_queue_nothing_but_nodes_bounds_a_pod() -> None:
    snapshot = snapshot_from_objects([node("n")])
    workload = opened(pod(container()), snapshot=snapshot)
    assert not is_bounded(workload, workload.pod_sets[0], bounding_queue(workload, snapshot), snapshot)
    assert _stands_in_the_way(pod(container()), EMPTY_SNAPSHOT, 1 << 20) == ""


@pytest.mark.parametrize(("memory", "text"), [(32, ""), (33, "33Gi of requests.memory > 32Gi, the maximum per pod")])
def test_a_quota_is_shared_by_all_pods(memory: int, text: str) -> None:
    quota = _quota({"requests.memory": "96Gi", "requests.nvidia.com/gpu": "3"}, {"requests.memory": "90Gi"})
    snapshot = snapshot_from_objects([quota])
    found = _stands_in_the_way(templated("Deployment", container(memory="8Gi"), replicas=3), snapshot, memory)
    assert found.startswith(text)
    assert bool(found) == bool(text)


@pytest.mark.parametrize(("memory", "fits"), [(20, True), (21, False)])
def test_a_pod_has_what_is_left_of_a_quota_now_less_what_is_in_flight(memory: int, fits: bool) -> None:
    gpus = "requests.nvidia.com/gpu"
    snapshot = snapshot_from_objects([_quota({"requests.memory": "96Gi", gpus: "4"}, {"requests.memory": "66Gi", gpus: "3"})])
    snapshot.in_flight.add("u", Admitted("Pod", "team-a", "other", 1, "", None, {"memory": 10 * GIB}))
    assert (_stands_in_the_way(pod(container(memory="8Gi")), snapshot, memory) == "") is fits


def test_what_is_above_a_quota_already_is_made_no_worse() -> None:
    snapshot = snapshot_from_objects([_quota({"requests.memory": "96Gi"}, {"requests.memory": "96Gi"})])
    assert _stands_in_the_way(pod(container(memory="8Gi")), snapshot, 8) == ""
    assert _stands_in_the_way(pod(container(memory="8Gi")), snapshot, 9)


def test_a_quota_of_other_pods_is_no_bound() -> None:
    snapshot = snapshot_from_objects([_quota({"requests.memory": "1Gi"}, scopes=["Terminating"])])
    assert _stands_in_the_way(pod(container(memory="8Gi")), snapshot, 64) == ""
    assert _stands_in_the_way(pod(container(memory="8Gi"), activeDeadlineSeconds=60), snapshot, 64)


def test_nodes_that_hold_the_pod_as_it_is_hold_it_still() -> None:
    snapshot = snapshot_from_objects([node("small", memory="64Gi"), node("large", memory="1000Gi")])
    whole_node = pod(container(gpus=8, memory="8Gi"))
    assert _stands_in_the_way(whole_node, snapshot, 64) == ""
    assert _stands_in_the_way(whole_node, snapshot, 65) == "an empty small node holds the pod as it is: 65Gi of memory > 64Gi"
    assert _stands_in_the_way(pod(container(gpus=8, memory="100Gi")), snapshot, 1000) == ""


def test_nodes_that_hold_several_pods_hold_as_many_still() -> None:
    snapshot = snapshot_from_objects([node("n", memory="512Gi", cpu="63")])
    assert _stands_in_the_way(pod(container(memory="32Gi")), snapshot, 64) == ""
    found = _stands_in_the_way(pod(container(memory="32Gi")), snapshot, 65)
    assert found == "an empty n node holds 8 of these pods as they are: 8 x 65Gi = 520Gi of memory > 512Gi"
    assert "8 x 8 = 64 of cpu > 63" in _stands_in_the_way(pod(container(memory="32Gi")), snapshot, 32, 8000)


def test_a_quota_holds_as_many_pods_as_before_whatever_their_number() -> None:
    snapshot = snapshot_from_objects([_quota({"requests.memory": "96Gi"})])
    assert _stands_in_the_way(templated("Deployment", container(memory="8Gi"), replicas=3), snapshot, 8) == ""
    assert "for the 12 pods that it can hold" in _stands_in_the_way(
        templated("Deployment", container(memory="8Gi"), replicas=3), snapshot, 9
    )


def test_what_others_leave_of_a_quota_holds_as_many_pods_of_a_new_object_as_before() -> None:
    gpus = "requests.nvidia.com/gpu"
    snapshot = snapshot_from_objects([_quota({"requests.memory": "96Gi", gpus: "4"}, {"requests.memory": "64Gi"})])
    new = templated("Deployment", container(memory="8Gi"), replicas=3)
    assert "for the 4 pods that it can hold now" in _stands_in_the_way(new, snapshot, 9)
    new["metadata"]["resourceVersion"] = "1"
    assert _stands_in_the_way(new, snapshot, 24) == ""


def _queue(flavors: list[tuple[str, str, str]]) -> list[Object]:
    offers = [
        {
            "name": name,
            "resources": [
                {"name": "memory", "nominalQuota": memory},
                {"name": "cpu", "nominalQuota": cpu},
                {"name": "nvidia.com/gpu", "nominalQuota": "2"},
            ],
        }
        for name, memory, cpu in flavors
    ]
    groups = [{"coveredResources": ["memory", "cpu", "nvidia.com/gpu"], "flavors": offers}]
    return [
        {"kind": "LocalQueue", "metadata": {"name": "q", "namespace": "team-a"}, "spec": {"clusterQueue": "c"}},
        {"kind": "ClusterQueue", "metadata": {"name": "c"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}},
    ]


def _queued_job() -> Object:
    root = templated("Job", container(memory="8Gi"), parallelism=2, completions=2)
    root["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    return root


def test_memory_and_cpu_come_from_one_flavor_of_the_queue() -> None:
    snapshot = snapshot_from_objects(_queue([("f", "64Gi", "4"), ("g", "20Gi", "96")]))
    assert _stands_in_the_way(_queued_job(), snapshot, 32, 2000) == ""
    assert "3 of cpu > 2" in _stands_in_the_way(_queued_job(), snapshot, 32, 3000)
    assert "33Gi of memory > 32Gi" in _stands_in_the_way(_queued_job(), snapshot, 33, 2000)


def test_a_flavor_that_does_not_hold_the_pods_as_they_are_gives_no_room() -> None:
    snapshot = snapshot_from_objects(_queue([("f", "10Gi", "96"), ("g", "12Gi", "96")]))
    assert _stands_in_the_way(_queued_job(), snapshot, 8, 0) == ""
    assert "9Gi of memory > 8Gi" in _stands_in_the_way(_queued_job(), snapshot, 9, 0)


def test_what_the_queue_does_not_cover_is_not_put_in() -> None:
    objects = _queue([("f", "100Gi", "4")])
    objects[1]["spec"]["resourceGroups"] = [
        {"coveredResources": ["memory"], "flavors": [{"name": "f", "resources": [{"name": "memory", "nominalQuota": "100Gi"}]}]}
    ]
    found = _stands_in_the_way(_queued_job(), snapshot_from_objects(objects), 8, 1000)
    assert found == "1 of cpu > 0, the maximum per pod in ClusterQueue c, which covers no cpu"
