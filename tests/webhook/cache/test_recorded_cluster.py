"""The recorded cluster of the benchmark: what it plays is what a store then holds."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from benchmarks import other_objects
from benchmarks.apiserver import LISTED, Cluster, Server, first_policy, kubeconfig
from benchmarks.objects import Nodes
from benchmarks.pods import GANG, Pods
from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.kinds import CONFIGURATION
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.webhook.cache.kinds import FACT_KINDS, POLICIES, reducer_for
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.kubeconfig import connect
from gpugate.webhook.kube.reflector import Reflector, run_all
from gpugate.webhook.runtime.log import Log
from tests.shared.paths import ROOT

POLICY = {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "spec": {"profile": "recommended", "mode": "Enforce"}}
PATIENCE = 30.0


def _facts(cluster: Cluster, pods: dict[tuple[str, str], Any]) -> ClusterSnapshot:
    """What the objects alone come to, read as files are."""
    objects = [orjson.loads(one) for one in cluster.nodes.all(1)]
    for resource, (_, _, _, _, count) in other_objects.KINDS.items():
        if resource != CONFIGURATION.resource:
            most = min(count, cluster.nodes.count) if count > other_objects.NAMESPACES else count
            objects += [orjson.loads(other_objects.render(resource, at, 1, 1)) for at in range(most)]
    return snapshot_from_objects([*objects, *pods.values()])


async def _until(reached: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110 - it is reached by the store, which says nothing
            await asyncio.sleep(0.01)


def _pod(pods: Pods, at: int, **how: Any) -> tuple[tuple[str, str], Any]:
    return pods.key(at), orjson.loads(pods.render(at, 1, **how))


def test_of_the_examples_policies_it_plays_the_one_that_is_for_everybody() -> None:
    policy = first_policy(ROOT / "examples" / "policy.yaml")
    assert (policy["metadata"]["name"], policy["spec"]["match"]) == ("default", {})


@pytest.mark.asyncio
async def test_what_is_listed_and_then_happens_is_what_the_store_holds(tmp_path: Path) -> None:
    cluster = Cluster(20, 1200, 1, POLICY)
    state = CurrentState()
    kinds = [*FACT_KINDS, POLICIES]
    async with TestServer(Server(cluster).app()) as server:
        (tmp_path / "kubeconfig").write_text(kubeconfig(int(server.port or 0)))
        client = await connect(tmp_path / "kubeconfig")
        store = SnapshotStore(state, Log(io.StringIO()), kinds, gather=0.0)
        watching = asyncio.create_task(run_all([Reflector(client, kind, store, strip=reducer_for(kind)) for kind in kinds]))
        try:
            await _until(lambda: not state.not_ready)
            pods = dict(_pod(cluster.pods, at) for at in range(1200))
            assert _same(state.in_force.snapshot, _facts(cluster, pods))
            for at in range(3, 500):
                cluster.turn("pod", at)
            cluster.turn("policy", 7)
            held = _after_events(cluster)
            await _until(lambda: _same(state.in_force.snapshot, _facts(cluster, held)))
            await _until(lambda: [one.generation for one in state.in_force.policies.policies] == [7])
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await client.close()


def _after_events(cluster: Cluster) -> dict[tuple[str, str], Any]:
    """All pods after all events, taken from the recorded ones."""
    held = dict(_pod(cluster.pods, at) for at in range(1200))
    for line in cluster.collections["v1/pods"].events:
        event = orjson.loads(line)
        metadata = event["object"]["metadata"]
        key = (metadata["namespace"], metadata["name"])
        if event["type"] == "DELETED":
            del held[key]
        else:
            assert (event["type"] == "ADDED") == (key not in held)
            held[key] = event["object"]
    return held


def _same(found: ClusterSnapshot, wanted: ClusterSnapshot) -> bool:
    return (found.shapes, found.shape_usage, found.groups, found.queues, found.claims, found.pod_groups) == (
        wanted.shapes,
        wanted.shape_usage,
        wanted.groups,
        wanted.queues,
        wanted.claims,
        wanted.pod_groups,
    )


@pytest.mark.asyncio
async def test_a_streamed_list_holds_what_the_pages_hold() -> None:
    async with TestServer(Server(Cluster(5, 120, 1, POLICY)).app()) as server, ClientSession(str(server.make_url("/"))) as client:
        first = await (await client.get("/api/v1/pods?limit=100")).json()
        rest = await (await client.get(f"/api/v1/pods?limit=100&continue={first['metadata']['continue']}")).json()
        assert "continue" not in rest["metadata"]
        query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        answer = await client.get(f"/api/v1/pods?{query}")
        events = [orjson.loads(await answer.content.readline()) for _ in range(121)]
        answer.close()
    assert [event["object"] for event in events[:-1]] == first["items"] + rest["items"]
    assert {event["type"] for event in events[:-1]} == {"ADDED"}
    assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert events[-1]["object"]["metadata"]["resourceVersion"] == str(LISTED)


@pytest.mark.asyncio
async def test_what_it_does_not_serve_is_not_found() -> None:
    app: web.Application = Server(Cluster(0, 0, 1, POLICY)).app()
    async with TestServer(app) as server, ClientSession(str(server.make_url("/"))) as client:
        assert (await client.get("/apis/nothing.example.com/v1")).status == 404


def test_objects_are_as_large_as_those_of_an_apiserver_and_the_same_for_the_same_seed() -> None:
    pods, nodes = Pods(1000, 50, 1), Nodes(50, 1)
    assert {10_000 < len(raw) < 16_000 for raw in nodes.all(1)} == {True}
    assert 6_000 < sum(map(len, pods.all(1))) / 1000 < 10_000
    assert list(pods.all(1)) == list(Pods(1000, 50, 1).all(1))
    assert pods.render(0, 1) != Pods(1000, 50, 2).render(0, 1)


def test_pods_have_names_of_their_own_and_gangs_are_whole() -> None:
    pods = Pods(8000, 50, 1)
    assert len({pods.key(at) for at in range(8000)}) == 8000
    gangs: dict[str, int] = {}
    for raw in pods.all(1):
        name = orjson.loads(raw)["metadata"]["labels"].get("kueue.x-k8s.io/pod-group-name")
        if name:
            gangs[name] = gangs.get(name, 0) + 1
    assert set(gangs.values()) == {GANG}
