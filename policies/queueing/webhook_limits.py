"""Find the reasons for which Kueue's webhooks reject an object with a queue name.

Source: Kueue v0.15.0 ``pkg/controller/jobs/raycluster/raycluster_webhook.go``, ``.../rayjob/rayjob_webhook.go`` and
``apis/kueue/v1beta2/workload_types.go`` (``podSets``: at most 8).
"""

from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Path, lookup
from gpugate.policies.workloads.kinds.model import RayClusterSpec
from gpugate.policies.workloads.workload import Workload

_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"
#: Maximum number of pod sets in a Workload.
_MOST_POD_SETS: Final = 8
#: The pod set of a Ray cluster's head.
_HEAD: Final = "head"


class Rejection(NamedTuple):
    """Why Kueue rejects an object in every queue.

    Attributes:
        path: the field.
        what: the rejected object, as text that follows "Kueue accepts": ``no ...``.
        remedy: what to write instead, a sentence.
    """

    path: Path
    what: str
    remedy: str


def kueue_rejects(workload: Workload) -> Rejection | None:
    """Return why Kueue would reject the workload in every queue; None if no reason is known."""
    if len(workload.pod_sets) > _MOST_POD_SETS:
        return Rejection(
            ("spec",),
            f"no workload with more than {_MOST_POD_SETS} pod sets, and this workload has {len(workload.pod_sets)}",
            f"Reduce the workload to {_MOST_POD_SETS} pod sets.",
        )
    cluster = workload.kind.ray_cluster
    return None if cluster is None else _of_ray_job(workload, cluster) or _of_ray_cluster(workload, cluster)


def _of_ray_job(workload: Workload, cluster: RayClusterSpec) -> Rejection | None:
    kind = workload.kind.kind
    if cluster.existing is not None and lookup(workload.root, cluster.existing):
        return Rejection(
            cluster.existing,
            f"no {kind} that runs on an existing cluster",
            "Write rayClusterSpec, so the job gets its own cluster, or set the queue name on the existing cluster instead.",
        )
    if cluster.shutdown is not None and lookup(workload.root, cluster.shutdown) is not True:
        return Rejection(
            cluster.shutdown,
            f"no {kind} that keeps its cluster, and the cluster's quota, after it ends",
            f"Write {cluster.shutdown[-1]}: true.",
        )
    return None


def _of_ray_cluster(workload: Workload, cluster: RayClusterSpec) -> Rejection | None:
    autoscaling, groups = (*cluster.path, "enableInTreeAutoscaling"), (*cluster.path, "workerGroupSpecs")
    is_elastic = cluster.existing is None and workload.annotations().get(_ELASTIC) == "true"
    if lookup(workload.root, autoscaling) is True and not is_elastic:
        return Rejection(
            autoscaling,
            "no Ray cluster with an autoscaler, because Kueue counts its quota once",
            "Write enableInTreeAutoscaling: false and the number of workers that the job needs.",
        )
    stated = lookup(workload.root, groups)
    for at, group in enumerate(stated if type(stated) is list else ()):
        if type(group) is dict and group.get("groupName") == _HEAD:
            return Rejection((*groups, at, "groupName"), f"no worker group named {_HEAD}", "Rename the worker group.")
    return None
