"""Which workloads are gangs: pods that must all start together or not at all."""

from __future__ import annotations

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
from gpugate.policies.kube.fields import Path, lookup, whole_number
from gpugate.policies.workloads.kinds import GANG_ELASTIC, GANG_MINIMUM, GANG_SIZE
from gpugate.policies.workloads.pod_sets import values_at
from gpugate.policies.workloads.workload import PodSet, Workload

#: The longest gang size that is read: more digits are a slip, not a gang.
#: A workload whose pods may become more or fewer while it runs (Kueue v0.15 ``pkg/workloadslicing``).
_KUEUE_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"


class Gang(NamedTuple):
    """Pods that must start together.

    Attributes:
        pods: what they are made from; the first where they are of several sorts.
        size: how many there are to be.
        declared: whether the size is stated in an annotation, and not only by the number of pods.
        members: how many pods with accelerators the workload makes itself for one gang; None for a pod that joins others.
        parts: all sorts of pods of the gang that ask for accelerators: master and workers are one gang.
        sizes: how many pods it may be said to have: whether those count that have no accelerators (an MPI launcher, the head
            of a Ray cluster), and those that come later, is for whoever declares the size.
        gangs: how many such gangs the workload makes.
    """

    pods: PodSet
    size: int
    declared: bool
    members: int | None
    parts: tuple[PodSet, ...] = ()
    sizes: frozenset[int] = frozenset()
    gangs: int = 1

    def number_of(self, part: PodSet) -> int:
        """How many pods of ``part`` one gang has; of a pod that joins others, all."""
        return self.size if self.members is None or len(self.parts) == 1 else (part.count or 0) // self.gangs


def _is_size(written: str) -> bool:
    return bool(whole_number(written))


class InvalidSize(NamedTuple):
    """An annotation that should state a number of pods, and what it says."""

    key: str
    written: str


def invalid_size(workload: Workload) -> InvalidSize | None:
    """The annotation for the size, or the least size, that is no whole number of at least 1; None where both can be read.

    The API accepts any text in an annotation, so that this is the rule's to judge, by its mode.
    """
    for key in (GANG_SIZE, GANG_MINIMUM):
        written = workload.annotation(key)
        if written is not None and not _is_size(written):
            return InvalidSize(key, written)
    return None


def declared_size(workload: Workload) -> int | None:
    """The size that ``gpugate.io/gang-size`` states; None where it states none that can be read."""
    written = workload.annotation(GANG_SIZE)
    return int(written) if written is not None and _is_size(written) else None


