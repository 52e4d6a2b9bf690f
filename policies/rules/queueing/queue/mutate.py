"""Edits of the rule `queue`."""

from collections.abc import Iterable
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.webhook_limits import kueue_rejects
from gpugate.policies.rules.queueing.queue.params import QueueParams
from gpugate.policies.workloads.metadata import PREBUILT, misplaced_queue_label, queue_label, queue_path
from gpugate.policies.workloads.workload import Workload

_NAMESPACE_LABEL: Final = "gpugate.io/default-queue"


#: Kueue's LocalQueueDefaulting names the LocalQueue of this name where a workload names none.
_KUEUE_DEFAULT: Final = "default"


def applies(workload: Workload, params: QueueParams) -> bool:
    """Return whether the workload can be in a queue here and requests a GPU."""
    if not workload.kind.queued or workload.kind.kind not in params.kinds or workload.controller() is not None:
        return False
    return PREBUILT not in workload.labels() and bool(workload.gpu_pod_sets())


def _find(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> tuple[str, str] | None:
    """The queue for a workload that names none where Kueue reads it, and where the name comes from."""
    misplaced = misplaced_queue_label(workload)
    if misplaced:
        return misplaced, "from another place of the object"
    by_namespace = snapshot.namespace_labels(workload.namespace).get(_NAMESPACE_LABEL)
    if by_namespace:
        return by_namespace, f"from the label of namespace {workload.namespace}"
    if params.queue_name:
        return params.queue_name, "from the policy"
    queues = snapshot.queues.get(workload.namespace, ())
    if len(queues) == 1:
        return queues[0].name, f"the only LocalQueue in {workload.namespace}"
    if any(queue.name == _KUEUE_DEFAULT for queue in queues):
        return _KUEUE_DEFAULT, "the LocalQueue that Kueue itself defaults to"
    return None


def mutate(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Name the queue where Kueue reads it."""
    path = queue_path(workload)
    if path is None or not applies(workload, params) or queue_label(workload) or kueue_rejects(workload) is not None:
        return ()
    found = _find(workload, params, snapshot)
    return () if found is None else (Edit("set", path, found[0], f"queue {found[0]} ({found[1]})"),)
