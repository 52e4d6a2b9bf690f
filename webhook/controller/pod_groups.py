"""Makes the PodGroups that gangs need, keeps those that gpugate owns, and never touches one that it does not own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, NamedTuple, Protocol

from gpugate.policies.cluster.records.pod_groups import GroupKey, PodGroup, pod_group_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.rules.gangs.gang import API_GROUPS, WantedPodGroup, correction, fits, is_ours, manifest
from gpugate.webhook.cache.kinds import FACT_KINDS
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.controller.gang_index import GangIndex, Planned
from gpugate.webhook.controller.leader_client import Api
from gpugate.webhook.kube.event_series import Kind, Reference
from gpugate.webhook.kube.lister import version_of
from gpugate.webhook.kube.reflector import Backoff
from gpugate.webhook.kube.types import CONFLICT, NOT_FOUND, ApiError, ClusterError, WatchedKind
from gpugate.webhook.runtime.log import Log

_KINDS: Final[dict[str, WatchedKind]] = {
    system: next(one for one in FACT_KINDS if one.resource == f"podgroups.{group}") for system, group in API_GROUPS.items()
}
#: Seconds between two looks at all gangs, and within which changes are gathered.
_EVERY: Final = 10.0
_GATHER: Final = 0.2
#: Seconds between two calls that write: 10,000 gangs at once take a while, and nobody else's calls wait for them.
_SPACING: Final = 0.02
#: Seconds in which the watch shows what was written; until then nothing more is done about it.
_SHOWN: Final = 5.0
#: Seconds after which a new PodGroup is touched once more, where its scheduler may have missed that it came.
_TOUCH_AFTER: Final = 2.0


class EventSink(Protocol):
    """Who sends Events; `gpugate.webhook.kube.events.Recorder` is one."""

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: Kind = "Warning") -> None:
        """Have an Event about `regarding` sent."""


class _Delay(NamedTuple):
    """A group that is left alone for a while: how often it failed, and until when."""

    failures: int
    until: float


class _Untouched(NamedTuple):
    """A PodGroup just made: its version then, and when it is to be touched."""

    version: str
    due: float


class PodGroupReconciler:
    """Compares the plans of all gangs with the PodGroups that are there. Started again, it finds everything in the cluster.

    Attributes:
        states: how many gangs have a PodGroup of gpugate's (``owned``), one of somebody else's (``foreign``), would have one
            if the rule were not in DryRun (``would create``), wait for their kind to be served (``not served``), or get none
            for a reason of their own (``none``).
        written: calls that wrote, by what they did.
    """

    def __init__(
        self,
        api: Api,
        book: GangIndex,
        state: CurrentState,
        teller: EventSink,
        log: Log,
        pace: Backoff = Backoff(),  # noqa: B008 - it is frozen
    ) -> None:
        self.states: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self._api = api
        self._book = book
        self._state = state
        self._teller = teller
        self._log = log
        self._pace = pace
        self._stirred = asyncio.Event()
        self._versions: dict[str, str] = {}
        self._delays: dict[tuple[str, GroupKey], _Delay] = {}
        self._untouched: dict[str, _Untouched] = {}
        self._told: set[tuple[object, ...]] = set()

    def requeue(self) -> None:
        """Have the keeper look soon: a gang came, changed or went."""
        self._stirred.set()

    async def run(self) -> None:
        """Keep the PodGroups until cancelled."""
        self._delays.clear()
        self._untouched.clear()
        while True:
            self._stirred.clear()
            try:
                await self.reconcile_all()
                await self.touch()
            except Exception as error:  # noqa: BLE001 - what is wrong with one look must not end the next
                self._log.error("looking after PodGroups failed", error=repr(error))
            await self._wait()

    async def _wait(self) -> None:
        due = min((one.due for one in self._untouched.values()), default=None)
        within = _EVERY if due is None else min(_EVERY, max(0.0, due - self._pace.clock()))
        try:
            async with asyncio.timeout(within):
                await self._stirred.wait()
        except TimeoutError:
            return
        await self._pace.sleep(_GATHER)

    async def reconcile_all(self) -> None:
        """Go over all gangs once."""
        states: Counter[str] = Counter()
        started = self._pace.clock()
        planned = list(self._book.plans())
        for one in planned:
            states[await self._reconcile(one)] += 1
        await self._clear_out({one.about.uid: one for one in planned if one.about.uid})
        here = {one.about for one in planned}
        self._told = {one for one in self._told if one[0] in here}
        # What is still wanted was tried again in this look, and put off anew.
        self._delays = {place: delay for place, delay in self._delays.items() if delay.until > started}
        self.states = states

    async def _reconcile(self, one: Planned) -> str:
        plan, wanted = one.plan, one.plan.wanted
        if wanted is None:
            if plan.why_not and self._first(one.about, plan.why_not):
                self._log.info("gang gets no PodGroup", **_fields(one.about), reason=plan.why_not)
            return "none"
        snapshot = self._state.in_force.snapshot
        record = snapshot.pod_groups.get((wanted.namespace, wanted.key))
        if plan.rehearsal or (record is None and not plan.create):
            return self._rehearse(one.about, wanted, record) if plan.create else "none"
        if snapshot.sync_state(_KINDS[wanted.system].resource) is not SyncState.SYNCED:
            return "not served"
        if record is None or (is_ours(record, wanted) and not fits(record, wanted)):
            return await self._carefully(one.about, wanted, record)
        if is_ours(record, wanted):
            return "owned"
        self._tell_foreign(one.about, wanted, record)
        return "foreign"

    def _rehearse(self, about: Reference, wanted: WantedPodGroup, record: PodGroup | None) -> str:
        if record is not None:
            return "owned" if is_ours(record, wanted) else "foreign"
        if self._first(about, "rehearsal"):
            self._log.info("would make a PodGroup", **_fields(about), pod_group=wanted.name, minimum=wanted.minimum)
        return "would create"

    async def _carefully(self, about: Reference, wanted: WantedPodGroup, record: PodGroup | None) -> str:
        """Write, unless that was just done or failed a moment ago; what goes wrong is logged and tried again later."""
        place, now = (wanted.namespace, wanted.key), self._pace.clock()
        delay = self._delays.get(place, _Delay(0, now))
        if now < delay.until:
            return "owned" if record is not None or not delay.failures else "not made"
        try:
            outcome = await (self._create(about, wanted) if record is None else self._correct(about, wanted))
        except ClusterError as error:
            self._versions.pop(wanted.system, None)
            self._delays[place] = _Delay(delay.failures + 1, now + self._pace.backoff(delay.failures))
            self.written["failed"] += 1
            self._log.warning("PodGroup not written", **_fields(about), pod_group=wanted.name, error=str(error))
            return "not made"
        self._delays[place] = _Delay(0, self._pace.clock() + _SHOWN)
        await self._pace.sleep(_SPACING)
        return outcome

    async def _create(self, about: Reference, wanted: WantedPodGroup) -> str:
        version = await self._version(wanted.system)
        try:
            made = await self._api.create(_collection(wanted, version), manifest(wanted, version))
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            return await self._correct(about, wanted)
        self.written["created"] += 1
        if wanted.system == "Coscheduling":
            version_then = str(made["metadata"]["resourceVersion"])
            self._untouched[f"{_collection(wanted, version)}/{wanted.name}"] = _Untouched(
                version_then, self._pace.clock() + _TOUCH_AFTER
            )
        needed = f"{wanted.minimum} pods start together or not at all"
        self._log.info("PodGroup made", **_fields(about), pod_group=wanted.name, minimum=wanted.minimum)
        self._teller.emit(
            about,
            reason="PodGroupCreated",
            message=f"made PodGroup {wanted.name}: {needed}",
            action="CreatePodGroup",
            kind="Normal",
        )
        return "owned"

    async def touch(self) -> None:
        """Change new PodGroups of the coscheduling plugin once more, those that nobody changed meanwhile.

        The plugin (v0.34.7) hears of a PodGroup by one watch and reads it by another, which may lag: pods that it looked at in
        between wait five minutes, or until their PodGroup changes, whatever nodes come.
        """
        now = self._pace.clock()
        for path, one in [(path, one) for path, one in self._untouched.items() if one.due <= now]:
            del self._untouched[path]
            metadata = {"resourceVersion": one.version, "annotations": {"gpugate.io/touched": "true"}}
            try:
                await self._api.patch(path, {"metadata": metadata})
            except ApiError as error:
                if error.status not in {CONFLICT, NOT_FOUND}:
                    self._log.warning("PodGroup not touched", path=path, error=str(error))
            else:
                self.written["touched"] += 1

    async def _correct(self, about: Reference, wanted: WantedPodGroup) -> str:
        """Compare with the stored object itself: what is about to be written must not rest on a watch that lags."""
        version = await self._version(wanted.system)
        path = f"{_collection(wanted, version)}/{wanted.name}"
        stored = await self._api.get(path)
        record = pod_group_of(stored)
        if not is_ours(record, wanted):
            self._tell_foreign(about, wanted, record)
            return "foreign"
        patch = correction(stored, wanted)
        if patch is not None:
            await self._api.patch(path, patch)
            self.written["updated"] += 1
            self._log.info("PodGroup corrected", **_fields(about), pod_group=wanted.name, minimum=wanted.minimum)
        if wanted.system == "Kubernetes" and record.minimum != wanted.minimum and self._first(about, "immutable"):
            self._teller.emit(
                about,
                reason="PodGroupFixed",
                message=f"minCount of PodGroup {wanted.name} is {record.minimum} and should be {wanted.minimum}: Kubernetes lets"
                " nobody change it; delete the PodGroup while no pod of it runs",
                action="UpdatePodGroup",
            )
        return "owned"

    async def _clear_out(self, planned: dict[str, Planned]) -> None:
        """Delete what gpugate made for a workload that is no gang any more, once no pod names it."""
        snapshot = self._state.in_force.snapshot
        for (namespace, key), record in list(snapshot.pod_groups.items()):
            owner = next((planned[uid] for uid in record.owners if uid in planned), None) if record.managed else None
            if owner is None or key in owner.named or _is_wanted(owner, key) or _has_members(snapshot, namespace, key):
                continue
            place, now = (namespace, key), self._pace.clock()
            delay = self._delays.get(place, _Delay(0, now))
            if now < delay.until:
                continue
            try:
                await self._delete(namespace, key, owner)
            except ClusterError as error:
                self._delays[place] = _Delay(delay.failures + 1, now + self._pace.backoff(delay.failures))
                self._log.warning("PodGroup not deleted", **_fields(owner.about), pod_group=key.name, error=str(error))
            else:
                self._delays[place] = _Delay(0, self._pace.clock() + _SHOWN)

    async def _delete(self, namespace: str, key: GroupKey, owner: Planned) -> None:
        version = await self._version(key.system)
        path = f"/apis/{API_GROUPS[key.system]}/{version}/namespaces/{namespace}/podgroups/{key.name}"
        try:
            stored = await self._api.get(path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return
            raise
        record = pod_group_of(stored)
        if record.managed and owner.about.uid in record.owners:
            await self._api.delete(path, uid=str(stored["metadata"]["uid"]))
            self.written["deleted"] += 1
            self._log.info("PodGroup deleted", **_fields(owner.about), pod_group=key.name)

    async def _version(self, system: str) -> str:
        """The version of the kind that is served now."""
        if system not in self._versions:
            kind = _KINDS[system]
            version = await version_of(self._api, kind)
            if version is None:
                message = f"PodGroup of {kind.group} is not served"
                raise ClusterError(message)
            self._versions[system] = version
        return self._versions[system]

    def _tell_foreign(self, about: Reference, wanted: WantedPodGroup, record: PodGroup) -> None:
        """Say once that a PodGroup of somebody else has the name, and whether it does its work."""
        if not self._first(about, "foreign", wanted.name, record.minimum):
            return
        maker = "for another workload of that group" if record.managed else "by somebody else"
        fitting = record.minimum == wanted.minimum
        states = f"it asks for {record.minimum} pods" + ("" if fitting else f", and the gang needs {wanted.minimum}")
        self._log.info("PodGroup of somebody else left alone", **_fields(about), pod_group=wanted.name, minimum=record.minimum)
        self._teller.emit(
            about,
            reason="PodGroupNotOwned",
            message=f"PodGroup {wanted.name} was made {maker} and is left alone: {states}",
            action="LeavePodGroup",
            kind="Normal" if fitting else "Warning",
        )

    def _first(self, about: Reference, *what: object) -> bool:
        """Whether this is said of the workload for the first time since this controller leads."""
        key = (about, *what)
        if key in self._told:
            return False
        self._told.add(key)
        return True


def _fields(about: Reference) -> dict[str, str]:
    return {"namespace": about.namespace, "kind": about.kind, "name": about.name}


def _collection(wanted: WantedPodGroup, version: str) -> str:
    return f"/apis/{API_GROUPS[wanted.system]}/{version}/namespaces/{wanted.namespace}/podgroups"


def _is_wanted(owner: Planned, key: GroupKey) -> bool:
    return owner.plan.wanted is not None and owner.plan.wanted.key == key


def _has_members(snapshot: ClusterSnapshot, namespace: str, key: GroupKey) -> bool:
    found = snapshot.group(namespace, key)
    return found is not None and bool(found.present or found.leaving)
