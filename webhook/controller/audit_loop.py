"""The rounds of the audit: everything at an interval and after a change of policies, what changed soon after it did."""

from __future__ import annotations

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
from gpugate.webhook.audit.attribution_of_pods import usage_of
from gpugate.webhook.audit.evaluate import TEAM_LABELS, AuditContext
from gpugate.webhook.audit.index import Surroundings
from gpugate.webhook.audit.model import Audit
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.controller.informers import WorkloadInformer
from gpugate.webhook.prometheus.readings import Readings
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.times import rfc3339

#: Workloads judged between two looks at the clock.
_BATCH: Final = 20
#: Seconds after a round that broke, doubled with each that breaks after it.
_SHORTEST_BREAK: Final = 0.05
_LONGEST_BREAK: Final = 60.0
#: Rounds over what changed take at most this part of the time, but are never this long apart, in seconds.
_MOST_BUSY: Final = 0.1
_LONGEST_SETTLE: Final = 60.0
#: Facts that change seldom, and with them what is said of workloads that did not change.
_SURROUNDINGS: Final = ("namespaces", "shapes", "queues", "limit_ranges", "flavors", "known")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSchedule:
    """When and how fast, in seconds and workloads per second.

    Attributes:
        interval: between two rounds over everything.
        settle: in which changes are gathered before those that changed are judged; longer where judging them takes long.
        surroundings: between two rounds over everything because nodes, namespaces or queues have changed.
        rate: workloads judged per second at the most.
    """

    interval: float = 600.0
    settle: float = 2.0
    surroundings: float = 60.0
    rate: float = 500.0


class Round(NamedTuple):
    """What one round did.

    Attributes:
        judged: workloads judged.
        whole: whether it went over everything.
        seconds: how long it took.
        cpu: CPU seconds of this process meanwhile.
    """

    judged: int
    whole: bool
    seconds: float
    cpu: float


@dataclass(slots=True)
class AuditSource:
    """Where the audit looks.

    Attributes:
        state: facts and policies.
        store: what the facts are made from.
        feed: the workloads.
        ready: returns when everything was read once, or will not be.
        name: the cluster, in words.
        gangs: gives the state of every gang.
        remarks: says what cannot be read.
        team_labels: labels that say who a workload belongs to.
        problems: says of which policies the newest state is not in force, and why.
        readings: gives what monitoring tells of devices, the very same until it tells something else; None for nothing.
    """

    state: CurrentState
    store: SnapshotStore
    feed: WorkloadInformer
    ready: Callable[[], Awaitable[None]]
    name: str
    gangs: Callable[[], Iterable[GangState]] = tuple
    remarks: Callable[[], tuple[str, ...]] = tuple
    team_labels: tuple[str, ...] = TEAM_LABELS
    problems: Callable[[], Mapping[str, str]] = dict
    readings: Callable[[], Readings | None] = lambda: None


