"""An apiserver on loopback that lists and watches given objects, and keeps every call that writes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

Json = dict[str, Any]
_CORE = ("limitranges", "namespaces", "nodes", "pods", "resourcequotas")
_PATIENCE = 30.0


class FakeApiserver:
    """Serves the kinds of the core group alone; all others are not served.

    Attributes:
        writes: method, path and body of each call that writes, as it arrives.
        kubeconfig: a file for clients.
    """

    def __init__(self, directory: Path, objects: dict[str, list[Json]]) -> None:
        self.writes: list[tuple[str, str, Json]] = []
        self.kubeconfig = directory / "kubeconfig"
        self._objects = objects
        self._loop = asyncio.new_event_loop()
        self._written = threading.Condition()
        self._streams: dict[str, list[asyncio.Queue[Json]]] = {name: [] for name in _CORE}
        self._over = asyncio.Event()
        self._version = 100

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            body = orjson.loads(await request.read())
            with self._written:
                self.writes.append((request.method, request.path, body))
                self._written.notify_all()
            return web.json_response(body, status=201)
        if request.path == "/api/v1":
            return web.json_response({"kind": "APIResourceList", "resources": [{"name": name} for name in _CORE]})
        name = request.path.removeprefix("/api/v1/")
        if name not in _CORE:
            return web.Response(status=404, text="404 page not found")
        return await self._watch(name, request)

    async def _watch(self, name: str, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        events: asyncio.Queue[Json] = asyncio.Queue()
        self._streams[name].append(events)
        if "resourceVersion" not in request.query or request.query.get("sendInitialEvents"):
            for item in self._objects.get(name, ()):
                events.put_nowait({"type": "ADDED", "object": _stored(item, "5")})
            metadata = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
            events.put_nowait({"type": "BOOKMARK", "object": {"metadata": metadata}})
        over = asyncio.ensure_future(self._over.wait())
        while not over.done():
            event = asyncio.ensure_future(events.get())
            await asyncio.wait([event, over], return_when=asyncio.FIRST_COMPLETED)
            if not event.done():
                event.cancel()
                break
            await response.write(orjson.dumps(event.result()) + b"\n")
        return response

    def show(self, name: str, event_type: str, item: Json) -> None:
        """Send one event to all who watch the resource ``name``."""

        def send() -> None:
            self._version += 1
            for events in self._streams[name]:
                events.put_nowait({"type": event_type, "object": _stored(item, str(self._version))})

        self._loop.call_soon_threadsafe(send)

    def wait_for_write(self) -> tuple[str, str, Json]:
        """Return the first call that writes, as soon as it is there."""
        with self._written:
            assert self._written.wait_for(lambda: self.writes, _PATIENCE), "nothing was written"
            return self.writes[0]

    async def _run(self, started: threading.Event) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        name = {"cluster": "x", "user": "x"}
        one = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}, "user": {}, "context": name}
        config = {"current-context": "x", "clusters": [one], "users": [one], "contexts": [one]}
        self.kubeconfig.write_text(json.dumps(config))
        started.set()
        await self._over.wait()
        await runner.cleanup()

    @contextmanager
    def running(self) -> Iterator[FakeApiserver]:
        """Serve from a thread of its own."""
        started = threading.Event()
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run(started)), daemon=True)
        thread.start()
        assert started.wait(_PATIENCE), "the apiserver did not start"
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join(_PATIENCE)
            self._loop.close()


def _stored(item: Json, version: str) -> Json:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": version}}
