"""Where a gang stands: whether it runs, waits as a whole, starts, or is stuck with a part of its members missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpugate.policies.cluster.pod_counts import PodCounts, ProblemCount

#: Sentences of a reason: each names one thing that is wrong.
_MOST: Final = 4
#: Words for what a scheduler, a kubelet or gpugate calls it.
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
    """What is known of one gang at one moment.

    Attributes:
        size: how many members with accelerators it is to have.
        least: how many of them have to run for it to work.
        pods: its pods.
        over: whether the workload has come to its end.
        suspended: whether the workload is stopped as a whole, by its queue or by somebody else.
        queue: the queue that it waits in; empty for none.
        ended: members that have ended well, by the status of the workload.
        staged: whether some members come only when others have run: that they are missing says nothing.
        lost: nodes that do not answer.
        began: when the workload was made or started last, in seconds since 1970; None where that is not known.
        noticed: when it was first seen not to be complete, by whoever looks all the time; None where nobody does.
        refusal: why its controller could make no more pods, in the words of the apiserver; empty where nobody looked.
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
    """Where a gang stands; the fields are those of :class:`gpugate.policies.gangs.status.GangState`."""

    running: int
    pending: int
    missing: int
    failed: int
    held: int
    state: str
    since: float | None
    reason: str


def evaluate(look: GangObservation, now: float, stuck_after: float | None) -> GangStatus:
    """Where the gang stands at ``now``; it is never stuck where ``stuck_after``, in seconds, is None."""
    crew = look.pods
    gone = tuple(one for one in crew.unready if one.node in look.lost)
    lost = sum(one.number for one in gone)
    running, ended = crew.running - lost, max(look.ended, crew.succeeded)
    there = ended + crew.running + crew.pending
    missing = 0 if look.staged else max(0, look.size - there)
    counts = (running, crew.pending, missing, crew.failed + lost, crew.held)
    if look.over or (ended and ended >= look.size):
        return GangStatus(*counts[:2], 0, *counts[3:], "done", None, "")
    if _runs(look, running, ended, crew.pending + lost):
        return GangStatus(*counts, "running", None, "")
    if _waits_whole(look, missing):
        return GangStatus(*counts, "queued", _first(crew.sorts) or look.began, _why_queued(look))
    since = _since(look, gone)
    late = stuck_after is not None and since is not None and now - since >= stuck_after
    return GangStatus(*counts, "stuck" if late else "starting", since, _why(look, running, ended, missing, gone))


def _runs(look: GangObservation, running: int, ended: int, waiting: int) -> bool:
    if look.staged:
        return running + ended > 0 and waiting == 0
    return running + ended >= look.least


def _waits_whole(look: GangObservation, missing: int) -> bool:
    """Whether nothing of the gang is on a node, and all of it waits until its queue lets it in."""
    crew = look.pods
    if crew.running or crew.held:
        return False
    if look.suspended:
        return True
    return bool(crew.pending) and crew.gated == crew.pending and not missing


def _why_queued(look: GangObservation) -> str:
    where = f" in queue {look.queue}" if look.queue else ""
    return f"waits{where} as a whole: nothing of it runs, and it holds nothing" if where else "is suspended, and holds nothing"


def _since(look: GangObservation, gone: tuple[ProblemCount, ...]) -> float | None:
    """When it became incomplete, as its pods tell it: so a new observer knows what the one before knew."""
    told = _first((*gone, *(one for one in look.pods.sorts if one.reason != "Failed" and one.since)))
    if told is not None:
        return told
    # What was never made, or is gone without a trace, says nothing: not before the whole began, nor before it was noticed.
    moments = [one for one in (look.began, look.noticed) if one is not None]
    return max(moments) if moments else None


def _first(sorts: Iterable[ProblemCount]) -> float | None:
    return min((one.since for one in sorts if one.since), default=None)


def _why(look: GangObservation, running: int, ended: int, missing: int, gone: tuple[ProblemCount, ...]) -> str:
    crew = look.pods
    there = running + ended
    parts = [f"{there} of {look.size} run" + (f" and {_devices(crew.held)} held meanwhile" if crew.held else "")]
    if missing:
        parts.append(f"{missing} of {look.size} {_are(missing)} not there" + (f": {look.refusal}" if look.refusal else ""))
    parts += [f"{one.number} {_are(one.number)} on node {one.node}, which does not answer" for one in gone]
    # Those that have failed were replaced, unless somebody is missing.
    parts += [_told(one) for one in crew.sorts if missing or one.reason in _PRESENT or one.reason not in _ENDED]
    return "; ".join(parts[: 1 + _MOST])


_PRESENT: Final = frozenset({"Starting", "Unschedulable", "SchedulingGated"})
#: Reasons of pods that have failed (``status.reason``), by who ended them.
_ENDED: Final = frozenset(
    {"Failed", "Evicted", "NodeLost", "NodeShutdown", "Preempted", "Shutdown", "Terminated", "DeadlineExceeded"}
)


def _told(one: ProblemCount) -> str:
    words = _WORDS.get(one.reason, f"wait: {one.reason}")
    place = f" ({one.node})" if one.node and one.reason != "Starting" else ""
    return f"{one.number} {_singular(words) if one.number == 1 else words}{place}" + (f": {one.message}" if one.message else "")


def _singular(words: str) -> str:
    first, _, rest = words.partition(" ")
    first = {"are": "is", "have": "has", "wait:": "waits:", "start": "starts", "cannot": "cannot"}[first]
    return f"{first} {rest}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _devices(count: int) -> str:
    return f"{count} accelerator is" if count == 1 else f"{count} accelerators are"