class AuditLoop:
    """Keeps an audit up to date.

    Attributes:
        latest: the last audit; None before the first.
        last: what the last round did; None before the first.
        done: how many rounds were finished.
        whole_at: when everything was last looked at, RFC 3339; empty before.
    """

    def __init__(
        self,
        source: AuditSource,
        rhythm: AuditSchedule,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.latest: Audit | None = None
        self.last: Round | None = None
        self.done = 0
        self.whole_at = ""
        self._source = source
        self._rhythm = rhythm
        self._log = log
        self._clock = clock
        self._wall = wall
        self._finished = asyncio.Condition()
        self._policies: PolicySet | None = None
        self._facts: ClusterSnapshot | None = None
        self._whole_at = float("-inf")
        self._settle = rhythm.settle
        self._ends_at = float("inf")
        self._readings: Readings | None = None
        self._usage = Usage()

    async def run(self) -> None:
        """Go round until cancelled; a round that breaks ends none of those that follow."""
        await self._source.ready()
        broken = 0
        while True:
            try:
                await self._round()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next round may do better
                self._log.error("a round of the audit broke", traceback="".join(traceback.format_exception(error)))
                # What it did not come to is not judged: the next goes over everything, and soon.
                self._policies = None
                await asyncio.sleep(min(_LONGEST_BREAK, max(self._rhythm.settle, _SHORTEST_BREAK) * 2.0 ** min(broken, 16)))
                broken += 1
            else:
                broken = 0
            await self._wait()

    async def after(self, number: int) -> Audit:
        """The latest audit, once more than ``number`` rounds are done."""
        async with self._finished:
            await self._finished.wait_for(lambda: self.done > number and self.latest is not None)
        assert self.latest is not None  # noqa: S101 - just waited for
        return self.latest

    async def _wait(self) -> None:
        """Wait for a cause of another round: changes, another policy, other surroundings, or the end of the interval."""
        stirred = self._source.feed.stirred
        while not stirred.is_set() and not self._whole_is_due() and self._source.readings() is self._readings:
            try:
                async with asyncio.timeout(0.5):
                    await stirred.wait()
            except TimeoutError:
                continue
        if not self._whole_is_due():
            await asyncio.sleep(self._settle)

    def _whole_is_due(self) -> bool:
        """Whether everything is to be judged anew."""
        snapshot, policies = self._source.state.in_force
        if self._policies is None or self._policies.policies != policies.policies:
            return True
        if self._wall() >= self._ends_at:
            return True
        age = self._clock() - self._whole_at
        return age >= self._rhythm.interval or (age >= self._rhythm.surroundings and self._have_changed(snapshot))

    def _have_changed(self, snapshot: ClusterSnapshot) -> bool:
        """Whether the surroundings of the workloads differ from those of the last round over everything."""
        before = self._facts
        return before is None or any(getattr(before, name) != getattr(snapshot, name) for name in _SURROUNDINGS)

    async def _round(self) -> None:
        source, started, cpu = self._source, self._clock(), time.process_time()
        whole = self._whole_is_due()
        source.feed.stirred.clear()
        snapshot, policies = source.state.in_force
        self._policies = policies
        snapshot, used = self._with_usage(snapshot)
        judged = 0
        lens = AuditContext(policies, snapshot, source.team_labels, self._wall())
        judging = source.feed.books.judge(lens, anew=whole, also=used)
        for looked, found in enumerate(judging):
            judged += found is not None
            if looked % _BATCH == 0:
                await asyncio.sleep(max(0.0, started + judged / self._rhythm.rate - self._clock()))
        self.latest = self._audit(snapshot, policies)
        if whole:
            self._whole_at, self.whole_at, self._facts = started, self.latest.at, snapshot
        self.last = Round(judged, whole, self._clock() - started, time.process_time() - cpu)
        self._ends_at = _next_end(self.latest)
        if not whole:
            self._settle = min(_LONGEST_SETTLE, max(self._rhythm.settle, self.last.cpu / _MOST_BUSY))
        if whole:
            self._log.info(
                "audited", workloads=len(self.latest.workloads), seconds=round(self.last.seconds, 3), cpu=round(self.last.cpu, 3)
            )
        async with self._finished:
            self.done += 1
            self._finished.notify_all()

    def _with_usage(self, snapshot: ClusterSnapshot) -> tuple[ClusterSnapshot, frozenset[Place]]:
        """``snapshot`` with what monitoring tells, and the workloads of which it tells something else than in the last round."""
        before, readings = self._usage, self._source.readings()
        self._readings = readings
        self._usage = Usage() if readings is None else usage_of(readings, self._source.feed.books.homes())
        places = before.workloads.keys() | self._usage.workloads.keys()
        changed = frozenset(place for place in places if before.of(place) != self._usage.of(place))
        return (snapshot if readings is None else replace(snapshot, usage=self._usage)), changed

    def _audit(self, snapshot: ClusterSnapshot, policies: PolicySet) -> Audit:
        """The whole audit, by the facts and policies that the workloads were judged by: newer ones may be there already."""
        source = self._source
        around = Surroundings(
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
        return source.feed.books.whole(around)


def _next_end(audit: Audit) -> float:
    """When the first of the exemptions in force ends, in seconds since 1970: its workload is then judged anew."""
    ends = (instant_of(one.exemption.until) for one in audit.workloads if one.exemption and one.exemption.state == "active")
    return min((end for end in ends if end is not None), default=float("inf"))
