"""Check an UPDATE of a running gang: it must not become smaller, larger or two gangs."""

from collections.abc import Iterator, Mapping
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
    is_elastic,
    is_running,
)
from gpugate.policies.kube.fields import Path, lookup, mapping
from gpugate.policies.workloads.metadata import queue_label, queue_path
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.transition import Transition
from gpugate.policies.workloads.workload import Workload

_ENDED: Final = frozenset({"Succeeded", "Failed"})
_STOP: Final = "or stop the gang (suspend it, or scale to 0) and start it anew"


def running_gang(transition: Transition, gang: Gang | None) -> Gang | None:
    """Return the gang of the old object if it runs and goes on after the UPDATE, which makes ``gang`` of it.

    None if there is none, or if the UPDATE stops it as a whole.
    """
    workload, before = transition.after, transition.before
    if not is_running(workload) or transition.suspended or (gang is None and declared_size(workload) == 1):
        return None
    running = None if invalid_size(before) is not None else gang_of(before)
    if running is None or all(pods is None or pods.count == 0 for pods in _pods_now(workload, running).values()):
        return None
    return running


def _pods_now(workload: Workload, running: Gang) -> dict[Path, PodSet | None]:
    """Return the pod set of the new object for each part of the ``running`` gang, by path; None if it is gone."""
    now = {pods.path: pods for pods in workload.pod_sets}
    return {part.path: now.get(part.path) for part in running.parts}


def is_member(transition: Transition) -> bool:
    """Tell whether the object is a pod without a controller that has not ended."""
    ended = mapping(transition.old, "status", ()).get("phase") in _ENDED
    return transition.after.is_pod() and transition.after.controller() is None and not ended


def check_count(transition: Transition, running: Gang) -> Iterator[Finding]:
    """Deny fewer pods than the gang needs to go on, and warn of more."""
    if running.members is None:
        return
    workload = transition.after
    now = _pods_now(workload, running)
    counts = [0 if pods is None else pods.count for pods in now.values()]
    if None in counts:
        return
    total = sum(count or 0 for count in counts) // max(1, workload.gangs)
    least = _least(workload, running, now)
    changed = next((part for part in running.parts if _number(now[part.path], workload) != running.number_of(part)), running.pods)
    becomes = now[changed.path]
    paths = changed.numbers.paths if becomes is None else becomes.numbers.paths
    if not total or not paths:
        return
    path = next((path for path in paths if lookup(transition.old, path) != lookup(workload.root, path)), paths[0])
    was = lookup(transition.old, path)
    leave = f"Leave {path[-1]} at {running.number_of(changed) if was is None else was}, {_STOP}"
    if total < least:
        yield Finding(
            "Shrinks",
            path,
            f"the gang runs with {running.members} pods and would go on with {total}: {total} < {least}",
            f"{leave}.",
            measure=least - total,
        )
    elif total > running.members and not is_elastic(workload):
        late = total - running.members
        yield Finding(
            "Grows",
            path,
            f"the gang runs with {running.members} pods and {late} more would join it late: {total} > {running.members}",
            f'{leave}; a gang that can grow says so by {GANG_ELASTIC}: "true".',
            Level.WARN,
            measure=late,
        )


def _least(workload: Workload, running: Gang, now: Mapping[Path, PodSet | None]) -> int:
    """Return how many pods the ``running`` gang needs at least to go on."""
    size = running.members or 0
    stated = declared_min_size(workload, size)
    if stated is not None:
        return stated
    return max(1, min(size, sum(_least_of(part, now[part.path], running) for part in running.parts)))


def _least_of(part: PodSet, now: PodSet | None, running: Gang) -> int:
    """Return how many pods of ``part`` the gang needs: the minimum that the kind now states, or else all."""
    minimum = next(
        (pods.numbers.min_count for pods in (now, part) if pods is not None and pods.numbers.min_count is not None), None
    )
    return running.number_of(part) if minimum is None else min(running.number_of(part), minimum // running.gangs)


def _number(pods: PodSet | None, workload: Workload) -> int:
    return 0 if pods is None else (pods.count or 0) // max(1, workload.gangs)


def check_template(transition: Transition, running: Gang) -> Iterator[Finding]:
    """Deny another group or queue for a running gang: its pods would be replaced one by one, and be in both meanwhile."""
    workload = transition.after
    now = _pods_now(workload, running)
    for part in running.parts:
        pods = now[part.path]
        was, becomes = group_of(part), None if pods is None else group_of(pods)
        if pods is not None and was is not None and becomes != was:
            yield Finding(
                "Splits",
                group_path(pods, was),
                f"the pods that run are of the group {was.name}, and those made from now on of {_named(becomes)}",
                f"Leave the group at {was.name}, {_STOP}.",
            )
    queue = queue_label(transition.before)
    if queue and transition.queue_changed:
        yield Finding(
            "Splits",
            queue_path(workload) or (),
            f"the gang runs with the quota of queue {queue}, and would stand in {queue_label(workload) or 'no queue'}",
            f"Leave the queue at {queue}, {_STOP}.",
        )


def _named(key: GroupKey | None) -> str:
    return key.name if key else "none"


def check_pod_update(transition: Transition) -> Iterator[Finding]:
    """Deny another group or size for a pod that is a member already."""
    pods, before = transition.after.pod_sets[0], transition.before.pod_sets[0]
    was, becomes = group_of(before), group_of(pods)
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
    size, other = member_of(before).size, member_of(pods).size
    if size and other != size:
        yield Finding(
            "Splits",
            ("metadata", "annotations", KUEUE_COUNT if KUEUE_COUNT in pods.annotations() else GANG_SIZE),
            f"the pod is a member of a gang of {size} and would be one of {other or 'no stated size'}: {other} != {size}",
            f"Leave the size at {size}, or delete the pods of the gang and make them anew.",
            measure=abs(other - size),
        )
