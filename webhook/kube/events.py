"""Send Kubernetes Events (``events.k8s.io/v1``) from one task, with limits on every resource.

`Recorder.emit` only adds to a queue. A repeated Event raises the count of the stored one. Events above the limits, for one
object or in total, are dropped and counted.
"""

import asyncio
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.errors import CONFLICT, NOT_FOUND, ApiError, ClusterError
from gpugate.webhook.kube.event_series import EventSeries, Key, Kind, Reference, about_namespace, cut_bytes, name_of
from gpugate.webhook.kube.reflector import Backoff
from gpugate.webhook.runtime.log import Log

#: Longest reason, action or instance that the API accepts. Characters.
_LONGEST_WORD: Final = 128
#: Transient error statuses: expired credentials, request timeout, too many requests.
_TRANSIENT: Final = frozenset({401, 408, 429})
_SERVER_ERROR: Final = 500
Outcome: TypeAlias = Literal["created", "updated", "aggregated", "limited", "overflow", "refused", "expired", "failed"]
__all__ = ["Kind", "Limits", "Outcome", "Recorder", "Reference", "about_namespace"]


class TokenBucket:
    """A bucket of ``burst`` tokens, full at the start, refilled at ``rate`` per second; the caller passes the time in seconds."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = float(burst)
        self._at = now

    def _fill(self, now: float) -> None:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now

    def take(self, now: float) -> bool:
        """Take one token; return False if there is none."""
        self._fill(now)
        # Accept rounding errors: else a caller that has waited for a token may wait twice.
        if self._left < 1.0 - 1e-9:
            return False
        self._left -= 1.0
        return True

    def wait(self, now: float) -> float:
        """Return the seconds until there is a token."""
        self._fill(now)
        return 0.0 if self._left >= 1.0 - 1e-9 else (1.0 - self._left) / self._rate


class Buckets:
    """A token bucket per key, at most ``most`` of them: the least recently used one is dropped."""

    def __init__(self, burst: float, rate: float, most: int) -> None:
        self._burst = burst
        self._rate = rate
        self._most = most
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Hashable, now: float) -> bool:
        """Take one token from the bucket of ``key``; return False if there is none."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._burst, self._rate, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket.take(now)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of memory and of calls; durations in seconds.

    Attributes:
        queue: new Events in the queue; further ones are dropped.
        series: Events remembered to count repetitions.
        window: time without repetition after which the same text makes a new Event.
        object_burst: new Events for one object at once.
        object_every: time until one object may have one more.
        burst: calls to the API at once.
        rate: calls to the API per second after the burst.
        update_first: time from an Event to the first update of its count; it doubles with every update.
        update_last: the longest time between two updates.
        expires: age at which an unsent Event is dropped.
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


