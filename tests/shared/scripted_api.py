"""An apiserver that answers from scripts, and time that passes only when told: what reflectors are tested against."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gpugate.webhook.kube.errors import ApiError, ConnectionLostError, Gone, NotServed
from gpugate.webhook.kube.reflector import Backoff, KindState, Reflector, Sink, Strip, WatchedKind
from gpugate.webhook.kube.types import EventType, JsonObject

NODES = WatchedKind("Node", "", ("v1",), "nodes")
QUEUES = WatchedKind(
    "ClusterQueue",
    "kueue.x-k8s.io",
    ("v1beta2", "v1beta1"),
    "clusterqueues",
    field_selector="metadata.name!=x",
    label_selector="team=a",
)
GONE = Gone(410, "Expired", "too old resource version")
NOT_SERVED = NotServed(404, "NotFound", "404 page not found")
LOST = ConnectionLostError("reset by peer")
#: What an apiserver says that streams no lists.
UNSUPPORTED = ApiError(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")

Step: TypeAlias = "JsonObject | Exception | Callable[[], None]"
Call: TypeAlias = tuple[object, ...]


def node(name: str, version: int = 1) -> JsonObject:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def page(version: int, *items: JsonObject, more: str | None = None) -> JsonObject:
    metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return {"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": list(items)}


def event(event_type: str, name: str, version: int) -> JsonObject:
    return {"type": event_type, "object": node(name, version)}


@dataclass
class Refused:
    """A watch that the apiserver refuses to open."""

    error: Exception


@dataclass
class FakeTime:
    """A clock that moves when slept on, and stops the world after `sleeps` of them."""

    sleeps: int = 0
    now: float = 1000.0
    slept: list[float] = field(default_factory=list)
    before: dict[int, Callable[[], None]] = field(default_factory=dict)

    async def sleep(self, seconds: float) -> None:
        if len(self.slept) >= self.sleeps:
            await forever()
        self.before.get(len(self.slept), lambda: None)()
        self.slept.append(seconds)
        self.now += seconds

    def advance(self, seconds: float) -> Callable[[], None]:
        def step() -> None:
            self.now += seconds

        return step

    def timing(self, jitter: float = 0.999999) -> Backoff:
        return Backoff(clock=lambda: self.now, sleep=self.sleep, jitter=lambda: jitter)


@dataclass
class FakeApi:
    """Answers lists and watches from scripts; a script that ran out keeps the caller waiting.

    Without scripts for `streams` it refuses to stream a list, as an older apiserver does.
    """

    lists: list[JsonObject | Exception] = field(default_factory=list)
    watches: list[list[Step] | Refused] = field(default_factory=list)
    versions: set[str] = field(default_factory=lambda: {"v1"})
    discovery_errors: list[Exception] = field(default_factory=list)
    streams: list[list[Step] | Refused] = field(default_factory=list)
    asked_for_groups: int = 0
    streamed: int = 0
    listed: list[Call] = field(default_factory=list)
    watched: list[Call] = field(default_factory=list)
    timeouts: list[int] = field(default_factory=list)
    closed: int = 0

    async def served(self, group: str, version: str, plural: str) -> bool:
        assert (group, plural) in {("", "nodes"), ("kueue.x-k8s.io", "clusterqueues")}
        if self.discovery_errors:
            raise self.discovery_errors.pop(0)
        return version in self.versions

    async def get(self, path: str) -> JsonObject:
        assert path == "/apis"
        self.asked_for_groups += 1
        if self.discovery_errors:
            raise self.discovery_errors.pop(0)
        versions = [{"groupVersion": f"{QUEUES.group}/{version}"} for version in sorted(self.versions)]
        return {"groups": [{"name": QUEUES.group, "versions": versions}] if versions else []}

    async def list(
        self,
        path: str,
        *,
        limit: int,
        continue_: str | None,
        field_selector: str | None,
        label_selector: str | None,
    ) -> JsonObject:
        self.listed.append((path, limit, continue_, field_selector, label_selector))
        if not self.lists:
            await forever()
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def watch(
        self,
        path: str,
        *,
        resource_version: str | None,
        timeout_seconds: int,
        field_selector: str | None,
        label_selector: str | None,
    ) -> AsyncIterator[AsyncIterator[JsonObject]]:
        if resource_version is None:
            self.streamed += 1
            script = self.streams.pop(0) if self.streams else Refused(UNSUPPORTED)
        else:
            self.watched.append((path, resource_version, field_selector, label_selector))
            self.timeouts.append(timeout_seconds)
            script = self.watches.pop(0) if self.watches else [hang]
        if isinstance(script, Refused):
            raise script.error
        try:
            yield play(script)
        finally:
            self.closed += 1

    @property
    def resumed_from(self) -> Sequence[object]:
        return [call[1] for call in self.watched]


def hang() -> None:
    """Stand for a stream on which nothing comes any more."""


async def forever() -> None:
    await asyncio.Event().wait()


async def play(script: Sequence[Step]) -> AsyncIterator[JsonObject]:
    for step in script:
        if step is hang:
            await forever()
        if isinstance(step, Exception):
            raise step
        if callable(step):
            step()
        else:
            yield step


@dataclass
class Recorder:
    """A sink that writes down its calls and fails where told."""

    calls: list[Call] = field(default_factory=list)
    failing_on: set[str] = field(default_factory=set)

    def replaced(self, kind: WatchedKind, objects: Sequence[Any]) -> None:
        self._record("replaced", kind.name, *(item["metadata"]["name"] for item in objects))

    def changed(self, kind: WatchedKind, event_type: EventType, item: Any) -> None:
        metadata = item["metadata"]
        version = int(metadata["resourceVersion"])
        self._record(event_type, kind.name, metadata["name"], version)

    def absent(self, kind: WatchedKind) -> None:
        self._record("absent", kind.name)

    def _record(self, *call: object) -> None:
        self.calls.append(call)
        if self.failing_on & {str(part) for part in call}:
            message = "no room"
            raise OSError(message)


async def settle() -> None:
    """Let everything run that can, without time passing."""
    for _ in range(300):
        await asyncio.sleep(0)


async def follow(
    api: FakeApi,
    time: FakeTime | None = None,
    *,
    kind: WatchedKind = NODES,
    sink: Sink | None = None,
    timing: Backoff | None = None,
    strip: Strip | None = None,
) -> tuple[list[Call], KindState]:
    """Run a reflector until the script has run out; return the sink's calls and the state."""
    recorder = Recorder()
    timing = timing or (time or FakeTime()).timing()
    reflector = Reflector(api, kind, sink or recorder, timing=timing, strip=strip)
    task = asyncio.create_task(reflector.run())
    await settle()
    assert not task.done(), "a reflector must not end by itself"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return recorder.calls, reflector.state
