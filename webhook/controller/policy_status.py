"""The status of GPUPolicies: whether each is in force, what it binds, and what the last audit found of it.

kstatus, and Flux by it, reads ``Stalled`` as failed at once and ``Ready`` as done; a status whose ``observedGeneration`` is behind
says that somebody is still to look. Argo CD is told the same by the health check in ``manifests/gitops/argocd``.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.policy.coverage import PolicyCoverage, reach_of
from gpugate.policies.policy.models import API_VERSION, KIND
from gpugate.webhook.admission.response import cut
from gpugate.webhook.audit.model import AuditedWorkload, Effect
from gpugate.webhook.cache.kinds import POLICIES
from gpugate.webhook.cache.policies import SeenPolicy
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.events import Recorder, Reference
from gpugate.webhook.kube.types import CONFLICT, NOT_FOUND, ApiError, ClusterError, JsonObject
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.times import rfc3339

IN_FORCE: Final = "InForce"
INVALID: Final = "InvalidSpec"
_OURS: Final = frozenset({"Ready", "Stalled"})
#: Seconds between two looks at what has changed, and between two tries where the apiserver takes nothing.
_EVERY: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


class LastAudit(NamedTuple):
    """What the last audit found of the rules that one policy binds.

    Attributes:
        time: when, RFC 3339.
        workloads: workloads that it binds a rule for.
        would_change: of them, those that enforcing it would change.
        would_refuse: of them, those that enforcing it would refuse.
        exempt: of them, those that are exempt from one of its rules.
    """

    time: str
    workloads: int
    would_change: int
    would_refuse: int
    exempt: int

    def as_json(self) -> JsonObject:
        """The ``lastAudit`` of a status."""
        return {
            "time": self.time,
            "workloads": self.workloads,
            "wouldChange": self.would_change,
            "wouldRefuse": self.would_refuse,
            "exempt": self.exempt,
        }


def status_of(seen: SeenPolicy, reach: PolicyCoverage | None, audit: JsonObject | None, now: str) -> JsonObject:
    """The status of one GPUPolicy; with everything in it that is not known as None.

    Args:
        seen: the policy.
        reach: how far what is in force of it reaches; None where that is not known.
        audit: its ``lastAudit``.
        now: the time, RFC 3339.
    """
    told = _invalid(seen) if seen.error else _in_force(seen, reach)
    before = {str(one.get("type")): one for one in _conditions(seen.status)}
    conditions = [_condition(kind, *told, seen.generation, before.get(kind), now) for kind in (_OURS if seen.error else ("Ready",))]
    others = [one for kind, one in before.items() if kind not in _OURS]
    return {
        "observedGeneration": seen.generation,
        "generationInForce": seen.in_force,
        "matchedNamespaces": reach.namespaces if reach else None,
        "rules": (reach.rules if reach else "") or None,
        "lastAudit": audit,
        "conditions": [*sorted(conditions, key=lambda one: str(one["type"])), *others],
    }


def _condition(kind: str, reason: str, message: str, generation: int, before: JsonObject | None, now: str) -> JsonObject:
    status = "True" if (kind == "Ready") == (reason == IN_FORCE) else "False"
    same = before is not None and before.get("status") == status
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": before.get("lastTransitionTime", now) if before is not None and same else now,
    }


def _invalid(seen: SeenPolicy) -> tuple[str, str]:
    return INVALID, f"{cut(seen.error.removeprefix(f'{seen.name}: '))}. {seen.outcome[0].upper()}{seen.outcome[1:]}."


def _in_force(seen: SeenPolicy, reach: PolicyCoverage | None) -> tuple[str, str]:
    return IN_FORCE, f"Generation {seen.generation} is in force{_where(reach)}."


def _where(reach: PolicyCoverage | None) -> str:
    if reach is None:
        return "; which namespaces it selects is not known yet"
    if not reach.speaks_for:
        return ", but binds nothing: it names no rule and states no mode"
    if not reach.namespaces:
        return ", but binds nothing: its namespaceSelector selects no namespace"
    if not reach.modes:
        return (
            f", but binds nothing: for each of its rules another policy goes before it ({cut(', '.join(reach.shadowed_by), 200)})"
        )
    number = sum(reach.modes.values())
    text = f": it binds {number} rule{'' if number == 1 else 's'} ({reach.rules})"
    where = f"{text} in {reach.namespaces} namespace{'' if reach.namespaces == 1 else 's'}"
    behind = f"; for some, other policies go before it ({cut(', '.join(reach.shadowed_by), 200)})" if reach.shadowed_by else ""
    return where + behind


def _conditions(status: JsonObject) -> list[JsonObject]:
    found = status.get("conditions")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def difference(before: JsonObject, after: JsonObject) -> JsonObject:
    """The merge patch from one status to another; None in ``after`` stands for nothing."""
    return {key: value for key, value in after.items() if before.get(key) != value}


class StatusApi(Protocol):
    """The writing side of an apiserver; `gpugate.webhook.kube.client.ApiClient` is one."""

    async def patch(self, path: str, patch: JsonObject, /) -> JsonObject:
        """Merge ``patch`` into the object at ``path``."""


class Tell(Protocol):
    """Has an Event about a policy sent: kind, reason and message."""

    def __call__(self, seen: SeenPolicy, kind: Literal["Normal", "Warning"], reason: str, message: str, /) -> None:
        """Never blocks, never raises."""


def _silent(_seen: SeenPolicy, _kind: str, _reason: str, _message: str) -> None:
    """Tell nobody."""


def teller(recorder: Recorder) -> Tell:
    """What has Events sent by ``recorder``."""

    def tell(seen: SeenPolicy, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        regarding = Reference(API_VERSION, KIND, "", seen.name, seen.uid)
        recorder.emit(regarding, reason=reason, message=message, action="Validate", kind=kind)

    return tell


def utc_now() -> str:
    """The time, RFC 3339."""
    return rfc3339(time.time())


class PolicyStatusReconciler:
    """Keeps the status of every GPUPolicy true, and writes only what differs.

    A new leader lacks nothing: what it needs of the past stands in the statuses themselves.
    """

    def __init__(
        self,
        api: StatusApi,
        store: SnapshotStore,
        state: CurrentState,
        log: Log,
        *,
        tell: Tell = _silent,
        clock: Callable[[], str] = utc_now,
        every: float = _EVERY,
    ) -> None:
        """Prepare to write; nothing is sent before :meth:`run`.

        Args:
            api: where statuses are written.
            store: gives the policies.
            state: gives what is in force, and the namespaces.
            log: where it is said that the apiserver takes nothing.
            tell: told of a policy that turns bad, or good again.
            clock: gives the time, RFC 3339.
            every: seconds between two looks.
        """
        self._api = api
        self._store = store
        self._state = state
        self._log = log
        self._tell = tell
        self._clock = clock
        self._every = every
        self._sums: Mapping[str, LastAudit] | None = None
        #: Of each policy the uid and version that were written on, and what.
        self._written: dict[str, tuple[str, str, JsonObject]] = {}
        #: What was looked at when all was last as it should be.
        self._version = -1
        self._seen: tuple[Any, ...] = (None, None, None)

    def audited(self, sums: Mapping[str, LastAudit]) -> None:
        """Take what an audit found, by the name of the policy; of a policy that is not named, it found nothing."""
        self._sums = dict(sums)

    async def run(self) -> None:
        """Write until cancelled."""
        self._version, self._written, pause = -1, {}, self._every
        while True:
            pause = self._every if await self.write() else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def write(self) -> bool:
        """Write what differs from what is known now; says whether all of it was taken that there still is."""
        snapshot, policies = self._state.in_force
        version, seen = self._store.policies.version, (snapshot.namespaces, policies, self._sums)
        if snapshot.known.get(POLICIES.resource) is not SyncState.SYNCED:
            return True
        if version == self._version and all(one is other for one, other in zip(seen, self._seen, strict=True)):
            return True
        namespaces = _labels(snapshot)
        reaches = {} if namespaces is None else reach_of(policies, namespaces)
        every = self._store.policies.seen()
        here = {one.name for one in every}
        self._written = {name: written for name, written in self._written.items() if name in here}
        # The watch is ahead of what reviews are judged by: a status says "in force" only of what is.
        published = [one for one in every if one.policy is None or one.policy in policies.policies]
        taken = [await self._write_one(one, reaches.get(one.name)) for one in published]
        if all(taken) and len(published) == len(every):
            self._version, self._seen = version, seen
        return all(taken)

    async def _write_one(self, seen: SeenPolicy, reach: PolicyCoverage | None) -> bool:
        audit = self._audit_of(seen)
        timeless = status_of(seen, reach, audit, "")
        if not difference(seen.status, timeless) or self._written.get(seen.name) == (seen.uid, seen.version, timeless):
            return True
        status = status_of(seen, reach, audit, self._clock())
        # The version holds off a leader that was and does not know it yet.
        patch = {"metadata": {"resourceVersion": seen.version}, "status": difference(seen.status, status)}
        try:
            await self._api.patch(f"{POLICIES.path(POLICIES.versions[0])}/{seen.name}/status", patch)
        except ApiError as error:
            if error.status in {CONFLICT, NOT_FOUND}:
                return True  # it has changed or gone, which the watch is about to show: it is looked at again then
            self._log.warning("the status of a GPUPolicy was not taken", policy=seen.name, error=str(error))
            return False
        except ClusterError as error:
            self._log.warning("the status of a GPUPolicy was not written", policy=seen.name, error=str(error))
            return False
        self._written[seen.name] = (seen.uid, seen.version, timeless)
        self._tell_of(seen, status)
        return True

    def _audit_of(self, seen: SeenPolicy) -> JsonObject | None:
        if self._sums is None:  # none since this replica leads: what the last leader wrote still holds
            found = seen.status.get("lastAudit")
            return found if isinstance(found, dict) else None
        return self._sums[seen.name].as_json() if seen.name in self._sums else None

    def _tell_of(self, seen: SeenPolicy, status: JsonObject) -> None:
        """Tell of a generation that is bad, once, and of the first good one after it."""
        before = _ready(seen.status)
        now = _ready(status)
        if now["status"] == "False":
            if before.get("status") != "False" or before.get("observedGeneration") != seen.generation:
                self._tell(seen, "Warning", INVALID, now["message"])
        elif before.get("status") == "False":
            self._tell(seen, "Normal", IN_FORCE, now["message"])


def _ready(status: JsonObject) -> JsonObject:
    return next((one for one in _conditions(status) if one.get("type") == "Ready"), {})


def _labels(snapshot: ClusterSnapshot) -> dict[str, Mapping[str, str]] | None:
    """The labels of every namespace; None while they are not known."""
    if snapshot.known.get("namespaces") is not SyncState.SYNCED:
        return None
    return {name: snapshot.namespace_labels(name) for name in snapshot.namespaces}


def sums_by_policy(workloads: Iterable[AuditedWorkload], at: str) -> dict[str, LastAudit]:
    """The figures by policy, of an audit of everything ``at`` this time; without policies that bind nothing for any workload."""
    bound, refused, changed, exempt = (Counter[str]() for _ in range(4))
    for one in workloads:
        bound.update(_name(policy) for policy in one.bound_by)
        effects: dict[str, set[Effect]] = {}
        for item in one.items:
            effects.setdefault(_name(item.policy), set()).add(item.effect)
        for policy, found in effects.items():
            refused[policy] += Effect.REFUSE in found
            # Nothing comes of a change to what is refused.
            changed[policy] += Effect.CHANGE in found and Effect.REFUSE not in found
            exempt[policy] += Effect.EXEMPT in found
    return {policy: LastAudit(at, number, changed[policy], refused[policy], exempt[policy]) for policy, number in bound.items()}


def _name(policy: str) -> str:
    return policy.rpartition("@")[0]
