"""Find out which workloads are gangs: pods that must all start together or not at all.

A gang is what its author or its kind declares to start together: an annotation of gpugate, a pod group of a scheduler or of Kueue,
and the kinds that run pods in roles or groups (Kubeflow, JobSet, LeaderWorkerSet, Ray, Volcano). A Job of Kubernetes, also an
indexed one, is most often a work queue, whose pods run as there is room. It is a gang only if it declares one, or by policy.
"""

from typing import Final, NamedTuple

from gpugate.policies.cluster.records.pod_groups import (
    COSCHEDULING_GROUP,
    COSCHEDULING_LEGACY,
    KAI_GROUP,
    KUEUE_GROUP,
    OWN_GROUP,
    VOLCANO_GROUP,
    GroupKey,
    group_key,
)
from gpugate.policies.kube.fields import Path, whole_number
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.pod_set_sources import values_at
from gpugate.policies.workloads.workload import Workload

#: The annotation with the number of pods that must start together.
GANG_SIZE: Final = "gpugate.io/gang-size"
#: The annotation that names the group of plain pods.
GANG_NAME: Final = "gpugate.io/gang-name"
#: The annotation (``"true"``) of a gang that may run with fewer pods than its size.
GANG_ELASTIC: Final = "gpugate.io/gang-elastic"
#: The annotation with the minimum number of running pods of an elastic gang.
GANG_MINIMUM: Final = "gpugate.io/gang-min-size"
#: The annotation with the minimum of pods that Volcano starts together (``pkg/controllers/podgroup``, v1.10).
VOLCANO_MINIMUM: Final = "scheduling.volcano.sh/group-min-member"
#: Annotations that declare a gang without its size.
_DECLARING: Final = (GANG_NAME, GANG_ELASTIC, GANG_MINIMUM, VOLCANO_MINIMUM)
#: The annotation of a workload that Kueue may scale while it runs (Kueue v0.15 ``pkg/workloadslicing``).
_KUEUE_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"


class Gang(NamedTuple):
    """Pods that must start together.

    Attributes:
        pods: its first pod set.
        size: the number of its pods.
        declared: whether an annotation sets the size.
        members: the number of pods with accelerators that the workload creates for one gang; None for a pod that joins a group.
        parts: all pod sets of the gang that request accelerators: master and workers are one gang.
        sizes: all valid declared sizes: users may count pods without accelerators (an MPI launcher, the head of a Ray cluster)
            and pods that start later.
        gangs: the number of such gangs that the workload creates.
    """

    pods: PodSet
    size: int
    declared: bool
    members: int | None
    parts: tuple[PodSet, ...] = ()
    sizes: frozenset[int] = frozenset()
    gangs: int = 1

    def number_of(self, part: PodSet) -> int:
        """Return the number of pods of ``part`` in one gang; for a pod that joins a group, the size of the group."""
        return self.size if self.members is None or len(self.parts) == 1 else part.numbers.at_once // self.gangs


class InvalidSize(NamedTuple):
    """An annotation that should be a number of pods, with its text."""

    key: str
    written: str


def invalid_size(workload: Workload) -> InvalidSize | None:
    """Return the annotation for the size, or the minimum size, that is no whole number above 0; None if both are valid."""
    for key in (GANG_SIZE, GANG_MINIMUM):
        text = workload.annotation(key)
        if text is not None and not whole_number(text):
            return InvalidSize(key, text)
    return None


def declared_size(workload: Workload) -> int | None:
    """Return the size in ``gpugate.io/gang-size``; None if it is absent or invalid."""
    return whole_number(workload.annotation(GANG_SIZE)) or None


