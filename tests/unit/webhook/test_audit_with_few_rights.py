"""`gpugate audit` of a live cluster by somebody who may read little of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from reviews import pod
from running import run

Object = dict[str, Any]
pytestmark = pytest.mark.asyncio
_CORE = ("limitranges", "namespaces", "nodes", "pods", "resourcequotas")


def _apiserver(allowed: Collection[str]) -> web.Application:
    """One pod and nothing else; whatever is not allowed is forbidden, as RBAC says it."""

    async def answer(request: web.Request) -> web.Response:
        path = request.path.strip("/").split("/")
        if path == ["api", "v1"]:
            return web.json_response({"kind": "APIResourceList", "resources": [{"name": name} for name in (*_CORE, "configmaps")]})
        if path == ["apis", "gpugate.io", "v1alpha1"]:
            return web.json_response({"kind": "APIResourceList", "resources": [{"name": "gpupolicies"}]})
        if path[0] == "apis" and len(path) == 3:
            return web.Response(status=404, text="404 page not found\n")
        if path[-1] not in allowed:
            message = f'{path[-1]} is forbidden: User "ann" cannot list resource "{path[-1]}"'
            return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}, status=403)
        items = [pod("train")] if path[-1] == "pods" else []
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    return app


@pytest_asyncio.fixture
async def audited(tmp_path: Path) -> AsyncIterator[Any]:
    """Audits a cluster in which no more than some resources may be read."""
    servers: list[TestServer] = []

    async def audit(*options: str, allowed: Collection[str]) -> Any:
        server = TestServer(_apiserver(allowed))
        servers.append(server)
        await server.start_server()
        name = {"cluster": "c", "user": "u"}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
            "users": [{"name": "u", "user": {"token": "x"}}],
            "contexts": [{"name": "x", "context": name}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_bytes(orjson.dumps(kubeconfig))
        return await asyncio.to_thread(run, "audit", "--kubeconfig", str(path), *options)

    yield audit
    for server in servers:
        await server.close()


async def test_what_may_not_be_read_is_named_and_the_rest_goes_on(audited: Any) -> None:
    found = await audited("-o", "json", allowed={"pods", "gpupolicies"})
    document = orjson.loads(found.stdout)
    assert [one["name"] for one in document["workloads"]] == ["train"]
    assert any("nodes cannot be read" in one for one in document["remarks"])
    assert not any("pods cannot be read" in one for one in document["remarks"])


async def test_policies_that_may_not_be_read_are_not_taken_for_none(audited: Any, tmp_path: Path) -> None:
    found = await audited(allowed={"pods"})
    assert found.returncode == 2
    assert "which policies are in force is not known; give yours by --policy" in found.stderr
    given = tmp_path / "policy.yaml"
    given.write_text("apiVersion: gpugate.io/v1alpha1\nkind: GPUPolicy\nmetadata: {name: p}\nspec: {mode: DryRun}\n")
    found = await audited("--policy", str(given), "--no-findings", allowed={"pods"})
    assert found.returncode in {0, 1}, found.stderr


async def test_a_cluster_that_shows_no_workload_at_all_is_not_called_clean(audited: Any) -> None:
    found = await audited(allowed={"gpupolicies", "nodes"})
    assert found.returncode == 2
    assert "no kind of workload can be read" in found.stderr
