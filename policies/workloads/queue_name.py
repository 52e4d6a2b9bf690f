"""Read the queue name that Kueue reads, and one where people put it by mistake (Kueue v0.15.0, ``pkg/controller/jobframework``)."""

from __future__ import annotations

from typing import Final

from gpugate.policies.kube.fields import Path, lookup, mapping, string
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.workloads.workload import Workload

_OWN_LABEL: Final[Path] = ("metadata", "labels", QUEUE_NAME)
PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"
#: The label of objects that MultiKueue copies into the cluster that runs them (Kueue v0.15 ``apis/kueue/v1beta2/constants.go``).
MULTIKUEUE_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"


def queue_path(workload: Workload) -> Path | None:
    """Return the path of the queue-name label that Kueue reads; None for a kind that it does not manage."""
    holder = workload.kind.queue
    if not workload.kind.queued:
        return None
    return (*holder, "metadata", "labels", QUEUE_NAME) if holder else _OWN_LABEL


def _label_at(workload: Workload, holder: Path) -> str | None:
    if not holder:
        return string(workload.labels(), QUEUE_NAME, ("metadata", "labels"))
    parent = lookup(workload.root, holder)
    if type(parent) is not dict:
        return None
    labels = mapping(mapping(parent, "metadata", holder), "labels", (*holder, "metadata"))
    return string(labels, QUEUE_NAME, (*holder, "metadata", "labels"))


def queue_label(workload: Workload) -> str | None:
    """Return the queue name that Kueue reads; None if there is none."""
    return _label_at(workload, workload.kind.queue) if workload.kind.queued else None


def misplaced_queue_label(workload: Workload) -> str | None:
    """Return a queue name on the object or its pod template that Kueue does not read; None if there is none."""
    if workload.is_pod():
        return None
    for holder in ((), *(pods.path for pods in workload.pod_sets if pods.is_whole)):
        if holder != workload.kind.queue:
            name = _label_at(workload, holder)
            if name:
                return name
    return None
