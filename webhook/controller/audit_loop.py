"""Run audits: a full one at an interval and after changes of policies, and partial ones after changes of workloads."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from gpugate.policies.cluster.gpu_usage import Place, Usage
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.status import GangState
from gpugate.policies.kube.times import instant_of
from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.audit.evaluate import TEAM_LABELS, AuditContext
from gpugate.webhook.audit.index import AuditInputs
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.controller.informers import WorkloadInformer
from gpugate.webhook.prometheus.readings import Readings
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.times import rfc3339

#: Workloads evaluated between two checks of the rate.
_BATCH: Final = 20
#: Seconds after a failed round, doubled with each further failure.
_SHORTEST_BREAK: Final = 0.05
_LONGEST_BREAK: Final = 60.0
#: Largest share of time for partial audits, and the longest time between two of them in seconds.
_MAX_BUSY: Final = 0.1
_LONGEST_GATHER: Final = 60.0
#: Slow facts: they change seldom, and affect workloads that did not change.
_SLOW_FACTS: Final = ("namespaces", "shapes", "queues", "limit_ranges", "flavors", "known")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSchedule:
    """Intervals and rate, in seconds and workloads per second.

    Attributes:
        gather: time to gather changes before a partial audit; longer if evaluation takes long.
        slow_facts: shortest time between full audits caused by changed nodes, namespaces or queues.
        rate: most workloads evaluated per second.
    """

    interval: float = 600.0
    gather: float = 2.0
    slow_facts: float = 60.0
    rate: float = 500.0


class Round(NamedTuple):
    """One finished audit, with its duration and the CPU time of this process, in seconds."""

    evaluated: int
    full: bool
    seconds: float
    cpu: float


@dataclass(slots=True)
class AuditSource:
    """The inputs of the audits; ``readings`` returns the same object until the device figures change."""

    state: CurrentState
    store: SnapshotStore
    informer: WorkloadInformer
    ready: Callable[[], Awaitable[None]]
    name: str
    gangs: Callable[[], Iterable[GangState]] = tuple
    remarks: Callable[[], tuple[str, ...]] = tuple
    team_labels: tuple[str, ...] = TEAM_LABELS
    problems: Callable[[], Mapping[str, str]] = dict
    readings: Callable[[], Readings | None] = lambda: None


class AuditLoop:
    """Keeps an audit up to date; ``done`` counts the rounds, ``full_at`` is the time of the last full audit (RFC 3339)."""

    def __init__(
        self,
        source: AuditSource,
        schedule: AuditSchedule,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.latest: Audit | None = None
        self.last: Round | None = None
        self.done = 0
        self.full_at = ""
        self._source = source
        self._schedule = schedule
        self._log = log
        self._clock = clock
        self._wall = wall
        self._finished = asyncio.Condition()
        self._policies: PolicySet | None = None
        self._facts: ClusterSnapshot | None = None
        self._full_at = float("-inf")
        self._gather = schedule.gather
        self._ends_at = float("inf")
        self._readings: Readings | None = None
        self._usage = Usage()

    async def run(self) -> None:
        """Audit until cancelled; a failed round does not stop the loop."""
        await self._source.ready()
        failures = 0
        while True:
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                self._log.error("an audit round failed", traceback="".join(traceback.format_exception(error)))
                # The round may be incomplete: run a full audit next.
                self._policies = None
                await asyncio.sleep(min(_LONGEST_BREAK, max(self._schedule.gather, _SHORTEST_BREAK) * 2.0 ** min(failures, 16)))
                failures += 1
            else:
                failures = 0
            await self._wait()

    async def after(self, number: int) -> Audit:
        """Wait for more than ``number`` finished rounds; return the latest audit."""
        async with self._finished:
            await self._finished.wait_for(lambda: self.done > number and self.latest is not None)
        assert self.latest is not None  # noqa: S101 - just waited for
        return self.latest

    async def _wait(self) -> None:
        """Wait for a reason to audit: changed workloads, policies, slow facts or figures, or the end of the interval."""
        updated = self._source.informer.updated
        while not updated.is_set() and not self._full_audit_is_due() and self._source.readings() is self._readings:
            try:
                async with asyncio.timeout(0.5):
                    await updated.wait()
            except TimeoutError:
                continue
        if not self._full_audit_is_due():
            await asyncio.sleep(self._gather)

    def _full_audit_is_due(self) -> bool:
        snapshot, policies = self._source.state.in_force
        if self._policies is None or self._policies.policies != policies.policies:
            return True
        if self._wall() >= self._ends_at:
            return True
        age = self._clock() - self._full_at
        if age < self._schedule.slow_facts:
            return age >= self._schedule.interval
        before = self._facts
        changed = before is None or any(getattr(before, name) != getattr(snapshot, name) for name in _SLOW_FACTS)
        return changed or age >= self._schedule.interval

    async def _round(self) -> None:
        source, started, cpu = self._source, self._clock(), time.process_time()
        full = self._full_audit_is_due()
        source.informer.updated.clear()
        snapshot, policies = source.state.in_force
        self._policies = policies
        snapshot, changed = self._with_usage(snapshot)
        evaluated = 0
        context = AuditContext(policies, snapshot, source.team_labels, self._wall())
        for number, result in enumerate(source.informer.index.evaluate(context, everything=full, also=changed)):
            evaluated += result is not None
            if number % _BATCH == 0:
                await asyncio.sleep(max(0.0, started + evaluated / self._schedule.rate - self._clock()))
        self.latest = self._audit(snapshot, policies)
        if full:
            self._full_at, self.full_at, self._facts = started, self.latest.at, snapshot
        self.last = Round(evaluated, full, self._clock() - started, time.process_time() - cpu)
        self._ends_at = _next_end(self.latest)
        if full:
            seconds, cpu = round(self.last.seconds, 3), round(self.last.cpu, 3)
            self._log.info("audited", workloads=len(self.latest.workloads), seconds=seconds, cpu=cpu)
        else:
            self._gather = min(_LONGEST_GATHER, max(self._schedule.gather, self.last.cpu / _MAX_BUSY))
        async with self._finished:
            self.done += 1
            self._finished.notify_all()

    def _with_usage(self, snapshot: ClusterSnapshot) -> tuple[ClusterSnapshot, frozenset[Place]]:
        """Return ``snapshot`` with the device figures, and the workloads whose figures changed since the last round."""
        before, readings = self._usage, self._source.readings()
        self._readings = readings
        self._usage = Usage() if readings is None else self._source.informer.index.usage_of(readings)
        places = before.workloads.keys() | self._usage.workloads.keys()
        changed = frozenset(place for place in places if before.of(place) != self._usage.of(place))
        return (snapshot if readings is None else replace(snapshot, usage=self._usage)), changed

    def _audit(self, snapshot: ClusterSnapshot, policies: PolicySet) -> Audit:
        """Build the audit with the snapshot and policies of the evaluation: newer ones may exist already."""
        source = self._source
        inputs = AuditInputs(
            rfc3339(self._wall()),
            source.name,
            policies,
            snapshot,
            source.store.node,
            source.store.use_of_node,
            problems=source.problems(),
            remarks=tuple(source.remarks()),
            gangs=tuple(source.gangs()),
            readings=self._readings,
        )
        return source.informer.index.build_audit(inputs)


def _next_end(audit: Audit) -> float:
    """Return the end of the first active exemption, in seconds since 1970: its workload is then evaluated again."""
    ends = (
        instant_of(workload.exemption.until)
        for workload in audit.workloads
        if workload.exemption and workload.exemption.state == "active"
    )
    return min((end for end in ends if end is not None), default=float("inf"))
