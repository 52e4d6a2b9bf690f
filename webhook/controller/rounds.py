"""The rounds of the audit: everything at an interval and after a change of policies, what changed soon after it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from gpugate.policies.facts import Facts
from gpugate.policies.gang_states import GangState
from gpugate.policies.policy import PolicySet
from gpugate.webhook.audit.auditing import TEAM_LABELS, Lens
from gpugate.webhook.audit.books import Surroundings
from gpugate.webhook.audit.records import Audit
from gpugate.webhook.cluster.store import FactStore
from gpugate.webhook.controller.feeds import SubjectFeed
from gpugate.webhook.log import Log
from gpugate.webhook.state import State

#: Workloads judged between two looks at the clock.
_BATCH = 20


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When and how fast, in seconds and workloads per second.

    Attributes:
        interval: between two rounds over everything.
        settle: in which changes are gathered before those that changed are judged.
        rate: workloads judged per second at the most.
    """

    interval: float = 600.0
    settle: float = 2.0
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
class Source:
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
    """

    state: State
    store: FactStore
    feed: SubjectFeed
    ready: Callable[[], Awaitable[None]]
    name: str
    gangs: Callable[[], Iterable[GangState]] = tuple
    remarks: Callable[[], tuple[str, ...]] = tuple
    team_labels: tuple[str, ...] = TEAM_LABELS
    problems: Callable[[], Mapping[str, str]] = dict


class Rounds:
    """Keeps an audit up to date.

    Attributes:
        latest: the last audit; None before the first.
        last: what the last round did; None before the first.
        done: how many rounds were finished.
    """

    def __init__(self, source: Source, rhythm: Rhythm, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self.latest: Audit | None = None
        self.last: Round | None = None
        self.done = 0
        self._source = source
        self._rhythm = rhythm
        self._log = log
        self._clock = clock
        self._finished = asyncio.Condition()
        self._policies: PolicySet | None = None
        self._whole_at = float("-inf")

    async def run(self) -> None:
        """Go round until cancelled."""
        await self._source.ready()
        while True:
            await self._round()
            await self._wait()

    async def after(self, number: int) -> Audit:
        """The latest audit, once more than ``number`` rounds are done."""
        async with self._finished:
            await self._finished.wait_for(lambda: self.done > number and self.latest is not None)
        assert self.latest is not None  # noqa: S101 - just waited for
        return self.latest

    async def _wait(self) -> None:
        """Wait for a cause of another round: changes, another policy, or the end of the interval."""
        due = self._whole_at + self._rhythm.interval
        stirred = self._source.feed.stirred
        while self._clock() < due and not stirred.is_set() and not self._other_policies():
            try:
                async with asyncio.timeout(min(0.5, max(0.0, due - self._clock()))):
                    await stirred.wait()
            except TimeoutError:
                continue
        if not self._other_policies():
            await asyncio.sleep(min(self._rhythm.settle, max(0.0, due - self._clock())))

    def _other_policies(self) -> bool:
        before = self._policies
        return before is None or before.policies != self._source.state.snapshot.policies.policies

    async def _round(self) -> None:
        source, started, cpu = self._source, self._clock(), time.process_time()
        whole = self._other_policies() or started >= self._whole_at + self._rhythm.interval
        source.feed.stirred.clear()
        facts, policies = source.state.snapshot
        self._policies = policies
        judged = 0
        judging = source.feed.books.judge(Lens(policies, facts, source.team_labels, time.time()), anew=whole)
        for looked, found in enumerate(judging):
            judged += found is not None
            if looked % _BATCH == 0:
                await asyncio.sleep(max(0.0, started + judged / self._rhythm.rate - self._clock()))
        if whole:
            self._whole_at = started
        self.latest = self._audit(facts, policies)
        self.last = Round(judged, whole, self._clock() - started, time.process_time() - cpu)
        if whole:
            self._log.info(
                "audited", workloads=len(self.latest.workloads), seconds=round(self.last.seconds, 3), cpu=round(self.last.cpu, 3)
            )
        async with self._finished:
            self.done += 1
            self._finished.notify_all()

    def _audit(self, facts: Facts, policies: PolicySet) -> Audit:
        """The whole audit, by the facts and policies that the workloads were judged by: newer ones may be there already."""
        source = self._source
        around = Surroundings(
            datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            source.name,
            policies,
            facts,
            source.store.node,
            source.store.use_of_node,
            problems=source.problems(),
            remarks=tuple(source.remarks()),
            gangs=tuple(source.gangs()),
        )
        return source.feed.books.whole(around)
