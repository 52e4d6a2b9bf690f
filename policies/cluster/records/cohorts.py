"""Kueue's cohorts as a tree of ClusterQueues and cohorts."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpugate.policies.cluster.records.common import frozen
from gpugate.policies.cluster.records.kueue import ClusterQueue, Cohort

_NOTHING: Final[Mapping[Any, Any]] = frozen({})


class CohortTree:
    """All cohorts, with and without an object, and their members.

    Attributes:
        cohorts: Cohort objects by name.
        queues: ClusterQueues by cohort.
        children: names of cohorts by their parent.
        memo: results of :mod:`gpugate.policies.queueing.cohort_quota`.
    """

    __slots__ = ("children", "cohorts", "memo", "queues")

    def __init__(self, queues: Iterable[ClusterQueue] = (), cohorts: Mapping[str, Cohort] = _NOTHING) -> None:
        self.cohorts = cohorts
        self.queues: dict[str, list[ClusterQueue]] = {}
        self.children: dict[str, list[str]] = {}
        self.memo: dict[Any, Any] = {}
        for queue in queues:
            if queue.cohort:
                self.queues.setdefault(queue.cohort, []).append(queue)
        for cohort in cohorts.values():
            if cohort.parent:
                self.children.setdefault(cohort.parent, []).append(cohort.name)

    def parent(self, name: str) -> str:
        """Return the parent of cohort ``name``; empty for none, and for a cohort without an object."""
        cohort = self.cohorts.get(name)
        return cohort.parent if cohort else ""

    def way_up(self, name: str) -> list[str] | None:
        """Return cohort ``name`` and its ancestors up to the root; None for a cycle."""
        way = [name]
        above = self.parent(name)
        seen = {name}
        while above:
            if above in seen:
                return None
            seen.add(above)
            way.append(above)
            above = self.parent(above)
        return way
