"""What the members of one group must agree on: each check compares a pod that joins with those that are there."""

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

#: The LocalQueue that Kueue itself defaults to, once it sees the pod.
_DEFAULT_QUEUE: Final = "default"


def size_path(pods: PodSet, key: GroupKey) -> Path:
    """Where the pod states the size of its group."""
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
            f"the pod says that the gang {key.name} has {member.size} members, those that are there say {others[0]}:"
            f" {member.size} != {others[0]}",
            f'Write {size_path(pods, key)[-1]}: "{others[0]}", the same in every member.',
            measure=1,
        )


def check_queue(pods: PodSet, key: GroupKey, member: Member, group: GroupMembers) -> Iterator[Finding]:
    """Refuse another Kueue queue than the others name."""
    others = [queue for queue in group.queues if queue != member.queue]
    if key.system != "Kueue" or not others or (not member.queue and others == [_DEFAULT_QUEUE]):
        return
    yield Finding(
        "QueueDiffers",
        pods.meta("labels", QUEUE_NAME),
        f"the pod stands in {_queue(member.queue)}, the members of {key.name} that are there in {_queue(others[0])}:"
        " Kueue admits no group that is in two",
        f"Write {QUEUE_NAME}: {others[0]}." if others[0] else f"Name the queue {member.queue} in every member.",
        measure=1,
    )


def _queue(name: str) -> str:
    return f"queue {name}" if name else "no queue"


def check_priority(
    pods: PodSet, key: GroupKey, member: Member, group: GroupMembers, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    """Refuse another priority class than the others have: what is higher would push the rest of its own gang aside."""
    others = [name for name in group.priorities if name != member.priority and not _is_same(member.priority, name, snapshot)]
    if not others:
        return
    own, other = member.priority or "none", others[0] or "none"
    is_kueues = PRIORITY_CLASS in pods.labels()
    yield Finding(
        "PriorityDiffers",
        pods.meta("labels", PRIORITY_CLASS) if is_kueues else pods.field("priorityClassName"),
        f"the pod has the priority class {own}, the members of {key.name} that are there {other}:"
        " a scheduler orders and preempts them apart",
        f"Give every member the same priority class ({other} as those that are there)."
        if others[0]
        else "Give every member the same priority class, or none.",
        measure=1,
    )


def _is_same(own: str, other: str, snapshot: ClusterSnapshot) -> bool:
    """Whether no class on one side may stand for the class on the other: the apiserver fills in the default one."""
    if own and other:
        return False
    if snapshot.sync_state("priorityclasses") is not SyncState.SYNCED:
        return True
    found = snapshot.priorities.get(own or other)
    return found is not None and found.is_default


def check_asks(pods: PodSet, key: GroupKey, member: Member, group: GroupMembers) -> Iterator[Finding]:
    """Refuse other resources in a group that Kueue counts from one pod (v0.15 ``constructGroupPodSetsFast``)."""
    if key.system != "Kueue" or KUEUE_FAST_ADMISSION not in pods.annotations():
        return
    others = [asks for asks in group.asks if asks != member.asks]
    if others:
        yield Finding(
            "AsksDiffer",
            pods.field("containers"),
            f"the pod asks for {_amounts(member.asks)}, a member of {key.name} that is there for {_amounts(others[0])}:"
            " with fast admission Kueue counts the whole group from one pod",
            f"Ask for the same in every member, or leave {KUEUE_FAST_ADMISSION} out.",
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
            f"the pod asks for {member.capacity} capacity, members of {key.name} that are there for {others[0]}:"
            " a reclaimed spot node ends the whole gang, and what the on-demand ones cost is lost with it",
            f"Select {others[0]} capacity in every member, as those that are there do.",
            measure=1,
        )
