"""Findings of the rule `gang-members`."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from gpugate.policies.cluster.records.pod_groups import OWN_SIZE, GroupKey
from gpugate.policies.cluster.records.pods import Member, member_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import GroupMembers
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.gangs.gang import GANG_ELASTIC, gang_of, group_of, group_path, is_elastic, min_size
from gpugate.policies.rules.gangs.gang_members.consistency import (
    check_asks,
    check_capacity,
    check_priority,
    check_queue,
    check_stated_size,
    size_path,
)
from gpugate.policies.rules.gangs.gang_members.params import GangMembersParams
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_NOBODY: Final = GroupMembers(0, 0, 0, 0, 0, (), (), (), (), (), ())


POD_GROUPS: Final = {
    "Coscheduling": ("podgroups.scheduling.x-k8s.io", "minMember"),
    "Volcano": ("podgroups.scheduling.volcano.sh", "minMember"),
    "Kubernetes": ("podgroups.scheduling.k8s.io", "minCount"),
}


#: Namespaces looked at for a group of the same name: enough to point one out.
_MOST_HOMES: Final = 16


def check(workload: Workload, _params: GangMembersParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse members that do not agree with the others, or are too many."""
    if len(workload.pod_sets) != 1:
        return
    pods = workload.pod_sets[0]
    key = group_of(pods)
    if key is None:
        return
    if not workload.is_pod():
        yield from _check_pod_group_of_template(workload, pods, key, snapshot)
    elif not _is_stored(workload):
        yield from _check_pod(workload, pods, key, snapshot)


def _is_stored(workload: Workload) -> bool:
    """Whether the pod is among the facts itself: the API gives no object a resourceVersion before it is stored."""
    return workload.operation == "UPDATE" or bool(workload.metadata().get("resourceVersion"))


