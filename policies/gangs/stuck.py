"""Evaluate one gang: it runs, waits as a whole, starts, or is stuck because some of its members do not run."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpugate.policies.cluster.usage import PodCounts, ProblemCount

#: The most problems that a reason names.
_MOST: Final = 4
#: The words for a reason of the scheduler, the kubelet or gpugate.
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


class GangObservation(NamedTuple):
    """The data of one gang at one moment.

    Attributes:
        size: the number of its members with accelerators.
        least: how many of them must run for it to work.
        pods: the counts of its pods.
        over: whether the workload has ended.
        suspended: whether the workload is suspended, by its queue or by a user.
        queue: the queue that it waits in; empty for none.
        ended: members that have succeeded, by the status of the workload.
        staged: whether some members are created only after others have run, so that a missing member means nothing.
        lost: nodes that do not answer.
        began: when the workload was created or last started, in seconds since 1970; None if not known.
        noticed: when a permanent observer first saw it incomplete, in seconds since 1970; None if there is no such observer.
        refusal: why its controller could create no more pods, in the words of the apiserver; empty if not known.
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
    """The status of one gang; the fields are those of :class:`gpugate.policies.gangs.status.GangState`."""

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
    running, ended = pods.running - lost, max(gang.ended, pods.succeeded)
    missing = 0 if gang.staged else max(0, gang.size - (ended + pods.running + pods.pending))
    counts = (running, pods.pending, missing, pods.failed + lost, pods.held)
    if gang.over or (ended and ended >= gang.size):
        return GangStatus(*counts[:2], 0, *counts[3:], "done", None, "")
    if _runs(gang, running, ended, pods.pending + lost):
        return GangStatus(*counts, "running", None, "")
    if _waits_whole(gang, missing):
        return GangStatus(*counts, "queued", _first(pods.sorts) or gang.began, _why_queued(gang))
    since = _since(gang, on_lost_nodes)
    is_late = stuck_after is not None and since is not None and now - since >= stuck_after
    return GangStatus(*counts, "stuck" if is_late else "starting", since, _why(gang, running, ended, missing, on_lost_nodes))


def _runs(gang: GangObservation, running: int, ended: int, waiting: int) -> bool:
    if gang.staged:
        return running + ended > 0 and waiting == 0
    return running + ended >= gang.least


def _waits_whole(gang: GangObservation, missing: int) -> bool:
    """Whether no pod of the gang is on a node, and all of them wait for admission by a queue."""
    pods = gang.pods
    if pods.running or pods.held:
        return False
    if gang.suspended:
        return True
    return bool(pods.pending) and pods.gated == pods.pending and not missing


def _why_queued(gang: GangObservation) -> str:
    where = f" in queue {gang.queue}" if gang.queue else ""
    return f"waits{where} as a whole: nothing of it runs, and it holds nothing" if where else "is suspended, and holds nothing"


def _since(gang: GangObservation, on_lost_nodes: tuple[ProblemCount, ...]) -> float | None:
    """Return the time since which the gang is incomplete, by its pods' conditions, so that a restarted controller agrees."""
    since = _first((*on_lost_nodes, *(problem for problem in gang.pods.sorts if problem.reason != "Failed" and problem.since)))
    if since is not None:
        return since
    # Pods that do not exist have no conditions: take the later of the start of the workload and the first observation.
    moments = [moment for moment in (gang.began, gang.noticed) if moment is not None]
    return max(moments) if moments else None


def _first(problems: Iterable[ProblemCount]) -> float | None:
    return min((problem.since for problem in problems if problem.since), default=None)


def _why(gang: GangObservation, running: int, ended: int, missing: int, on_lost_nodes: tuple[ProblemCount, ...]) -> str:
    pods = gang.pods
    parts = [f"{running + ended} of {gang.size} run" + (f" and {_devices(pods.held)} held meanwhile" if pods.held else "")]
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
    words = _WORDS.get(problem.reason, f"wait: {problem.reason}")
    text = f"{problem.number} {_singular(words) if problem.number == 1 else words}"
    text += f" ({problem.node})" if problem.node and problem.reason != "Starting" else ""
    return text + (f": {problem.message}" if problem.message else "")


def _singular(words: str) -> str:
    first, _, rest = words.partition(" ")
    first = {"are": "is", "have": "has", "wait:": "waits:", "start": "starts", "cannot": "cannot"}[first]
    return f"{first} {rest}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _devices(count: int) -> str:
    return f"{count} accelerator is" if count == 1 else f"{count} accelerators are"
