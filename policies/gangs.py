"""Which workloads are gangs: pods that must all start together or not at all."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpugate.policies.fields import Path, integer, lookup, mapping
from gpugate.policies.kinds import GANG_ELASTIC, GANG_MINIMUM, GANG_SIZE
from gpugate.policies.records.groups import (
    COSCHEDULING_GROUP,
    COSCHEDULING_LEGACY,
    KAI_GROUP,
    KUEUE_GROUP,
    OWN_GROUP,
    VOLCANO_GROUP,
    GroupKey,
    group_key,
)
from gpugate.policies.workload import PodSet, Workload

#: The longest gang size that is read: more digits are a slip, not a gang.
_MOST_DIGITS: Final = 7
#: A workload whose pods may become more or fewer while it runs (Kueue v0.15 ``pkg/workloadslicing``).
_KUEUE_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"


class Gang(NamedTuple):
    """Pods that must start together.

    Attributes:
        pods: what they are made from.
        size: how many there are to be.
        declared: whether the size is stated in an annotation, and not only by the number of pods.
        members: how many pods the workload makes itself; None for a pod that joins others.
    """

    pods: PodSet
    size: int
    declared: bool
    members: int | None


def _is_size(written: str) -> bool:
    return written.isascii() and written.isdigit() and len(written) <= _MOST_DIGITS and int(written) >= 1


class Unreadable(NamedTuple):
    """An annotation that should state a number of pods, and what it says."""

    key: str
    written: str


def unreadable_size(workload: Workload) -> Unreadable | None:
    """The annotation for the size, or the least size, that is no whole number of at least 1; None where both can be read.

    The API accepts any text in an annotation, so that this is the rule's to judge, by its mode.
    """
    for key in (GANG_SIZE, GANG_MINIMUM):
        written = workload.annotation(key)
        if written is not None and not _is_size(written):
            return Unreadable(key, written)
    return None


def declared_size(workload: Workload) -> int | None:
    """The size that ``gpugate.io/gang-size`` states; None where it states none that can be read."""
    written = workload.annotation(GANG_SIZE)
    return int(written) if written is not None and _is_size(written) else None


def least_size(workload: Workload, size: int) -> int:
    """The fewest pods that a gang of ``size`` may run with: all of them, but for one that is declared elastic."""
    written = workload.annotation(GANG_MINIMUM)
    if written is not None and _is_size(written):
        return min(int(written), size)
    return 1 if _may_lose_any(workload) else size


def is_elastic(workload: Workload) -> bool:
    """Whether the gang says that it may run with fewer pods than its size, to gpugate or to Kueue."""
    return _may_lose_any(workload) or workload.annotation(GANG_MINIMUM) is not None


def _may_lose_any(workload: Workload) -> bool:
    return workload.annotation(GANG_ELASTIC) == "true" or workload.annotations().get(_KUEUE_ELASTIC) == "true"


def gang_of(workload: Workload) -> Gang | None:
    """The gang that ``workload`` is, or that the pod joins; None where its pods may start one by one.

    A size of 1 declares that a parallel workload is no gang.
    """
    asking = workload.asking()
    if len(asking) != 1:
        return None
    pods = asking[0]
    size = declared_size(workload)
    if size == 1:
        return None
    if workload.is_pod():
        return Gang(pods, size, declared=True, members=None) if size is not None else None
    return None if is_being_stopped(workload) else _gang_of_template(workload, pods, size)


def _gang_of_template(workload: Workload, pods: PodSet, size: int | None) -> Gang | None:
    members = pods.count
    if members == 0:
        return None
    if size is not None:
        return Gang(pods, size, declared=True, members=members)
    if workload.kind.batch and members is not None and members > 1:
        return Gang(pods, members, declared=False, members=members)
    return None


def is_being_stopped(workload: Workload) -> bool:
    """Whether an UPDATE suspends the Job: it stops as a whole, whatever its size becomes."""
    spec = workload.root.get("spec")
    return workload.operation == "UPDATE" and type(spec) is dict and spec.get("suspend") is True and workload.kind.kind == "Job"


def job_spec_path(workload: Workload) -> Path | None:
    """Path of the Job spec in a Job or CronJob; None for another kind."""
    if workload.kind.kind == "Job":
        return ("spec",)
    if workload.kind.kind == "CronJob":
        return ("spec", "jobTemplate", "spec")
    return None


def completions(workload: Workload) -> int | None:
    """The Job's ``completions``; None where it states none or the workload is no Job."""
    path = job_spec_path(workload)
    holder = lookup(workload.root, path) if path else None
    return integer(holder, "completions", path or ()) if type(holder) is dict else None


def is_running(workload: Workload) -> bool:
    """Whether the old object of an UPDATE has pods that run."""
    old = workload.old or {}
    status = mapping(old, "status", ())
    counts = (status.get(key) for key in ("active", "ready", "readyReplicas"))
    return any(type(count) is int and count > 0 for count in counts)


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
