"""The client against a small HTTP server: framing, refusals, credentials."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeAlias

import certifi
import orjson
import pytest
from aiohttp import ClientTimeout, web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config

from gpugate.webhook.kube import client
from gpugate.webhook.kube import kubeconfig as kubeconfig_module
from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.decode import watch_events
from gpugate.webhook.kube.errors import ApiError, ClusterConfigError, ClusterError, ConnectionLostError, Gone, NotServed
from gpugate.webhook.kube.kubeconfig import connect
from gpugate.webhook.kube.types import JsonObject

if TYPE_CHECKING:
    from pathlib import Path

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[ApiClient, str]]:
    """Serve every path with `handler`; yield a client for it and its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app, host="127.0.0.1") as server:
        address = str(server.make_url("")).rstrip("/")
        api = ApiClient(Configuration(host=address))
        try:
            yield api, address
        finally:
            await api.close()


def answering(status: int, body: JsonObject | str) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        return web.json_response(body, status=status)

    return handler


def streaming(*chunks: bytes, abort: bool = False) -> Handler:
    """Stream the chunks; then end as HTTP wants it, or break the connection."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if abort and request.transport:
            request.transport.close()
        return response

    return handler


def line(**metadata: object) -> bytes:
    return orjson.dumps({"type": "ADDED", "object": {"metadata": metadata}}) + b"\n"


async def watched(api: ApiClient, into: list[JsonObject] | None = None) -> list[JsonObject]:
    """Watch until the stream ends; what came before an error is left in `into`."""
    into = [] if into is None else into
    async with api.watch("/api/v1/nodes", resource_version="7", timeout_seconds=5) as stream:
        async for event in stream:
            into.append(event)
    return into


async def pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def names(found: list[JsonObject]) -> list[str]:
    return [event["object"]["metadata"]["name"] for event in found]


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 4096])
async def test_events_survive_any_cutting_of_the_stream_even_within_a_character(size: int) -> None:
    body = line(name="größe-節點-🚀") + b"\n\r\n" + line(name="b") + line(name="c")
    found = [event async for event in watch_events(pieces(body, size))]
    assert names(found) == ["größe-節點-🚀", "b", "c"]


@pytest.mark.asyncio
async def test_a_line_far_larger_than_the_limit_of_the_http_library_arrives_whole() -> None:
    big = line(name="big", annotations={"blob": "ü" * 3_000_000})
    body = line(name="a") + big + line(name="z")
    cut = 65_537
    chunks = [body[start : start + cut] for start in range(0, len(body), cut)]
    async with serving(streaming(*chunks)) as (api, _):
        found = await watched(api)
    assert names(found) == ["a", "big", "z"]
    assert len(found[1]["object"]["metadata"]["annotations"]["blob"]) == 3_000_000


@pytest.mark.asyncio
async def test_a_watch_asks_for_bookmarks_from_its_version_on_with_its_selectors() -> None:
    seen: list[web.Request] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request)
        return web.Response()

    async with (
        serving(handler) as (api, _),
        api.watch(
            "/api/v1/pods",
            resource_version="7",
            timeout_seconds=90,
            field_selector="spec.nodeName!=,status.phase!=Failed",
            label_selector="kueue.x-k8s.io/queue-name in (a+b, c)",
        ) as stream,
    ):
        assert [event async for event in stream] == []
    assert dict(seen[0].query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "90",
        "fieldSelector": "spec.nodeName!=,status.phase!=Failed",
        "labelSelector": "kueue.x-k8s.io/queue-name in (a+b, c)",
    }
    assert seen[0].headers["User-Agent"] == f"gpugate/{version('gpugate')}"


@pytest.mark.asyncio
async def test_a_watch_from_no_version_asks_for_all_objects_first_and_for_the_newest_of_them() -> None:
    seen: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(dict(request.query))
        return web.Response()

    async with serving(handler) as (api, _), api.watch("/api/v1/pods", resource_version=None, timeout_seconds=90) as stream:
        assert [event async for event in stream] == []
    assert seen == [
        {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "timeoutSeconds": "90",
        }
    ]


@pytest.mark.asyncio
async def test_a_list_sends_what_is_given_and_nothing_else() -> None:
    seen: list[dict[str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(dict(request.query))
        return web.json_response({"items": [{"metadata": {"name": "a"}}]})

    async with serving(handler) as (api, _):
        listed = await api.list("/api/v1/nodes")
        await api.list("/api/v1/nodes", limit=0, continue_="a+b/c==", label_selector="a=b")
    assert listed == {"items": [{"metadata": {"name": "a"}}]}
    assert seen == [{"limit": "500"}, {"continue": "a+b/c==", "labelSelector": "a=b"}]


@pytest.mark.asyncio
async def test_an_expired_version_is_gone_by_http_status() -> None:
    async with serving(answering(410, GONE)) as (api, _):
        with pytest.raises(Gone, match="410 Expired: too old"):
            await watched(api)
        with pytest.raises(Gone):
            await api.list("/api/v1/nodes", continue_="old")


@pytest.mark.asyncio
async def test_an_expired_version_is_gone_by_an_error_event() -> None:
    error = orjson.dumps({"type": "ERROR", "object": GONE}) + b"\n"
    found: list[JsonObject] = []
    async with serving(streaming(line(name="a"), error, line(name="b"))) as (api, _):
        with pytest.raises(Gone, match="too old"):
            await watched(api, found)
    assert names(found) == ["a"]


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [{}, {"code": 500, "reason": "InternalError"}, None])
async def test_any_other_error_event_is_an_api_error(status: JsonObject | None) -> None:
    error = orjson.dumps({"type": "ERROR", "object": status}) + b"\n"
    async with serving(streaming(error)) as (api, _):
        with pytest.raises(ApiError) as caught:
            await watched(api)
    assert (caught.value.status, type(caught.value)) == (500, ApiError)


@pytest.mark.asyncio
async def test_a_path_that_nothing_handles_is_a_kind_not_served() -> None:
    async with serving(answering(404, "404 page not found\n")) as (api, _):
        with pytest.raises(NotServed, match="404 page not found"):
            await api.list("/apis/kueue.x-k8s.io/v1beta1/clusterqueues")
        with pytest.raises(NotServed):
            await watched(api)


@pytest.mark.asyncio
async def test_a_missing_object_is_not_taken_for_a_missing_kind() -> None:
    status = {"reason": "NotFound", "message": "absent", "details": {"name": "a", "kind": "nodes"}}
    async with serving(answering(404, status)) as (api, _):
        with pytest.raises(ApiError) as caught:
            await api.get("/api/v1/nodes/a")
    assert (caught.value.status, type(caught.value)) == (404, ApiError)


@pytest.mark.asyncio
async def test_a_refusal_keeps_status_reason_and_message() -> None:
    status = {"code": 403, "reason": "Forbidden", "message": 'nodes is forbidden: User "x"'}
    async with serving(answering(403, status)) as (api, _):
        with pytest.raises(ApiError, match='403 Forbidden: nodes is forbidden: User "x"') as caught:
            await api.list("/api/v1/nodes")
        with pytest.raises(ApiError, match="403 Forbidden"):
            await watched(api)
    error = caught.value
    assert (error.status, error.reason, error.message) == (403, "Forbidden", status["message"])


@pytest.mark.asyncio
async def test_a_disconnect_within_a_stream_is_a_lost_connection() -> None:
    found: list[JsonObject] = []
    half = line(name="b")[:20]
    async with serving(streaming(line(name="a"), half, abort=True)) as (api, _):
        with pytest.raises(ConnectionLostError):
            await watched(api, found)
    assert names(found) == ["a"]


@pytest.mark.asyncio
async def test_a_stream_that_ends_within_an_event_is_a_lost_connection() -> None:
    async with serving(streaming(line(name="a"), line(name="b")[:-5])) as (api, _):
        with pytest.raises(ConnectionLostError, match="within an event"):
            await watched(api)


@pytest.mark.asyncio
async def test_a_silent_stream_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_SILENCE_GRACE_SECONDS", -4.99)

    over = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await over.wait()
        return response

    async with serving(handler) as (api, _):
        with pytest.raises(ConnectionLostError, match=r"(?i)timeout"):
            await watched(api)
        over.set()


@pytest.mark.asyncio
async def test_an_answer_that_takes_too_long_is_a_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ANSWER_TIMEOUT", ClientTimeout(total=0.01))
    over = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    async with serving(handler) as (api, _):
        with pytest.raises(ConnectionLostError, match="Timeout"):
            await api.list("/api/v1/nodes")
        over.set()


@pytest.mark.asyncio
async def test_leaving_a_watch_early_frees_its_connection() -> None:
    over = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line(name="a"))
        await over.wait()
        return response

    async with serving(handler) as (api, _):
        async with api.watch("/api/v1/nodes", resource_version="7", timeout_seconds=5) as stream:
            assert names([await anext(stream)]) == ["a"]
        session = api._transport.rest_client.pool_manager
        assert session is not None
        assert session.connector is not None
        assert not session.connector._acquired
        over.set()


@pytest.mark.asyncio
async def test_an_apiserver_that_is_not_there_is_a_lost_connection() -> None:
    async with serving(answering(200, {})) as (_, address):
        pass
    api = ApiClient(Configuration(host=address))
    with pytest.raises(ConnectionLostError, match="lost the connection to the apiserver"):
        await api.get("/version")
    await api.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("body", ["<html>login</html>", "[]", "", '{"items": ['])
async def test_an_answer_that_is_no_json_object_is_a_lost_connection(body: str) -> None:
    async with serving(answering(200, body)) as (api, _):
        with pytest.raises(ConnectionLostError, match="not a JSON object"):
            await api.list("/api/v1/nodes")


@pytest.mark.asyncio
async def test_discovery_tells_what_is_served() -> None:
    async def handler(request: web.Request) -> web.Response:
        known = {"/api/v1": ["nodes", "nodes/status"], "/apis/kueue.x-k8s.io/v1beta1": ["x"]}
        if request.path not in known:
            return web.Response(status=404, text="404 page not found")
        return web.json_response({"resources": [{"name": name} for name in known[request.path]]})

    async with serving(handler) as (api, _):
        assert await api.served("", "v1", "nodes")
        assert not await api.served("", "v1", "gpus")
        assert not await api.served("kueue.x-k8s.io", "v1beta1", "clusterqueues")
        assert not await api.served("kueue.x-k8s.io", "v1beta2", "x")


@pytest.mark.asyncio
async def test_discovery_that_is_refused_is_not_taken_for_absence() -> None:
    async with serving(answering(503, "apiservice unavailable")) as (api, _):
        with pytest.raises(ApiError, match="503"):
            await api.served("", "v1", "nodes")


def bearer_guard(accepted: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        known = request.headers.get("Authorization") == f"Bearer {accepted}"
        return web.json_response({}, status=200 if known else 401)

    return handler


@pytest.mark.asyncio
async def test_refused_credentials_are_fetched_anew_once() -> None:
    loads: list[str] = []

    async def renew() -> Configuration:
        loads.append("renewed")
        return Configuration(api_key={"BearerToken": "Bearer new"})

    async with serving(bearer_guard("new")) as (_, address):
        old = Configuration(host=address, api_key={"BearerToken": "Bearer old"})
        api = ApiClient(old, renew)
        assert await api.get("/version") == {}
        assert await api.get("/version") == {}
        await api.close()
    assert loads == ["renewed"]


@pytest.mark.asyncio
async def test_credentials_that_stay_refused_are_not_fetched_in_a_loop() -> None:
    loads: list[str] = []

    async def renew() -> Configuration:
        loads.append("renewed")
        return Configuration(api_key={"BearerToken": "Bearer old"})

    async with serving(bearer_guard("new")) as (_, address):
        api = ApiClient(Configuration(host=address, api_key={"BearerToken": "Bearer old"}), renew)
        for _attempt in range(3):
            with pytest.raises(ApiError, match="401"):
                await api.get("/version")
        await api.close()
    assert loads == ["renewed"]


def kubeconfig(folder: Path, server: str = "http://127.0.0.1:1", **user: Any) -> Path:
    """Write a kubeconfig with the contexts `one`, which is current, and `two`."""
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("one", "two")]
    path = folder / "kube.yaml"
    content = {
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": contexts,
    }
    path.write_text(json.dumps(content))
    return path


@pytest.mark.asyncio
async def test_a_kubeconfig_gives_address_and_token(tmp_path: Path) -> None:
    async with serving(bearer_guard("secret")) as (_, address):
        api = await connect(kubeconfig(tmp_path, address, token="secret"), "two")  # noqa: S106
        assert await api.get("/version") == {}
        await api.close()


@pytest.mark.asyncio
async def test_the_environment_names_the_default_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(bearer_guard("secret")) as (_, address):
        path = kubeconfig(tmp_path, address, token="secret")  # noqa: S106
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{path}")
        api = await connect()
        assert await api.get("/version") == {}
        await api.close()


def credential_plugin(folder: Path) -> JsonObject:
    """Write an exec plugin that answers token-1, then token-2, and so on."""
    script = folder / "plugin.py"
    script.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(folder / 'count')!r})\n"
        "number = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',\n"
        "  'kind': 'ExecCredential', 'status': {'token': f'token-{number}'}}))\n"
    )
    version = "client.authentication.k8s.io/v1"
    return {"apiVersion": version, "command": sys.executable, "args": [str(script)]}


@pytest.mark.asyncio
async def test_an_exec_plugin_is_run_again_when_its_token_is_refused(tmp_path: Path) -> None:
    async with serving(bearer_guard("token-2")) as (_, address):
        api = await connect(kubeconfig(tmp_path, address, exec=credential_plugin(tmp_path)))
        assert await api.get("/version") == {}
        await api.close()


@pytest.mark.asyncio
async def test_an_exec_plugin_that_fails_is_named(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nonexistent"}
    path = kubeconfig(tmp_path, exec=plugin)
    with pytest.raises(ClusterConfigError, match=f"exec plugin of {path}"):
        await connect(path)


@pytest.mark.asyncio
async def test_a_missing_kubeconfig_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "none"
    with pytest.raises(ClusterConfigError, match=f"no kubeconfig at {path}: .*KUBECONFIG"):
        await connect(path)


@pytest.mark.asyncio
async def test_a_missing_context_is_named_with_those_there_are(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    with pytest.raises(ClusterConfigError, match=rf"{path} has no context three: .*one, two"):
        await connect(path, "three")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "content",
    ["", "[]", "a: [", "contexts: 3", "{}", "current-context: a\ncontexts: [{name: a}]"],
    ids=["empty", "list", "no yaml", "wrong type", "nothing in it", "half a context"],
)
async def test_an_unusable_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kube.yaml"
    path.write_text(content)
    with pytest.raises(ClusterConfigError, match=str(path)):
        await connect(path)


@pytest.mark.asyncio
async def test_certificates_that_cannot_be_loaded_are_a_configuration_error(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", token="t")  # noqa: S106
    content = json.loads(path.read_text())
    content["clusters"][0]["cluster"]["certificate-authority-data"] = "bm8gUEVN"
    path.write_text(json.dumps(content))
    with pytest.raises(ClusterConfigError, match=str(path)):
        await connect(path)


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a service account where a pod has it."""
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("pod-token")
    ca.write_bytes(certifi.contents().encode())
    monkeypatch.setattr(kubeconfig_module, "_SERVICE_TOKEN", token)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
    return token


