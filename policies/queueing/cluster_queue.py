"""Find the ClusterQueue of a workload, and whether the workload may already count in a quota's usage."""

from __future__ import annotations

from typing import Final

from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.workload import Workload

_NOTHING: Final[frozenset[str]] = frozenset()
#: Resources that gpugate itself may put into a workload.
_ADDED: Final = frozenset({"cpu", "memory"})


def uncovered(workload: Workload, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Which of CPU and memory the quota of the workload's queue does not cover; none where that is not known.

    Kueue admits no workload that asks for a resource which no flavor of its ClusterQueue covers
    (v0.15.0, ``pkg/scheduler/flavorassigner``: "resource memory unavailable in ClusterQueue").
    """
    found = cluster_queue_of(workload, snapshot)
    return _ADDED - found.covered if found else _NOTHING


def cluster_queue_of(workload: Workload, snapshot: ClusterSnapshot) -> ClusterQueue | None:
    """The ClusterQueue that the queue name of ``workload`` leads to; None where it has none, or that is not known."""
    if not snapshot.cluster_queues:
        return None
    name = queue_label(workload)
    local = snapshot.queue(workload.namespace, name) if name else None
    return snapshot.cluster_queues.get(local.cluster_queue) if local else None


#: Fields of a status that only a controller or kubelet writes, once it has seen the object.
_SEEN: Final = frozenset({"conditions", "observedGeneration", "startTime"})


def not_yet_counted(workload: Workload) -> bool:
    """Whether nothing is taken for the workload yet: what its controller has seen may be counted as used already."""
    status = workload.root.get("status")
    return workload.operation != "UPDATE" and (type(status) is not dict or _SEEN.isdisjoint(status))
