"""Find the ClusterQueue of a workload, and whether a quota may count the workload already."""

from typing import Final

from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import lookup
from gpugate.policies.queueing.managed import is_managed
from gpugate.policies.workloads.metadata import PREBUILT, prebuilt_workload_name, queue_label
from gpugate.policies.workloads.workload import Workload

#: Resources that gpugate adds or raises.
ADDED: Final = ("memory", "cpu")
_WORKLOADS: Final = "workloads"
#: Fields of a status that only a controller or kubelet writes.
_CONTROLLER_FIELDS: Final = frozenset({"conditions", "observedGeneration", "startTime"})


def uncovered(workload: Workload, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return those of CPU and memory that the ClusterQueue of ``workload`` does not cover; none if it is unknown.

    Kueue does not admit a workload that requests such a resource
    (v0.15.0, ``pkg/scheduler/flavorassigner``: "resource memory unavailable in ClusterQueue").
    """
    queue = cluster_queue_of(workload, snapshot)
    return frozenset(ADDED) - queue.covered if queue else frozenset()


def cluster_queue_of(workload: Workload, snapshot: ClusterSnapshot) -> ClusterQueue | None:
    """Return the ClusterQueue of the LocalQueue that ``workload`` names; None if it names none or an unknown one."""
    if not snapshot.cluster_queues:
        return None
    name = queue_label(workload)
    local = snapshot.queue(workload.namespace, name) if name else None
    return snapshot.cluster_queues.get(local.cluster_queue) if local else None


def bounding_queue(workload: Workload, snapshot: ClusterSnapshot) -> ClusterQueue | None:
    """Return the ClusterQueue whose quota counts the pods; None if there is none, or Kueue does not manage the kind."""
    queue = cluster_queue_of(workload, snapshot)
    return None if queue is None or is_managed(workload, snapshot) is False else queue


def has_prebuilt_workload(workload: Workload, snapshot: ClusterSnapshot) -> bool | None:
    """Return whether a Workload that is made already waits for the object, as the object says; None if the Workloads are unknown.

    A name without such a Workload says nothing: Kueue waits for the Workload, or ignores an object without a queue name
    (v0.15.0, ``pkg/controller/jobframework/reconciler.go``). Later the Workload belongs to the object, and the name stays.
    """
    name = prebuilt_workload_name(workload)
    if name is None:
        return False
    if workload.operation == "UPDATE" and any(
        lookup(workload.old, ("metadata", key, PREBUILT)) == name for key in ("annotations", "labels")
    ):
        return True
    if _are_unknown(snapshot):
        return None
    return snapshot.kueue_workloads.is_free(workload.namespace, name)


def has_made_workload(workload: Workload, snapshot: ClusterSnapshot) -> bool:
    """Return whether Kueue compares the object with a Workload that was made before it, which no user can make up.

    Such a Workload waits for the object. A pod may also join a Workload that MultiKueue made, and that other pods of its group have
    taken. Files alone do not show Workloads; there the object is believed.
    """
    waits = has_prebuilt_workload(workload, snapshot)
    if waits is None:
        return snapshot.sync_state(_WORKLOADS) is SyncState.NOT_GIVEN
    name = prebuilt_workload_name(workload)
    return waits or (name is not None and workload.is_pod() and snapshot.kueue_workloads.is_dispatched(workload.namespace, name))


def _are_unknown(snapshot: ClusterSnapshot) -> bool:
    return snapshot.sync_state(_WORKLOADS) in {SyncState.PENDING, SyncState.NOT_GIVEN}


def not_yet_counted(workload: Workload) -> bool:
    """Return whether no quota counts the workload as used yet: none does before a controller has seen the object."""
    status = workload.root.get("status")
    return workload.operation != "UPDATE" and (type(status) is not dict or _CONTROLLER_FIELDS.isdisjoint(status))
