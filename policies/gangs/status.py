"""The state of every gang: whether its members exist and run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.records.pods import moment
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import GroupMembers, PodCounts, ProblemCount
from gpugate.policies.gangs.gang import Gang, gang_of, group_of, min_size
from gpugate.policies.kube.fields import MalformedError, Object, lookup
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set_sources import values_at
from gpugate.policies.workloads.workload import Workload


class GangState(NamedTuple):
    """A gang and its members.

    Attributes:
        namespace: its namespace.
        kind: the kind of its owner; ``Pod`` for plain pods in a group.
        name: the name of the owner, or of the group.
        uid: the owner's uid; empty for plain pods.
        system: the system of its pod group, as in :class:`~gpugate.policies.cluster.records.pod_groups.GroupKey`; empty for none.
        size: the number of its members.
        running: members that run.
        pending: members that exist and do not run.
        missing: members that do not exist.
        failed: members that have failed.
        held: accelerators of its running members.
        state: ``running``, ``queued``, ``starting``, ``stuck`` or ``done``.
        since: start of this state, in seconds since 1970; None if unknown.
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
"""Returns the seconds after which a gang is stuck, by namespace and labels of its workload; None if no rule reports it."""
ParallelJobs: TypeAlias = Callable[[str, Object], bool]
"""Tells whether the policy counts Jobs with several pods at once as gangs, by namespace and labels of the Job."""
Place: TypeAlias = tuple[str, str, str]
"""Namespace, kind and name of a gang."""

_NOTHING: Final[Mapping[Any, Any]] = {}
#: Paths of the counts of succeeded pods (Job and Volcano; Kubeflow).
_SUCCEEDED: Final = (("status", "succeeded"), ("status", "replicaStatuses", "*", "succeeded"))
#: Taints of nodes whose kubelet does not answer, or is not ready.
_LOST: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def gang_states(
    snapshot: ClusterSnapshot,
    subjects: Iterable[Workload],
    now: float,
    *,
    stuck_after: StuckAfter = lambda _namespace, _labels: 600.0,
    parallel_jobs: ParallelJobs = lambda _namespace, _labels: False,
    noticed: Mapping[Place, float] = _NOTHING,
    refusals: Mapping[str, str] = _NOTHING,
) -> list[GangState]:
    """Return the state of every gang, sorted; an empty list until the pods are synced.

    Args:
        snapshot: the cluster.
        subjects: the workloads in the cluster, with plain pods. Kinds without ``members`` are left out.
        now: the time, in seconds since 1970.
        stuck_after: the time after which a gang is stuck by its policy.
        parallel_jobs: whether Jobs that declare no gang are gangs by their policy.
        noticed: the first observation that a gang is incomplete, in seconds since 1970.
        refusals: the errors of the API server for further pods, by the uid of the workload.
    """
    if snapshot.sync_state("pods") is not SyncState.SYNCED:
        return []
    lost = frozenset(name for shape in snapshot.shapes if any(taint.key in _LOST for taint in shape.taints) for name in shape.nodes)
    context = _StatusContext(snapshot, now, stuck_after, parallel_jobs, noticed, refusals, lost)
    states: list[GangState] = []
    joined: dict[tuple[str, GroupKey], list[Workload]] = {}
    for workload in subjects:
        try:
            if not workload.is_pod():
                states += _of_workload(workload, context)
            elif workload.controller() is None and (key := group_of(workload.pod_sets[0])) is not None:
                joined.setdefault((workload.namespace, key), []).append(workload)
        except MalformedError:
            # Skip a malformed workload.
            continue
    for namespace, groups in snapshot.groups.items():
        for key, group in groups.items():
            if "" in group.owners or joined.get((namespace, key)):
                states += _of_group(namespace, key, group, joined.get((namespace, key), []), context)
    return sorted(states)


class _StatusContext(NamedTuple):
    """The arguments of :func:`gang_states` and the lost nodes."""

    snapshot: ClusterSnapshot
    now: float
    stuck_after: StuckAfter
    parallel_jobs: ParallelJobs
    noticed: Mapping[Place, float]
    refusals: Mapping[str, str]
    lost: frozenset[str]


