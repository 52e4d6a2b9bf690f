"""Tell which workloads are gangs: pods that must all start together or not at all."""

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

#: The annotation that states how many pods must start together.
GANG_SIZE: Final = "gpugate.io/gang-size"
#: The annotation that names the group of plain pods.
GANG_NAME: Final = "gpugate.io/gang-name"
#: The annotation (``"true"``) of a gang that may run with fewer pods than its size.
GANG_ELASTIC: Final = "gpugate.io/gang-elastic"
#: The annotation that states the fewest pods that an elastic gang may run with.
GANG_MINIMUM: Final = "gpugate.io/gang-min-size"
#: The annotation of a workload that Kueue may scale while it runs (Kueue v0.15 ``pkg/workloadslicing``).
_KUEUE_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"


class Gang(NamedTuple):
    """Pods that must start together.

    Attributes:
        pods: its pod set; the first of several.
        size: the number of its pods.
        declared: whether an annotation states the size, and not the pod counts alone.
        members: the number of pods with accelerators that the workload creates for one gang; None for a pod that joins a group.
        parts: all pod sets of the gang that request accelerators: master and workers are one gang.
        sizes: every size that may be declared for it: the user decides whether pods without accelerators count (an MPI
            launcher, the head of a Ray cluster), and pods that start later.
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
        return self.size if self.members is None or len(self.parts) == 1 else (part.count or 0) // self.gangs


def _is_size(written: str) -> bool:
    return bool(whole_number(written))


class InvalidSize(NamedTuple):
    """An annotation that should state a number of pods, with its text."""

    key: str
    written: str


def invalid_size(workload: Workload) -> InvalidSize | None:
    """Return the annotation for the size, or the minimum size, that is no whole number above 0; None if both are valid.

    The API accepts any text in an annotation, so the rule reports it, by its mode.
    """
    for key in (GANG_SIZE, GANG_MINIMUM):
        written = workload.annotation(key)
        if written is not None and not _is_size(written):
            return InvalidSize(key, written)
    return None


def declared_size(workload: Workload) -> int | None:
    """Return the size that ``gpugate.io/gang-size`` states; None if it is absent or invalid."""
    written = workload.annotation(GANG_SIZE)
    return int(written) if written is not None and _is_size(written) else None


def min_size(workload: Workload, size: int) -> int:
    """Return the fewest pods that a gang of ``size`` may run with: all of them, unless it is elastic."""
    stated = declared_min_size(workload, size)
    if stated is not None:
        return stated
    pod_sets = workload.gpu_pod_sets()
    if all(pods.numbers.min_count is None for pods in pod_sets):
        return size
    return max(1, min(size, sum(min_count(pods) for pods in pod_sets) // workload.gangs))


def declared_min_size(workload: Workload, size: int) -> int | None:
    """Return the minimum size that the annotations of a gang of ``size`` state; None if they state none."""
    written = workload.annotation(GANG_MINIMUM)
    if written is not None and _is_size(written):
        return min(int(written), size)
    return 1 if _may_lose_any(workload) else None


def min_count(pods: PodSet) -> int:
    """Return the least number of ``pods``: the lower end if the workload states a range, else the count."""
    count, least = pods.count or 0, pods.numbers.min_count
    return count if least is None else min(count, least)


def guaranteed_count(gang: Gang, part: PodSet) -> int:
    """Return the least number of pods of ``part`` in one gang."""
    number = gang.number_of(part)
    return number if gang.members is None else number - ((part.count or 0) - min_count(part)) // gang.gangs


def spare_by_annotation(workload: Workload, gang: Gang) -> int:
    """Return the number of pods that the gang may lack, by its annotations."""
    stated = declared_min_size(workload, gang.size)
    return 0 if stated is None else gang.size - stated


def is_elastic(workload: Workload) -> bool:
    """Whether the workload states, for gpugate or Kueue, that its gang may run with fewer pods than its size."""
    if _may_lose_any(workload) or workload.annotation(GANG_MINIMUM) is not None:
        return True
    return any(pods.numbers.min_count is not None for pods in workload.gpu_pod_sets())


def _may_lose_any(workload: Workload) -> bool:
    return workload.annotation(GANG_ELASTIC) == "true" or workload.annotations().get(_KUEUE_ELASTIC) == "true"


def gang_of(workload: Workload) -> Gang | None:
    """Return the gang that ``workload`` is, or that the pod joins; None if its pods may start one by one.

    A size of 1 declares that a parallel workload is no gang.
    """
    pod_sets = workload.gpu_pod_sets()
    if not pod_sets:
        return None
    size = declared_size(workload)
    if size == 1:
        return None
    if workload.is_pod():
        pods = pod_sets[0]
        return Gang(pods, size, declared=True, members=None, parts=(pods,)) if size is not None else None
    stops = workload.transition is not None and workload.transition.suspended
    return None if stops else _gang_of_templates(workload, tuple(pod_sets), size)


def _gang_of_templates(workload: Workload, pod_sets: tuple[PodSet, ...], size: int | None) -> Gang | None:
    parts = tuple(pods for pods in pod_sets if pods.count != 0)
    counts = [pods.count for pods in parts]
    if not parts:
        return None
    gangs = workload.gangs
    members = None if None in counts else sum(count or 0 for count in counts) // gangs
    sizes = _sizes_of(workload, pod_sets)
    is_one = members is not None and members > 1 and (workload.is_batch or workload.kind.gangs is not None)
    if size is None and not is_one:
        return None
    return Gang(
        parts[0],
        (members or 1) if size is None else size,
        declared=size is not None,
        members=members,
        parts=parts,
        sizes=sizes,
        gangs=gangs,
    )


def _sizes_of(workload: Workload, gpu_pod_sets: tuple[PodSet, ...]) -> frozenset[int]:
    """Return every number of pods of one gang, with and without the pods that need not count."""
    counts: dict[tuple[bool, bool], int] = {}
    for pods in workload.pod_sets:
        group = (pods in gpu_pod_sets, pods.starts_late or pods.follows)
        counts[group] = counts.get(group, 0) + (pods.count or 0)
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
