"""An UPDATE of a gang that runs: what makes it smaller, larger, or splits it in two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from gpugate.policies.cluster.records.pod_groups import KUEUE_COUNT, GroupKey
from gpugate.policies.cluster.records.pods import member_of
from gpugate.policies.findings import Finding, Level
from gpugate.policies.gangs.gang import (
    GANG_ELASTIC,
    GANG_SIZE,
    Gang,
    declared_min_size,
    declared_size,
    gang_of,
    group_of,
    group_path,
    invalid_size,
    is_being_stopped,
    is_elastic,
    is_running,
)
from gpugate.policies.kube.fields import Path, lookup, mapping
from gpugate.policies.workloads.queue_name import queue_label, queue_path
from gpugate.policies.workloads.workload import PodSet, Workload

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_STOP: Final = "or stop the gang (suspend it, or scale to 0) and start it anew"


def ran_before(workload: Workload, old: Workload, gang: Gang | None) -> Gang | None:
    """The gang that runs and goes on after the UPDATE; None where there is none, or where it is stopped as a whole."""
    if not is_running(workload) or is_being_stopped(workload) or (gang is None and declared_size(workload) == 1):
        return None
    ran = None if invalid_size(old) is not None else gang_of(old)
    if ran is None or all(now is None or now.count == 0 for now in map(partial(now_of, workload), ran.parts)):
        return None
    return ran


def now_of(workload: Workload, part: PodSet) -> PodSet | None:
    """What the pods of ``part``, a part of a gang that ran, are made from now."""
    return next((pods for pods in workload.pod_sets if pods.path == part.path), None)


def is_member(workload: Workload, old: Workload) -> bool:
    """Whether the workload is a plain pod that has not ended."""
    ended = mapping(old.root, "status", ()).get("phase") in _ENDED
    return workload.is_pod() and workload.controller() is None and not ended


def check_count(workload: Workload, ran: Gang) -> Iterator[Finding]:
    """Refuse fewer pods than the gang runs with, and warn of more."""
    if ran.members is None:
        return
    now = {part.path: now_of(workload, part) for part in ran.parts}
    counts = [0 if pods is None else pods.count for pods in now.values()]
    if None in counts:
        return
    total = sum(count or 0 for count in counts) // max(1, workload.gangs)
    least = _least(workload, ran, now)
    changed = next((part for part in ran.parts if _number(now[part.path], workload) != ran.number_of(part)), ran.pods)
    becomes = now[changed.path]
    paths = changed.numbers.paths if becomes is None else becomes.numbers.paths
    if not total or not paths:
        return
    before, after = workload.old or {}, workload.root
    path = next((one for one in paths if lookup(before, one) != lookup(after, one)), paths[0])
    was = lookup(before, path)
    leave = f"Leave {path[-1]} at {ran.number_of(changed) if was is None else was}, {_STOP}"
    if total < least:
        yield Finding(
            "Shrinks",
            path,
            f"the gang runs with {ran.members} pods and would go on with {total}: {total} < {least}",
            f"{leave}.",
            measure=least - total,
        )
    elif total > ran.members and not is_elastic(workload):
        late = total - ran.members
        yield Finding(
            "Grows",
            path,
            f"the gang runs with {ran.members} pods and {late} more would join it late: {total} > {ran.members}",
            f'{leave}; a gang that can grow says so by {GANG_ELASTIC}: "true".',
            Level.WARN,
            measure=late,
        )


def _least(workload: Workload, ran: Gang, now: Mapping[Path, PodSet | None]) -> int:
    """The fewest pods that the gang which ran may go on with."""
    size = ran.members or 0
    stated = declared_min_size(workload, size)
    if stated is not None:
        return stated
    return max(1, min(size, sum(_least_of(part, now[part.path], ran) for part in ran.parts)))


def _least_of(part: PodSet, now: PodSet | None, ran: Gang) -> int:
    """How many pods of ``part`` the gang which ran may go on with: as many as its kind now states for the least."""
    fewest = next((pods.numbers.min_count for pods in (now, part) if pods is not None and pods.numbers.min_count is not None), None)
    return ran.number_of(part) if fewest is None else min(ran.number_of(part), fewest // ran.gangs)


def _number(pods: PodSet | None, workload: Workload) -> int:
    return 0 if pods is None else (pods.count or 0) // max(1, workload.gangs)


def check_template(workload: Workload, old: Workload, ran: Gang) -> Iterator[Finding]:
    """Refuse another group or queue for a gang that runs: its pods would be replaced one by one, and stand in both meanwhile."""
    for part in ran.parts:
        now = now_of(workload, part)
        was, becomes = group_of(part), None if now is None else group_of(now)
        if now is not None and was is not None and becomes != was:
            yield Finding(
                "Splits",
                group_path(now, was),
                f"the pods that run are of the group {was.name}, and those made from now on of {_named(becomes)}",
                f"Leave the group at {was.name}, {_STOP}.",
            )
    queue, other = queue_label(old), queue_label(workload)
    if queue and other != queue:
        yield Finding(
            "Splits",
            queue_path(workload) or (),
            f"the gang runs with the quota of queue {queue}, and would stand in {other or 'no queue'}",
            f"Leave the queue at {queue}, {_STOP}.",
        )


def _named(key: GroupKey | None) -> str:
    return key.name if key else "none"


def check_pod_update(workload: Workload, old: Workload) -> Iterator[Finding]:
    """Refuse another group or size for a pod that is a member already."""
    pods = workload.pod_sets[0]
    was, becomes = group_of(old.pod_sets[0]), group_of(pods)
    if was is None:
        return
    if becomes != was:
        yield Finding(
            "Splits",
            group_path(pods, was),
            f"the pod is a member of the group {was.name} and would be one of {_named(becomes)}: the others would go on without it",
            f"Leave the group at {was.name}, or delete the pods of the gang and make them anew.",
        )
        return
    size, other = member_of(old.pod_sets[0]).size, member_of(pods).size
    if size and other != size:
        yield Finding(
            "Splits",
            ("metadata", "annotations", KUEUE_COUNT if KUEUE_COUNT in pods.annotations() else GANG_SIZE),
            f"the pod is a member of a gang of {size} and would be one of {other or 'no stated size'}: {other} != {size}",
            f"Leave the size at {size}, or delete the pods of the gang and make them anew.",
            measure=abs(other - size),
        )
