"""Reconcile the PodGroups of gangs; PodGroups that gpugate does not own are never changed."""

import asyncio
from collections import Counter
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.pod_groups import GroupKey, PodGroup, pod_group_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.rules.gangs.gang.pod_groups import API_GROUPS, WantedPodGroup, correction, fits, is_ours, manifest
from gpugate.webhook.cache.kinds import FACT_KINDS
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.controller.gang_index import GangIndex, Planned
from gpugate.webhook.controller.leader_election import LeaderOnlyClient
from gpugate.webhook.kube.errors import CONFLICT, NOT_FOUND, ApiError, ClusterError
from gpugate.webhook.kube.event_series import Reference
from gpugate.webhook.kube.events import EventSink
from gpugate.webhook.kube.lister import version_of
from gpugate.webhook.kube.reflector import Backoff
from gpugate.webhook.kube.types import WatchedKind
from gpugate.webhook.runtime.log import Log

_KINDS: Final[dict[str, WatchedKind]] = {
    system: next(kind for kind in FACT_KINDS if kind.resource == f"podgroups.{group}") for system, group in API_GROUPS.items()
}
#: Seconds between two reconciliations, and to gather changes before one.
_EVERY: Final = 10.0
_GATHER: Final = 0.2
#: Seconds between two write calls, so that 10,000 gangs do not delay other calls.
_SPACING: Final = 0.02
#: Seconds for the watch to show a write; until then the group is not written again.
_SHOWN: Final = 5.0
#: Seconds after which a new PodGroup is touched, in case its scheduler missed its creation.
_TOUCH_AFTER: Final = 2.0


class _Delay(NamedTuple):
    """Backoff of a group: number of failures, and its end."""

    failures: int
    until: float


class _Untouched(NamedTuple):
    """A new PodGroup: its resourceVersion, and when to touch it."""

    version: str
    due: float


