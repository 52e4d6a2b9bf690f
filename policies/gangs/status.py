"""The state of every gang: whether its members are there and run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.records.pod_problems import moment
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import GroupMembers
from gpugate.policies.gangs.gang import Gang, gang_of, group_of, min_size
from gpugate.policies.gangs.stuck import GangObservation, evaluate
from gpugate.policies.kube.fields import MalformedError, Object, lookup
from gpugate.policies.workloads.pod_sets import values_at
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.workload import Workload


class GangState(NamedTuple):
    """One gang and its members.

    Attributes:
        namespace: its namespace.
        kind: the kind of its owner; ``Pod`` for plain pods in a group.
        name: the name of the owner, or of the group.
        uid: the owner's uid; empty for plain pods.
        system: who holds it together, as in :class:`~gpugate.policies.cluster.records.pod_groups.GroupKey`; empty for its
            owner alone.
        size: how many members it is to have.
        running: members that run.
        pending: members that are there and do not run.
        missing: members that are not there.
        failed: members that have failed.
        held: accelerators that its running members hold.
        state: ``running``, ``queued``, ``starting``, ``stuck`` or ``done``.
        since: when it came into this state, seconds since the epoch; None where that is not known.
        reason: why it is stuck or waits, in words; empty otherwise.
    """

    namespace: str
    kind: str
    name: str
    uid: str
    system: str
    size: int
    running: int
    pending: int
    missing: int
    failed: int
    held: int
    state: str
    since: float | None
    reason: str


StuckAfter: TypeAlias = Callable[[str, Object], float | None]
"""Seconds after which a gang is stuck, by namespace and labels of the workload; None where no rule looks at gangs."""
Place: TypeAlias = tuple[str, str, str]
"""Namespace, kind and name of a gang."""

STUCK_AFTER: Final = 600.0
_NOTHING: Final[Mapping[Any, Any]] = {}
#: Taints by which Kubernetes marks a node whose kubelet does not answer, or is not ready.
_LOST: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def _ten_minutes(_namespace: str, _labels: Object) -> float | None:
    return STUCK_AFTER


def gang_states(
    snapshot: ClusterSnapshot,
    subjects: Iterable[Workload],
    now: float,
    *,
    stuck_after: StuckAfter = _ten_minutes,
    noticed: Mapping[Place, float] = _NOTHING,
    refusals: Mapping[str, str] = _NOTHING,
) -> list[GangState]:
    """The state of every gang, sorted; none while the pods are not known.

    Args:
        snapshot: the cluster.
        subjects: the workloads that are there, plain pods among them; a gang of a kind whose pods cannot be told is left out.
        now: the time, in seconds since 1970.
        stuck_after: when the policy says that a gang is stuck.
        noticed: when a gang was first seen to be incomplete, by who looks all the time.
        refusals: why a controller could make no more pods, by the uid of the workload.
    """
    if snapshot.sync_state("pods") is not SyncState.SYNCED:
        return []
    sight = _StatusContext(snapshot, now, stuck_after, noticed, refusals, _lost_nodes(snapshot))
    found: list[GangState] = []
    joined: dict[tuple[str, GroupKey], list[Workload]] = {}
    for workload in subjects:
        try:
            if not workload.is_pod():
                found += [*_of_workload(workload, sight)]
            elif workload.controller() is None and (key := group_of(workload.pod_sets[0])) is not None:
                joined.setdefault((workload.namespace, key), []).append(workload)
        except MalformedError:
            # One workload that cannot be read is left out, and spoils no other.
            continue
    for namespace, groups in snapshot.groups.items():
        for key, group in groups.items():
            if "" in group.owners or joined.get((namespace, key)):
                found += _of_group(namespace, key, group, joined.get((namespace, key), []), sight)
    return sorted(found)


class _StatusContext(NamedTuple):
    """What all gangs are looked at with; the fields are the arguments of :func:`gang_states`."""

    snapshot: ClusterSnapshot
    now: float
    stuck_after: StuckAfter
    noticed: Mapping[Place, float]
    refusals: Mapping[str, str]
    lost: frozenset[str]


def _lost_nodes(snapshot: ClusterSnapshot) -> frozenset[str]:
    return frozenset(name for shape in snapshot.shapes if any(taint.key in _LOST for taint in shape.taints) for name in shape.nodes)


def _of_workload(workload: Workload, sight: _StatusContext) -> Iterator[GangState]:
    gang = gang_of(workload)
    # Pods whose devices are claims say nothing of them while they wait.
    if gang is None or gang.members is None or any(not pods.accelerators() for pods in gang.parts):
        return
    uid = str(workload.metadata().get("uid") or "")
    kind, name = workload.kind.kind, workload.name
    key = group_of(gang.pods)
    for index, crew_key in enumerate(_owner_groups(workload, gang, uid)):
        own = f"{name}/{index}" if gang.gangs > 1 else name
        place = (workload.namespace, kind, own)
        look = GangObservation(
            size=gang.members,
            least=_least(workload, gang),
            pods=sight.snapshot.counts_of(workload.namespace, crew_key),
            over=is_over(workload.root),
            suspended=_is_suspended(workload),
            queue=queue_label(workload) or "",
            ended=_ended(workload),
            staged=any(pods.follows for pods in gang.parts),
            lost=sight.lost,
            began=_began(workload),
            noticed=sight.noticed.get(place),
            refusal=sight.refusals.get(uid, ""),
        )
        standing = evaluate(look, sight.now, sight.stuck_after(workload.namespace, workload.labels()))
        system = key.system if key is not None else "Kueue" if look.queue else ""
        yield GangState(workload.namespace, kind, own, uid, system, gang.members, *standing)


def _owner_groups(workload: Workload, gang: Gang, uid: str) -> Iterator[str]:
    """Yield the owner groups of each gang's pods (:func:`~gpugate.policies.cluster.records.pods.owner_group_of`)."""
    members = workload.kind.members
    if members is None:
        return
    if not members.label:
        if uid:
            yield uid
        return
    name = lookup(workload.root, members.name)
    if name:
        yield from (members.key(name, index if members.index_label else None) for index in range(gang.gangs))


