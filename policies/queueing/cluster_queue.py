"""Find the ClusterQueue of a workload, and tell whether a quota may count the workload already."""

from typing import Final

from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.workload import Workload

_NOTHING: Final[frozenset[str]] = frozenset()
#: Resources that gpugate itself may add to a workload.
_ADDED: Final = frozenset({"cpu", "memory"})


def uncovered(workload: Workload, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return those of CPU and memory that the quota of the workload's queue does not cover; none where that is not known.

    Kueue admits no workload that requests a resource which no flavor of its ClusterQueue covers
    (v0.15.0, ``pkg/scheduler/flavorassigner``: "resource memory unavailable in ClusterQueue").
    """
    queue = cluster_queue_of(workload, snapshot)
    return _ADDED - queue.covered if queue else _NOTHING


def cluster_queue_of(workload: Workload, snapshot: ClusterSnapshot) -> ClusterQueue | None:
    """Return the ClusterQueue behind the queue name of ``workload``; None where it names none or that is not known."""
    if not snapshot.cluster_queues:
        return None
    name = queue_label(workload)
    local = snapshot.queue(workload.namespace, name) if name else None
    return snapshot.cluster_queues.get(local.cluster_queue) if local else None


#: Fields of a status that only a controller or kubelet writes.
_SEEN: Final = frozenset({"conditions", "observedGeneration", "startTime"})


def not_yet_counted(workload: Workload) -> bool:
    """Return whether no quota counts the workload as used yet: none does before a controller has seen the object."""
    status = workload.root.get("status")
    return workload.operation != "UPDATE" and (type(status) is not dict or _SEEN.isdisjoint(status))