@pytest.mark.asyncio
@pytest.mark.usefixtures("service_account")
async def test_a_pod_uses_its_service_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    api = await connect()
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        await api.get("/version")
    await api.close()


@pytest.mark.asyncio
async def test_a_broken_service_account_is_named(service_account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ClusterConfigError, match=f"service account in {service_account.parent}"):
        await connect()


def test_all_errors_of_the_cluster_have_one_ancestor() -> None:
    for error in (ApiError, NotServed, Gone, ConnectionLostError, ClusterConfigError):
        assert issubclass(error, ClusterError)


@pytest.mark.asyncio
async def test_what_is_written_goes_out_as_json_with_the_right_method_and_type() -> None:
    seen: list[tuple[str, str, str, JsonObject]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, request.headers["Content-Type"], await request.json()))
        return web.json_response({"kind": "Thing", "metadata": {"name": "a"}})

    async with serving(handler) as (api, _):
        assert (await api.create("/api/v1/things", {"a": 1}))["kind"] == "Thing"
        await api.replace("/api/v1/things/a", {"a": 2})
        await api.patch("/api/v1/things/a/status", {"status": {"a": None}})
        await api.delete("/api/v1/things/a", uid="u-1")
    assert seen == [
        ("POST", "/api/v1/things", "application/json", {"a": 1}),
        ("PUT", "/api/v1/things/a", "application/json", {"a": 2}),
        ("PATCH", "/api/v1/things/a/status", "application/merge-patch+json", {"status": {"a": None}}),
        ("DELETE", "/api/v1/things/a", "application/json", {"preconditions": {"uid": "u-1"}}),
    ]
    assert api.calls == {"create": 1, "replace": 1, "patch": 1, "delete": 1}


@pytest.mark.asyncio
async def test_deleting_what_is_gone_is_no_error_and_another_object_of_its_name_is() -> None:
    async with serving(answering(404, {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "a"}})) as (api, _):
        await api.delete("/api/v1/things/a")
    async with serving(answering(409, {"kind": "Status", "code": 409, "reason": "Conflict"})) as (api, _):
        with pytest.raises(ApiError, match="409"):
            await api.delete("/api/v1/things/a", uid="u-1")
