"""Edits of the rule `priority`."""

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.patch import Edit
from gpugate.policies.rules.queueing.priority.classes import (
    PriorityClasses,
    PriorityParams,
    class_of,
    classes_for,
    classes_of,
    pod_classes,
    workload_class_of,
    workload_class_path,
    workload_classes,
)
from gpugate.policies.workloads.workload import Workload


def mutate(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Write the policy's classes for the purpose of the workload."""
    # An object of a known controller has the class of its owner's template.
    defaults = classes_for(workload, params) if workload.gpu_pod_sets() and workload.owner_kind() is None else None
    if defaults is None:
        return ()
    return [
        *_edits_for_pods(workload, defaults.pods, pod_classes(workload, params, snapshot)),
        *_edits_for_kueue(workload, defaults.workload, workload_classes(workload, params, snapshot)),
    ]


def _edits_for_pods(workload: Workload, default: str | None, classes: PriorityClasses) -> Iterator[Edit]:
    stated = {item.name for item in classes_of(workload)}
    if len(stated) > 1:
        return
    name = next(iter(stated), default)
    # The check refuses a stated class that is too high, so the other pods may get it.
    if name is None or not _may_exist(name, classes) or (not stated and classes.excess(name)):
        return
    for pods in workload.pod_sets:
        if pods.is_whole and class_of(pods) is None:
            yield Edit("set", pods.field("priorityClassName"), name, f"priority class {name}{_value(name, classes)}", "class")
            # The API server refuses the values that it computed for a pod without a class beside another class, and
            # computes both again after the webhooks (``k8s.io/kubernetes`` ``plugin/pkg/admission/priority``, 1.36).
            for field in ("priority", "preemptionPolicy") if workload.is_pod() else ():
                if pods.spec.get(field) is not None:
                    yield Edit("remove", pods.field(field), group="class", defaulted=True)


def _may_exist(name: str, classes: PriorityClasses) -> bool:
    return name in classes.by_name if classes.state is SyncState.SYNCED else classes.state is SyncState.NOT_GIVEN


def _value(name: str, classes: PriorityClasses) -> str:
    priority = classes.by_name.get(name)
    return "" if priority is None else f" ({priority.value}, {'preempts' if priority.preempts else 'never preempts'})"


def _edits_for_kueue(workload: Workload, name: str | None, classes: PriorityClasses) -> Iterator[Edit]:
    path = workload_class_path(workload)
    if path is None or name is None or workload_class_of(workload) is not None:
        return
    if _may_exist(name, classes) and not classes.excess(name):
        yield Edit("set", path, name, f"workload priority class {name}")
