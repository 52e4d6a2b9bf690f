"""`gpugate audit` and `gpugate review` with a live cluster, by somebody who may read little of it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.shared.reviews import pod
from tests.shared.running import run

Object = dict[str, Any]
pytestmark = pytest.mark.asyncio
_CORE = ("limitranges", "namespaces", "nodes", "pods", "resourcequotas")


def _apiserver(allowed: Collection[str]) -> web.Application:
    """One pod in each of two namespaces and nothing else; whatever is not allowed is forbidden, as RBAC says it.

    ``pods`` is what may be read in the whole cluster, ``team-a/pods`` in one namespace, ``team-a`` the namespace itself.
    """

    async def answer(request: web.Request) -> web.Response:
        path = request.path.strip("/").split("/")
        if path == ["api", "v1"]:
            return web.json_response({"kind": "APIResourceList", "resources": [{"name": name} for name in (*_CORE, "configmaps")]})
        if path == ["apis", "gpugate.io", "v1alpha1"]:
            return web.json_response({"kind": "APIResourceList", "resources": [{"name": "gpupolicies"}]})
        if path[0] == "apis" and len(path) == 3:
            return web.Response(status=404, text="404 page not found\n")
        namespace, asked = _asked(path)
        if asked not in allowed and path[-1] not in allowed:
            message = f'{path[-1]} is forbidden: User "ann" cannot list resource "{path[-1]}" in the namespace "{namespace}"'
            return web.json_response({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}, status=403)
        if asked == namespace:
            return web.json_response({"metadata": {"name": namespace, "labels": {"team": "vision"}}})
        items = (
            [pod("train", namespace=one) for one in ("team-a", "team-b") if namespace in {one, ""}] if path[-1] == "pods" else []
        )
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    return app


def _asked(path: list[str]) -> tuple[str, str]:
    """The namespace that a path is in, and what of it is asked for; all without a namespace."""
    if "namespaces" not in path[:-1]:
        return "", path[-1]
    namespace, *rest = path[path.index("namespaces") + 1 :]
    return namespace, "/".join([namespace, *rest])


@pytest_asyncio.fixture
async def told(tmp_path: Path) -> AsyncIterator[Any]:
    """Runs a command with a cluster in which no more than some resources may be read."""
    servers: list[TestServer] = []

    async def tell(command: str, *options: str, allowed: Collection[str]) -> Any:
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
        return await asyncio.to_thread(run, command, "--kubeconfig", str(path), *options)

    yield tell
    for server in servers:
        await server.close()


@pytest.fixture
def audited(told: Any) -> Any:
    """Audits such a cluster."""
    return functools.partial(told, "audit")


async def test_what_may_not_be_read_is_named_and_the_rest_goes_on(audited: Any) -> None:
    found = await audited("-o", "json", allowed={"pods", "gpupolicies"})
    document = orjson.loads(found.stdout)
    assert [one["namespace"] for one in document["workloads"]] == ["team-a", "team-b"]
    assert any("nodes cannot be read" in one for one in document["remarks"])
    assert not any("pods cannot be read" in one for one in document["remarks"])


async def test_policies_that_may_not_be_read_are_not_taken_for_none(audited: Any, tmp_path: Path) -> None:
    found = await audited(allowed={"pods"})
    assert found.returncode == 2
    assert "the policies in force are unknown; give policy files by --policy" in found.stderr
    given = tmp_path / "policy.yaml"
    given.write_text("apiVersion: gpugate.io/v1alpha1\nkind: GPUPolicy\nmetadata: {name: p}\nspec: {mode: DryRun}\n")
    found = await audited("--policy", str(given), "--no-findings", allowed={"pods"})
    assert found.returncode in {0, 1}, found.stderr


async def test_a_cluster_that_shows_no_workload_at_all_is_not_called_clean(audited: Any) -> None:
    found = await audited(allowed={"gpupolicies", "nodes"})
    assert found.returncode == 2
    assert "no kind of workload can be read" in found.stderr


async def test_rights_in_one_namespace_are_enough_to_audit_it(audited: Any) -> None:
    """As its own members may read it: neither the list of namespaces, nor nodes, nor what is in other namespaces."""
    allowed = {"gpupolicies", "team-a", "team-a/pods", "team-a/limitranges", "team-a/resourcequotas"}
    found = await audited("-n", "team-a", "-o", "json", allowed=allowed)
    document = orjson.loads(found.stdout)
    assert [(one["namespace"], one["name"], one["team"]) for one in document["workloads"]] == [("team-a", "train", "vision")]
    unread = " ".join(document["remarks"])
    assert "nodes cannot be read" in unread
    assert not any(f"{known} cannot be read" in unread for known in ("pods", "namespaces", "limitranges", "resourcequotas"))


async def test_rights_in_one_of_two_namespaces_are_none_in_the_other(audited: Any) -> None:
    found = await audited("-n", "team-a", "-n", "team-b", allowed={"gpupolicies", "team-a", "team-a/pods"})
    assert found.returncode == 2
    assert 'cannot list resource "pods" in the namespace "team-b"' in found.stderr


async def test_pods_of_one_namespace_are_not_taken_for_all_that_nodes_carry(audited: Any) -> None:
    found = await audited("-n", "team-a", "-o", "json", allowed={"gpupolicies", "nodes", "team-a", "team-a/pods"})
    document = orjson.loads(found.stdout)
    assert [one["namespace"] for one in document["workloads"]] == ["team-a"]
    assert any(one.startswith("pods cannot be read") for one in document["remarks"])


async def test_who_may_read_no_whole_kind_is_told_to_name_his_namespace(audited: Any) -> None:
    found = await audited(allowed={"gpupolicies", "team-a/pods"})
    assert found.returncode == 2
    assert "with access to one namespace only, give it with -n" in found.stderr


async def test_a_review_goes_on_without_what_may_not_be_read_and_says_so(told: Any, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.json"
    manifest.write_bytes(orjson.dumps(pod("train")))
    allowed = {"gpupolicies", "team-a", "team-a/pods", "team-a/limitranges", "team-a/resourcequotas"}
    found = await told("review", str(manifest), "-o", "json", "--profile", "recommended", allowed=allowed)
    assert found.returncode == 0, found.stderr
    assert orjson.loads(found.stdout)[0]["outcome"] == "changed"
    lines = found.stderr.splitlines()
    assert {line.split()[1] for line in lines} == {"configurations", "nodes"}
    assert all("cannot be read, and checks that need them report unknown" in line for line in lines)
    found = await told("review", str(manifest), allowed=allowed - {"gpupolicies"})
    assert found.returncode == 2
    assert "the policies in force are unknown; give policy files by --policy" in found.stderr