def min_size(workload: Workload, size: int) -> int:
    """The fewest pods that a gang of ``size`` may run with: all of them, but for one that is declared elastic."""
    stated = declared_min_size(workload, size)
    if stated is not None:
        return stated
    asking = workload.gpu_pod_sets()
    if all(pods.numbers.min_count is None for pods in asking):
        return size
    return max(1, min(size, sum(min_count(pods) for pods in asking) // workload.gangs))


def declared_min_size(workload: Workload, size: int) -> int | None:
    """The fewest pods of a gang of ``size`` by its annotations; None where they say nothing of it."""
    written = workload.annotation(GANG_MINIMUM)
    if written is not None and _is_size(written):
        return min(int(written), size)
    return 1 if _may_lose_any(workload) else None


def min_count(pods: PodSet) -> int:
    """How many of ``pods`` there are at least, where their kind states a range."""
    count, fewest = pods.count or 0, pods.numbers.min_count
    return count if fewest is None else min(count, fewest)


def guaranteed_count(gang: Gang, part: PodSet) -> int:
    """How many pods of ``part`` one gang has at least, where their kind states a range."""
    number = gang.number_of(part)
    return number if gang.members is None else number - ((part.count or 0) - min_count(part)) // gang.gangs


def spare_by_annotation(workload: Workload, gang: Gang) -> int:
    """How many of its pods a gang may do without, by its annotations."""
    stated = declared_min_size(workload, gang.size)
    return 0 if stated is None else gang.size - stated


def is_elastic(workload: Workload) -> bool:
    """Whether the gang says that it may run with fewer pods than its size, to gpugate or to Kueue."""
    if _may_lose_any(workload) or workload.annotation(GANG_MINIMUM) is not None:
        return True
    return any(pods.numbers.min_count is not None for pods in workload.gpu_pod_sets())


def _may_lose_any(workload: Workload) -> bool:
    return workload.annotation(GANG_ELASTIC) == "true" or workload.annotations().get(_KUEUE_ELASTIC) == "true"


def gang_of(workload: Workload) -> Gang | None:
    """The gang that ``workload`` is, or that the pod joins; None where its pods may start one by one.

    A size of 1 declares that a parallel workload is no gang.
    """
    asking = workload.gpu_pod_sets()
    if not asking:
        return None
    size = declared_size(workload)
    if size == 1:
        return None
    if workload.is_pod():
        pods = asking[0]
        return Gang(pods, size, declared=True, members=None, parts=(pods,)) if size is not None else None
    return None if is_being_stopped(workload) else _gang_of_templates(workload, tuple(asking), size)


def _gang_of_templates(workload: Workload, asking: tuple[PodSet, ...], size: int | None) -> Gang | None:
    parts = tuple(pods for pods in asking if pods.count != 0)
    counts = [pods.count for pods in parts]
    if not parts:
        return None
    gangs = workload.gangs
    members = None if None in counts else sum(count or 0 for count in counts) // gangs
    sizes = _sizes_of(workload, asking)
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


def _sizes_of(workload: Workload, asking: tuple[PodSet, ...]) -> frozenset[int]:
    """Every number of pods that the workload makes for one gang, by what is counted with it."""
    sorts: dict[tuple[bool, bool], int] = {}
    for pods in workload.pod_sets:
        sort = (pods in asking, pods.starts_late or pods.follows)
        sorts[sort] = sorts.get(sort, 0) + (pods.count or 0)
    found = {sorts.pop((True, False), 0)}
    for number in sorts.values():
        found |= {one + number for one in found}
    return frozenset(one // workload.gangs for one in found if one)


def is_being_stopped(workload: Workload) -> bool:
    """Whether an UPDATE suspends the workload: it stops as a whole, whatever its size becomes."""
    switch = workload.kind.suspend
    return workload.operation == "UPDATE" and switch is not None and lookup(workload.root, switch) is True


def is_running(workload: Workload) -> bool:
    """Whether the old object of an UPDATE has pods that run."""
    old = workload.old or {}
    found = [value for path in workload.kind.running for value in values_at(old, path)]
    return any(value == "Running" or (type(value) is int and value > 0) for value in found)


#: Where each system reads the name of a pod's group.
_NAMED_AT: Final[dict[str, tuple[str, str]]] = {
    "Kueue": ("labels", KUEUE_GROUP),
    "Coscheduling": ("labels", COSCHEDULING_GROUP),
    "Volcano": ("annotations", VOLCANO_GROUP),
    "gpugate": ("annotations", OWN_GROUP),
    "KAI": ("annotations", KAI_GROUP),
}


def group_of(pods: PodSet) -> GroupKey | None:
    """The group that the pods say they belong to; None for pods on their own."""
    return group_key(pods.labels(), pods.annotations(), pods.spec)


def group_path(pods: PodSet, key: GroupKey) -> Path:
    """Where the pods name their group ``key``."""
    if key.system == "Kubernetes":
        return pods.field("schedulingGroup", "podGroupName")
    where, name = _NAMED_AT[key.system]
    legacy = f"{COSCHEDULING_LEGACY}/name"
    if key.system == "Coscheduling" and name not in pods.labels() and legacy in pods.labels():
        name = legacy
    return pods.meta(where, name)
