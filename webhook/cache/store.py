"""Turn watched objects into snapshots: keep the records, and publish a snapshot after changes."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpugate.policies.cluster.builder import SnapshotBuilder
from gpugate.policies.cluster.kinds import Key
from gpugate.policies.cluster.nodes import Node
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import NodeUsage
from gpugate.policies.workloads.kinds.owners import ServedKinds
from gpugate.webhook.cache.kinds import POLICIES, Observed
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.policies import PolicyStore
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.types import EventType, WatchedKind
from gpugate.webhook.runtime.log import Log

#: Seconds in which changes are gathered into one snapshot.
_GATHER: Final = 0.02
#: Largest share of time for publishing: a larger cluster gathers more changes into one snapshot.
_MAX_BUSY: Final = 0.05
#: Objects of a list per slice: reviews run between slices.
_SLICE: Final = 200


class SnapshotStore:
    """A sink that keeps records and publishes them as snapshots.

    A malformed object is left out and logged. An invalid policy is logged and its last valid generation stays in force.
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
        """Prepare to take ``kinds``; a ``fixed`` snapshot from files is published instead of the watched objects."""
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
        self._publish_seconds = 0.0
        self._published = asyncio.Event()
        #: Lists in work, slice by slice, and the events queued behind them.
        self._work: deque[Iterator[object]] = deque()
        self.publish()

    def replaced(self, kind: WatchedKind, objects: Sequence[Observed], /) -> None:
        """Take a full list of one kind, slice by slice; the kind is synced at its end."""
        self._enqueue(self._replace_steps(kind, objects, SyncState.SYNCED))

    def changed(self, kind: WatchedKind, event_type: EventType, item: Observed, /) -> None:
        """Take one event; a change that no rule reads (a node's heartbeat) publishes nothing."""
        gone = event_type == "DELETED"
        if self._work:
            self._work.append(self._change_steps(kind, item, gone=gone))
        else:
            self._change(kind, item, gone=gone)

    def absent(self, kind: WatchedKind, /) -> None:
        """Forget a kind that the cluster does not serve."""
        self._enqueue(self._replace_steps(kind, (), SyncState.ABSENT))

    def _enqueue(self, work: Iterator[object]) -> None:
        """Queue ``work`` behind unfinished work, and run its first slice at once if the queue was empty."""
        self._work.append(work)
        if len(self._work) == 1:
            self._take_slice()
            self._schedule_slice()

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

    def _schedule_slice(self) -> None:
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
        except Exception as error:  # noqa: BLE001 - one object must not stop the others
            self._log.error("cannot add objects to the snapshot", error=repr(error))
        self._schedule_slice()

    def _replace_steps(self, kind: WatchedKind, objects: Sequence[Observed], known: SyncState) -> Iterator[object]:
        if kind is POLICIES:
            changed = self.policies.replaced(objects)
        else:
            records: dict[Key, Any] = {}
            for item in objects:
                records[item.key] = self._record(kind, item)
                yield None
            changed = False
            for differs in self._builder.replacing(kind.resource, records):
                changed = changed or differs
                yield None
            yield from self._builder.rebuild()
            # Last: objects must be in the records before the ledger drops them.
            for item in objects:
                self._update_ledger(kind, item)
                yield None
        if changed or self._known[kind.resource] is not known:
            self._known[kind.resource] = known
            self._schedule()

    def _change_steps(self, kind: WatchedKind, item: Observed, *, gone: bool) -> Iterator[object]:
        self._change(kind, item, gone=gone)
        yield None

    def _change(self, kind: WatchedKind, item: Observed, *, gone: bool) -> None:
        if kind is POLICIES:
            changed = self.policies.changed(item, gone=gone)
        else:
            self._update_ledger(kind, item)
            changed = self._builder.put(kind.resource, item.key, None if gone else self._record(kind, item))
        if changed:
            self._schedule()

    async def wait_synced(self, resources: Iterable[str]) -> None:
        """Return once the snapshot in force has these resources synced."""
        names = frozenset(resources)
        while any(self._state.in_force.snapshot.sync_state(name) is SyncState.PENDING for name in names):
            self._published.clear()
            await self._published.wait()

    def serves(self, kinds: ServedKinds) -> None:
        """Take the kinds that the cluster serves, and publish them at once."""
        self._builder.served = kinds
        self.publish()

    def mark_stale(self, stale: Mapping[str, int], unreadable: frozenset[str] = frozenset()) -> None:
        """Mark facts as unreliable: ``stale`` has ages in minutes of broken watches, ``unreadable`` kinds never read so far."""
        if (stale, unreadable) != (self._stale, self._unreadable):
            self._stale, self._unreadable = dict(stale), unreadable
            self._schedule()

    def _update_ledger(self, kind: WatchedKind, observed: Observed) -> None:
        if self._ledger is None:
            return
        record = observed.record
        if kind.resource == "pods":
            self._ledger.observe_pod(observed.key, observed.uid, record.owner if record is not None else "")
        elif kind.resource == "workloads" and record is not None and (record.reserved or record.finished):
            # Before a reservation, ClusterQueue status does not count it either.
            for owner in record.owners:
                self._ledger.observe(owner)

    def _record(self, kind: WatchedKind, observed: Observed) -> Any:  # noqa: ANN401 - a record
        if observed.error:
            self._log.warning("object left out of the snapshot", kind=kind.name, name=observed.key[1], error=observed.error)
            return self._builder.get(kind.resource, observed.key)
        return observed.record

    def node(self, name: str) -> Node | None:
        """Return the record of the node called ``name``; None if there is none."""
        node: Node | None = self._builder.get("nodes", ("", name))
        return node

    def use_of_node(self, name: str) -> NodeUsage:
        """Return what the pods on the node called ``name`` use."""
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
        loop.call_later(max(self._gather, self._publish_seconds / _MAX_BUSY), self.publish)

    def publish(self) -> None:
        """Put the current records in force; changes publish automatically after a short delay."""
        self._scheduled = False
        started = time.perf_counter()
        policies = self.policies.in_force() if self._follows_policies else None
        known = {name: SyncState.PENDING if name in self._unreadable else state for name, state in self._known.items()}
        self._state.publish(self._builder.snapshot(known, self._stale) if self._fixed is None else self._fixed, policies)
        self._state.wait_for([name for name, known in self._known.items() if known is SyncState.PENDING])
        self._publish_seconds = time.perf_counter() - started
        self._published.set()
