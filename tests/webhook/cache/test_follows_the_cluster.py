"""From the wire to the facts: whatever a watch repeats, delays, loses or lists anew, the facts are those of a recount."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import SnapshotBuilder, key_of
from gpugate.policies.cluster.kinds import BY_RESOURCE
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.webhook.cache.kinds import FACT_KINDS, reducer_for
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.reflector import Reflector
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log
from tests.shared.scripted_api import GONE, LOST, UNSUPPORTED, FakeTime, forever

PODS, NODES = (next(kind for kind in FACT_KINDS if kind.resource == resource) for resource in ("pods", "nodes"))
_MACHINES = [
    {"metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": "8", "memory": memory, "cpu": "96"}}}
    for name, memory in (("n1", "64Gi"), ("n2", "32Gi"))
]
_GROUP = {"labels": {"scheduling.x-k8s.io/pod-group": "llm"}}


def pod(name: str, on: str, phase: str, gpus: int, version: int, *, grouped: bool) -> JsonObject:
    metadata = {"name": name, "namespace": "a", "uid": name, "resourceVersion": str(version), **(_GROUP if grouped else {})}
    resources = {"limits": {"nvidia.com/gpu": str(gpus), "memory": f"{gpus}Gi"}}
    spec = {"nodeName": on, "containers": [{"name": "main", "resources": resources}]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


class Cluster:
    """An apiserver with a history of pods, whose watches are as bad as the draws of a test make them."""

    def __init__(self, history: list[tuple[str, JsonObject]], faults: list[str], *, streams: bool) -> None:
        self.history = history
        self.faults = faults
        self.streams = streams
        self.now = 0

    def live(self, upto: int) -> dict[str, JsonObject]:
        found: dict[str, JsonObject] = {}
        for event_type, item in self.history[:upto]:
            name = item["metadata"]["name"]
            if event_type == "DELETED":
                found.pop(name, None)
            else:
                found[name] = item
        return found

    async def get(self, _path: str) -> JsonObject:
        return {"groups": []}

    async def served(self, _group: str, _version: str, _plural: str) -> bool:
        return True

    async def list(self, _path: str, **_options: Any) -> JsonObject:
        return {"kind": "PodList", "metadata": {"resourceVersion": str(self.now)}, "items": list(self.live(self.now).values())}

    @asynccontextmanager
    async def watch(self, _path: str, *, resource_version: str | None, **_options: Any) -> AsyncIterator[AsyncIterator[JsonObject]]:
        if resource_version is None and not self.streams:
            raise UNSUPPORTED
        yield self._events(resource_version)

    async def _events(self, resource_version: str | None) -> AsyncIterator[JsonObject]:
        if resource_version is None:
            for item in self.live(self.now).values():
                yield {"type": "ADDED", "object": item}
            annotations = {"k8s.io/initial-events-end": "true"}
            metadata = {"resourceVersion": str(self.now), "annotations": annotations}
            yield {"type": "BOOKMARK", "object": {"metadata": metadata}}
        at = self.now if resource_version is None else int(resource_version)
        while at < len(self.history):
            fault = self.faults.pop() if self.faults else ""
            if fault == "lost":
                raise LOST
            if fault == "gone":
                self.now = max(self.now, at)
                raise GONE
            if fault == "missed":
                # While the watch was down things went on, and only a new list can tell.
                self.now = min(len(self.history), max(self.now, at) + 2)
                raise GONE
            event_type, item = self.history[at]
            at += 1
            self.now = max(self.now, at)
            yield {"type": event_type, "object": item}
            if fault == "repeated":
                yield {"type": event_type, "object": item}
            if fault == "late":
                late_type, late = self.history[at // 2]
                yield {"type": late_type, "object": late}
        await forever()


async def _follow(cluster: Cluster) -> ClusterSnapshot:
    state, time = CurrentState(), FakeTime(sleeps=10_000)
    store = SnapshotStore(state, Log(io.StringIO()), [PODS, NODES])
    store.replaced(NODES, [reducer_for(NODES)(one) for one in _MACHINES])
    task = asyncio.create_task(Reflector(cluster, PODS, store, strip=reducer_for(PODS), timing=time.timing()).run())
    for _ in range(4000):
        await asyncio.sleep(0)
        if cluster.now == len(cluster.history) and not cluster.faults:
            break
    for _ in range(60):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    store.publish()
    return state.in_force.snapshot


@st.composite
def _histories(draw: st.DrawFn) -> list[tuple[str, JsonObject]]:
    history: list[tuple[str, JsonObject]] = []
    live: set[str] = set()
    for version in range(1, draw(st.integers(1, 25)) + 1):
        name = draw(st.sampled_from("pqr"))
        gone = name in live and draw(st.booleans())
        event_type = "DELETED" if gone else "MODIFIED" if name in live else "ADDED"
        (live.discard if gone else live.add)(name)
        on, phase = draw(st.sampled_from(["", "n1", "n2"])), draw(st.sampled_from(["Pending", "Running", "Succeeded"]))
        history.append((event_type, pod(name, on, phase, draw(st.integers(1, 3)), version, grouped=draw(st.booleans()))))
    return history


@settings(max_examples=150, deadline=None)
@given(_histories(), st.lists(st.sampled_from(["", "lost", "gone", "missed", "repeated", "late"]), max_size=12), st.booleans())
def test_facts_are_those_of_a_recount_whatever_the_watch_does(
    history: list[tuple[str, JsonObject]],
    faults: list[str],
    streams: bool,
) -> None:
    cluster = Cluster(history, list(faults), streams=streams)
    snapshot = asyncio.run(_follow(cluster))
    again = SnapshotBuilder()
    for machine in _MACHINES:
        again.put("nodes", key_of(machine), BY_RESOURCE["nodes"].read(machine))
    for item in cluster.live(len(history)).values():
        again.put("pods", key_of(item), BY_RESOURCE["pods"].read(item))
    wanted = again.snapshot({})
    assert snapshot.groups == wanted.groups
    assert snapshot.shape_usage == wanted.shape_usage
