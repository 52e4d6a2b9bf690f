"""Objects that Kueue's own webhooks reject once they name a queue, though they run without one.

Source: Kueue v0.15.0 ``pkg/controller/jobs/raycluster/raycluster_webhook.go``, ``.../rayjob/rayjob_webhook.go`` and
``apis/kueue/v1beta2/workload_types.go`` (``podSets``: at most 8).
"""

from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Path, lookup
from gpugate.policies.workloads.kinds import RayClusterSpec
from gpugate.policies.workloads.workload import Workload

_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"
#: A Workload holds no more pod sets.
_MOST_POD_SETS: Final = 8
#: The pod set of a Ray cluster's head.
_HEAD: Final = "head"


class Rejection(NamedTuple):
    """Why Kueue rejects an object in every queue.

    Attributes:
        path: the field.
        what: what is wrong with it, as text that follows "Kueue accepts".
        remedy: what to write instead, a sentence.
    """

    path: Path
    what: str
    remedy: str


def kueue_rejects(workload: Workload) -> Rejection | None:
    """Return why Kueue would reject the workload in any queue; None where no reason is known."""
    if len(workload.pod_sets) > _MOST_POD_SETS:
        return Rejection(
            ("spec",),
            f"no workload with more than {_MOST_POD_SETS} pod sets, and this one has {len(workload.pod_sets)}",
            f"Use at most {_MOST_POD_SETS} pod sets.",
        )
    cluster = workload.kind.ray_cluster
    return None if cluster is None else _of_ray_job(workload, cluster) or _of_ray_cluster(workload, cluster)


def _of_ray_job(workload: Workload, cluster: RayClusterSpec) -> Rejection | None:
    kind = workload.kind.kind
    if cluster.existing is not None and lookup(workload.root, cluster.existing):
        return Rejection(
            cluster.existing,
            f"no {kind} that runs on an existing cluster",
            "Write rayClusterSpec, so that the job gets its own cluster, or put that cluster into the queue instead.",
        )
    if cluster.shutdown is not None and lookup(workload.root, cluster.shutdown) is not True:
        return Rejection(
            cluster.shutdown,
            f"no {kind} that keeps its cluster and quota after its end",
            f"Write {cluster.shutdown[-1]}: true.",
        )
    return None


def _of_ray_cluster(workload: Workload, cluster: RayClusterSpec) -> Rejection | None:
    place, is_job = cluster.path, cluster.existing is not None
    is_elastic = not is_job and workload.annotations().get(_ELASTIC) == "true"
    if lookup(workload.root, (*place, "enableInTreeAutoscaling")) is True and not is_elastic:
        return Rejection(
            (*place, "enableInTreeAutoscaling"),
            "no Ray cluster that scales itself, since its quota is counted once",
            "Write enableInTreeAutoscaling: false, and the number of workers that you need.",
        )
    groups = lookup(workload.root, (*place, "workerGroupSpecs"))
    for at, group in enumerate(groups if type(groups) is list else ()):
        if type(group) is dict and group.get("groupName") == _HEAD:
            return Rejection(
                (*place, "workerGroupSpecs", at, "groupName"), f"no worker group called {_HEAD}", "Give the group another name."
            )
    return None
