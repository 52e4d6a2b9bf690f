"""Which priority classes are written into a workload."""

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.patch import Edit
from gpugate.policies.rules.queueing.priority.classes import (
    PriorityBound,
    PriorityClasses,
    class_of,
    classes_of,
    scale_of_pods,
    scale_of_workloads,
    workload_class_of,
    workload_class_path,
)
from gpugate.policies.rules.queueing.priority.params import (
    ClassesParam,
    PriorityParams,
    bound_of_pods,
    bound_of_workloads,
    classes_for,
)
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def _applies(workload: Workload) -> bool:
    """Whether the object is the first of its kind to be asked: what a known controller makes has its class from there."""
    return bool(workload.gpu_pod_sets()) and workload.owner_kind() is None


def _may_write(name: str, scale: PriorityClasses, bound: PriorityBound | None) -> bool:
    """Whether the class exists, or nobody gave any classes to tell by, and the namespace may use it."""
    there = name in scale.classes if scale.known is SyncState.SYNCED else scale.known is SyncState.NOT_GIVEN
    return there and not scale.excess(name, bound)


def mutate(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Name the classes for what the workload is."""
    classes = classes_for(workload, params) if _applies(workload) else None
    if classes is None:
        return ()
    bounds = bound_of_pods(workload, params, snapshot), bound_of_workloads(workload, params, snapshot)
    return [*_for_pods(workload, classes, bounds[0], snapshot), *_for_kueue(workload, classes, bounds[1], snapshot)]


def _for_pods(workload: Workload, classes: ClassesParam, bound: PriorityBound | None, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    scale = scale_of_pods(snapshot)
    stated = {one.name for one in classes_of(workload)}
    if len(stated) > 1:
        return
    name = next(iter(stated), classes.pods)
    # What somebody has named for some of the pods is theirs, and refused where it is too high.
    if name is None or not _may_write(name, scale, None if stated else bound):
        return
    for pods in workload.pod_sets:
        if pods.is_whole and class_of(pods) is None:
            yield Edit("set", pods.field("priorityClassName"), name, f"priority class {name}{_worth(name, scale)}", "class")
            if workload.is_pod():
                yield from _worked_out_anew(pods)


def _worth(name: str, scale: PriorityClasses) -> str:
    found = scale.classes.get(name)
    if found is None:
        return ""
    return f" ({found.value}, {'preempts' if found.preempts else 'never preempts'})"


def _worked_out_anew(pods: PodSet) -> Iterator[Edit]:
    """Take out what the apiserver worked out for a pod without a class: it would refuse it beside another class's.

    It works both out again after the webhooks (``k8s.io/kubernetes`` ``plugin/pkg/admission/priority``, 1.36).
    """
    for field in ("priority", "preemptionPolicy"):
        if pods.spec.get(field) is not None:
            yield Edit("remove", pods.field(field), group="class", defaulted=True)


def _for_kueue(workload: Workload, classes: ClassesParam, bound: PriorityBound | None, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    path, name, scale = workload_class_path(workload), classes.workload, scale_of_workloads(snapshot)
    if path is None or name is None or workload_class_of(workload) is not None:
        return
    if _may_write(name, scale, bound):
        yield Edit("set", path, name, f"workload priority class {name}")
