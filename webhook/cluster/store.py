"""The watched cluster as facts: takes events, keeps stripped records, publishes snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from gpugate.policies.facts import Facts, Known, claim_of, cluster_queue_of, facts_from, local_queue_of, namespace_of
from gpugate.policies.fields import MalformedError
from gpugate.policies.nodes import node_of
from gpugate.policies.policy import Policy, PolicyError, parse_policy
from gpugate.webhook.cluster import EventType, JsonObject, WatchedKind
from gpugate.webhook.log import Log
from gpugate.webhook.state import State

POLICIES: Final = WatchedKind("GPUPolicy", "gpugate.io", ("v1alpha1",), "gpupolicies")
#: What rules read. Of the versions the first that is served is watched.
FACT_KINDS: Final = (
    WatchedKind("Node", "", ("v1",), "nodes"),
    WatchedKind("Namespace", "", ("v1",), "namespaces"),
    WatchedKind("LocalQueue", "kueue.x-k8s.io", ("v1beta2", "v1beta1"), "localqueues"),
    WatchedKind("ClusterQueue", "kueue.x-k8s.io", ("v1beta2", "v1beta1"), "clusterqueues"),
    WatchedKind("ResourceClaim", "resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "resourceclaims"),
    WatchedKind("ResourceClaimTemplate", "resource.k8s.io", ("v1", "v1beta2", "v1beta1"), "resourceclaimtemplates"),
)
_READERS: Final[Mapping[str, Callable[[JsonObject], Any]]] = {
    "nodes": node_of,
    "namespaces": namespace_of,
    "localqueues": local_queue_of,
    "clusterqueues": cluster_queue_of,
    "resourceclaims": claim_of,
    "resourceclaimtemplates": claim_of,
}
_KEPT_METADATA: Final = ("name", "namespace", "labels", "resourceVersion", "generation")
#: Seconds in which changes are gathered into one snapshot.
_GATHER: Final = 0.02


def strip(item: JsonObject) -> JsonObject:
    """``item`` without what no record is made from: managed fields, annotations, most of the status."""
    metadata = item.get("metadata") or {}
    kept: JsonObject = {
        "kind": item.get("kind"),
        "apiVersion": item.get("apiVersion"),
        "metadata": {
            key: metadata[key] for key in ("name", "namespace", "labels", "resourceVersion", "generation") if key in metadata
        },
        "spec": item.get("spec"),
    }
    status = item.get("status") or {}
    amounts = {key: status[key] for key in ("allocatable", "capacity") if key in status}
    if amounts:
        kept["status"] = amounts
    return kept


def _key(item: JsonObject) -> tuple[str, str]:
    metadata = item.get("metadata") or {}
    return (str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))


class FactStore:
    """A sink that turns objects into records and publishes them to a state.

    A bad object is left out and logged; a bad policy is logged and the last good one of its name stays in force.
    """

    def __init__(
        self, state: State, log: Log, kinds: Iterable[WatchedKind], *, fixed: Facts | None = None, gather: float = _GATHER
    ) -> None:
        """Prepare to take ``kinds``; ``fixed`` facts, from files, are published in place of watched ones."""
        self._state = state
        self._log = log
        self._fixed = fixed
        self._gather = gather
        self._records: dict[str, dict[tuple[str, str], Any]] = {kind.plural: {} for kind in kinds}
        self._known: dict[str, Known] = dict.fromkeys(self._records, Known.PENDING)
        self._scheduled = False
        self._publish()

    @property
    def bad_policies(self) -> int:
        """How many policies do not parse now."""
        return sum(1 for found in self._records.get(POLICIES.plural, {}).values() if found.error)

    def replaced(self, kind: WatchedKind, objects: Sequence[JsonObject], /) -> None:
        """Take a full list of one kind."""
        before = self._records[kind.plural]
        after = {}
        for item in objects:
            record = self._read(kind, item, before.get(_key(item)))
            if record is not None:
                after[_key(item)] = record
        self._records[kind.plural] = after
        if after != before or self._known[kind.plural] is not Known.SYNCED:
            self._known[kind.plural] = Known.SYNCED
            self._schedule()

    def changed(self, kind: WatchedKind, event_type: EventType, item: JsonObject, /) -> None:
        """Take one event; one that changes nothing a rule reads (a node's heartbeat) publishes nothing."""
        records, key = self._records[kind.plural], _key(item)
        before = records.get(key)
        record = None if event_type == "DELETED" else self._read(kind, item, before)
        if record == before:
            return
        if record is None:
            records.pop(key, None)
        else:
            records[key] = record
        self._schedule()

    def absent(self, kind: WatchedKind, /) -> None:
        """Forget a kind that the cluster does not serve."""
        forgotten, self._records[kind.plural] = self._records[kind.plural], {}
        if forgotten or self._known[kind.plural] is not Known.ABSENT:
            self._known[kind.plural] = Known.ABSENT
            self._schedule()

    def _read(self, kind: WatchedKind, item: JsonObject, before: Any) -> Any:  # noqa: ANN401 - a record
        if kind.plural == POLICIES.plural:
            return self._read_policy(item, before)
        try:
            return _READERS[kind.plural]({**item, "kind": kind.name})
        except MalformedError as error:
            self._log.warning("object left out of the facts", kind=kind.name, name=_key(item)[1], error=str(error))
            return before

    def _read_policy(self, item: JsonObject, before: _PolicyRecord | None) -> _PolicyRecord:
        try:
            policy = parse_policy({**item, "kind": POLICIES.name, "apiVersion": "gpugate.io/v1alpha1"})
        except PolicyError as error:
            last = before.policy if before else None
            self._log.error("GPUPolicy does not parse; the last good one stays in force", error=str(error), last=last is not None)
            return _PolicyRecord(last, str(error))
        return _PolicyRecord(policy, "")

    def _schedule(self) -> None:
        if self._scheduled:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._publish()
            return
        self._scheduled = True
        loop.call_later(self._gather, self._publish)

    def _publish(self) -> None:
        self._scheduled = False
        policies: list[Policy] | None = None
        if POLICIES.plural in self._records:
            found = self._records[POLICIES.plural].values()
            policies = [record.policy for record in found if record.policy is not None]
        self._state.publish(self._facts() if self._fixed is None else self._fixed, policies)
        self._state.wait_for([name for name, known in self._known.items() if known is Known.PENDING])

    def _facts(self) -> Facts:
        def records(resource: str) -> Iterable[Any]:
            return self._records.get(resource, {}).values()

        return facts_from(
            nodes=records("nodes"),
            namespaces=records("namespaces"),
            queues=records("localqueues"),
            cluster_queues=records("clusterqueues"),
            claims=records("resourceclaims"),
            claim_templates=records("resourceclaimtemplates"),
            known=self._known,
        )


class _PolicyRecord:
    """The last good policy of a name, and why the newest does not parse, if it does not."""

    __slots__ = ("error", "policy")

    def __init__(self, policy: Policy | None, error: str) -> None:
        self.policy = policy
        self.error = error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PolicyRecord) and (self.policy, self.error) == (other.policy, other.error)

    __hash__ = None  # type: ignore[assignment]