def _of_workload(workload: Workload, context: _StatusContext) -> Iterator[GangState]:
    workload.parallel_jobs_are_gangs = context.parallel_jobs(workload.namespace, workload.labels())
    gang = gang_of(workload)
    # Pending pods do not show which devices their claims request.
    if gang is None or gang.members is None or any(not pods.accelerators() for pods in gang.parts):
        return
    uid = str(workload.metadata().get("uid") or "")
    kind, name = workload.kind.kind, workload.name
    key = group_of(gang.pods)
    for index, owner_group in enumerate(_owner_groups(workload, gang, uid)):
        own = f"{name}/{index}" if gang.gangs > 1 else name
        place = (workload.namespace, kind, own)
        started = moment(lookup(workload.root, ("status", "startTime")))
        observation = GangObservation(
            size=gang.members,
            least=_least(workload, gang),
            pods=context.snapshot.counts_of(workload.namespace, owner_group),
            over=is_over(workload.root),
            suspended=workload.kind.is_suspended(workload.root),
            queue=queue_label(workload) or "",
            ended=sum(value for path in _SUCCEEDED for value in values_at(workload.root, path) if type(value) is int),
            staged=any(pods.follows for pods in gang.parts),
            lost=context.lost,
            began=max(moment(workload.metadata().get("creationTimestamp")), started) or None,
            noticed=context.noticed.get(place),
            refusal=context.refusals.get(uid, ""),
        )
        status = evaluate(observation, context.now, context.stuck_after(workload.namespace, workload.labels()))
        system = key.system if key is not None else "Kueue" if observation.queue else ""
        yield GangState(workload.namespace, kind, own, uid, system, gang.members, *status)


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
    """Return the number of members that must run; members that start late wait for the others."""
    at_once = sum(part.numbers.at_once // gang.gangs for part in gang.parts if not part.starts_late)
    return max(1, min(min_size(workload, gang.members or gang.size), at_once))


#: Condition types and phases of a workload that has ended (Ray: ``jobDeploymentStatus``; Volcano: ``state.phase``).
_ENDS: Final = frozenset({"Aborted", "Complete", "Completed", "Failed", "Finished", "Succeeded", "Terminated"})
_PHASES: Final = (("status", "phase"), ("status", "jobDeploymentStatus"), ("status", "state", "phase"))


def is_over(root: Object) -> bool:
    """Whether a workload has succeeded, or has failed for good."""
    conditions = lookup(root, ("status", "conditions"))
    states = [lookup(root, path) for path in _PHASES]
    states += [
        condition.get("type")
        for condition in (conditions if type(conditions) is list else ())
        if type(condition) is dict and condition.get("status") == "True"
    ]
    return any(type(state) is str and state in _ENDS for state in states)


def _of_group(
    namespace: str, key: GroupKey, group: GroupMembers, members: list[Workload], context: _StatusContext
) -> Iterator[GangState]:
    counts = context.snapshot.counts_of(namespace, f"{key.system}/{key.name}")
    pod_group = context.snapshot.pod_groups.get((namespace, key))
    minimum = pod_group.minimum if pod_group is not None else None
    size = group.sizes[-1] if group.sizes else minimum or 0
    if size < 2 or not any(counts[:5]):
        return
    began = max((moment(pod.metadata().get("creationTimestamp")) for pod in members), default=0.0) or None
    observation = GangObservation(
        size=size,
        least=min(size, minimum or size),
        pods=counts,
        queue=next(iter(group.queues), ""),
        lost=context.lost,
        began=began,
        noticed=context.noticed.get((namespace, "Pod", key.name)),
    )
    labels = members[0].labels() if members else _NOTHING
    status = evaluate(observation, context.now, context.stuck_after(namespace, dict(labels)))
    yield GangState(namespace, "Pod", key.name, "", key.system, size, *status)


#: Maximum number of problems in the reason of a gang.
_MOST: Final = 4
#: The words for reasons of the scheduler, the kubelet or gpugate.
_WORDS: Final = {
    "Starting": "start on their nodes",
    "Unschedulable": "have no node",
    "SchedulingGated": "are held back by a scheduling gate",
    "ImagePullBackOff": "cannot pull an image",
    "ErrImagePull": "cannot pull an image",
    "InvalidImageName": "cannot pull an image",
    "Leaving": "are being deleted",
    "Failed": "have failed",
}
_SINGULAR: Final = {"are": "is", "have": "has", "wait:": "waits:", "start": "starts"}


class GangObservation(NamedTuple):
    """The data of one gang at one moment.

    Attributes:
        size: the number of its members with accelerators.
        least: the number of members that must run.
        pods: the counts of its pods.
        over: whether the workload has ended.
        suspended: whether the workload is suspended, by its queue or by a user.
        queue: its queue; empty for none.
        ended: the number of members that have succeeded, by the status of the workload.
        staged: whether some members are created only after others have run, so members may be missing.
        lost: nodes that do not answer.
        began: creation or last start of the workload, in seconds since 1970; None if unknown.
        parallel_jobs: whether Jobs that declare no gang are gangs by their policy.
        noticed: the first observation of a permanent observer that the gang is incomplete, in seconds since 1970; None without one.
        refusal: the error of the API server for further pods of the controller; empty if unknown.
    """

    size: int
    least: int
    pods: PodCounts
    over: bool = False
    suspended: bool = False
    queue: str = ""
    ended: int = 0
    staged: bool = False
    lost: frozenset[str] = frozenset()
    began: float | None = None
    noticed: float | None = None
    refusal: str = ""


class GangStatus(NamedTuple):
    """The fields ``running`` to ``reason`` of a :class:`GangState`."""

    running: int
    pending: int
    missing: int
    failed: int
    held: int
    state: str
    since: float | None
    reason: str


def evaluate(gang: GangObservation, now: float, stuck_after: float | None) -> GangStatus:
    """Return the status of the gang at ``now``, in seconds since 1970; it is never stuck if ``stuck_after`` is None."""
    pods = gang.pods
    on_lost_nodes = tuple(problem for problem in pods.unready if problem.node in gang.lost)
    lost = sum(problem.number for problem in on_lost_nodes)
    running, failed, ended = pods.running - lost, pods.failed + lost, max(gang.ended, pods.succeeded)
    if gang.over or (ended and ended >= gang.size):
        return GangStatus(running, pods.pending, 0, failed, pods.held, "done", None, "")
    missing = 0 if gang.staged else max(0, gang.size - (ended + pods.running + pods.pending))
    counts = (running, pods.pending, missing, failed, pods.held)
    if running + ended >= (1 if gang.staged else gang.least) and not (gang.staged and pods.pending + lost):
        return GangStatus(*counts, "running", None, "")
    if _waits_whole(gang, missing):
        where = f"waits in queue {gang.queue} as a whole: nothing of it runs, and it" if gang.queue else "is suspended, and"
        return GangStatus(*counts, "queued", _first(pods.sorts) or gang.began, f"{where} holds nothing")
    since = _since(gang, on_lost_nodes)
    is_late = stuck_after is not None and since is not None and now - since >= stuck_after
    return GangStatus(*counts, "stuck" if is_late else "starting", since, _why(gang, running, ended, missing, on_lost_nodes))


def _waits_whole(gang: GangObservation, missing: int) -> bool:
    """Whether no pod of the gang is on a node, and all of them wait for admission by a queue."""
    pods = gang.pods
    if pods.running or pods.held:
        return False
    if gang.suspended:
        return True
    return bool(pods.pending) and pods.gated == pods.pending and not missing


def _since(gang: GangObservation, on_lost_nodes: tuple[ProblemCount, ...]) -> float | None:
    """Return the time since which the gang is incomplete, by its pods' conditions; a restarted controller gets the same time."""
    since = _first((*on_lost_nodes, *(problem for problem in gang.pods.sorts if problem.reason != "Failed" and problem.since)))
    if since is not None:
        return since
    # Missing pods have no conditions: use the later of the start of the workload and the first observation.
    return max((moment for moment in (gang.began, gang.noticed) if moment is not None), default=None)


def _first(problems: Iterable[ProblemCount]) -> float | None:
    return min((problem.since for problem in problems if problem.since), default=None)


def _why(gang: GangObservation, running: int, ended: int, missing: int, on_lost_nodes: tuple[ProblemCount, ...]) -> str:
    pods = gang.pods
    devices = "1 accelerator is" if pods.held == 1 else f"{pods.held} accelerators are"
    parts = [f"{running + ended} of {gang.size} run" + (f" and {devices} held meanwhile" if pods.held else "")]
    if missing:
        parts.append(f"{missing} of {gang.size} {_are(missing)} not there" + (f": {gang.refusal}" if gang.refusal else ""))
    parts += [f"{lost.number} {_are(lost.number)} on node {lost.node}, which does not answer" for lost in on_lost_nodes]
    # Failed pods were replaced, unless members are missing.
    parts += [_words(problem) for problem in pods.sorts if missing or problem.reason in _PRESENT or problem.reason not in _ENDED]
    return "; ".join(parts[: 1 + _MOST])


_PRESENT: Final = frozenset({"Starting", "Unschedulable", "SchedulingGated"})
#: Reasons of failed pods (``status.reason``).
_ENDED: Final = frozenset(
    {"Failed", "Evicted", "NodeLost", "NodeShutdown", "Preempted", "Shutdown", "Terminated", "DeadlineExceeded"}
)


def _words(problem: ProblemCount) -> str:
    verb, _, rest = _WORDS.get(problem.reason, f"wait: {problem.reason}").partition(" ")
    text = f"{problem.number} {_SINGULAR.get(verb, verb) if problem.number == 1 else verb} {rest}"
    text += f" ({problem.node})" if problem.node and problem.reason != "Starting" else ""
    return text + (f": {problem.message}" if problem.message else "")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
