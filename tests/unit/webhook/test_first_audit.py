"""The first audit of a controller: by what the cluster has, and not before that is known."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from gpugate.policies.facts import Known
from gpugate.webhook.cluster import ApiError, JsonObject
from gpugate.webhook.cluster.client import ApiClient
from gpugate.webhook.controller.program import Options, _Controller
from gpugate.webhook.log import Log

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
    options = Options("127.0.0.1", 0, "gpugate-system", "me", policies=())
    controller = _Controller(options, cast("ApiClient", _Apiserver()), Log(io.StringIO()))
    controller._store._gather = 0.3  # as long as a large cluster's facts take to be published
    duties = controller.tasks()
    running = [asyncio.create_task(duties[name]()) for name in ("watchers", "rounds")]
    try:
        async with asyncio.timeout(20):
            audit = await controller.rounds.after(0)
        facts = controller._state.snapshot.facts
        assert facts.state("pods") is Known.SYNCED
        (found,) = audit.workloads
        assert found.team == "vision", "the label of its namespace"
        assert not [one.message for one in found.items if "not synced yet" in one.message]
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
