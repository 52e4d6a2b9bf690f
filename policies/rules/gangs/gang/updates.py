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

_STOP: Final = "or stop the gang (suspend it, or scale it to 0) and start it again"
_CREATE_AGAIN: Final = "or delete the pods of the gang and create them again"


def check_update(transition: Transition, gang: Gang | None) -> Iterator[Finding]:
    """Deny changes of the size, group or queue of a running gang; ``gang`` is the one of the new object."""
    ended = mapping(transition.old, "status", ()).get("phase") in {"Succeeded", "Failed"}
    if transition.after.is_pod() and transition.after.controller() is None and not ended:
        yield from _check_pod(transition)
    running = _running_gang(transition, gang)
    if running is not None:
        now = _pods_now(transition.after, running)
        yield from _check_count(transition, running, now)
        yield from _check_template(transition, running, now)


def _running_gang(transition: Transition, gang: Gang | None) -> Gang | None:
    """Return the gang of the old object if it runs; None if there is none, or if the UPDATE stops it as a whole."""
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


def _check_count(transition: Transition, running: Gang, now: Mapping[Path, PodSet | None]) -> Iterator[Finding]:
    """Deny fewer pods than the gang needs to continue, and warn of more."""
    workload = transition.after
    counts = [0 if pods is None else _at_once(pods) for pods in now.values()]
    if running.members is None or None in counts:
        return
    total = sum(count or 0 for count in counts) // max(1, workload.gangs)
    minimum = _minimum(workload, running, now)
    changed = next((part for part in running.parts if _number(now[part.path], workload) != running.number_of(part)), running.pods)
    paths = (now[changed.path] or changed).numbers.paths
    if not total or not paths:
        return
    path = next((path for path in paths if lookup(transition.old, path) != lookup(workload.root, path)), paths[0])
    old_value = lookup(transition.old, path)
    keep = f"Leave {path[-1]} at {running.number_of(changed) if old_value is None else old_value}, {_STOP}"
    if total < minimum:
        yield Finding(
            "Shrinks",
            path,
            f"the gang runs with {running.members} pods and would continue with {total}, but needs {minimum}: {total} < {minimum}",
            f"{keep}.",
            measure=minimum - total,
        )
    elif total > running.members and not is_elastic(workload):
        late = total - running.members
        yield Finding(
            "Grows",
            path,
            f"the gang runs with {running.members} pods, and the UPDATE adds {late} that start later: {total} > {running.members}",
            f'{keep}. If the gang can grow, write {GANG_ELASTIC}: "true" instead.',
            Level.WARN,
            measure=late,
        )


def _minimum(workload: Workload, running: Gang, now: Mapping[Path, PodSet | None]) -> int:
    """Return the number of pods that the ``running`` gang needs to continue."""
    size = running.members or 0
    declared = declared_min_size(workload, size)
    if declared is not None:
        return declared
    return max(1, min(size, sum(_minimum_of(part, now[part.path], running) for part in running.parts)))


def _minimum_of(part: PodSet, now: PodSet | None, running: Gang) -> int:
    """Return the number of pods of ``part`` that the gang needs: the minimum in fields of the kind, or else all."""
    minimum = next(
        (pods.numbers.min_count for pods in (now, part) if pods is not None and pods.numbers.min_count is not None), None
    )
    return running.number_of(part) if minimum is None else min(running.number_of(part), minimum // running.gangs)


def _at_once(pods: PodSet) -> int | None:
    return None if pods.count is None else pods.numbers.at_once


def _number(pods: PodSet | None, workload: Workload) -> int:
    return 0 if pods is None else pods.numbers.at_once // max(1, workload.gangs)


def _check_template(transition: Transition, running: Gang, now: Mapping[Path, PodSet | None]) -> Iterator[Finding]:
    """Deny another group or queue: the pods would be replaced one by one, and be in both meanwhile."""
    workload = transition.after
    for part in running.parts:
        pods = now[part.path]
        old_group = group_of(part)
        new_group = None if pods is None else group_of(pods)
        if pods is not None and old_group is not None and new_group != old_group:
            yield Finding(
                "Splits",
                group_path(pods, old_group),
                f"running pods are in group {old_group.name}, but new pods would be in {_group(new_group)}",
                f"Leave the group at {old_group.name}, {_STOP}.",
            )
    queue = queue_label(transition.before)
    if queue and transition.queue_changed:
        new_queue = queue_label(workload)
        yield Finding(
            "Splits",
            queue_path(workload) or (),
            f"the gang runs with the quota of queue {queue}, but would be in {f'queue {new_queue}' if new_queue else 'no queue'}",
            f"Leave the queue at {queue}, {_STOP}.",
        )


def _group(key: GroupKey | None) -> str:
    return f"group {key.name}" if key else "no group"


def _check_pod(transition: Transition) -> Iterator[Finding]:
    """Deny another group or size for a pod that is in a group already."""
    pods, before = transition.after.pod_sets[0], transition.before.pod_sets[0]
    old_group, new_group = group_of(before), group_of(pods)
    if old_group is None:
        return
    if new_group != old_group:
        yield Finding(
            "Splits",
            group_path(pods, old_group),
            f"the UPDATE moves the pod from group {old_group.name} to {_group(new_group)}, so its gang loses a pod",
            f"Leave the group at {old_group.name}, {_CREATE_AGAIN}.",
        )
        return
    old_size, new_size = member_of(before).size, member_of(pods).size
    if old_size and new_size != old_size:
        yield Finding(
            "Splits",
            ("metadata", "annotations", KUEUE_COUNT if KUEUE_COUNT in pods.annotations() else GANG_SIZE),
            f"the pod is in a gang of {old_size} pods, but would state {f'a size of {new_size}' if new_size else 'no size'}:"
            f" {new_size or 'none'} != {old_size}",
            f"Leave the size at {old_size}, {_CREATE_AGAIN}.",
            measure=abs(new_size - old_size),
        )
