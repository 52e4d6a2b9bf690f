"""The watched cluster as facts: takes what comes off the wire, keeps records, publishes snapshots."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpugate.policies.cluster.builder import Key, SnapshotBuilder
from gpugate.policies.cluster.nodes import Node
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import NodeUsage
from gpugate.policies.policy.models import Policy
from gpugate.webhook.cache.kinds import POLICIES, Observed
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.policies import PolicyStore
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.types import EventType, WatchedKind
from gpugate.webhook.runtime.log import Log

#: Seconds in which changes are gathered into one snapshot.
_GATHER: Final = 0.02
#: Publishing takes at most this part of the time, however many changes there are: the larger the cluster, the more it gathers.
_MOST_BUSY: Final = 0.05
#: Objects of a list that are taken in one go: reviews have their turn in between, however long the list.
_SLICE: Final = 200


class SnapshotStore:
    """A sink that keeps records and publishes them to a state.

    A bad object is left out and logged; a bad policy is logged and the last good one of its name stays in force.

    Attributes:
        policies: the GPUPolicies, with what is in force of each.
    """

    def __init__(
        self,
        state: CurrentState,
        log: Log,
        kinds: Iterable[WatchedKind],
        *,
        fixed: ClusterSnapshot | None = None,
        gather: float = _GATHER,
        ledger: InFlightLedger | None = None,
    ) -> None:
        """Prepare to take ``kinds``; ``fixed`` facts, from files, are published in place of watched ones."""
        self._state = state
        self._log = log
        self._fixed = fixed
        self._gather = gather
        self._ledger = ledger
        self._builder = SnapshotBuilder()
        if ledger is not None:
            self._builder.in_flight = ledger.in_flight
        self.policies = PolicyStore(log)
        watched = list(kinds)
        self._known: dict[str, SyncState] = {kind.resource: SyncState.PENDING for kind in watched}
        self._follows_policies = POLICIES in watched
        self._stale: Mapping[str, int] = {}
        self._unreadable: frozenset[str] = frozenset()
        self._scheduled = False
        self._took = 0.0
        self._published = asyncio.Event()
        #: Lists that are being taken slice by slice, and what came behind them.
        self._work: deque[Iterator[object]] = deque()
        self.publish()

    def replaced(self, kind: WatchedKind, objects: Sequence[Observed], /) -> None:
        """Take a full list of one kind; a long one slice by slice, and until its end the kind is not synced anew."""
        self._do(self._replacing(kind, objects, SyncState.SYNCED))

    def changed(self, kind: WatchedKind, event_type: EventType, item: Observed, /) -> None:
        """Take one event; one that changes nothing a rule reads (a node's heartbeat) publishes nothing."""
        gone = event_type == "DELETED"
        if self._work:
            self._work.append(self._changing(kind, item, gone=gone))
        else:
            self._change(kind, item, gone=gone)

    def absent(self, kind: WatchedKind, /) -> None:
        """Forget a kind that the cluster does not serve."""
        self._do(self._replacing(kind, (), SyncState.ABSENT))

    def _do(self, work: Iterator[object]) -> None:
        """Do ``work``, behind what is under way; as much of it at once as takes no time."""
        self._work.append(work)
        if len(self._work) == 1:
            self._take_slice()
            self._follow()

    def _take_slice(self) -> None:
        for _ in range(_SLICE):
            if not self._work:
                return
            try:
                next(self._work[0])
            except StopIteration:
                self._work.popleft()
            except Exception:
                self._work.popleft()
                raise

    def _follow(self) -> None:
        """See to it that the next slice is taken, if there is one."""
        if not self._work:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            while self._work:
                self._take_slice()
        else:
            loop.call_soon(self._resume)

    def _resume(self) -> None:
        try:
            self._take_slice()
        except Exception as error:  # noqa: BLE001 - what cannot be taken must not keep the rest from being taken
            self._log.error("not taken into the facts", error=repr(error))
        self._follow()

    def _replacing(self, kind: WatchedKind, objects: Sequence[Observed], known: SyncState) -> Iterator[object]:
        if kind is POLICIES:
            changed = self.policies.replaced(objects)
        else:
            records: dict[Key, Any] = {}
            for one in objects:
                records[one.key] = self._record(kind, one)
                yield None
            changed = False
            for differs in self._builder.replacing(kind.resource, records):
                changed = changed or differs
                yield None
            yield from self._builder.settling()
            # Only now: what the ledger no longer counts is in the facts.
            for one in objects:
                self._show(kind, one)
                yield None
        if changed or self._known[kind.resource] is not known:
            self._known[kind.resource] = known
            self._schedule()

    def _changing(self, kind: WatchedKind, item: Observed, *, gone: bool) -> Iterator[object]:
        self._change(kind, item, gone=gone)
        yield None

    def _change(self, kind: WatchedKind, item: Observed, *, gone: bool) -> None:
        if kind is POLICIES:
            changed = self.policies.changed(item, gone=gone)
        else:
            self._show(kind, item)
            changed = self._builder.put(kind.resource, item.key, None if gone else self._record(kind, item))
        if changed:
            self._schedule()

    async def wait_synced(self, resources: Iterable[str]) -> None:
        """Return once what was read of these kinds, by their resources, is in force: it takes a moment."""
        wanted = frozenset(resources)
        while any(self._state.in_force.snapshot.sync_state(name) is SyncState.PENDING for name in wanted):
            self._published.clear()
            await self._published.wait()

    def mark_stale(self, stale: Mapping[str, int], unreadable: frozenset[str] = frozenset()) -> None:
        """Take what is not to be relied on.

        Args:
            stale: how old, in minutes, what is known of some kinds is, since their watches are broken.
            unreadable: kinds that are served but could not be read yet: one that was absent is not known to be so any
                longer, yet who was ready stays so.
        """
        if (stale, unreadable) != (self._stale, self._unreadable):
            self._stale, self._unreadable = dict(stale), unreadable
            self._schedule()

    def _show(self, kind: WatchedKind, one: Observed) -> None:
        """Tell the ledger what the watch shows now."""
        if self._ledger is None:
            return
        if kind.resource == "pods":
            self._ledger.saw_pod(one.key, one.uid, one.record.owner if one.record is not None else "")
        elif kind.resource == "workloads" and one.record is not None and (one.record.reserved or one.record.finished):
            # Before that no ClusterQueue's status shows it either.
            for owner in one.record.owners:
                self._ledger.saw(owner)

    def _record(self, kind: WatchedKind, one: Observed) -> Any:  # noqa: ANN401 - a record
        if one.error:
            self._log.warning("object left out of the facts", kind=kind.name, name=one.key[1], error=one.error)
            return self._builder.get(kind.resource, one.key)
        return one.record

    def node(self, name: str) -> Node | None:
        """The record of the node called ``name``; None where there is none."""
        found: Node | None = self._builder.get("nodes", ("", name))
        return found

    def use_of_node(self, name: str) -> NodeUsage:
        """What the pods on the node called ``name`` come to."""
        return self._builder.node(name)

    def _schedule(self) -> None:
        if self._scheduled:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.publish()
            return
        self._scheduled = True
        loop.call_later(max(self._gather, self._took / _MOST_BUSY), self.publish)

    def publish(self) -> None:
        """Put what is known now in force; changes do so by themselves, a moment later."""
        self._scheduled = False
        started = time.perf_counter()
        policies: list[Policy] | None = None
        if self._follows_policies:
            policies = self.policies.in_force()
        known = {name: SyncState.PENDING if name in self._unreadable else found for name, found in self._known.items()}
        self._state.publish(self._builder.snapshot(known, self._stale) if self._fixed is None else self._fixed, policies)
        self._state.wait_for([name for name, known in self._known.items() if known is SyncState.PENDING])
        self._took = time.perf_counter() - started
        self._published.set()
