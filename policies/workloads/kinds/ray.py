"""The kinds of KubeRay: RayCluster, RayJob and RayService.

Sources: KubeRay v1.5 ``apis/ray/v1`` and ``controllers/ray``, Kueue v0.15.0 ``pkg/controller/jobs/{raycluster,rayjob}``.
"""

from typing import Final

from gpugate.policies.kube.fields import Path
from gpugate.policies.workloads.kinds.model import (
    Deadline,
    HeldAfterEnd,
    Members,
    PodSetSpec,
    RayClusterSpec,
    Recovery,
    RetryLimit,
    WorkloadKind,
)


def _pods_of_cluster(*spec: str, unless: Path | None = None) -> tuple[PodSetSpec, ...]:
    """Return the pod sets of a Ray cluster: the head and the worker groups."""
    worker = (*spec, "workerGroupSpecs", "*")
    return (
        PodSetSpec((*spec, "headGroupSpec", "template"), unless=unless),
        PodSetSpec(
            (*worker, "template"),
            ((*worker, "replicas"), (*worker, "numOfHosts")),
            default=0,
            min_count=(*worker, "minReplicas"),
            elastic=(*spec, "enableInTreeAutoscaling"),
            unless=unless,
        ),
    )


_OPERATOR: Final = "ray.io/kuberay-operator"
_AVAILABLE: Final = "availableWorkerReplicas"
_CLUSTER_LABEL: Final = "ray.io/cluster"
RAY_CLUSTER: Final = WorkloadKind(
    "ray.io",
    "RayCluster",
    "rayclusters",
    _pods_of_cluster("spec"),
    shares_model=True,
    controller=_OPERATOR,
    managed_by=("spec", "managedBy"),
    suspend=("spec", "suspend"),
    running=(("status", _AVAILABLE),),
    members=Members(_CLUSTER_LABEL, "RayCluster"),
    groups_itself=True,
    framework="ray.io/raycluster",
    ray_cluster=RayClusterSpec(("spec",)),
)

_SELECTOR: Final = ("spec", "clusterSelector")
_SHUTDOWN: Final = ("spec", "shutdownAfterJobFinishes")
#: Its time to live deletes the Ray cluster alone, so it has no ``ttl``.
RAY_JOB: Final = WorkloadKind(
    "ray.io",
    "RayJob",
    "rayjobs",
    (
        # A job for an existing cluster creates none.
        *_pods_of_cluster("spec", "rayClusterSpec", unless=_SELECTOR),
        PodSetSpec(("spec", "submitterPodTemplate"), starts_late=True),
    ),
    batch=True,
    shares_model=True,
    controller=_OPERATOR,
    managed_by=("spec", "managedBy"),
    suspend=("spec", "suspend"),
    running=(("status", "rayClusterStatus", _AVAILABLE),),
    reports_start=True,
    members=Members(_CLUSTER_LABEL, "RayCluster", name=("status", "rayClusterName")),
    retry=RetryLimit(("spec", "backoffLimit"), 0, by_pod=False),
    deadline=Deadline(("spec", "activeDeadlineSeconds")),
    held_after_end=HeldAfterEnd((_SHUTDOWN,), True, (False,), "the Ray cluster", unless=("spec", "deletionStrategy")),  # noqa: FBT003 - a value to write
    recovery=Recovery.NEW_CLUSTER,
    groups_itself=True,
    framework="ray.io/rayjob",
    ray_cluster=RayClusterSpec(("spec", "rayClusterSpec"), existing=_SELECTOR, shutdown=_SHUTDOWN),
)
RAY_SERVICE: Final = WorkloadKind(
    "ray.io",
    "RayService",
    "rayservices",
    _pods_of_cluster("spec", "rayClusterConfig"),
    serving=True,
    shares_model=True,
    running=(("status", "activeServiceStatus", "rayClusterStatus", _AVAILABLE),),
    groups_itself=True,
)
