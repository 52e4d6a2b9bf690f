"""A loopback server that plays a recorded cluster to gpugate: discovery, lists in pages, streamed lists, watches.

It runs in a process of its own, so that nobody counts its cost as gpugate's. What is listed is the cluster as it was
recorded, at version ``LISTED``; all that happened since is in the watches, which begin at any version. Events are ordered
over ``POST /-/events``, whose answer comes when the last one is written.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
from aiohttp import web
from ruamel.yaml import YAML

from benchmarks import other_objects
from benchmarks.objects import Nodes, managed
from benchmarks.pods import Pods

LISTED: Final = 1000
_BATCH: Final = 64
_END: Final = {"k8s.io/initial-events-end": "true"}


class Collection:
    """The objects of one kind, and what happened to them since they were listed."""

    def __init__(self, api_version: str, kind: str, count: int, render: Callable[[int], bytes]) -> None:
        self.api_version = api_version
        self.kind = kind
        self.count = count
        self.render = render
        self.events: list[bytes] = []
        self.versions: list[int] = []
        self._news = asyncio.Event()

    def add(self, event_type: str, version: int, obj: bytes) -> None:
        """Let ``obj`` have changed."""
        self.events.append(_event(event_type, obj))
        self.versions.append(version)
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Wait for the next event, or for ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    def page(self, start: int, limit: int) -> bytes:
        """A page of the list."""
        stop = min(self.count, start + limit) if limit else self.count
        metadata: dict[str, Any] = {"resourceVersion": str(LISTED)}
        if stop < self.count:
            metadata |= {"continue": str(stop), "remainingItemCount": self.count - stop}
        head = orjson.dumps({"kind": f"{self.kind}List", "apiVersion": self.api_version, "metadata": metadata})
        return head[:-1] + b',"items":[' + b",".join(self.render(at) for at in range(start, stop)) + b"]}"

    def initial(self) -> Iterator[bytes]:
        """The whole list as events, with the bookmark that ends it."""
        for at in range(self.count):
            yield _event("ADDED", self.render(at))
        yield self.bookmark(LISTED, _END)

    def bookmark(self, version: int, annotations: Mapping[str, str] | None = None) -> bytes:
        """A bookmark at ``version``."""
        metadata = {"resourceVersion": str(version), **({"annotations": annotations} if annotations else {})}
        return _event("BOOKMARK", orjson.dumps({"kind": self.kind, "apiVersion": self.api_version, "metadata": metadata}))


def _event(event_type: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event_type.encode(), obj)


class Cluster:
    """A recorded cluster.

    Attributes:
        version: the newest resourceVersion.
        collections: by path below ``/api`` or ``/apis``: ``v1/pods``.
    """

    def __init__(self, nodes: int, pods: int, seed: int, policy: Mapping[str, Any]) -> None:
        self.version = LISTED
        self.nodes = Nodes(nodes, seed)
        self.pods = Pods(pods, nodes, seed)
        self._policy = policy
        self._next = pods
        at_start: dict[str, Collection] = {
            "v1/nodes": Collection("v1", "Node", nodes, lambda at: self.nodes.render(at, 1 + at % LISTED)),
            "v1/pods": Collection("v1", "Pod", pods, lambda at: self.pods.render(at, 1 + at % LISTED)),
            "gpugate.io/v1alpha1/gpupolicies": Collection(policy["apiVersion"], "GPUPolicy", 1, lambda _: self.policy(1)),
        }
        for resource, (api_version, kind, _, _, count) in other_objects.KINDS.items():
            plural = "configmaps" if kind == "ConfigMap" else resource.partition(".")[0]
            # As many of these as there are nodes at most: a small cluster has few of everything.
            scaled = min(count, nodes) if count > other_objects.NAMESPACES else count
            at_start[f"{api_version}/{plural}"] = Collection(api_version, kind, scaled, _other(resource, seed))
        self.collections = at_start

    def policy(self, generation: int) -> bytes:
        """The GPUPolicy in its ``generation``."""
        metadata = {"name": "default", "generation": generation, "resourceVersion": str(self.version)}
        metadata["managedFields"] = [managed("kubectl", {"spec": self._policy["spec"]})]
        return orjson.dumps({**self._policy, "metadata": metadata})

    def turn(self, what: str, at: int) -> None:
        """Let one thing happen: ``heartbeat``, ``memory``, ``pod`` or ``policy``; ``at`` says to which object."""
        self.version += 1
        if what == "policy":
            self.collections["gpugate.io/v1alpha1/gpupolicies"].add("MODIFIED", self.version, self.policy(at))
        elif what == "pod":
            self._turn_pod(at)
        else:
            # 1 GiB less puts the node into a shape of its own kind; the next time it is back where it was.
            less = (at // max(1, self.nodes.count) + 1) % 2 * (1 << 20) if what == "memory" else 0
            time = f"2026-11-03T{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}Z"
            node = self.nodes.render(at % self.nodes.count, self.version, time=time, memory_less_kib=less)
            self.collections["v1/nodes"].add("MODIFIED", self.version, node)

    def _turn_pod(self, at: int) -> None:
        """Of five events of pods three are changes of status, one a new pod, one the end of the oldest."""
        pods = self.collections["v1/pods"]
        step = at % 5
        if step == 3:
            pods.add("ADDED", self.version, self.pods.render(self._next, self.version, phase="Pending"))
            self._next += 1
        elif step == 4:
            pods.add("DELETED", self.version, self.pods.render(self._next - self.pods.count - 1, self.version))
        else:
            which = (at * 7919 + self._next) % max(1, self.pods.count) + self._next - self.pods.count
            phase = ("Pending", "Running")[at // 5 % 2]
            pods.add(
                "MODIFIED", self.version, self.pods.render(which, self.version, phase=phase, time=f"2026-11-03T07:00:{at % 60:02}Z")
            )


def _other(resource: str, seed: int) -> Callable[[int], bytes]:
    return lambda at: other_objects.render(resource, at, 1 + at % LISTED, seed)


class Server:
    """Answers requests from one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def app(self) -> web.Application:
        """The application."""
        app = web.Application()
        app.router.add_post("/-/events", self._order)
        app.router.add_get("/api/{path:.+}", self._get)
        app.router.add_get("/apis/{path:.+}", self._get)
        return app

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        collection = self._cluster.collections.get(path)
        if collection is None:
            return self._discover(path)
        query = request.query
        if query.get("watch") == "true":
            return await self._watch(request, collection)
        body = collection.page(int(query.get("continue", "0")), int(query.get("limit", "0")))
        return web.Response(body=body, content_type="application/json")

    def _discover(self, group_version: str) -> web.Response:
        found = [key.rpartition("/")[2] for key in self._cluster.collections if key.rpartition("/")[0] == group_version]
        if not found:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            return web.Response(status=404, body=orjson.dumps({**status, "message": "the server could not find it"}))
        resources = [{"name": name, "verbs": ["get", "list", "watch"]} for name in found]
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    async def _watch(self, request: web.Request, collection: Collection) -> web.StreamResponse:
        query = request.query
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        since = LISTED
        if query.get("sendInitialEvents") == "true":
            batch: list[bytes] = []
            for event in collection.initial():
                batch.append(event)
                if len(batch) == _BATCH:
                    await response.write(b"".join(batch))
                    batch.clear()
            await response.write(b"".join(batch))
        else:
            since = int(query["resourceVersion"])
        await self._follow(response, collection, since, float(query.get("timeoutSeconds", "300")))
        return response

    async def _follow(self, response: web.StreamResponse, collection: Collection, since: int, seconds: float) -> None:
        at = next((at for at, version in enumerate(collection.versions) if version > since), len(collection.versions))
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            if at == len(collection.events):
                await collection.wait(min(60.0, until - loop.time()))
                if at == len(collection.events):
                    await response.write(collection.bookmark(self._cluster.version))
                continue
            batch = collection.events[at : at + _BATCH]
            await response.write(b"".join(batch))
            at += len(batch)

    async def _order(self, request: web.Request) -> web.Response:
        """``what`` is to happen ``count`` times from ``at`` on, at ``rate`` a second (0: at once)."""
        query = request.query
        what, count, first, rate = query["what"], int(query["count"]), int(query.get("at", "0")), float(query.get("rate", "0"))
        loop = asyncio.get_running_loop()
        started = loop.time()
        for number in range(count):
            self._cluster.turn(what, first + number)
            ahead = number / rate - (loop.time() - started) if rate else 0.0
            if ahead > 0 or number % _BATCH == 0:
                await asyncio.sleep(max(0.0, ahead))
        return web.json_response({"version": self._cluster.version, "seconds": loop.time() - started})


async def _serve(cluster: Cluster) -> None:
    runner = web.AppRunner(Server(cluster).app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    print(orjson.dumps({"message": "listening", "address": address}).decode(), file=sys.stderr, flush=True)
    await asyncio.Event().wait()


def kubeconfig(port: int) -> str:
    """A kubeconfig for the server that listens on ``port``."""
    cluster = f"clusters: [{{name: bench, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n"
    context = "contexts: [{name: bench, context: {cluster: bench, user: bench}}]\nusers: [{name: bench, user: {token: none}}]\n"
    return f"apiVersion: v1\nkind: Config\ncurrent-context: bench\n{cluster}{context}"


def first_policy(file: Path) -> Mapping[str, Any]:
    """The first GPUPolicy of a file, which may have more of them for namespaces that the played cluster lacks."""
    policy: Mapping[str, Any] = next(YAML(typ="safe", pure=True).load_all(file.read_text(encoding="utf-8")))
    return policy


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", type=Path, required=True)
    options = parser.parse_args()
    policy = first_policy(options.policy)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(Cluster(options.nodes, options.pods, options.seed, policy)))


if __name__ == "__main__":
    main()
