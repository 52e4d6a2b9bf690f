"""Parameters and findings of the rule `gang-members`."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from gpugate.policies.cluster.records.pod_groups import OWN_SIZE, GroupKey
from gpugate.policies.cluster.records.pods import Member, member_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import GroupMembers
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Action
from gpugate.policies.gangs.gang import GANG_ELASTIC, gang_of, group_of, group_path, is_elastic, min_size
from gpugate.policies.rules.gangs.gang_members.consistency import (
    check_asks,
    check_capacity,
    check_priority,
    check_queue,
    check_stated_size,
    size_path,
)
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_NO_MEMBERS: Final = GroupMembers(0, 0, 0, 0, 0, (), (), (), (), (), ())
#: Resource of the PodGroups that a system reads, and the field of their minimum.
POD_GROUPS: Final = {
    "Coscheduling": ("podgroups.scheduling.x-k8s.io", "minMember"),
    "Volcano": ("podgroups.scheduling.volcano.sh", "minMember"),
    "Kubernetes": ("podgroups.scheduling.k8s.io", "minCount"),
}
#: The most namespaces to search for a group of the same name.
_MOST_NAMESPACES: Final = 16


class GangMembersParams(Params):
    """Parameters of `gang-members`."""

    priority: Action = "Deny"
    """What happens if a member has another priority class than the others."""


def check(workload: Workload, _params: GangMembersParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse pods that differ from the other members of their gang, or are too many."""
    if len(workload.pod_sets) != 1:
        return
    pods = workload.pod_sets[0]
    key = group_of(pods)
    if key is None:
        return
    if not workload.is_pod():
        yield from _check_pod_group_of_template(workload, pods, key, snapshot)
    elif workload.operation != "UPDATE" and not workload.metadata().get("resourceVersion"):
        # A stored pod, with a resourceVersion, is in the snapshot itself.
        yield from _check_pod(workload, pods, key, snapshot)


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
    group = snapshot.group(workload.namespace, key) or _NO_MEMBERS
    differing = list(_differences(pods, key, member, group, snapshot))
    if workload.controller() is not None:
        # The controller counts its pods, and replaces them one by one in a rolling update.
        yield from (finding.as_warning() for finding in differing)
        return
    yield from differing
    size = _full_size(workload, pods, key, member, group)
    if size and not any(finding.reason == "SizeDiffers" for finding in differing):
        joining, unconfirmed = _joining(workload, key, snapshot)
        places = _check_place(pods, key, size, group, joining)
        # Without the unconfirmed members, which may be made up, there would be a place.
        made_up = group.present + joining >= size > group.present + joining - unconfirmed
        yield from (finding.as_warning() for finding in places) if made_up else places
        if not group.present and not joining:
            yield from _check_other_namespaces(workload, key, size, snapshot)


def _full_size(workload: Workload, pods: PodSet, key: GroupKey, member: Member, group: GroupMembers) -> int:
    """Return the most members of the gang; 0 if no pod states it, or if the gang may grow."""
    if key.system == "Coscheduling" and OWN_SIZE not in pods.annotations():
        # The plugin's own labels state a minimum.
        return 0
    if is_elastic(workload) and key.system != "Kueue":
        return 0
    return member.size or (group.sizes[0] if len(group.sizes) == 1 else 0)


def _joining(workload: Workload, key: GroupKey, snapshot: ClusterSnapshot) -> tuple[int, int]:
    """Return the number of other members in flight (admitted, not yet in the snapshot), and how many of them are unconfirmed."""
    in_flight, uid = snapshot.in_flight, str(workload.metadata().get("uid"))
    confirmed = in_flight.members(workload.namespace, key) - (uid in in_flight)
    if in_flight.unconfirmed is None:
        return confirmed, 0
    unconfirmed = in_flight.unconfirmed.members(workload.namespace, key) - (uid in in_flight.unconfirmed)
    return confirmed + unconfirmed, unconfirmed


def _pending(key: GroupKey, member: Member, snapshot: ClusterSnapshot) -> str:
    """Return the kind of objects that is needed and not synced yet; empty for none."""
    if snapshot.sync_state("pods") is SyncState.PENDING:
        return "pods"
    resource, _ = POD_GROUPS.get(key.system, ("", ""))
    return "PodGroups" if member.size and resource and snapshot.sync_state(resource) is SyncState.PENDING else ""


def _unknown(pods: PodSet, key: GroupKey, kind: str) -> Finding:
    what = f"whether group {key.name} has room for the pod"
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
            "Give the new gang its own group name, or delete the ended pods first.",
            measure=1,
        )
    elif group.running + group.succeeded >= size:
        yield Finding(
            "GangRuns",
            path,
            f"the gang {key.name} already runs in full: {group.running} running + {group.succeeded} succeeded >= {size}",
            "Use another group name, or delete a member before you create its replacement.",
            measure=1,
        )
    elif group.present + joining >= size:
        counts = {"pending": group.pending, "running": group.running, "succeeded": group.succeeded, "just admitted": joining}
        sums = " + ".join(f"{count} {phase}" for phase, count in counts.items() if count)
        yield Finding(
            "OneTooMany",
            path,
            f"the gang {key.name} already has its {size} members: {sums}; this pod would be number {group.present + joining + 1}",
            f"Use another group name, or write the larger size in all members ({size_path(pods, key)[-1]}).",
            measure=1,
        )


def _check_other_namespaces(workload: Workload, key: GroupKey, size: int, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    for namespace in islice(snapshot.group_homes.get(key, ()), _MOST_NAMESPACES):
        group = snapshot.group(namespace, key)
        if namespace == workload.namespace or group is None or group.sizes != (size,) or group.running:
            continue
        if 0 < group.present < size:
            yield Finding(
                "OtherNamespace",
                ("metadata", "namespace"),
                f"the group {key.name} waits in namespace {namespace} with {group.present} of {size} members, but this pod is in"
                f" namespace {workload.namespace}, and a gang cannot span namespaces",
                f"Create the pod in {namespace} if it belongs to that gang.",
                names=(namespace,),
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
    pod_group = snapshot.pod_groups.get((workload.namespace, key))
    if pod_group is None or pod_group.minimum is None:
        return
    minimum, needed = pod_group.minimum, min_size(workload, size)
    if minimum < needed:
        yield Finding(
            "PartialStart",
            group_path(pods, key),
            f"{field} {minimum} of PodGroup {key.name} lets {minimum} of {size} pods start, and the gang needs {needed}:"
            f" {minimum} < {needed}",
            f'Write {field}: {needed} in PodGroup {key.name}, or write {GANG_ELASTIC}: "true" if the gang can run with fewer pods.',
            measure=needed - minimum,
            rests_on=(resource,),
        )
    elif minimum > size:
        yield Finding(
            "NeverEnough",
            group_path(pods, key),
            f"the gang of {size} pods never reaches {field} {minimum} of PodGroup {key.name}: {minimum} > {size}",
            f"Write {field}: {size} in PodGroup {key.name}, or make {minimum} pods.",
            # Pods of a second workload may be in the same group.
            Level.DENY if workload.is_pod() else Level.WARN,
            measure=minimum - size,
            rests_on=(resource,),
        )