class Recorder:
    """Queues Events until `run` sends them. Use it from the thread of the event loop only."""

    def __init__(  # noqa: PLR0913 - most are for tests
        self,
        api: ApiClient,
        log: Log,
        *,
        component: str = "gpugate.io/webhook",
        instance: str = "",
        count: Callable[[Outcome], None] = lambda _outcome: None,
        limits: Limits = Limits(),
        timing: Backoff = Backoff(),  # noqa: B008 - it is frozen
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare an empty queue; ``count`` is called with the outcome of every Event.

        The Events have ``component``, a qualified name, as ``reportingController``, and ``instance`` as ``reportingInstance``: by
        default the host name, in a pod the name of the pod. Their times are those of ``wall``, seconds of Unix time.
        """
        self._api = api
        self._log = log
        self._component = component
        self._instance = (instance or socket.gethostname() or "gpugate")[:_LONGEST_WORD]
        self._count = count
        self._limits = limits
        self._timing = timing
        self._wall = wall
        self._queue: deque[EventSeries] = deque()
        self._known: OrderedDict[Key, EventSeries] = OrderedDict()
        self._changed: dict[Key, EventSeries] = {}
        self._buckets = Buckets(limits.object_burst, 1.0 / limits.object_every, limits.series)
        self._calls = TokenBucket(limits.burst, limits.rate, timing.clock())
        self._wake = asyncio.Event()
        self._quiet_until = float("-inf")
        self._suppressed = 0

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: Kind = "Warning") -> None:
        """Queue an Event about ``regarding``; never blocks, never raises.

        ``reason`` (``Refused``) and ``action`` (``Admit``) are CamelCase words for machines, ``message`` is cut to 1024 bytes, and
        ``kind`` is ``Normal``, or ``Warning`` if a person must act.
        """
        try:
            self._add(Key(regarding, kind, reason[:_LONGEST_WORD], action[:_LONGEST_WORD], cut_bytes(message)))
        except Exception as error:  # noqa: BLE001 - an Event must not break its caller
            self._count("failed")
            self._warn_limited("cannot create an Event", regarding.namespace, f"{type(error).__name__}: {error}")

    def _add(self, key: Key) -> None:
        now, wall = self._timing.clock(), self._wall()
        series = self._known.get(key)
        if series is not None and now - series.last_seen <= self._limits.window:
            self._repeat(series, now, wall)
        elif len(self._queue) >= self._limits.queue:
            self._count("overflow")
        elif not self._buckets.take(key.regarding, now):
            self._count("limited")
        else:
            series = EventSeries(key, name_of(key, self._instance, wall), first=wall, last=wall, last_seen=now, waits_since=now)
            self._remember(series)
            self._queue.append(series)
            self._wake.set()

    def _repeat(self, series: EventSeries, now: float, wall: float) -> None:
        series.count += 1
        series.last_seen, series.last = now, wall
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
        """Send queued Events until cancelled; a later call continues with the same queue."""
        failures = 0
        while True:
            if not self._queue and not self._changed:
                self._wake.clear()
                await self._wake.wait()
            now = self._timing.clock()
            series = self._next(now)
            if series is None:
                # New Events do not wait for the counts of older ones.
                await self._timing.sleep(1.0)
                continue
            wait = self._calls.wait(now)
            if wait > 0:
                await self._timing.sleep(wait)
                continue
            self._calls.take(now)
            if await self._sent(series):
                failures = 0
                continue
            await self._timing.sleep(self._timing.backoff(failures))
            failures += 1

    def _next(self, now: float) -> EventSeries | None:
        """Return the Event to send now, and drop expired ones."""
        oldest = now - self._limits.expires
        while self._queue:
            if self._queue[0].waits_since >= oldest:
                return self._queue[0]
            self._forget(self._queue.popleft(), "expired")
        due = [series for series in self._changed.values() if series.due <= now]
        for series in due:
            if series.waits_since + self._limits.update_last >= oldest:
                return series
            self._forget(series, "expired")
        return None

    def _forget(self, series: EventSeries, outcome: Outcome) -> None:
        self._count(outcome)
        if self._known.get(series.key) is series:
            del self._known[series.key]
        if self._changed.get(series.key) is series:
            del self._changed[series.key]

    async def _sent(self, series: EventSeries) -> bool:
        """Send one Event; return False if further calls must wait."""
        try:
            await self._send(series)
        except ApiError as error:
            if error.status in _TRANSIENT or error.status >= _SERVER_ERROR:
                return False
            self._refused(series, error)
        except (ClusterError, TimeoutError):
            return False
        except Exception as error:  # noqa: BLE001 - one Event must not stop the others
            self._drop(series, "failed")
            self._warn_limited("cannot send an Event", series.key.regarding.namespace, f"{type(error).__name__}: {error}")
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
                # An earlier call, whose answer was lost, created it.
                if error.status != CONFLICT:
                    raise
            series.stored = True
            self._count("created")
        if self._queue and self._queue[0] is series:
            self._queue.popleft()
        now = self._timing.clock()
        series.due = now + min(self._limits.update_last, self._limits.update_first * 2.0 ** min(series.updates, 16))
        self._changed.pop(series.key, None)
        if series.count > count and self._known.get(series.key) is series:
            series.waits_since = now
            self._changed[series.key] = series

    def _refused(self, series: EventSeries, error: ApiError) -> None:
        if series.stored and error.status == NOT_FOUND and len(self._queue) < self._limits.queue:
            # Events live for an hour: this one expired and is created again.
            series.stored, series.updates, series.waits_since = False, 0, self._timing.clock()
            self._changed.pop(series.key, None)
            self._queue.append(series)
            return
        self._drop(series, "refused")
        self._warn_limited("the apiserver rejects an Event", series.key.regarding.namespace, str(error))

    def _drop(self, series: EventSeries, outcome: Outcome) -> None:
        if self._queue and self._queue[0] is series:
            self._queue.popleft()
        self._forget(series, outcome)

    def _warn_limited(self, message: str, namespace: str, error: str) -> None:
        now = self._timing.clock()
        if now < self._quiet_until:
            self._suppressed += 1
            return
        self._quiet_until = now + self._limits.object_every
        self._log.warning(message, namespace=namespace, error=error, likewise=self._suppressed)
        self._suppressed = 0


class EventSink(Protocol):
    """Receives Events, like `Recorder`."""

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: Kind = "Warning") -> None:
        """Queue an Event about `regarding`; never blocks, never raises."""
