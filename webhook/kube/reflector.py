"""Keep a sink up to date with one kind of the cluster: list, watch, resume, and back off on errors."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.errors import ApiError, ClusterError, ConnectionLostError, Gone, NotServed
from gpugate.webhook.kube.lister import CHANGES, Discovery, ListCollector, read_pages, read_streamed
from gpugate.webhook.kube.types import EventType, JsonObject, KindState, Sink, Strip, WatchedKind, WatchPhase


@dataclass(frozen=True, slots=True)
class Backoff:
    """Clock, sleep and waiting times, replaceable by tests; durations in seconds, `jitter` within [0, 1)."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    first_backoff: float = 1.0
    longest_backoff: float = 30.0
    absent_poll: float = 5.0
    watch: float = 120.0
    """A watch lasts this long to twice this long, so that replicas reconnect at different times."""
    grace: float = 15.0
    """Silence beyond a watch's own end, after which the connection counts as dead."""
    initial: float = 60.0
    """Silence within a streamed list, after which the connection counts as dead."""

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after so many failures before, doubled by each, and jittered by up to half."""
        longest = min(self.longest_backoff, self.first_backoff * 2.0 ** min(failures, 16))
        return longest * (1 + self.jitter()) / 2


__all__ = ["Backoff", "KindState", "Reflector", "Sink", "Strip", "WatchedKind", "run_all", "wait_synced"]

_PAGE = 500
_MOST_BROKEN_STREAMS = 2  # after so many broken streamed lists in a row, read one page by page
_COUNT_CHANGES = {"ADDED": 1, "DELETED": -1}
_FORBIDDEN = frozenset({401, 403})
_BUSY = frozenset({429, 502, 503, 504})
_UNSUPPORTED = frozenset({400, 422})
_log = logging.getLogger(__name__)


class Reflector:
    """Watches one kind; see `run`."""

    def __init__(
        self,
        source: ApiClient,
        kind: WatchedKind,
        sink: Sink,
        *,
        strip: Strip | None = None,
        timing: Backoff | None = None,
        discovery: Discovery | None = None,
    ) -> None:
        """Prepare to watch `kind`; `run` starts reading.

        `strip` reduces every object as it arrives, so that a long list is never in memory with all fields; the sink gets its
        results. `discovery` is shared by the reflectors of the process.
        """
        self.kind = kind
        self._source = source
        self._sink = sink
        self._strip = strip or (lambda item: item)
        self._timing = timing or Backoff()
        self._discovery = discovery or Discovery(source, self._timing.clock)
        self._state = KindState(kind.name, kind.resource)
        self._synced = asyncio.Event()
        self._path = ""
        self._resume: str | None = None
        self._objects = self._newest = self._failures = self._lists = self._broken_streams = 0
        self._page = _PAGE
        self._streams = True
        self._watched = self._absent = self._rejected_older = False

    @property
    def state(self) -> KindState:
        """Return the current state."""
        return self._state

    async def wait_synced(self) -> None:
        """Return once the kind is listed or known to be absent."""
        await self._synced.wait()

    async def run(self) -> None:
        """Keep the sink up to date until cancelled; no error ends it."""
        while True:
            await self._timing.sleep(await self._cycle())

    async def _cycle(self) -> float:
        """List where needed, watch until that ends; return the seconds to wait then."""
        try:
            if self._absent and not await self._discovery.may_serve(self.kind):
                return self._report_absent()
            await (self._watch(self._resume) if self._resume else self._relist())
        except NotServed:
            if self._resume is None:
                return self._report_absent()
            self._resume = None  # another version may be served: look it up
        except Gone as error:
            _log.info("%s: listing again: %s", self.kind.name, error)
            self._resume = None
        except ApiError as error:
            if error.status not in _FORBIDDEN | _BUSY:
                self._resume = None  # else a rejected resourceVersion is sent again and again
            self._update_state("forbidden" if error.status in _FORBIDDEN else "failing", error=str(error))
        except ClusterError as error:
            self._update_state("failing", error=str(error))
        except Exception as error:  # noqa: BLE001 - a malformed answer must not end it
            _log.warning("%s: unexpected error", self.kind.name, exc_info=error)
            self._resume = None
            self._update_state("failing", error=repr(error))
        return self._backoff()

    async def _relist(self) -> None:
        """Read the full list from the first version that is served, then watch until that ends."""
        for version in self.kind.versions:
            if not await self._source.served(self.kind.group, version, self.kind.plural):
                continue
            self._path = self.kind.path(version)
            if self._absent:
                self._absent = False
                self._update_state("pending", last_sync_monotonic=None)
            try:
                return await self._list_and_watch()
            except NotServed:
                if self._resume:
                    raise
        raise NotServed(404, "NotFound", f"no version of {self.kind.plural} is served")

    async def _list_and_watch(self) -> None:
        if self._streams and self._broken_streams < _MOST_BROKEN_STREAMS:
            try:
                await self._watch(None)
            except ApiError as error:
                if self._resume or error.status not in _UNSUPPORTED:
                    raise
                _log.info("%s: reading the list in pages: %s", self.kind.name, error)
                self._streams = False
            else:
                return
        await self._watch(await self._list())

    async def _list(self) -> str:
        """Pass a full list, read page by page, to the sink; return its resourceVersion."""
        collector = ListCollector(self._strip)
        take = partial(self._call_sink, collector.take)
        try:
            version = await read_pages(self._source, self.kind, self._path, self._page, take)
        except Gone:
            self._page = 0  # a token that expires once may expire each time: request one page
            raise
        self._replace(collector, version)
        return version

    async def _stream(self, events: AsyncIterator[JsonObject], on_event: Callable[[], None]) -> None:
        """Pass a full list, read from the beginning of a watch, to the sink."""
        collector = ListCollector(self._strip)

        def take(*event: object) -> None:
            on_event()
            self._call_sink(collector.take, *event)

        self._broken_streams += 1
        version = await read_streamed(events, take)
        self._replace(collector, version)

    def _replace(self, collector: ListCollector, version: str) -> None:
        self._broken_streams = 0
        self._reject_older(version)
        if not self._call_sink(self._sink.replaced, self.kind, list(collector.records.values())):
            message = "the sink failed on a full list"
            raise ClusterError(message)
        self._objects = len(collector.records)
        self._resume, self._page, self._watched = version, _PAGE, False
        self._update_state("synced", last_sync_monotonic=self._timing.clock(), relists=self._lists)
        self._lists += 1

    def _reject_older(self, version: str) -> None:
        """Reject a list older than the last one, but only once: a restored etcd stays behind."""
        number = int(version) if version.isdecimal() else 0
        if number < self._newest and not self._rejected_older:
            self._rejected_older = True
            message = f"the list at {version} is older than an earlier one at {self._newest}"
            raise ClusterError(message)
        self._newest, self._rejected_older = number, False

    async def _watch(self, version: str | None) -> None:
        """Pass events after `version`, or a full list and its events, to the sink until the stream ends."""
        loop = asyncio.get_running_loop()
        opened = self._timing.clock()
        duration = int(self._timing.watch * (1 + self._timing.jitter()))
        silence = self._timing.initial if version is None else duration + self._timing.grace
        stream = self._source.watch(
            self._path,
            resource_version=version,
            timeout_seconds=duration,
            field_selector=self.kind.field_selector,
            label_selector=self.kind.label_selector,
        )
        try:
            async with asyncio.timeout(silence) as silent, stream as events:
                if version is None:
                    await self._stream(events, lambda: silent.reschedule(loop.time() + silence))
                    silence = duration + self._timing.grace
                    silent.reschedule(loop.time() + silence)
                else:
                    self._update_state("synced", reconnects=self._state.reconnects + self._watched)
                self._watched = True
                async for event in events:
                    silent.reschedule(loop.time() + silence)
                    self._take(event)
                    await asyncio.sleep(0)  # a burst of events must not delay reviews
            if self._timing.clock() - opened >= duration - 1:  # a shorter watch does not prove that the apiserver was current
                self._update_state(last_event_monotonic=self._timing.clock())
        except TimeoutError:
            message = f"the watch was silent for {silence:.0f} s"
            raise ConnectionLostError(message) from None
        finally:
            if self._timing.clock() - opened >= self._timing.longest_backoff:
                self._failures = 0

    def _take(self, event: JsonObject) -> None:
        # Read before stripping, which may drop the field.
        item: JsonObject = event["object"]
        version: str = item["metadata"]["resourceVersion"]
        number = int(version) if version.isdecimal() else 0
        late = version.isdecimal() and number < self._newest  # the list or another event is newer
        # A repeated event is already counted; a failed object never was.
        if event["type"] in CHANGES and not late and self._call_sink(self._change, event["type"], item) and number > self._newest:
            self._objects += _COUNT_CHANGES.get(event["type"], 0)
        if not late:
            self._resume, self._newest = version, number
        self._failures = 0
        self._update_state(last_event_monotonic=self._timing.clock())

    def _change(self, event_type: EventType, item: JsonObject) -> None:
        self._sink.changed(self.kind, event_type, self._strip(item))

    def _report_absent(self) -> float:
        if not self._absent and not self._call_sink(self._sink.absent, self.kind):
            self._update_state("failing", error="the sink failed to forget an absent kind")
            return self._backoff()
        self._absent, self._failures = True, 0
        self._objects = 0
        self._update_state("absent", last_sync_monotonic=self._timing.clock())
        return self._timing.absent_poll

    def _call_sink(self, call: Callable[..., None], *arguments: object) -> bool:
        """Make a call that must not end the watch; count and report its exception."""
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - one object must not stop the others
            trace = None if self._state.sink_errors else error  # one is enough
            _log.warning("%s: the sink failed: %r", self.kind.name, error, exc_info=trace)
            self._update_state(sink_errors=self._state.sink_errors + 1)
            return False
        return True

    def _update_state(self, phase: WatchPhase | None = None, error: str | None = None, **rest: Any) -> None:  # noqa: ANN401
        """Publish a new state; log changes of the phase only."""
        before = self._state
        if phase:
            rest |= {"phase": phase, "error": error}
        self._state = replace(before, objects=self._objects, **rest)
        if phase and phase != before.phase:
            level = logging.WARNING if error else logging.INFO
            _log.log(level, "%s: %s %s", self.kind.name, phase, error or "")
        (self._synced.set if self._state.synced else self._synced.clear)()

    def _backoff(self) -> float:
        self._failures += 1
        return self._timing.backoff(self._failures - 1)


async def run_all(reflectors: Iterable[Reflector]) -> None:
    """Run all reflectors in one task group until cancelled."""
    async with asyncio.TaskGroup() as group:
        for reflector in reflectors:
            group.create_task(reflector.run(), name=f"watch {reflector.kind.name}")


async def wait_synced(reflectors: Iterable[Reflector], seconds: float) -> list[KindState]:
    """Wait for all to be synced, at most `seconds`; return the states of those that are not."""
    watched = list(reflectors)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for reflector in watched:
                await reflector.wait_synced()
    return [reflector.state for reflector in watched if not reflector.state.synced]
