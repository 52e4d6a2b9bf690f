"""Check that a pod that joins a group matches the present members."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.records.pod_groups import COSCHEDULING_LEGACY, KUEUE_COUNT, KUEUE_FAST_ADMISSION, GroupKey
from gpugate.policies.cluster.records.pods import Member
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import GroupMembers
from gpugate.policies.findings import Finding
from gpugate.policies.gangs.gang import GANG_SIZE, group_path
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.names import PRIORITY_CLASS, QUEUE_NAME
from gpugate.policies.kube.quantity import format_millicores, show_bytes
from gpugate.policies.workloads.pod_set import PodSet

#: The LocalQueue that Kueue's LocalQueueDefaulting names.
_DEFAULT_QUEUE: Final = "default"


def size_path(pods: PodSet, key: GroupKey) -> Path:
    """Return the path at which the pod states the size of its group."""
    legacy = f"{COSCHEDULING_LEGACY}/min-available"
    if KUEUE_COUNT in pods.annotations() or key.system == "Kueue":
        return pods.meta("annotations", KUEUE_COUNT)
    if GANG_SIZE not in pods.annotations() and legacy in pods.labels():
        return pods.meta("labels", legacy)
    return pods.meta("annotations", GANG_SIZE)


def check_stated_size(pods: PodSet, key: GroupKey, member: Member, group: GroupMembers) -> Iterator[Finding]:
    """Refuse another size than the others state (Kueue v0.15 ``validatePodGroupMetadata`` never admits such a group)."""
    others = [size for size in group.sizes if size != member.size]
    if member.size and others:
        yield Finding(
            "SizeDiffers",
            size_path(pods, key),
            f"the pod states {member.size} members for gang {key.name}, but its other members state {others[0]}:"
            f" {member.size} != {others[0]}",
            f'Write {size_path(pods, key)[-1]}: "{others[0]}" in every member.',
            measure=1,
        )


def check_queue(pods: PodSet, key: GroupKey, member: Member, group: GroupMembers) -> Iterator[Finding]:
    """Refuse another Kueue queue than the others have."""
    others = [queue for queue in group.queues if queue != member.queue]
    if key.system != "Kueue" or not others or (not member.queue and others == [_DEFAULT_QUEUE]):
        return
    yield Finding(
        "QueueDiffers",
        pods.meta("labels", QUEUE_NAME),
        f"the pod is in {_queue(member.queue)}, but other members of {key.name} are in {_queue(others[0])}, and Kueue admits a"
        " group only if all its pods are in one queue",
        f"Write {QUEUE_NAME}: {others[0]}." if others[0] else f"Write {QUEUE_NAME}: {member.queue} in every member.",
        measure=1,
    )


def _queue(name: str) -> str:
    return f"queue {name}" if name else "no queue"


def check_priority(
    pods: PodSet, key: GroupKey, member: Member, group: GroupMembers, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    """Refuse another priority class than the others have: a pod of higher priority could preempt its own gang."""
    others = [name for name in group.priorities if name != member.priority and not _is_same(member.priority, name, snapshot)]
    if not others:
        return
    other = others[0]
    is_kueues = PRIORITY_CLASS in pods.labels()
    yield Finding(
        "PriorityDiffers",
        pods.meta("labels", PRIORITY_CLASS) if is_kueues else pods.field("priorityClassName"),
        f"the pod has {_priority(member.priority)}, but other members of {key.name} have {_priority(other)}, so the scheduler"
        " orders and preempts them separately",
        f"Use the priority class {other} in every member." if other else "Use one priority class, or none, in every member.",
        measure=1,
    )


def _priority(name: str) -> str:
    return f"priority class {name}" if name else "no priority class"


def _is_same(own: str, other: str, snapshot: ClusterSnapshot) -> bool:
    """Return whether one side names no class and the other may be the default class, which the API server fills in."""
    if own and other:
        return False
    if snapshot.sync_state("priorityclasses") is not SyncState.SYNCED:
        return True
    priority = snapshot.priorities.get(own or other)
    return priority is not None and priority.is_default


def check_asks(pods: PodSet, key: GroupKey, member: Member, group: GroupMembers) -> Iterator[Finding]:
    """Refuse other resources in a group that Kueue counts from one pod (v0.15 ``constructGroupPodSetsFast``)."""
    if key.system != "Kueue" or KUEUE_FAST_ADMISSION not in pods.annotations():
        return
    others = [asks for asks in group.asks if asks != member.asks]
    if others:
        yield Finding(
            "AsksDiffer",
            pods.field("containers"),
            f"the pod requests {_amounts(member.asks)}, but a member of {key.name} requests {_amounts(others[0])}; with fast"
            " admission Kueue counts the whole group from one pod",
            f"Request the same in every member, or remove {KUEUE_FAST_ADMISSION}.",
            measure=1,
        )


def _amounts(asks: tuple[tuple[str, int], ...]) -> str:
    shown = {"memory": show_bytes, "cpu": format_millicores}
    return ", ".join(f"{name} {shown.get(name, str)(amount)}" for name, amount in asks)


def check_capacity(pods: PodSet, key: GroupKey, member: Member, group: GroupMembers) -> Iterator[Finding]:
    """Refuse spot and on-demand capacity within one gang."""
    others = [capacity for capacity in group.capacities if capacity != member.capacity]
    if member.capacity and others:
        yield Finding(
            "MixedCapacity",
            group_path(pods, key),
            f"the pod requests {member.capacity} capacity, but other members of {key.name} request {others[0]}; a reclaimed spot"
            " node ends the whole gang, including its pods on on-demand nodes",
            f"Select {others[0]} capacity in every member.",
            measure=1,
        )
