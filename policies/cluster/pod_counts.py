"""Pods that are counted together, as those of one controller or of one group: how many run, what they hold, why others do not."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpugate.policies.cluster.records.pod_problems import GATED, NOT_READY, PodProblem
from gpugate.policies.cluster.records.pods import PodRecord

_PHASES: Final = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 3, "Leaving": 4}
#: Kinds of trouble that are told apart: enough to say why a gang waits.
_MOST: Final = 8


class ProblemCount(NamedTuple):
    """Pods with the same trouble.

    Attributes:
        reason: see :class:`gpugate.policies.cluster.records.pod_problems.PodProblem`.
        message: the same.
        node: the same.
        number: how many there are.
        since: when the first of them got into it.
    """

    reason: str
    message: str
    node: str
    number: int
    since: float


class PodCounts(NamedTuple):
    """What is known of pods that are counted together. All of them ask for accelerators.

    Attributes:
        pending: those that are there and do not run yet.
        running: those that run.
        succeeded: those that have ended well, as far as they are still known.
        failed: those that have failed, as far as they are still known.
        leaving: those that are being deleted.
        held: accelerators of those that are on a node.
        gated: those among the pending that a queue holds back.
        sorts: why those that do not run do not, the most frequent first; at most eight.
        unready: those that run and whose containers do not answer, by node.
    """

    pending: int
    running: int
    succeeded: int
    failed: int
    leaving: int
    held: int
    gated: int
    sorts: tuple[ProblemCount, ...]
    unready: tuple[ProblemCount, ...]


NO_PODS: Final = PodCounts(0, 0, 0, 0, 0, 0, 0, (), ())


class PodCountsSum:
    """Sums over such pods, kept up pod by pod."""

    __slots__ = ("_built", "_held", "_troubles", "phases")

    def __init__(self) -> None:
        self.phases = [0, 0, 0, 0, 0]
        self._held = 0
        self._troubles: dict[PodProblem, int] | None = None
        self._built: PodCounts | None = None

    def add(self, pod: PodRecord, sign: int) -> None:
        """Add a pod, or take it off."""
        self._built = None
        self.phases[_PHASES.get(pod.phase, 0)] += sign
        if pod.node:
            self._held += sign * sum(count for _, count in pod.devices)
        if pod.trouble is None:
            return
        troubles = self._troubles = {} if self._troubles is None else self._troubles
        left = troubles.get(pod.trouble, 0) + sign
        if left:
            troubles[pod.trouble] = left
        else:
            del troubles[pod.trouble]

    def built(self) -> PodCounts:
        """The sums as a record."""
        if self._built is None:
            sorts = _sorted(self._troubles or {})
            pending, running, succeeded, failed, leaving = self.phases
            self._built = PodCounts(
                pending,
                running,
                succeeded,
                failed,
                leaving,
                held=self._held,
                gated=sum(one.number for one in sorts if one.reason == GATED),
                sorts=tuple(one for one in sorts if one.reason != NOT_READY)[:_MOST],
                unready=tuple(one for one in sorts if one.reason == NOT_READY),
            )
        return self._built


def _sorted(troubles: dict[PodProblem, int]) -> list[ProblemCount]:
    if not troubles:
        return []
    counts: dict[tuple[str, str, str], list[float]] = {}
    for trouble, count in troubles.items():
        known = counts.setdefault(trouble[1:], [0, trouble.since])
        known[0] += count
        known[1] = min(known[1], trouble.since)
    found = [ProblemCount(*key, number=int(count), since=since) for key, (count, since) in counts.items()]
    return sorted(found, key=lambda one: (-one.number, one[:3]))
