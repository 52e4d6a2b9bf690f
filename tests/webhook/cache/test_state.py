"""What readyz and the metrics say of each kind that is watched."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import SyncState
from gpugate.webhook.admission.app import make_app
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.types import KindState
from gpugate.webhook.runtime.log import Log
from tests.shared.reviews import counted
from tests.shared.running import serving


def states() -> Sequence[KindState]:
    """One kind in every phase, as they are now."""
    now = time.monotonic()
    return [
        KindState("Node", "nodes", "synced", 12, now - 3, now - 90, relists=2, reconnects=5),
        KindState("ClusterQueue", "clusterqueues", "absent", 0, None, now - 4),
        KindState("LocalQueue", "localqueues"),
        KindState("Namespace", "namespaces", "failing", 7, now - 200, now - 600, error="lost the\napiserver: reset"),
        KindState("GPUPolicy", "gpupolicies", "forbidden", error="403 Forbidden: no"),
    ]


async def readyz(state: CurrentState, path: str = "/readyz?verbose") -> list[str]:
    app = make_app(state, Metrics(), Log(io.StringIO()))
    async with TestClient(TestServer(app)) as client:
        return (await (await client.get(path)).text()).splitlines()


@pytest.mark.asyncio
async def test_readyz_verbose_tells_phase_number_age_and_error_of_each_kind() -> None:
    state = CurrentState()
    state.watched = states
    lines = [re.sub(r"age (\d+)\.\d s", r"age \1 s", line) for line in await readyz(state)]
    assert lines == [
        "ok",
        "clusterqueues: absent, objects 0, age 4 s",
        "gpupolicies: forbidden, objects 0, never read: 403 Forbidden: no",
        "localqueues: pending, objects 0, never read",
        "namespaces: failing, objects 7, age 200 s: lost the apiserver: reset",
        "nodes: synced, objects 12, age 3 s",
        "policy default: generation 0",
    ]


@pytest.mark.asyncio
async def test_readyz_verbose_tells_of_facts_from_files_that_nobody_watches() -> None:
    state = CurrentState(snapshot_from_objects([], known={"nodes": SyncState.SYNCED, "localqueues": SyncState.ABSENT}))
    state.watched = lambda: [KindState("GPUPolicy", "gpupolicies")]
    lines = await readyz(state)
    assert lines[1:4] == ["gpupolicies: pending, objects 0, never read", "localqueues: absent", "nodes: synced"]


@pytest.mark.asyncio
async def test_readyz_alone_stays_one_line() -> None:
    state = CurrentState()
    state.watched = states
    assert await readyz(state, "/readyz") == ["ok"]


@pytest.mark.asyncio
async def test_readyz_says_which_kinds_keep_it_from_being_ready_and_what_helps() -> None:
    state = CurrentState()
    state.watched = states
    state.wait_for(["localqueues", "nodes"])
    assert await readyz(state, "/readyz") == ["not synced yet: localqueues, nodes"]
    state.wait_for(["gpupolicies", "localqueues", "namespaces"])
    (line,) = await readyz(state, "/readyz")
    names, _, remedy = line.partition("; ")
    assert names == "not synced yet: gpupolicies (forbidden), localqueues, namespaces (failing)"
    assert remedy == "gpugate's ClusterRole must allow get, list and watch"


def test_metrics_give_every_watched_kind_as_it_is_at_the_scrape() -> None:
    metrics = Metrics()
    metrics.watched = states
    text = metrics.text().decode()
    for series, wanted in {
        'gpugate_facts_synced{resource="nodes"}': 1,
        'gpugate_facts_synced{resource="clusterqueues"}': 1,
        'gpugate_facts_synced{resource="localqueues"}': 0,
        'gpugate_facts_synced{resource="namespaces"}': 1,
        'gpugate_facts_objects{resource="nodes"}': 12,
        'gpugate_facts_relists_total{resource="nodes"}': 2,
        'gpugate_facts_reconnects_total{resource="nodes"}': 5,
    }.items():
        assert counted(text, series) == wanted, series
    assert counted(text, 'gpugate_facts_age_seconds{resource="namespaces"}') == pytest.approx(200, abs=5)


def test_a_kind_never_read_has_no_age_rather_than_a_false_one() -> None:
    metrics = Metrics()
    metrics.watched = states
    aged = re.findall(r'^gpugate_facts_age_seconds\{resource="(\w+)"\}', metrics.text().decode(), re.MULTILINE)
    assert aged == ["nodes", "clusterqueues", "namespaces"]


def test_without_watched_kinds_the_metrics_name_none() -> None:
    assert not re.search("^gpugate_facts", Metrics().text().decode(), re.MULTILINE)


@pytest.mark.asyncio
async def test_a_running_server_reports_what_it_watches(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/api/v1":
            return web.json_response({"resources": [{"name": "nodes"}, {"name": "namespaces"}]})
        if not request.path.startswith("/api/v1/"):
            return web.Response(status=404, text="404 page not found")
        response = web.StreamResponse()
        await response.prepare(request)
        metadata = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}
        for event in (
            {"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "5"}, "spec": {}, "status": {}}},
            {"type": "BOOKMARK", "object": {"metadata": metadata}},
        ):
            await response.write(orjson.dumps(event) + b"\n")
        await over.wait()
        return response

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as apiserver:
        one = {
            "name": "x",
            "cluster": {"server": str(apiserver.make_url(""))},
            "user": {},
            "context": {"cluster": "x", "user": "x"},
        }
        config = {"current-context": "x", "clusters": [one], "users": [one], "contexts": [one]}
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        await asyncio.to_thread(_reported, tmp_path, kubeconfig)
        over.set()


def _reported(directory: Path, kubeconfig: Path) -> None:
    with serving(directory, "--kubeconfig", str(kubeconfig)) as server:
        server.logged(message="watch", kind="Node", phase="synced")
        lines = server.ask("GET", "/readyz?verbose").text.splitlines()
        assert any(re.fullmatch(r"nodes: synced, objects 1, age \d+\.\d s", line) for line in lines), lines
        assert any(line.startswith("localqueues: ") for line in lines)
        assert counted(server.ask("GET", "/metrics").text, 'gpugate_facts_objects{resource="nodes"}') == 1


def test_an_unusable_certificate_comes_before_kinds_not_synced_and_after_a_shutdown() -> None:
    state = CurrentState()
    state.wait_for(["nodes"])
    state.certificate = lambda: "the serving certificate ended"
    assert state.not_ready == "the serving certificate ended"
    state.wait_for([])
    assert state.not_ready == "the serving certificate ended"
    state.draining = True
    assert state.not_ready == "shutting down"
