"""Everything that the controller does for gangs: their PodGroups, and those that are stuck."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

import orjson
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.gangs.status import GangState, Place, gang_states
from gpugate.webhook.audit.gangs import stuck_after_for
from gpugate.webhook.audit.subjects import Subject
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.controller.gang_index import GangIndex
from gpugate.webhook.controller.gang_index import Place as ObjectPlace
from gpugate.webhook.controller.leader_client import Api
from gpugate.webhook.controller.pod_groups import EventSink, PodGroupReconciler
from gpugate.webhook.kube.types import ClusterError, JsonObject
from gpugate.webhook.runtime.log import Log

#: Seconds between two looks at where the gangs stand.
_EVERY: Final = 15.0
#: Seconds after the first look in which the lists of all kinds come in: what is incomplete then was so before.
_START: Final = 60.0
#: Seconds for which a look serves whoever asks.
_CURRENT: Final = 5.0
#: Stuck gangs whose controllers' Events are asked for in one look.
_MOST_ASKED: Final = 20
#: Seconds after which they are asked for again: the apiserver reads all Events of a namespace for each question.
_ASK_AGAIN: Final = 300.0
#: Reasons of Events by which controllers say that they could not make a pod.
_REFUSED: Final = "FailedCreate"
_STATES: Final = ("running", "queued", "starting", "stuck", "done")


class GangObserver:
    """What the controller knows of gangs, and what it does for them.

    `heard` is fed from the start; `run` goes on while this controller leads.

    Attributes:
        states: where every gang stood when they were looked at last.
        keeper: keeps the PodGroups.
    """

    def __init__(self, api: Api, state: CurrentState, teller: EventSink, log: Log, now: Callable[[], float] = time.time) -> None:
        self.states: list[GangState] = []
        self._api = api
        self._state = state
        self._teller = teller
        self._log = log
        self._now = now
        self._book = GangIndex(state)
        self.keeper = PodGroupReconciler(api, self._book, state, teller, log)
        self._noticed: dict[Place, float] = {}
        self._first_look: float | None = None
        self._looked_at = float("-inf")
        self._refusals: dict[str, str] = {}
        self._asked: dict[str, float] = {}
        self._told: set[tuple[Place, float | None]] = set()

    def on_workload(self, place: ObjectPlace, subject: Subject | None) -> None:
        """Take a workload as it is now; None, or one that has ended, is one of a gang no longer.

        Nor is one of which nothing is kept, the ReplicaSet of a Deployment, and a pod that a controller has made or adopted.
        """
        adopted = subject is not None and subject.owner is not None and subject.kind.is_pod
        if subject is None or adopted or not subject.asks or not subject.text:
            changed = self._book.gone(place)
        else:
            changed = self._book.seen(place, orjson.loads(subject.text))
        if changed:
            self.keeper.requeue()

    async def run(self) -> None:
        """Keep PodGroups and tell of stuck gangs, until cancelled."""
        self._told.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.keeper.run())
            group.create_task(self._tell())

    async def _tell(self) -> None:
        while True:
            try:
                await self.look_and_tell()
            except Exception as error:  # noqa: BLE001 - what is wrong with one look must not end the next
                self._log.error("looking at gangs failed", error=repr(error))
            await asyncio.sleep(_EVERY)

    async def look_and_tell(self) -> None:
        """Look where every gang stands, and tell of those that are stuck."""
        self.look()
        await self._ask()
        self._tell_stuck()

    def look(self) -> list[GangState]:
        """Where every gang stands now."""
        now = self._now()
        self.states = self._states(now)
        if self._notice(now):
            # What was complete a moment ago is not late yet.
            self.states = self._states(now)
        self._looked_at = now
        return self.states

    def _states(self, now: float) -> list[GangState]:
        snapshot, policies = self._state.in_force
        return gang_states(
            snapshot,
            self._book.workloads(),
            now,
            stuck_after=stuck_after_for(snapshot, policies),
            noticed=self._noticed,
            refusals=self._refusals,
        )

    def current(self) -> list[GangState]:
        """Where every gang stands, as of a few seconds ago."""
        return self.states if 0 <= self._now() - self._looked_at < _CURRENT else self.look()

    def _notice(self, now: float) -> bool:
        """Remember since when gangs are incomplete; say whether that is news of any.

        What is so from the start has been for as long as its pods tell.
        """
        if self._first_look is None and self._state.in_force.snapshot.sync_state("pods") is SyncState.SYNCED:
            self._first_look = now
        known_before = self._first_look is None or now - self._first_look < _START
        waiting = {(one.namespace, one.kind, one.name) for one in self.states if one.state in {"starting", "stuck"}}
        fresh = waiting - self._noticed.keys()
        since = dict.fromkeys(fresh, 0.0 if known_before else now)
        self._noticed = {place: self._noticed[place] for place in waiting - fresh} | since
        return bool(fresh) and not known_before

    async def _ask(self) -> None:
        """Ask why controllers made too few pods: their Events say it, and nothing else does."""
        now = self._now()
        wanting = {one.uid: one for one in self.states if one.state == "stuck" and one.missing and one.uid}
        self._asked = {uid: at for uid, at in self._asked.items() if uid in wanting}
        refusals = {uid: said for uid, said in self._refusals.items() if uid in wanting}
        due = [one for one in wanting.values() if not 0 <= now - self._asked.get(one.uid, float("-inf")) < _ASK_AGAIN]
        for one in due[:_MOST_ASKED]:
            self._asked[one.uid] = now
            try:
                found = await self._api.list(
                    f"/api/v1/namespaces/{one.namespace}/events",
                    limit=20,
                    field_selector=f"involvedObject.uid={one.uid},reason={_REFUSED}",
                )
            except ClusterError as error:
                self._log.warning("Events not read", namespace=one.namespace, error=str(error))
                break
            refusals.pop(one.uid, None)
            told = max(found.get("items") or (), key=_when, default=None)
            if told is not None:
                refusals[one.uid] = " ".join(str(told.get("message")).split())[:300]
        if refusals != self._refusals:
            self._refusals = refusals
            self.look()

    def _tell_stuck(self) -> None:
        for one in self.states:
            key = ((one.namespace, one.kind, one.name), one.since)
            if one.state != "stuck" or key in self._told:
                continue
            self._told.add(key)
            self._log.warning(
                "gang is stuck", namespace=one.namespace, kind=one.kind, name=one.name, reason=one.reason, held=one.held
            )
            about = self._book.object_ref(one)
            if about is not None:
                self._teller.emit(about, reason="GangStuck", message=one.reason, action="WatchGang")
        stuck = {((one.namespace, one.kind, one.name), one.since) for one in self.states if one.state == "stuck"}
        self._told &= stuck

    def metrics(self) -> Iterator[Metric]:
        """The families as they stand now."""
        gangs = GaugeMetricFamily("gpugate_gangs", "Gangs by where they stand.", labels=["state"])
        for state in _STATES:
            gangs.add_metric([state], sum(one.state == state for one in self.states))
        yield gangs
        stuck = [one for one in self.states if one.state == "stuck"]
        yield GaugeMetricFamily("gpugate_gangs_stuck", "Gangs that are there in part for too long.", value=len(stuck))
        held = sum(one.held for one in stuck)
        yield GaugeMetricFamily("gpugate_gangs_stuck_accelerators", "Accelerators that stuck gangs hold for nothing.", value=held)
        groups = GaugeMetricFamily("gpugate_pod_groups", "Gangs by whose PodGroup they have.", labels=["state"])
        for state, count in sorted(self.keeper.states.items()):
            groups.add_metric([state.replace(" ", "_")], count)
        yield groups
        writes = CounterMetricFamily("gpugate_pod_group_writes", "Calls that wrote PodGroups, by what they did.", labels=["action"])
        for action in ("created", "updated", "deleted", "failed"):
            writes.add_metric([action], self.keeper.written[action])
        yield writes


def _when(event: JsonObject) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
