"""Keep a sink in step with one kind of object: list it, watch it, outlive every failure.

A watcher that dies or hangs leaves a process that looks healthy and decides on old
facts, so nothing but cancellation ends one, and its state is always there to be read.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from gpugate.webhook.cluster import (
    ApiError,
    ClusterError,
    ConnectionLostError,
    EventType,
    Gone,
    JsonObject,
    KindState,
    ListWatch,
    NotServed,
    Phase,
    Sink,
    WatchedKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "KindState",
    "ListWatch",
    "Pace",
    "Reflector",
    "Sink",
    "WatchedKind",
    "run_all",
    "wait_synced",
]

Strip: TypeAlias = Callable[[JsonObject], JsonObject]

_PAGE = 500
_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
_FORBIDDEN = frozenset({401, 403})
_BUSY = frozenset({429, 502, 503, 504})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Time, as tests may replace it; durations in seconds, `jitter` within [0, 1)."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    first_backoff: float = 1.0
    longest_backoff: float = 30.0
    absent_poll: float = 30.0
    watch: float = 120.0
    """A watch lasts once to twice as long, so that replicas do not reconnect in step."""
    grace: float = 15.0
    """Silence beyond a watch's own end, after which the connection counts as dead."""


class Reflector:
    """Follows one kind; see `run`."""

    def __init__(
        self,
        source: ListWatch,
        kind: WatchedKind,
        sink: Sink,
        *,
        strip: Strip | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Prepare to follow `kind`; nothing is read before `run`.

        `strip` is applied to every object as its page or event arrives, so that a long
        list is never held whole with all the fields that nobody reads.
        """
        self.kind = kind
        self._source = source
        self._sink = sink
        self._strip = strip or (lambda item: item)
        self._pace = pace or Pace()
        self._state = KindState(kind.name)
        self._synced = asyncio.Event()
        self._path = ""
        self._resume: str | None = None
        self._keys: set[str] = set()
        self._newest = self._failures = self._lists = 0
        self._page = _PAGE
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
            await self._follow(self._resume or await self._relist())
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

    async def _relist(self) -> str:
        """Hand the sink a full list; return its resourceVersion."""
        self._path = self.kind.path(await self._served_version())
        if self._absent:
            self._absent = False
            self._note("pending", last_sync_monotonic=None)
        objects, version = await self._collect()
        self._doubt(version)
        if not self._survived(self._sink.replaced, self.kind, list(objects.values())):
            message = "the sink failed on a full list"
            raise ClusterError(message)
        self._keys = set(objects)
        self._resume, self._page, self._watched = version, _PAGE, False
        self._note("synced", last_sync_monotonic=self._pace.clock(), relists=self._lists)
        self._lists += 1
        return version

    async def _served_version(self) -> str:
        for version in self.kind.versions:
            if await self._source.served(self.kind.group, version, self.kind.plural):
                return version
        raise NotServed(404, "NotFound", f"no version of {self.kind.plural} is served")

    async def _collect(self) -> tuple[dict[str, JsonObject], str]:
        """Read all pages; naming no resourceVersion makes the first the newest state."""
        objects: dict[str, JsonObject] = {}
        token: str | None = None
        while True:
            try:
                page = await self._source.list(
                    self._path,
                    limit=self._page,
                    continue_=token,
                    field_selector=self.kind.field_selector,
                    label_selector=self.kind.label_selector,
                )
            except Gone:
                self._page = 0  # a token that expires once may do so for ever: ask for one page
                raise
            for item in page.get("items") or ():
                self._survived(self._keep, objects, page, item)
            token = page["metadata"].get("continue")
            if not token:
                return objects, page["metadata"]["resourceVersion"]

    def _keep(self, objects: dict[str, JsonObject], page: JsonObject, item: JsonObject) -> None:
        # Items of a list, unlike those of events, come without their type.
        item.setdefault("apiVersion", page.get("apiVersion"))
        item.setdefault("kind", str(page.get("kind")).removesuffix("List"))
        objects[_key(item)] = self._strip(item)

    def _doubt(self, version: str) -> None:
        """Refuse a list older than what was seen, but once: a restored etcd stays behind."""
        number = int(version) if version.isdecimal() else 0
        if number < self._newest and not self._doubted:
            self._doubted = True
            message = f"a list at {version} is older than {self._newest}, seen before"
            raise ClusterError(message)
        self._newest, self._doubted = number, False

    async def _follow(self, version: str) -> None:
        """Pass on the events after `version` until the stream ends."""
        loop = asyncio.get_running_loop()
        opened = self._pace.clock()
        lasting = int(self._pace.watch * (1 + self._pace.jitter()))
        silence = lasting + self._pace.grace
        stream = self._source.watch(
            self._path,
            resource_version=version,
            timeout_seconds=lasting,
            field_selector=self.kind.field_selector,
            label_selector=self.kind.label_selector,
        )
        try:
            async with asyncio.timeout(silence) as silent, stream as events:
                self._note("synced", reconnects=self._state.reconnects + self._watched)
                self._watched = True
                async for event in events:
                    silent.reschedule(loop.time() + silence)
                    self._take(event)
                    await asyncio.sleep(0)  # a burst must not keep reviews waiting
        except TimeoutError:
            message = f"the watch was silent for {silence:.0f} s"
            raise ConnectionLostError(message) from None
        finally:
            if self._pace.clock() - opened >= self._pace.longest_backoff:
                self._failures = 0

    def _take(self, event: JsonObject) -> None:
        item: JsonObject = event["object"]
        version: str = item["metadata"]["resourceVersion"]
        if event["type"] in _CHANGES:
            self._survived(self._change, event["type"], item)
        self._resume, self._failures = version, 0
        self._newest = max(self._newest, int(version) if version.isdecimal() else 0)
        self._note(last_event_monotonic=self._pace.clock())

    def _change(self, event_type: EventType, item: JsonObject) -> None:
        change = self._keys.discard if event_type == "DELETED" else self._keys.add
        change(_key(item))
        self._sink.changed(self.kind, event_type, self._strip(item))

    def _tell_absent(self) -> float:
        if not self._absent and not self._survived(self._sink.absent, self.kind):
            self._note("failing", error="the sink failed to forget an absent kind")
            return self._backoff()
        self._absent, self._failures = True, 0
        self._keys.clear()
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

    def _note(self, phase: Phase | None = None, error: str | None = None, **rest: Any) -> None:  # noqa: ANN401
        """Publish a new state; only a change of phase is worth a line in the log."""
        before = self._state
        if phase:
            rest |= {"phase": phase, "error": error}
        self._state = replace(before, objects=len(self._keys), **rest)
        if phase and phase != before.phase:
            level = logging.WARNING if error else logging.INFO
            _log.log(level, "%s: %s %s", self.kind.name, phase, error or "")
        (self._synced.set if self._state.synced else self._synced.clear)()

    def _backoff(self) -> float:
        """Return the seconds to wait, doubled from turn to turn, and jittered by up to half."""
        doubled = self._pace.first_backoff * 2.0 ** min(self._failures, 16)
        longest = min(self._pace.longest_backoff, doubled)
        self._failures += 1
        return longest * (1 + self._pace.jitter()) / 2


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


def _key(item: JsonObject) -> str:
    return f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
