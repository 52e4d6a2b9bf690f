"""Manage the gangs of the cluster: their PodGroups, and reports of stuck ones."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import orjson

from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.gangs.status import GangState, Place, gang_states
from gpugate.webhook.audit.evaluate import parallel_jobs_for, stuck_after_for
from gpugate.webhook.audit.subjects import Subject
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.controller.gang_index import GangIndex
from gpugate.webhook.controller.gang_index import Place as ObjectPlace
from gpugate.webhook.controller.leader_election import LeaderOnlyClient
from gpugate.webhook.controller.pod_groups import PodGroupReconciler
from gpugate.webhook.kube.errors import ClusterError
from gpugate.webhook.kube.events import EventSink
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log

#: Seconds between two observations.
_EVERY: Final = 15.0
#: Seconds after the first observation for the lists of all kinds: a gang incomplete then was so before.
_START: Final = 60.0
#: Seconds for which an observation is current.
_CURRENT: Final = 5.0
#: Most stuck gangs with Events to read in one observation.
_MAX_READ: Final = 20
#: Seconds until they are read again: for each request the apiserver reads all Events of a namespace.
_READ_AGAIN: Final = 300.0
#: Reason of Events about pods that a controller could not create.
_FAILED_CREATE: Final = "FailedCreate"


class GangObserver:
    """Observes gangs and manages their PodGroups; `run` works only while this controller leads."""

    def __init__(
        self, api: LeaderOnlyClient, state: CurrentState, events: EventSink, log: Log, now: Callable[[], float] = time.time
    ) -> None:
        self.states: list[GangState] = []
        self._api = api
        self._state = state
        self._events = events
        self._log = log
        self._now = now
        self._index = GangIndex(state)
        self.reconciler = PodGroupReconciler(api, self._index, state, events, log)
        self._noticed: dict[Place, float] = {}
        self._first_observed_at: float | None = None
        self._observed_at = float("-inf")
        self._refusals: dict[str, str] = {}
        self._read_at: dict[str, float] = {}
        self._reported: set[tuple[Place, float | None]] = set()

    def on_workload(self, place: ObjectPlace, subject: Subject | None) -> None:
        """Take a workload as it is now; None if it is gone or finished.

        ReplicaSets of Deployments, and pods with a controller, are not part of the index.
        """
        has_controller = subject is not None and subject.owner is not None and subject.kind.is_pod
        if subject is None or has_controller or not subject.requests_gpu or not subject.text:
            changed = self._index.remove(place)
        else:
            changed = self._index.update(place, orjson.loads(subject.text))
        if changed:
            self.reconciler.requeue()

    async def run(self) -> None:
        """Reconcile PodGroups and report stuck gangs until cancelled."""
        self._reported.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reconciler.run())
            group.create_task(self._report_loop())

    async def _report_loop(self) -> None:
        while True:
            try:
                await self.observe_and_report()
            except Exception as error:  # noqa: BLE001 - the next observation may succeed
                self._log.error("cannot observe gangs", error=repr(error))
            await asyncio.sleep(_EVERY)

    async def observe_and_report(self) -> None:
        """Observe every gang, and report stuck ones."""
        self.observe()
        await self._read_refusals()
        self._report_stuck()

    def observe(self) -> list[GangState]:
        """Return the current state of every gang."""
        now = self._now()
        self.states = self._states(now)
        if self._notice(now):
            # A gang that was complete until now is not late yet.
            self.states = self._states(now)
        self._observed_at = now
        return self.states

    def _states(self, now: float) -> list[GangState]:
        snapshot, policies = self._state.in_force
        return gang_states(
            snapshot,
            self._index.workloads(),
            now,
            stuck_after=stuck_after_for(snapshot, policies),
            parallel_jobs=parallel_jobs_for(snapshot, policies),
            noticed=self._noticed,
            refusals=self._refusals,
        )

    def current(self) -> list[GangState]:
        """Return the state of every gang, at most a few seconds old."""
        return self.states if 0 <= self._now() - self._observed_at < _CURRENT else self.observe()

    def _notice(self, now: float) -> bool:
        """Record since when gangs are incomplete; return whether there is a new one.

        A gang that is incomplete from the first observation on has been so since its pods' own times.
        """
        if self._first_observed_at is None and self._state.in_force.snapshot.sync_state("pods") is SyncState.SYNCED:
            self._first_observed_at = now
        known_before = self._first_observed_at is None or now - self._first_observed_at < _START
        waiting = {_place(gang) for gang in self.states if gang.state in {"starting", "stuck"}}
        new = waiting - self._noticed.keys()
        since = dict.fromkeys(new, 0.0 if known_before else now)
        self._noticed = {place: self._noticed[place] for place in waiting - new} | since
        return bool(new) and not known_before

    async def _read_refusals(self) -> None:
        """Read from Events why controllers created too few pods: nothing else has the reason."""
        now = self._now()
        incomplete = {state.uid: state for state in self.states if state.state == "stuck" and state.missing and state.uid}
        self._read_at = {uid: at for uid, at in self._read_at.items() if uid in incomplete}
        refusals = {uid: message for uid, message in self._refusals.items() if uid in incomplete}
        due = [gang for gang in incomplete.values() if not 0 <= now - self._read_at.get(gang.uid, float("-inf")) < _READ_AGAIN]
        for gang in due[:_MAX_READ]:
            self._read_at[gang.uid] = now
            path = f"/api/v1/namespaces/{gang.namespace}/events"
            selector = f"involvedObject.uid={gang.uid},reason={_FAILED_CREATE}"
            try:
                events = await self._api.list(path, limit=20, field_selector=selector)
            except ClusterError as error:
                self._log.warning("cannot read Events", namespace=gang.namespace, error=str(error))
                break
            refusals.pop(gang.uid, None)
            last = max(events.get("items") or (), key=_time_of, default=None)
            if last is not None:
                refusals[gang.uid] = " ".join(str(last.get("message")).split())[:300]
        if refusals != self._refusals:
            self._refusals = refusals
            self.observe()

    def _report_stuck(self) -> None:
        stuck = {(_place(gang), gang.since): gang for gang in self.states if gang.state == "stuck"}
        for gang in [gang for key, gang in stuck.items() if key not in self._reported]:
            place = {"namespace": gang.namespace, "kind": gang.kind, "name": gang.name}
            self._log.warning("gang is stuck", **place, reason=gang.reason, held=gang.held)
            reference = self._index.object_ref(gang)
            if reference is not None:
                self._events.emit(reference, reason="GangStuck", message=gang.reason, action="WatchGang")
        self._reported = set(stuck)


def _time_of(event: JsonObject) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")


def _place(gang: GangState) -> Place:
    return (gang.namespace, gang.kind, gang.name)