def _least(workload: Workload, gang: Gang) -> int:
    """How many members have to run: those that start late do so when the others run."""
    at_once = sum((part.count or 0) // gang.gangs for part in gang.parts if not part.starts_late)
    return max(1, min(min_size(workload, gang.members or gang.size), at_once))


def _is_suspended(workload: Workload) -> bool:
    switch = workload.kind.suspend
    return switch is not None and lookup(workload.root, switch) is True


#: Conditions, and words for where a workload stands (Ray: ``jobDeploymentStatus``; Volcano: ``state.phase``), of its end.
_ENDS: Final = frozenset({"Aborted", "Complete", "Completed", "Failed", "Finished", "Succeeded", "Terminated"})
_PHASES: Final = (("status", "phase"), ("status", "jobDeploymentStatus"), ("status", "state", "phase"))


def is_over(root: Object) -> bool:
    """Whether a workload has done its work, or has failed for good."""
    said = (lookup(root, path) for path in _PHASES)
    if any(type(one) is str and one in _ENDS for one in said):
        return True
    conditions = lookup(root, ("status", "conditions"))
    return any(
        type(one) is dict and one.get("status") == "True" and type(one.get("type")) is str and one["type"] in _ENDS
        for one in (conditions if type(conditions) is list else ())
    )


#: Where kinds count their pods that have ended well (Job and Volcano; Kubeflow).
_COUNTED: Final = (("status", "succeeded"), ("status", "replicaStatuses", "*", "succeeded"))


def _ended(workload: Workload) -> int:
    return sum(value for path in _COUNTED for value in values_at(workload.root, path) if type(value) is int)


def _began(workload: Workload) -> float | None:
    """When it was made, or was last let run."""
    moments = (moment(workload.metadata().get("creationTimestamp")), moment(lookup(workload.root, ("status", "startTime"))))
    return max(moments) or None


def _of_group(
    namespace: str, key: GroupKey, group: GroupMembers, members: list[Workload], sight: _StatusContext
) -> Iterator[GangState]:
    crew = sight.snapshot.counts_of(namespace, f"{key.system}/{key.name}")
    object_ = sight.snapshot.pod_groups.get((namespace, key))
    minimum = object_.minimum if object_ is not None else None
    size = group.sizes[-1] if group.sizes else minimum or 0
    if size < 2 or not any(crew[:5]):
        return
    began = max((moment(one.metadata().get("creationTimestamp")) for one in members), default=0.0) or None
    look = GangObservation(
        size=size,
        least=min(size, minimum or size),
        pods=crew,
        queue=next(iter(group.queues), ""),
        lost=sight.lost,
        began=began,
        noticed=sight.noticed.get((namespace, "Pod", key.name)),
    )
    labels = members[0].labels() if members else _NOTHING
    standing = evaluate(look, sight.now, sight.stuck_after(namespace, dict(labels)))
    yield GangState(namespace, "Pod", key.name, "", key.system, size, *standing)
