"""What a controller shows: by what the cluster has, not before that is known, and gangs as they stand."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestClient, TestServer

from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.gangs.status import GangState
from gpugate.webhook.controller.program import ControllerOptions, LatestAudit, _Controller
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.errors import ApiError
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log
from tests.shared.audits import audit

_JOB: JsonObject = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team-a", "uid": "u-1", "resourceVersion": "1"},
    "spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}},
}
_NAMESPACE: JsonObject = {"metadata": {"name": "team-a", "labels": {"team": "vision"}, "resourceVersion": "1"}}


class _Apiserver:
    """One that serves Kubernetes' own kinds, answers at once, and to which nothing ever happens."""

    address = "https://apiserver.test"

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    async def served(self, group: str, _version: str, _plural: str) -> bool:
        return "." not in group.removesuffix(".k8s.io")

    async def get(self, _path: str) -> JsonObject:
        return {"groups": []}

    async def list(self, path: str, **_query: object) -> JsonObject:
        items = {"/apis/batch/v1/jobs": [_JOB], "/api/v1/namespaces": [_NAMESPACE]}.get(path, [])
        return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "7"}, "items": list(items)}

    @asynccontextmanager
    async def watch(self, _path: str, **query: Any) -> AsyncIterator[AsyncIterator[JsonObject]]:
        if query["resource_version"] is None:
            raise ApiError(422, "Invalid", "sendInitialEvents: Forbidden")
        yield _silence()


async def _silence() -> AsyncIterator[JsonObject]:
    await asyncio.Event().wait()
    yield {}


@pytest.mark.asyncio
async def test_the_first_audit_waits_until_what_was_read_is_in_force() -> None:
    options = ControllerOptions("127.0.0.1", 0, "gpugate-system", "me", policies=())
    controller = _Controller(options, cast("ApiClient", _Apiserver()), Log(io.StringIO()))
    controller._store._gather = 0.3  # as long as a large cluster's facts take to be published
    duties = controller.tasks()
    running = [asyncio.create_task(duties[name]()) for name in ("watchers", "rounds")]
    try:
        async with asyncio.timeout(20):
            taken = await controller.audit_loop.after(0)
        snapshot = controller._state.in_force.snapshot
        assert snapshot.sync_state("pods") is SyncState.SYNCED
        (found,) = taken.workloads
        assert found.team == "vision", "the label of its namespace"
        assert not [one.message for one in found.items if "not synced yet" in one.message]
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.asyncio
async def test_the_page_shows_gangs_as_they_stand_and_not_as_the_last_audit_found_them() -> None:
    options = ControllerOptions("127.0.0.1", 0, "gpugate-system", "me", policies=())
    controller = _Controller(options, cast("ApiClient", _Apiserver()), Log(io.StringIO()))
    starting = GangState("team-a", "Job", "train", "u-1", "", 2, 0, 0, 2, 0, 0, "starting", 0.0, "")
    found: list[GangState] = []
    controller.gangs.current = lambda: found  # type: ignore[method-assign]
    controller.audit_loop.latest = audit()
    async with TestClient(TestServer(controller.app())) as client:
        tags = []
        for found in ([], [starting], [starting], [starting._replace(state="stuck")]):
            answer = await client.get("/audit.json")
            assert [one["state"] for one in (await answer.json())["gangs"]] == [one.state for one in found]
            tags.append(answer.headers["ETag"])
    assert tags[1] == tags[2]
    assert len(set(tags)) == 3


def test_a_page_is_not_made_anew_while_nothing_has_changed() -> None:
    gangs = [GangState("team-a", "Job", "train", "u-1", "", 2, 0, 0, 2, 0, 0, "starting", 0.0, "")]
    audits = [audit()]
    shown = LatestAudit(lambda: audits[-1] if audits else None, lambda: list(gangs))
    first = shown()
    assert shown() is first
    audits.append(audit())
    assert shown() is not first, "a newer audit, though it says the same"
    audits.clear()
    assert shown() is None
