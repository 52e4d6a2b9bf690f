"""A map that gpugate itself made may hold the user's own keys by the time of an UPDATE."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import default_policy
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload

FACTS = snapshot_from_objects(
    [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "LocalQueue",
            "metadata": {"name": "train", "namespace": "team-a"},
            "spec": {"clusterQueue": "all"},
        }
    ]
)
QUEUE = "kueue.x-k8s.io/queue-name"


def job() -> dict[str, Any]:
    container = {"name": "train", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "8Gi"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once", "namespace": "team-a"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def decided(root: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    kind = kind_of("batch/v1", "Job")
    assert kind is not None
    workload = open_workload(kind, root, FACTS, operation="UPDATE" if old else "CREATE", old=old)
    decide(workload, PolicySet([default_policy(Mode.ENFORCE)]).bind({}, {}), FACTS)
    return root


def test_the_queue_is_given_back_beside_labels_that_git_adds_later() -> None:
    live = decided(job())
    assert live["metadata"]["labels"] == {QUEUE: "train"}
    update = job()
    update["metadata"]["labels"] = {"cost-center": "research"}
    decided(update, old=deepcopy(live))
    assert update["metadata"]["labels"] == {"cost-center": "research", QUEUE: "train"}
    assert update["spec"] == live["spec"]


def test_a_label_that_git_states_otherwise_is_left_as_git_states_it() -> None:
    live = decided(job())
    update = job()
    update["metadata"]["labels"] = {QUEUE: "other"}
    decided(update, old=deepcopy(live))
    assert update["metadata"]["labels"] == {QUEUE: "other"}