def _check_pod(workload: Workload, pods: PodSet, key: GroupKey, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    member = member_of(pods)
    pending = _pending(key, member, snapshot)
    if pending:
        yield _unknown(pods, key, pending)
        return
    if member.size:
        yield from _check_minimum(workload, pods, key, member.size, snapshot)
    if snapshot.sync_state("pods") is not SyncState.SYNCED:
        return
    group = snapshot.group(workload.namespace, key) or _NOBODY
    differing = list(_differences(pods, key, member, group, snapshot))
    if workload.controller() is not None:
        # Its controller counts its pods, and changes them one by one while it rolls an update out.
        yield from (finding.as_warning() for finding in differing)
        return
    yield from differing
    if any(one.reason == "SizeDiffers" for one in differing):
        return
    size = _full_size(workload, pods, key, member, group)
    if size:
        joining = _joining(workload, key, snapshot)
        yield from _check_place(pods, key, size, group, joining)
        if not group.present and not joining:
            yield from _check_other_namespaces(workload, key, size, snapshot)


def _full_size(workload: Workload, pods: PodSet, key: GroupKey, member: Member, group: GroupMembers) -> int:
    """How many members there are to be at most; 0 where nobody says, or where the gang may grow."""
    if key.system == "Coscheduling" and OWN_SIZE not in pods.annotations():
        # What the plugin's own labels state is a minimum.
        return 0
    if is_elastic(workload) and key.system != "Kueue":
        return 0
    return member.size or (group.sizes[0] if len(group.sizes) == 1 else 0)


def _joining(workload: Workload, key: GroupKey, snapshot: ClusterSnapshot) -> int:
    """Members admitted a moment ago that are not among the known ones yet, this very pod left out."""
    in_flight = snapshot.in_flight
    return in_flight.members(workload.namespace, key) - (str(workload.metadata().get("uid")) in in_flight)


def _pending(key: GroupKey, member: Member, snapshot: ClusterSnapshot) -> str:
    """The kind of facts that is on its way and would be needed; empty for none."""
    if snapshot.sync_state("pods") is SyncState.PENDING:
        return "pods"
    resource, _ = POD_GROUPS.get(key.system, ("", ""))
    return "PodGroups" if member.size and resource and snapshot.sync_state(resource) is SyncState.PENDING else ""


def _unknown(pods: PodSet, key: GroupKey, kind: str) -> Finding:
    what = f"whether the group {key.name} has a place for the pod"
    return not_synced("GroupUnknown", group_path(pods, key), f"the cluster's {kind}", what)


def _differences(pods: PodSet, key: GroupKey, member: Member, group: GroupMembers, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    yield from check_stated_size(pods, key, member, group)
    yield from check_queue(pods, key, member, group)
    yield from check_priority(pods, key, member, group, snapshot)
    yield from check_asks(pods, key, member, group)
    yield from check_capacity(pods, key, member, group)


def _check_place(pods: PodSet, key: GroupKey, size: int, group: GroupMembers, joining: int) -> Iterator[Finding]:
    path = group_path(pods, key)
    if group.succeeded >= size:
        yield Finding(
            "GangOver",
            path,
            f"the gang {key.name} has ended: {group.succeeded} of its {size} members have succeeded",
            "Give the new gang a group name of its own, or delete the pods that have ended first.",
            measure=1,
        )
    elif group.running + group.succeeded >= size:
        yield Finding(
            "GangRuns",
            path,
            f"the gang {key.name} runs with all its members: {group.running} running + {group.succeeded} succeeded >= {size}",
            "Give the pod another group name, or delete a member before its replacement is created.",
            measure=1,
        )
    elif group.present + joining >= size:
        there = [(group.pending, "pending"), (group.running, "running"), (group.succeeded, "succeeded"), (joining, "just admitted")]
        sums = " + ".join(f"{count} {what}" for count, what in there if count)
        yield Finding(
            "OneTooMany",
            path,
            f"the gang {key.name} has its {size} members: {sums}; this pod would be number {group.present + joining + 1}",
            f"Give the pod another group name, or state the larger size in all members ({size_path(pods, key)[-1]}).",
            measure=1,
        )


def _check_other_namespaces(workload: Workload, key: GroupKey, size: int, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for home in islice(snapshot.group_homes.get(key, ()), _MOST_HOMES):
        found = snapshot.group(home, key)
        if home == workload.namespace or found is None or found.sizes != (size,) or found.running or not 0 < found.present < size:
            continue
        yield Finding(
            "OtherNamespace",
            ("metadata", "namespace"),
            f"{found.present} of {size} members of a group {key.name} wait in namespace {home}, and this pod is in"
            f" {workload.namespace}: members in different namespaces never meet",
            f"Create the pod in {home} if it belongs to that gang.",
        )
        return


def _check_pod_group_of_template(workload: Workload, pods: PodSet, key: GroupKey, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    gang = gang_of(workload)
    if gang is None or key.system not in POD_GROUPS:
        return
    if snapshot.sync_state(POD_GROUPS[key.system][0]) is SyncState.PENDING:
        yield _unknown(pods, key, "PodGroups")
        return
    yield from _check_minimum(workload, pods, key, gang.size, snapshot)


def _check_minimum(workload: Workload, pods: PodSet, key: GroupKey, size: int, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    resource, field = POD_GROUPS.get(key.system, ("", ""))
    found = snapshot.pod_groups.get((workload.namespace, key))
    if found is None or found.minimum is None:
        return
    least = min_size(workload, size)
    if found.minimum < least:
        yield Finding(
            "PartialStart",
            group_path(pods, key),
            f"{field} {found.minimum} of PodGroup {key.name} lets {found.minimum} of {size} pods start: {found.minimum} < {least}",
            f'Write {field}: {least} in PodGroup {key.name}; a gang that can run with fewer says so by {GANG_ELASTIC}: "true".',
            measure=least - found.minimum,
            rests_on=(resource,),
        )
    elif found.minimum > size:
        yield Finding(
            "NeverEnough",
            group_path(pods, key),
            f"{field} {found.minimum} of PodGroup {key.name} is never reached by the gang of {size}: {found.minimum} > {size}",
            f"Write {field}: {size} in PodGroup {key.name}, or make {found.minimum} pods.",
            # Pods of a second workload may be in the same group.
            Level.DENY if workload.is_pod() else Level.WARN,
            measure=found.minimum - size,
            rests_on=(resource,),
        )
