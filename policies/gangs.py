"""Which workloads are gangs: pods that must all start together or not at all."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpugate.policies.fields import Path, integer, lookup, mapping
from gpugate.policies.kinds import GANG_SIZE
from gpugate.policies.workload import PodSet, Workload

#: The longest gang size that is read: more digits are a slip, not a gang.
_MOST_DIGITS: Final = 7


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


def unreadable_size(workload: Workload) -> str | None:
    """What ``gpugate.io/gang-size`` says where it is no whole number of at least 1; None where it is one, or absent.

    The API accepts any text in an annotation, so that this is the rule's to judge, by its mode.
    """
    written = workload.annotation(GANG_SIZE)
    return None if written is None or _is_size(written) else written


def declared_size(workload: Workload) -> int | None:
    """The size that ``gpugate.io/gang-size`` states; None where it states none that can be read."""
    written = workload.annotation(GANG_SIZE)
    return int(written) if written is not None and _is_size(written) else None


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
