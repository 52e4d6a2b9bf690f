"""Kubernetes Events (``events.k8s.io/v1``): told from anywhere in the process, sent by one task, bounded in every way.

Whoever has something to say only puts it into a queue. What is said again becomes a higher count in the Event that is there;
what is too much, for one object or in all, is dropped and counted.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from gpugate.webhook.kube.event_series import EventSeries, Key, Kind, Reference, about_namespace, cut_bytes, name_of
from gpugate.webhook.kube.reflector import Backoff
from gpugate.webhook.kube.types import CONFLICT, NOT_FOUND, ApiError, ClusterError, JsonObject
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.rate_limit import Buckets, TokenBucket

#: What the API takes of a word at the most. Characters.
_LONGEST_WORD: Final = 128
#: Refusals that pass: too many requests, credentials that expired, an apiserver that has trouble of its own.
_PASSING: Final = frozenset({401, 408, 429})
_SERVER_ERROR: Final = 500

Outcome: TypeAlias = Literal["created", "updated", "aggregated", "limited", "overflow", "refused", "expired", "failed"]


__all__ = ["EventWriter", "Kind", "Limits", "Outcome", "Recorder", "Reference", "about_namespace"]


class EventWriter(Protocol):
    """The writing side of an apiserver; `gpugate.webhook.kube.client.ApiClient` is one."""

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at `path`."""

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Merge `patch` into the object at `path`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept and sent at the most; durations in seconds.

    Attributes:
        queue: new Events that wait to be sent; what is told beyond them is dropped.
        series: Events that are remembered, to count what is told again.
        window: silence after which the same words make a new Event.
        object_burst: new Events for one object at once.
        object_every: time until one object may have one more.
        burst: calls to the API at once.
        rate: calls to the API a second, after those.
        update_first: time from an Event to the first update of its count; it doubles with every update.
        update_last: the longest time between two updates.
        expires: age at which what could not be sent is forgotten.
    """

    queue: int = 256
    series: int = 1024
    window: float = 900.0
    object_burst: int = 10
    object_every: float = 60.0
    burst: int = 50
    rate: float = 5.0
    update_first: float = 2.0
    update_last: float = 60.0
    expires: float = 300.0


def _uncounted(_outcome: Outcome) -> None:
    """Count nothing."""


class Recorder:
    """Keeps what is told until `run` sends it. For one thread: that of the event loop."""

    __slots__ = (
        *("_api", "_buckets", "_calls", "_changed", "_component", "_count", "_instance", "_known"),
        *("_limits", "_log", "_pace", "_queue", "_silent_until", "_unsaid", "_wake", "_wall"),
    )

    def __init__(  # noqa: PLR0913 - most are for tests
        self,
        api: EventWriter,
        log: Log,
        *,
        component: str = "gpugate.io/webhook",
        instance: str = "",
        count: Callable[[Outcome], None] = _uncounted,
        limits: Limits = Limits(),
        pace: Backoff = Backoff(),  # noqa: B008 - it is frozen
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare an empty queue.

        Args:
            api: where Events go.
            log: where it is said that the API takes none.
            component: the ``reportingController`` of the Events, a qualified name.
            instance: their ``reportingInstance``; the name of this machine (in a pod: the pod's) where it is empty.
            count: told of everything that becomes of an Event.
            limits: how much is kept and sent.
            pace: the clock of the limits, and how to wait.
            wall: the clock of the Events' times, in seconds of Unix time.
        """
        self._api = api
        self._log = log
        self._component = component
        self._instance = (instance or socket.gethostname() or "gpugate")[:_LONGEST_WORD]
        self._count = count
        self._limits = limits
        self._pace = pace
        self._wall = wall
        self._queue: deque[EventSeries] = deque()
        self._known: OrderedDict[Key, EventSeries] = OrderedDict()
        self._changed: dict[Key, EventSeries] = {}
        self._buckets = Buckets(limits.object_burst, 1.0 / limits.object_every, limits.series)
        self._calls = TokenBucket(limits.burst, limits.rate, pace.clock())
        self._wake = asyncio.Event()
        self._silent_until = float("-inf")
        self._unsaid = 0

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: Kind = "Warning") -> None:
        """Have an Event about ``regarding`` sent; never blocks, never raises.

        Args:
            regarding: what it is about.
            reason: why, a CamelCase word for machines (``Refused``).
            message: what happened, cut to 1024 bytes.
            action: what was done or tried, a CamelCase word (``Admit``).
            kind: ``Normal``, or ``Warning`` where somebody has to do something.
        """
        try:
            self._tell(Key(regarding, kind, reason[:_LONGEST_WORD], action[:_LONGEST_WORD], cut_bytes(message)))
        except Exception as error:  # noqa: BLE001 - whoever tells has more important things to do
            self._count("failed")
            self._say("an Event could not be made", regarding.namespace, f"{type(error).__name__}: {error}")

    def _tell(self, key: Key) -> None:
        now, wall = self._pace.clock(), self._wall()
        series = self._known.get(key)
        if series is not None and now - series.heard <= self._limits.window:
            self._repeat(series, now, wall)
        elif len(self._queue) >= self._limits.queue:
            self._count("overflow")
        elif not self._buckets.take(key.regarding, now):
            self._count("limited")
        else:
            series = EventSeries(key, name_of(key, self._instance, wall), first=wall, last=wall, heard=now, waits_since=now)
            self._remember(series)
            self._queue.append(series)
            self._wake.set()

    def _repeat(self, series: EventSeries, now: float, wall: float) -> None:
        series.count += 1
        series.heard, series.last = now, wall
        self._known.move_to_end(series.key)
        self._count("aggregated")
        if series.stored and series.key not in self._changed:
            series.waits_since = now
            self._changed[series.key] = series
            self._wake.set()

    def _remember(self, series: EventSeries) -> None:
        self._known[series.key] = series
        self._known.move_to_end(series.key)
        self._changed.pop(series.key, None)
        while len(self._known) > self._limits.series:
            key, _ = self._known.popitem(last=False)
            self._changed.pop(key, None)

    async def run(self) -> None:
        """Send what is queued, until cancelled; may be run again later, and goes on where it was."""
        failures = 0
        while True:
            if not self._queue and not self._changed:
                self._wake.clear()
                await self._wake.wait()
            now = self._pace.clock()
            series = self._next(now)
            if series is None:
                # New Events do not wait for the counts of older ones.
                await self._pace.sleep(1.0)
                continue
            wait = self._calls.wait(now)
            if wait > 0:
                await self._pace.sleep(wait)
                continue
            self._calls.take(now)
            if await self._sent(series):
                failures = 0
                continue
            await self._pace.sleep(self._pace.backoff(failures))
            failures += 1

    def _next(self, now: float) -> EventSeries | None:
        """What is to be sent now; what waits for too long is forgotten on the way."""
        oldest = now - self._limits.expires
        while self._queue:
            if self._queue[0].waits_since >= oldest:
                return self._queue[0]
            self._forget(self._queue.popleft(), "expired")
        due = [one for one in self._changed.values() if one.due <= now]
        for one in due:
            if one.waits_since + self._limits.update_last < oldest:
                self._forget(one, "expired")
            else:
                return one
        return None

    def _forget(self, series: EventSeries, outcome: Outcome) -> None:
        self._count(outcome)
        if self._known.get(series.key) is series:
            del self._known[series.key]
        if self._changed.get(series.key) is series:
            del self._changed[series.key]

    async def _sent(self, series: EventSeries) -> bool:
        """Whether sending is over for this time, one way or the other; False where the API should be left alone for a while."""
        try:
            await self._send(series)
        except ApiError as error:
            if error.status in _PASSING or error.status >= _SERVER_ERROR:
                return False
            self._refused(series, error)
        except (ClusterError, TimeoutError):
            return False
        except Exception as error:  # noqa: BLE001 - one Event must not stop the others
            self._drop(series, "failed")
            self._say("an Event could not be sent", series.key.regarding.namespace, f"{type(error).__name__}: {error}")
        return True

    async def _send(self, series: EventSeries) -> None:
        count = series.count
        if series.stored:
            await self._api.patch(f"{series.collection}/{series.name}", {"series": series.progress()})
            series.updates += 1
            self._count("updated")
        else:
            try:
                await self._api.create(series.collection, series.event(self._component, self._instance))
            except ApiError as error:
                # It was made by a call whose answer got lost.
                if error.status != CONFLICT:
                    raise
            series.stored = True
            self._count("created")
        if self._queue and self._queue[0] is series:
            self._queue.popleft()
        now = self._pace.clock()
        series.due = now + min(self._limits.update_last, self._limits.update_first * 2.0 ** min(series.updates, 16))
        self._changed.pop(series.key, None)
        if series.count > count and self._known.get(series.key) is series:
            series.waits_since = now
            self._changed[series.key] = series

    def _refused(self, series: EventSeries, error: ApiError) -> None:
        if series.stored and error.status == NOT_FOUND and len(self._queue) < self._limits.queue:
            # Events live for an hour: this one has gone, and what it told goes on.
            series.stored, series.updates, series.waits_since = False, 0, self._pace.clock()
            self._changed.pop(series.key, None)
            self._queue.append(series)
            return
        self._drop(series, "refused")
        self._say("the apiserver takes no Event", series.key.regarding.namespace, str(error))

    def _drop(self, series: EventSeries, outcome: Outcome) -> None:
        if self._queue and self._queue[0] is series:
            self._queue.popleft()
        self._forget(series, outcome)

    def _say(self, message: str, namespace: str, error: str) -> None:
        """One line in the log, and not one for each Event that shares its lot."""
        now = self._pace.clock()
        if now < self._silent_until:
            self._unsaid += 1
            return
        self._silent_until = now + self._limits.object_every
        self._log.warning(message, namespace=namespace, error=error, likewise=self._unsaid)
        self._unsaid = 0