def min_size(workload: Workload, size: int) -> int:
    """Return the minimum number of running pods of a gang of ``size``: ``size``, unless it is elastic."""
    declared = declared_min_size(workload, size)
    if declared is not None:
        return declared
    pod_sets = workload.gpu_pod_sets()
    if all(pods.numbers.min_count is None for pods in pod_sets):
        return size
    return max(1, min(size, sum(min_count(pods) for pods in pod_sets) // workload.gangs))


def declared_min_size(workload: Workload, size: int) -> int | None:
    """Return the minimum size in the annotations of a gang of ``size``; None if they have none."""
    minimum = whole_number(workload.annotation(GANG_MINIMUM))
    if minimum:
        return min(minimum, size)
    return 1 if _is_declared_elastic(workload) else None


def min_count(pods: PodSet) -> int:
    """Return the minimum number of ``pods``: the lower end if the workload has a range, else those that run at once."""
    count, minimum = pods.numbers.at_once, pods.numbers.min_count
    return count if minimum is None else min(count, minimum)


def guaranteed_count(gang: Gang, part: PodSet) -> int:
    """Return the minimum number of pods of ``part`` in one gang."""
    number = gang.number_of(part)
    return number if gang.members is None else number - (part.numbers.at_once - min_count(part)) // gang.gangs


def spare_by_annotation(workload: Workload, gang: Gang) -> int:
    """Return the number of pods that the gang may lack, by its annotations."""
    declared = declared_min_size(workload, gang.size)
    return 0 if declared is None else gang.size - declared


def is_elastic(workload: Workload) -> bool:
    """Whether the gang may run with fewer pods than its size, by its annotations for gpugate or Kueue, or by its counts."""
    if _is_declared_elastic(workload) or workload.annotation(GANG_MINIMUM) is not None:
        return True
    pod_sets = workload.gpu_pod_sets()
    if workload.known_ranges is None or workload.known_ranges[0] is not pod_sets:
        workload.known_ranges = pod_sets, any(pods.numbers.min_count is not None for pods in pod_sets)
    return workload.known_ranges[1]


def _is_declared_elastic(workload: Workload) -> bool:
    return workload.annotation(GANG_ELASTIC) == "true" or workload.annotations().get(_KUEUE_ELASTIC) == "true"


def gang_of(workload: Workload) -> Gang | None:
    """Return the gang of ``workload``, or the gang that the pod joins; None if its pods may start one by one.

    A declared size of 1 means that the workload is no gang.
    """
    gang = pods_at_once(workload)
    if gang is None or gang.declared or workload.parallel_jobs_are_gangs or _declares_gang(workload, gang):
        return gang
    return None


def _declares_gang(workload: Workload, gang: Gang) -> bool:
    """Return whether the kind or an annotation declares ``gang``, or all its pods name a pod group."""
    if all(part.kind.starts_together for part in gang.parts):
        return True
    return any(workload.annotation(key) not in {None, "", "false"} for key in _DECLARING) or all(
        group_of(part) is not None for part in gang.parts
    )


def pods_at_once(workload: Workload) -> Gang | None:
    """Return the gang of ``workload``, or else the pods that a Job runs at once, which may start one by one."""
    pod_sets = workload.gpu_pod_sets()
    if not pod_sets:
        return None
    size = declared_size(workload)
    if size == 1:
        return None
    if workload.is_pod():
        pods = pod_sets[0]
        return Gang(pods, size, declared=True, members=None, parts=(pods,)) if size is not None else None
    is_stopping = workload.transition is not None and workload.transition.suspended
    if is_stopping:
        return None
    # Rules ask once for each pod set.
    known = workload.known_gang
    if known is None or known[0] is not pod_sets or known[1] != size:
        known = workload.known_gang = pod_sets, size, _gang_of_templates(workload, tuple(pod_sets), size)
    gang: Gang | None = known[2]
    return gang


def _gang_of_templates(workload: Workload, pod_sets: tuple[PodSet, ...], size: int | None) -> Gang | None:
    parts = tuple(pods for pods in pod_sets if pods.count is None or pods.numbers.at_once)
    if not parts:
        return None
    is_open = any(pods.count is None for pods in parts)
    members = None if is_open else sum(pods.numbers.at_once for pods in parts) // workload.gangs
    is_parallel = members is not None and members > 1 and (workload.is_batch or workload.kind.gangs is not None)
    if size is None and not is_parallel:
        return None
    sizes = _sizes_of(workload, pod_sets)
    return Gang(parts[0], size or members or 1, size is not None, members, parts, sizes, workload.gangs)


def _sizes_of(workload: Workload, gpu_pod_sets: tuple[PodSet, ...]) -> frozenset[int]:
    """Return every number of pods of one gang, with and without the pods that need not count."""
    counts: dict[tuple[bool, bool], int] = {}
    with_gpu = set(gpu_pod_sets)
    for pods in workload.pod_sets:
        group = (pods in with_gpu, pods.starts_late or pods.follows)
        counts[group] = counts.get(group, 0) + pods.numbers.at_once
    sizes = {counts.pop((True, False), 0)}
    for count in counts.values():
        sizes |= {size + count for size in sizes}
    return frozenset(size // workload.gangs for size in sizes if size)


def is_running(workload: Workload) -> bool:
    """Whether the object had running pods before the UPDATE."""
    old = workload.old or {}
    values = [value for path in workload.kind.running for value in values_at(old, path)]
    return any(value == "Running" or (type(value) is int and value > 0) for value in values)


#: The label or annotation from which each system reads the name of a pod's group.
_NAMED_AT: Final[dict[str, tuple[str, str]]] = {
    "Kueue": ("labels", KUEUE_GROUP),
    "Coscheduling": ("labels", COSCHEDULING_GROUP),
    "Volcano": ("annotations", VOLCANO_GROUP),
    "gpugate": ("annotations", OWN_GROUP),
    "KAI": ("annotations", KAI_GROUP),
}


def group_of(pods: PodSet) -> GroupKey | None:
    """Return the group that the pods name; None if they name none."""
    return group_key(pods.labels(), pods.annotations(), pods.spec)


def group_path(pods: PodSet, key: GroupKey) -> Path:
    """Return the path at which the pods name their group ``key``."""
    if key.system == "Kubernetes":
        return pods.field("schedulingGroup", "podGroupName")
    where, name = _NAMED_AT[key.system]
    legacy = f"{COSCHEDULING_LEGACY}/name"
    if key.system == "Coscheduling" and name not in pods.labels() and legacy in pods.labels():
        name = legacy
    return pods.meta(where, name)
