"""Write the status of GPUPolicies: generation in force, bound rules, and the last audit.

kstatus, which Flux uses, reads ``Stalled`` as failed and ``Ready`` as done; an older ``observedGeneration`` means that the
status is pending. The health check in ``manifests/gitops/argocd`` gives Argo CD the same.
"""

import asyncio
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.policy.binding import PolicyCoverage, PolicySet, reach_of
from gpugate.policies.policy.crd import MOST_LEFT_OPEN
from gpugate.policies.policy.failing_closed import FailingClosed, LeftOpen
from gpugate.policies.policy.models import API_VERSION, KIND
from gpugate.webhook.admission.response import cut
from gpugate.webhook.cache.kinds import POLICIES
from gpugate.webhook.cache.policies import SeenPolicy
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.controller.leader_election import LeaderOnlyClient
from gpugate.webhook.kube.errors import CONFLICT, NOT_FOUND, ApiError, ClusterError
from gpugate.webhook.kube.events import EventSink, Reference
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.times import rfc3339

IN_FORCE: Final = "InForce"
INVALID: Final = "InvalidSpec"
_OURS: Final = frozenset({"Ready", "Stalled"})
#: Seconds between two reconciliations, and the longest pause after failed writes.
_EVERY: Final = 0.5
_LONGEST_PAUSE: Final = 30.0


def status_of(
    seen: SeenPolicy, coverage: PolicyCoverage | None, left_open: Sequence[LeftOpen], audit: JsonObject | None, now: str
) -> JsonObject:
    """Return the status of one GPUPolicy at ``now`` (RFC 3339), with None for unknown fields."""
    if seen.error:
        problem = cut(seen.error.removeprefix(f"{seen.name}: "))
        reason_and_message = INVALID, f"{problem}. {seen.outcome[0].upper()}{seen.outcome[1:]}."
    else:
        reason_and_message = IN_FORCE, f"Generation {seen.generation} is in force{_scope(coverage)}.{_open(left_open)}"
    before = {str(condition.get("type")): condition for condition in _conditions(seen.status)}
    kinds = ("Ready", "Stalled") if seen.error else ("Ready",)
    conditions = [_condition(kind, *reason_and_message, seen.generation, before.get(kind), now) for kind in kinds]
    others = [condition for kind, condition in before.items() if kind not in _OURS]
    return {
        "observedGeneration": seen.generation,
        "generationInForce": seen.in_force,
        "matchedNamespaces": coverage.namespaces if coverage else None,
        "rules": (coverage.rules if coverage else "") or None,
        "failsOpen": [{"namespace": each.namespace, "kinds": list(each.kinds)} for each in left_open[:MOST_LEFT_OPEN]] or None,
        "lastAudit": audit,
        "conditions": [*conditions, *others],
    }


def _condition(kind: str, reason: str, message: str, generation: int, before: JsonObject | None, now: str) -> JsonObject:
    status = "True" if (kind == "Ready") == (reason == IN_FORCE) else "False"
    since = before.get("lastTransitionTime", now) if before is not None and before.get("status") == status else now
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }


def _scope(coverage: PolicyCoverage | None) -> str:
    if coverage is None:
        return "; the namespaces that it selects are not known yet"
    if not coverage.speaks_for:
        return ", but binds nothing: it names no rule and sets no mode"
    if not coverage.namespaces:
        return ", but binds nothing: its namespaceSelector selects no namespace"
    others = cut(", ".join(coverage.shadowed_by), 200)
    if not coverage.modes:
        return f", but binds nothing: for each of its rules another policy has precedence ({others})"
    number = sum(coverage.modes.values())
    rules = f"{number} rule{'' if number == 1 else 's'} ({coverage.rules})"
    namespaces = f"{coverage.namespaces} namespace{'' if coverage.namespaces == 1 else 's'}"
    shadowed = f"; for some, other policies have precedence ({others})" if others else ""
    return f": it binds {rules} in {namespaces}{shadowed}"


def _open(left_open: Sequence[LeftOpen]) -> str:
    if not left_open:
        return ""
    where = "namespace in which it refuses" if len(left_open) == 1 else "namespaces in which it refuses"
    return f" Webhooks fail open in {len(left_open)} {where} objects, because the policies need too many label selectors."


def _conditions(status: JsonObject) -> list[JsonObject]:
    value = status.get("conditions")
    return [condition for condition in value if isinstance(condition, dict)] if isinstance(value, list) else []


def difference(before: JsonObject, after: JsonObject) -> JsonObject:
    """Return the merge patch from one status to another; None in ``after`` deletes a field."""
    return {key: value for key, value in after.items() if before.get(key) != value}


