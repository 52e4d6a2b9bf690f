"""Evaluate one gang: it runs, waits as a whole, starts, or is stuck because some of its members do not run."""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from gpugate.policies.cluster.usage import PodCounts, ProblemCount

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


GangStatus: TypeAlias = tuple[int, int, int, int, int, str, float | None, str]
"""The fields ``running`` to ``reason`` of a :class:`gpugate.policies.gangs.status.GangState`."""


def evaluate(gang: GangObservation, now: float, stuck_after: float | None) -> GangStatus:
    """Return the status of the gang at ``now``, in seconds since 1970; it is never stuck if ``stuck_after`` is None."""
    pods = gang.pods
    on_lost_nodes = tuple(problem for problem in pods.unready if problem.node in gang.lost)
    lost = sum(problem.number for problem in on_lost_nodes)
    running, failed, ended = pods.running - lost, pods.failed + lost, max(gang.ended, pods.succeeded)
    if gang.over or (ended and ended >= gang.size):
        return (running, pods.pending, 0, failed, pods.held, "done", None, "")
    missing = 0 if gang.staged else max(0, gang.size - (ended + pods.running + pods.pending))
    counts = (running, pods.pending, missing, failed, pods.held)
    if running + ended >= (1 if gang.staged else gang.least) and not (gang.staged and pods.pending + lost):
        return (*counts, "running", None, "")
    if _waits_whole(gang, missing):
        where = f"waits in queue {gang.queue} as a whole: nothing of it runs, and it" if gang.queue else "is suspended, and"
        return (*counts, "queued", _first(pods.sorts) or gang.began, f"{where} holds nothing")
    since = _since(gang, on_lost_nodes)
    is_late = stuck_after is not None and since is not None and now - since >= stuck_after
    return (*counts, "stuck" if is_late else "starting", since, _why(gang, running, ended, missing, on_lost_nodes))


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
