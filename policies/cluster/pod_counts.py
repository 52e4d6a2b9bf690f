"""Pod counters per controller or pod group: phases, accelerators held, and reasons for pending."""

from typing import Final, NamedTuple

from gpugate.policies.cluster.records.pod_problems import GATED, NOT_READY, PodProblem
from gpugate.policies.cluster.records.pods import PodRecord

_PHASES: Final = {"Pending": 0, "Running": 1, "Succeeded": 2, "Failed": 3, "Leaving": 4}
#: Maximum number of distinct problems: enough to explain why a gang waits.
_MOST: Final = 8


class ProblemCount(NamedTuple):
    """Pods with the same problem.

    Attributes:
        reason: see :class:`gpugate.policies.cluster.records.pod_problems.PodProblem`.
        message: the same.
        node: the same.
        number: number of pods.
        since: time of the first.
    """

    reason: str
    message: str
    node: str
    number: int
    since: float


class PodCounts(NamedTuple):
    """Counters of the pods of one owner or group. All of them request accelerators.

    Attributes:
        pending: pods that exist and do not run yet.
        running: running pods.
        succeeded: succeeded pods that still exist.
        failed: failed pods that still exist.
        leaving: terminating pods.
        held: accelerators of the pods on nodes.
        gated: pending pods with a scheduling gate.
        sorts: problems of pods that do not run, most frequent first; at most eight.
        unready: running pods that are not ready, by node.
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
    """Counters updated pod by pod."""

    __slots__ = ("_built", "_held", "_troubles", "phases")

    def __init__(self) -> None:
        self.phases = [0, 0, 0, 0, 0]
        self._held = 0
        self._troubles: dict[PodProblem, int] | None = None
        self._built: PodCounts | None = None

    def add(self, pod: PodRecord, sign: int) -> None:
        """Add or remove a pod."""
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
        """Return the sums as a record."""
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
    problems = [ProblemCount(*key, number=int(count), since=since) for key, (count, since) in counts.items()]
    return sorted(problems, key=lambda one: (-one.number, one[:3]))