class PolicyStatusReconciler:
    """Reconciles the status of every GPUPolicy, and writes only differences.

    A new leader needs no other state than the statuses themselves.
    """

    def __init__(
        self,
        api: LeaderOnlyClient,
        store: SnapshotStore,
        state: CurrentState,
        log: Log,
        *,
        events: EventSink,
        clock: Callable[[], str] = lambda: rfc3339(time.time()),
        every: float = _EVERY,
    ) -> None:
        self._api = api
        self._store = store
        self._state = state
        self._log = log
        self._events = events
        self._clock = clock
        self._every = every
        self._failing = FailingClosed(PolicySet(()))
        self._totals: Mapping[str, JsonObject] | None = None
        #: Last write by policy: uid, resourceVersion and status.
        self._written: dict[str, tuple[str, str, JsonObject]] = {}
        #: Inputs of the last complete reconciliation.
        self._version = -1
        self._seen: tuple[Any, ...] = (None, None, None)

    def audited(self, totals: Mapping[str, JsonObject]) -> None:
        """Take the totals of an audit by policy name; a policy without totals has none."""
        self._totals = dict(totals)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        self._version, self._written, pause = -1, {}, self._every
        while True:
            pause = self._every if await self.write() else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def write(self) -> bool:
        """Write all differences; return whether every write succeeded or was not needed."""
        snapshot, policies = self._state.in_force
        version, seen = self._store.policies.version, (snapshot.namespaces, policies, self._totals)
        if snapshot.known.get(POLICIES.resource) is not SyncState.SYNCED:
            return True
        if version == self._version and all(map(operator.is_, seen, self._seen)):
            return True
        namespaces = _labels(snapshot)
        coverages = {} if namespaces is None else reach_of(policies, namespaces)
        if self._failing.policies is not policies:
            self._failing = FailingClosed(policies)
        left_open = self._failing.left_open(namespaces or {})
        stored = self._store.policies.seen()
        names = {policy.name for policy in stored}
        self._written = {name: written for name, written in self._written.items() if name in names}
        # The watch is ahead of the policies in force: the status of others waits.
        published = [policy for policy in stored if policy.policy is None or policy.policy in policies.policies]
        succeeded = [
            await self._write_one(policy, coverages.get(policy.name), left_open.get(policy.name, ())) for policy in published
        ]
        if all(succeeded) and len(published) == len(stored):
            self._version, self._seen = version, seen
        return all(succeeded)

    async def _write_one(self, seen: SeenPolicy, coverage: PolicyCoverage | None, left_open: Sequence[LeftOpen]) -> bool:
        audit = self._audit_of(seen)
        timeless = status_of(seen, coverage, left_open, audit, "")
        if not difference(seen.status, timeless) or self._written.get(seen.name) == (seen.uid, seen.version, timeless):
            return True
        status = status_of(seen, coverage, left_open, audit, self._clock())
        # The resourceVersion stops a former leader that still writes.
        patch = {"metadata": {"resourceVersion": seen.version}, "status": difference(seen.status, status)}
        try:
            await self._api.patch(f"{POLICIES.path(POLICIES.versions[0])}/{seen.name}/status", patch)
        except ApiError as error:
            if error.status in {CONFLICT, NOT_FOUND}:
                return True  # changed or deleted: the watch will show it
            self._log.warning("the apiserver rejects the status of a GPUPolicy", policy=seen.name, error=str(error))
            return False
        except ClusterError as error:
            self._log.warning("cannot write the status of a GPUPolicy", policy=seen.name, error=str(error))
            return False
        self._written[seen.name] = (seen.uid, seen.version, timeless)
        self._emit_change(seen, status)
        return True

    def _audit_of(self, seen: SeenPolicy) -> JsonObject | None:
        if self._totals is None:  # no audit yet since this replica leads: keep the last leader's
            value = seen.status.get("lastAudit")
            return value if isinstance(value, dict) else None
        return self._totals.get(seen.name)

    def _emit_change(self, seen: SeenPolicy, status: JsonObject) -> None:
        """Emit an Event for an invalid generation, once, and for the first valid one after it."""
        before = _ready(seen.status)
        now = _ready(status)
        if now["status"] == "False":
            if before.get("status") != "False" or before.get("observedGeneration") != seen.generation:
                self._emit(seen, "Warning", INVALID, now["message"])
        elif before.get("status") == "False":
            self._emit(seen, "Normal", IN_FORCE, now["message"])

    def _emit(self, seen: SeenPolicy, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        regarding = Reference(API_VERSION, KIND, "", seen.name, seen.uid)
        self._events.emit(regarding, reason=reason, message=message, action="Validate", kind=kind)


def _ready(status: JsonObject) -> JsonObject:
    return next((condition for condition in _conditions(status) if condition.get("type") == "Ready"), {})


def _labels(snapshot: ClusterSnapshot) -> dict[str, Mapping[str, str]] | None:
    """Return the labels of every namespace; None while they are unknown."""
    if snapshot.known.get("namespaces") is not SyncState.SYNCED:
        return None
    return {name: snapshot.namespace_labels(name) for name in snapshot.namespaces}
