"""How long a reflector waits for what."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gpugate.webhook.kube.discovery import Discovery
from gpugate.webhook.kube.lister import CHANGES, Gathered, read_pages, read_streamed
from gpugate.webhook.kube.types import (
    ApiError,
    ClusterError,
    ConnectionLostError,
    EventType,
    Gone,
    JsonObject,
    KindState,
    ListWatch,
    NotServed,
    Sink,
    Strip,
    WatchedKind,
    WatchPhase,
)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Time, as tests may replace it; durations in seconds, `jitter` within [0, 1)."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    first_backoff: float = 1.0
    longest_backoff: float = 30.0
    absent_poll: float = 5.0
    watch: float = 120.0
    """A watch lasts once to twice as long, so that replicas do not reconnect in step."""
    grace: float = 15.0
    """Silence beyond a watch's own end, after which the connection counts as dead."""
    initial: float = 60.0
    """Silence within a streamed list, after which the connection counts as dead."""

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after so many failures before, doubled by each, and jittered by up to half."""
        longest = min(self.longest_backoff, self.first_backoff * 2.0 ** min(failures, 16))
        return longest * (1 + self.jitter()) / 2


if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Backoff", "KindState", "ListWatch", "Reflector", "Sink", "Strip", "WatchedKind", "run_all", "wait_synced"]

_PAGE = 500
_HALVES = 2  # streamed lists broken in a row, after which one is read page by page
_COUNTED = {"ADDED": 1, "DELETED": -1}
_FORBIDDEN = frozenset({401, 403})
_BUSY = frozenset({429, 502, 503, 504})
_UNSUPPORTED = frozenset({400, 422})
_log = logging.getLogger(__name__)


class Reflector:
    """Follows one kind; see `run`."""

    def __init__(
        self,
        source: ListWatch,
        kind: WatchedKind,
        sink: Sink,
        *,
        strip: Strip | None = None,
        pace: Backoff | None = None,
        discovery: Discovery | None = None,
    ) -> None:
        """Prepare to follow `kind`; nothing is read before `run`.

        `strip` is applied to every object as it arrives, so that a long list is never
        held whole with all the fields that nobody reads; the sink is given what it
        returns. `discovery` is shared with the other reflectors of the process.
        """
        self.kind = kind
        self._source = source
        self._sink = sink
        self._strip = strip or (lambda item: item)
        self._pace = pace or Backoff()
        self._discovery = discovery or Discovery(source, self._pace.clock)
        self._state = KindState(kind.name, kind.resource)
        self._synced = asyncio.Event()
        self._path = ""
        self._resume: str | None = None
        self._objects = self._newest = self._failures = self._lists = self._halves = 0
        self._page = _PAGE
        self._streams = True
        self._watched = self._absent = self._doubted = False

    @property
    def state(self) -> KindState:
        """The state now."""
        return self._state

    async def wait_synced(self) -> None:
        """Return once the kind is listed or known to be absent."""
        await self._synced.wait()

    async def run(self) -> None:
        """Keep the sink in step until cancelled; no error ends it."""
        while True:
            await self._pace.sleep(await self._turn())

    async def _turn(self) -> float:
        """List where needed, watch until that ends; return the seconds to wait then."""
        try:
            if self._absent and not await self._discovery.may_serve(self.kind):
                return self._tell_absent()
            await (self._watch(self._resume) if self._resume else self._begin())
        except NotServed:
            if self._resume is None:
                return self._tell_absent()
            self._resume = None  # another version may be served: discovery decides
        except Gone as error:
            _log.info("%s: listing again: %s", self.kind.name, error)
            self._resume = None
        except ApiError as error:
            if error.status not in _FORBIDDEN | _BUSY:
                self._resume = None  # else a resourceVersion it dislikes is sent for ever
            self._note("forbidden" if error.status in _FORBIDDEN else "failing", error=str(error))
        except ClusterError as error:
            self._note("failing", error=str(error))
        except Exception as error:  # noqa: BLE001 - a malformed answer must not end it
            _log.warning("%s: unforeseen", self.kind.name, exc_info=error)
            self._resume = None
            self._note("failing", error=repr(error))
        return self._backoff()

    async def _begin(self) -> None:
        """Read the full list from the first version that is served, then watch until that ends."""
        for version in self.kind.versions:
            if not await self._source.served(self.kind.group, version, self.kind.plural):
                continue
            self._path = self.kind.path(version)
            if self._absent:
                self._absent = False
                self._note("pending", last_sync_monotonic=None)
            try:
                return await self._list_and_watch()
            except NotServed:
                if self._resume:
                    raise
        raise NotServed(404, "NotFound", f"no version of {self.kind.plural} is served")

    async def _list_and_watch(self) -> None:
        if self._streams and self._halves < _HALVES:
            try:
                await self._watch(None)
            except ApiError as error:
                if self._resume or error.status not in _UNSUPPORTED:
                    raise
                _log.info("%s: the list comes in pages: %s", self.kind.name, error)
                self._streams = False
            else:
                return
        await self._watch(await self._list())

    async def _list(self) -> str:
        """Hand the sink a full list, read page by page; return its resourceVersion."""
        gathered = Gathered(self._strip)
        take = partial(self._survived, gathered.take)
        try:
            version = await read_pages(self._source, self.kind, self._path, self._page, take)
        except Gone:
            self._page = 0  # a token that expires once may do so for ever: ask for one page
            raise
        self._replace(gathered, version)
        return version

    async def _stream(self, events: AsyncIterator[JsonObject], heard: Callable[[], None]) -> None:
        """Hand the sink a full list, read from the beginning of a watch."""
        gathered = Gathered(self._strip)

        def take(*event: object) -> None:
            heard()
            self._survived(gathered.take, *event)

        self._halves += 1
        version = await read_streamed(events, take)
        self._replace(gathered, version)

    def _replace(self, gathered: Gathered, version: str) -> None:
        self._halves = 0
        self._doubt(version)
        if not self._survived(self._sink.replaced, self.kind, list(gathered.records.values())):
            message = "the sink failed on a full list"
            raise ClusterError(message)
        self._objects = len(gathered.records)
        self._resume, self._page, self._watched = version, _PAGE, False
        self._note("synced", last_sync_monotonic=self._pace.clock(), relists=self._lists)
        self._lists += 1

    def _doubt(self, version: str) -> None:
        """Refuse a list older than what was seen, but once: a restored etcd stays behind."""
        number = int(version) if version.isdecimal() else 0
        if number < self._newest and not self._doubted:
            self._doubted = True
            message = f"a list at {version} is older than {self._newest}, seen before"
            raise ClusterError(message)
        self._newest, self._doubted = number, False

    async def _watch(self, version: str | None) -> None:
        """Pass on the events after `version`, or a full list and what follows it, until the stream ends."""
        loop = asyncio.get_running_loop()
        opened = self._pace.clock()
        lasting = int(self._pace.watch * (1 + self._pace.jitter()))
        silence = self._pace.initial if version is None else lasting + self._pace.grace
        stream = self._source.watch(
            self._path,
            resource_version=version,
            timeout_seconds=lasting,
            field_selector=self.kind.field_selector,
            label_selector=self.kind.label_selector,
        )
        try:
            async with asyncio.timeout(silence) as silent, stream as events:
                if version is None:
                    await self._stream(events, lambda: silent.reschedule(loop.time() + silence))
                    silence = lasting + self._pace.grace
                    silent.reschedule(loop.time() + silence)
                else:
                    self._note("synced", reconnects=self._state.reconnects + self._watched)
                self._watched = True
                async for event in events:
                    silent.reschedule(loop.time() + silence)
                    self._take(event)
                    await asyncio.sleep(0)  # a burst must not keep reviews waiting
            if self._pace.clock() - opened >= lasting - 1:  # sooner, the apiserver may not even have been in step itself
                self._note(last_event_monotonic=self._pace.clock())
        except TimeoutError:
            message = f"the watch was silent for {silence:.0f} s"
            raise ConnectionLostError(message) from None
        finally:
            if self._pace.clock() - opened >= self._pace.longest_backoff:
                self._failures = 0

    def _take(self, event: JsonObject) -> None:
        # Read before the object is stripped: what that leaves need not have it any more.
        item: JsonObject = event["object"]
        version: str = item["metadata"]["resourceVersion"]
        number = int(version) if version.isdecimal() else 0
        late = version.isdecimal() and number < self._newest  # what the list, or an event since, says of the object is newer
        # An event that is repeated is counted already, and an object that was left out never was.
        if event["type"] in CHANGES and not late and self._survived(self._change, event["type"], item) and number > self._newest:
            self._objects += _COUNTED.get(event["type"], 0)
        if not late:
            self._resume, self._newest = version, number
        self._failures = 0
        self._note(last_event_monotonic=self._pace.clock())

    def _change(self, event_type: EventType, item: JsonObject) -> None:
        self._sink.changed(self.kind, event_type, self._strip(item))

    def _tell_absent(self) -> float:
        if not self._absent and not self._survived(self._sink.absent, self.kind):
            self._note("failing", error="the sink failed to forget an absent kind")
            return self._backoff()
        self._absent, self._failures = True, 0
        self._objects = 0
        self._note("absent", last_sync_monotonic=self._pace.clock())
        return self._pace.absent_poll

    def _survived(self, call: Callable[..., None], *arguments: object) -> bool:
        """Make a call that must not end the watcher; count and report its exception."""
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next object counts
            trace = None if self._state.sink_errors else error  # one is enough
            _log.warning("%s: the sink failed: %r", self.kind.name, error, exc_info=trace)
            self._note(sink_errors=self._state.sink_errors + 1)
            return False
        return True

    def _note(self, phase: WatchPhase | None = None, error: str | None = None, **rest: Any) -> None:  # noqa: ANN401
        """Publish a new state; only a change of phase is worth a line in the log."""
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
        return self._pace.backoff(self._failures - 1)


async def run_all(reflectors: Iterable[Reflector]) -> None:
    """Run all reflectors in one task group until cancelled."""
    async with asyncio.TaskGroup() as group:
        for reflector in reflectors:
            group.create_task(reflector.run(), name=f"watch {reflector.kind.name}")


async def wait_synced(reflectors: Iterable[Reflector], seconds: float) -> list[KindState]:
    """Wait for all to be synced, at most `seconds`; return the states of those that are not."""
    waited = list(reflectors)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for reflector in waited:
                await reflector.wait_synced()
    return [reflector.state for reflector in waited if not reflector.state.synced]