class PodGroupReconciler:
    """Reconciles PodGroups with the plans of all gangs. It keeps no state that a restart would lose.

    Attributes:
        states: number of gangs with a PodGroup of gpugate (``owned``) or of another owner (``foreign``), that would get one if
            the rule were not in Warn or DryRun (``would create``), whose kind is not served (``not served``), or that get none
            for a reason of their own (``none``).
    """

    def __init__(
        self,
        api: LeaderOnlyClient,
        index: GangIndex,
        state: CurrentState,
        events: EventSink,
        log: Log,
        timing: Backoff = Backoff(),  # noqa: B008 - it is frozen
    ) -> None:
        self.states: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self._api = api
        self._index = index
        self._state = state
        self._events = events
        self._log = log
        self._timing = timing
        self._requeued = asyncio.Event()
        self._versions: dict[str, str] = {}
        self._delays: dict[tuple[str, GroupKey], _Delay] = {}
        self._untouched: dict[str, _Untouched] = {}
        self._reported: set[tuple[object, ...]] = set()

    def requeue(self) -> None:
        """Schedule a reconciliation: a gang was added, changed or deleted."""
        self._requeued.set()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        self._delays.clear()
        self._untouched.clear()
        while True:
            self._requeued.clear()
            try:
                await self.reconcile_all()
                await self.touch()
            except Exception as error:  # noqa: BLE001 - the next reconciliation may succeed
                self._log.error("cannot reconcile PodGroups", error=repr(error))
            await self._wait()

    async def _wait(self) -> None:
        due = min((group.due for group in self._untouched.values()), default=float("inf"))
        try:
            async with asyncio.timeout(min(_EVERY, max(0.0, due - self._timing.clock()))):
                await self._requeued.wait()
        except TimeoutError:
            return
        await self._timing.sleep(_GATHER)

    async def reconcile_all(self) -> None:
        """Reconcile all gangs once."""
        states: Counter[str] = Counter()
        started = self._timing.clock()
        gangs = list(self._index.plans())
        for gang in gangs:
            states[await self._reconcile(gang)] += 1
        await self._delete_unneeded({gang.reference.uid: gang for gang in gangs if gang.reference.uid})
        references = {gang.reference for gang in gangs}
        self._reported = {key for key in self._reported if key[0] in references}
        # Drop old delays: groups that still fail have a new one.
        self._delays = {place: delay for place, delay in self._delays.items() if delay.until > started}
        self.states = states

    async def _reconcile(self, planned: Planned) -> str:
        plan, desired = planned.plan, planned.plan.wanted
        if desired is None:
            if plan.why_not and self._is_first_time(planned.reference, plan.why_not):
                self._log.info("gang gets no PodGroup", **_fields(planned.reference), reason=plan.why_not)
            return "none"
        snapshot = self._state.in_force.snapshot
        record = snapshot.pod_groups.get((desired.namespace, desired.key))
        if plan.dry_run or (record is None and not plan.create):
            return self._dry_run(planned.reference, desired, record) if plan.create else "none"
        if snapshot.sync_state(_KINDS[desired.system].resource) is not SyncState.SYNCED:
            return "not served"
        if record is None or (is_ours(record, desired) and not fits(record, desired)):
            return await self._write_with_backoff(planned.reference, desired, record)
        if is_ours(record, desired):
            return "owned"
        self._report_foreign(planned.reference, desired, record)
        return "foreign"

    def _dry_run(self, reference: Reference, desired: WantedPodGroup, record: PodGroup | None) -> str:
        if record is not None:
            return "owned" if is_ours(record, desired) else "foreign"
        if self._is_first_time(reference, "rehearsal"):
            self._log.info("would create a PodGroup", **_fields(reference), pod_group=desired.name, minimum=desired.minimum)
        return "would create"

    async def _write_with_backoff(self, reference: Reference, desired: WantedPodGroup, record: PodGroup | None) -> str:
        """Write, unless the group was just written or failed recently; log errors and retry later."""
        place, now = (desired.namespace, desired.key), self._timing.clock()
        delay = self._delays.get(place, _Delay(0, now))
        if now < delay.until:
            return "owned" if record is not None or not delay.failures else "not made"
        try:
            outcome = await (self._create(reference, desired) if record is None else self._correct(reference, desired))
        except ClusterError as error:
            self._versions.pop(desired.system, None)
            self._delays[place] = _Delay(delay.failures + 1, now + self._timing.backoff(delay.failures))
            self.written["failed"] += 1
            self._log.warning("cannot write PodGroup", **_fields(reference), pod_group=desired.name, error=str(error))
            return "not made"
        self._delays[place] = _Delay(0, self._timing.clock() + _SHOWN)
        await self._timing.sleep(_SPACING)
        return outcome

    async def _create(self, reference: Reference, desired: WantedPodGroup) -> str:
        version = await self._version(desired.system)
        try:
            created = await self._api.create(_collection(desired, version), manifest(desired, version))
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            return await self._correct(reference, desired)
        self.written["created"] += 1
        if desired.system == "Coscheduling":
            untouched = _Untouched(str(created["metadata"]["resourceVersion"]), self._timing.clock() + _TOUCH_AFTER)
            self._untouched[f"{_collection(desired, version)}/{desired.name}"] = untouched
        self._log.info("PodGroup created", **_fields(reference), pod_group=desired.name, minimum=desired.minimum)
        self._events.emit(
            reference,
            reason="PodGroupCreated",
            message=f"created PodGroup {desired.name}: {desired.minimum} pods start together or not at all",
            action="CreatePodGroup",
            kind="Normal",
        )
        return "owned"

    async def touch(self) -> None:
        """Change new PodGroups of the coscheduling plugin once more, unless another client changed them meanwhile.

        The plugin (v0.34.7) learns of a PodGroup by one watch and reads it by another, which may lag: pods that it checked in
        between wait five minutes, or until their PodGroup changes, even if nodes are added.
        """
        now = self._timing.clock()
        for path, group in [(path, group) for path, group in self._untouched.items() if group.due <= now]:
            del self._untouched[path]
            metadata = {"resourceVersion": group.version, "annotations": {"gpugate.io/touched": "true"}}
            try:
                await self._api.patch(path, {"metadata": metadata})
            except ApiError as error:
                if error.status not in {CONFLICT, NOT_FOUND}:
                    self._log.warning("cannot touch PodGroup", path=path, error=str(error))
            else:
                self.written["touched"] += 1

    async def _correct(self, reference: Reference, desired: WantedPodGroup) -> str:
        """Compare with the stored object and correct it: a write must not depend on a watch that lags."""
        version = await self._version(desired.system)
        path = f"{_collection(desired, version)}/{desired.name}"
        stored = await self._api.get(path)
        record = pod_group_of(stored)
        if not is_ours(record, desired):
            self._report_foreign(reference, desired, record)
            return "foreign"
        patch = correction(stored, desired)
        if patch is not None:
            await self._api.patch(path, patch)
            self.written["updated"] += 1
            self._log.info("PodGroup corrected", **_fields(reference), pod_group=desired.name, minimum=desired.minimum)
        if desired.system == "Kubernetes" and record.minimum != desired.minimum and self._is_first_time(reference, "immutable"):
            self._events.emit(
                reference,
                reason="PodGroupFixed",
                message=f"minCount of PodGroup {desired.name} is {record.minimum} and should be {desired.minimum}: the field is"
                " immutable; delete the PodGroup while none of its pods runs",
                action="UpdatePodGroup",
            )
        return "owned"

    async def _delete_unneeded(self, planned: dict[str, Planned]) -> None:
        """Delete PodGroups of workloads that are no gang any more, once no pod names them."""
        snapshot = self._state.in_force.snapshot
        for (namespace, key), record in list(snapshot.pod_groups.items()):
            owner = next((planned[uid] for uid in record.owners if uid in planned), None) if record.managed else None
            if owner is None or key in owner.named or _is_desired(owner, key) or _has_members(snapshot, namespace, key):
                continue
            place, now = (namespace, key), self._timing.clock()
            delay = self._delays.get(place, _Delay(0, now))
            if now < delay.until:
                continue
            try:
                await self._delete(namespace, key, owner)
            except ClusterError as error:
                self._delays[place] = _Delay(delay.failures + 1, now + self._timing.backoff(delay.failures))
                self._log.warning("cannot delete PodGroup", **_fields(owner.reference), pod_group=key.name, error=str(error))
            else:
                self._delays[place] = _Delay(0, self._timing.clock() + _SHOWN)

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
        if record.managed and owner.reference.uid in record.owners:
            await self._api.delete(path, uid=str(stored["metadata"]["uid"]))
            self.written["deleted"] += 1
            self._log.info("PodGroup deleted", **_fields(owner.reference), pod_group=key.name)

    async def _version(self, system: str) -> str:
        if system not in self._versions:
            kind = _KINDS[system]
            version = await version_of(self._api, kind)
            if version is None:
                message = f"PodGroup of {kind.group} is not served"
                raise ClusterError(message)
            self._versions[system] = version
        return self._versions[system]

    def _report_foreign(self, reference: Reference, desired: WantedPodGroup, record: PodGroup) -> None:
        """Report once that another owner's PodGroup has the name, and whether its size fits."""
        if not self._is_first_time(reference, "foreign", desired.name, record.minimum):
            return
        owner = "another workload of that group" if record.managed else "another owner"
        fits_size = record.minimum == desired.minimum
        size = f"it requires {record.minimum} pods" + ("" if fits_size else f", and the gang needs {desired.minimum}")
        self._log.info(
            "PodGroup of another owner is not changed", **_fields(reference), pod_group=desired.name, minimum=record.minimum
        )
        self._events.emit(
            reference,
            reason="PodGroupNotOwned",
            message=f"PodGroup {desired.name} belongs to {owner} and is not changed: {size}",
            action="LeavePodGroup",
            kind="Normal" if fits_size else "Warning",
        )

    def _is_first_time(self, reference: Reference, *what: object) -> bool:
        number = len(self._reported)
        self._reported.add((reference, *what))
        return len(self._reported) > number


def _fields(reference: Reference) -> dict[str, str]:
    return {"namespace": reference.namespace, "kind": reference.kind, "name": reference.name}


def _collection(desired: WantedPodGroup, version: str) -> str:
    return f"/apis/{API_GROUPS[desired.system]}/{version}/namespaces/{desired.namespace}/podgroups"


def _is_desired(owner: Planned, key: GroupKey) -> bool:
    return owner.plan.wanted is not None and owner.plan.wanted.key == key


def _has_members(snapshot: ClusterSnapshot, namespace: str, key: GroupKey) -> bool:
    pods = snapshot.group(namespace, key)
    return pods is not None and bool(pods.present or pods.leaving)
