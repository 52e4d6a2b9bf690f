# The kubernetes package ships py.typed, yet most of its functions carry no annotations.
# mypy: untyped-calls-exclude=kubernetes
"""Read and write the Kubernetes API as raw JSON.

`kubernetes.aio` supplies credentials, TLS and connections. Its model objects are not used: building them costs more than
everything that a watcher does with them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import version as installed_version
from typing import NamedTuple, TypeAlias

import aiohttp
from kubernetes.aio.client import ApiClient as Transport
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException

from gpugate.webhook.kube.decode import decode_object, watch_events
from gpugate.webhook.kube.errors import NOT_FOUND, ApiError, ConnectionLostError, NotServed, refusal
from gpugate.webhook.kube.types import JsonObject

LoadConfiguration: TypeAlias = Callable[[], Awaitable[Configuration]]

_ANSWER_TIMEOUT = aiohttp.ClientTimeout(total=60.0)  # the apiserver's own limit
_CONNECT_SECONDS = 10.0
_SILENCE_GRACE_SECONDS = 30.0
_RENEW_SECONDS = 10.0  # a plugin may open a browser: retry at most this often
_FIRST_ERROR, _UNAUTHORIZED = 400, 401
_ALL_FIRST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
_VERBS = {"GET": "get", "POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}
_JSON, _MERGE = "application/json", "application/merge-patch+json"


class _Call(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str | None]
    body: JsonObject | None = None
    content_type: str = ""
    accept: str = "application/json"


# Errors carry all details; the library's own log line repeats them.
logging.getLogger("kubernetes").addHandler(logging.NullHandler())


class ApiClient:
    """A client of one cluster, shared by all watchers and writers of a process; ``calls`` counts its calls by verb.

    Every call raises `NotServed` if the apiserver does not serve the kind, `ApiError` for any other error status, and
    `ConnectionLostError` for no answer or an incomplete one.
    """

    def __init__(self, configuration: Configuration, renew: LoadConfiguration | None = None) -> None:
        """Make a client without a connection; it calls `renew` for new credentials if the apiserver answers 401."""
        self._configuration = configuration
        self._renew = renew
        self.calls: Counter[str] = Counter()
        self._renewing = asyncio.Lock()
        self._renewed_at = float("-inf")
        self._transport = Transport(configuration)
        self._transport.user_agent = f"gpugate/{installed_version('gpugate')}"

    @property
    def address(self) -> str:
        """Return the address of the apiserver, as configured."""
        return str(self._configuration.host)

    async def close(self) -> None:
        """Close all connections; open watches end with `ConnectionLostError`."""
        await self._transport.close()

    async def get(self, path: str, *, accept: str = "application/json") -> JsonObject:
        """Return the object at `path`, such as ``/api/v1/namespaces/team-a``, in the first form of ``accept`` that it has.

        Raises:
            ApiError: the object is missing (status 404), or the call was refused.
        """
        return await self._call(_Call("GET", path, {}, accept=accept))

    async def list(
        self,
        path: str,
        *,
        limit: int = 500,
        continue_: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
    ) -> JsonObject:
        """Return one page of the collection at `path`, such as ``/api/v1/nodes``; selectors are those of ``kubectl``.

        A `limit` of 0 requests all objects at once; `continue_` is ``metadata.continue`` of the previous page.

        Raises:
            Gone: the continue token has expired.
        """
        query = {
            "limit": str(limit) if limit else None,
            "continue": continue_,
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
        }
        return await self._call(_Call("GET", path, query))

    @asynccontextmanager
    async def watch(
        self,
        path: str,
        *,
        resource_version: str | None,
        timeout_seconds: int,
        field_selector: str | None = None,
        label_selector: str | None = None,
    ) -> AsyncIterator[AsyncIterator[JsonObject]]:
        """Open a watch on the collection at `path`; the block starts when the apiserver accepts it.

        The block gets the events, bookmarks included. The apiserver ends the stream after `timeout_seconds`. Entering and
        iterating raise the same errors. Without `resource_version` the stream starts with all objects (newest, consistent).

        Raises:
            Gone: `resource_version` is too old, by HTTP status or by an ERROR event.
            ApiError: any other error status (422: no streamed lists) or ERROR event.
            ConnectionLostError: the connection broke, or was silent for `timeout_seconds` and 30 s.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            **(_ALL_FIRST if resource_version is None else {}),
            "timeoutSeconds": str(timeout_seconds),
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
        }
        silence = timeout_seconds + _SILENCE_GRACE_SECONDS
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=silence)
        response = await self._open(_Call("GET", path, query), timeout)
        try:
            yield watch_events(_chunks(response))
        finally:
            response.close()

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Return whether the apiserver serves the resource, such as ``clusterqueues``, now; the core group is empty."""
        try:
            result = await self.get(f"/apis/{group}/{version}" if group else f"/api/{version}")
        except NotServed:
            return False
        return any(resource.get("name") == plural for resource in result.get("resources") or ())

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at `path`; return it as stored.

        Raises:
            ApiError: the call was refused (409: an object of this name exists).
        """
        return await self._call(_Call("POST", path, {}, item, _JSON))

    async def replace(self, path: str, item: JsonObject) -> JsonObject:
        """Replace the object at `path` by `item`; return it as stored.

        Raises:
            ApiError: the call was refused (409: its resourceVersion is not the one in `item`).
        """
        return await self._call(_Call("PUT", path, {}, item, _JSON))

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Merge `patch` into the object at `path` (RFC 7386); return it as stored.

        Raises:
            ApiError: the call was refused (409: its resourceVersion is not the one in `patch`).
        """
        return await self._call(_Call("PATCH", path, {}, patch, _MERGE))

    async def delete(self, path: str, *, uid: str = "") -> None:
        """Delete the object at `path`, with a `uid` only the object with that uid; a missing object is no error.

        Raises:
            ApiError: the call was refused (409: the object has another uid).
        """
        options = {"preconditions": {"uid": uid}} if uid else {}
        try:
            await self._call(_Call("DELETE", path, {}, options, _JSON))
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise

    async def _call(self, call: _Call) -> JsonObject:
        async with await self._open(call, _ANSWER_TIMEOUT) as response:
            return decode_object(await _body(response))

    async def _open(self, call: _Call, limit: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        credential = self._credential()
        response = await self._send(call, limit)
        if response.status == _UNAUTHORIZED and await self._renewed(credential):
            response.close()
            response = await self._send(call, limit)
        if response.status >= _FIRST_ERROR:
            raise await _refused(response)
        return response

    async def _send(self, call: _Call, limit: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        query = [(key, value) for key, value in call.query.items() if value is not None]
        self.calls["watch" if "watch" in call.query else _VERBS[call.method]] += 1
        headers = {"Accept": call.accept, **({"Content-Type": call.content_type} if call.content_type else {})}
        with _connection_errors():
            method, url, headers, body, *_ = await self._transport.param_serialize(
                call.method, call.path, None, query, headers, body=call.body, auth_settings=["BearerToken"]
            )
            # The library passes a ClientTimeout on unchanged; its default is 5 minutes in total.
            answer = await self._transport.call_api(method, url, headers, body, _request_timeout=limit)
        response: aiohttp.ClientResponse = answer.response
        return response

    def _credential(self) -> str | None:
        return self._configuration.api_key.get("BearerToken")

    async def _renewed(self, credential: str | None) -> bool:
        """Renew the credentials unless another request just did; return whether they changed."""
        async with self._renewing:
            now = asyncio.get_running_loop().time()
            due = now - self._renewed_at >= _RENEW_SECONDS and self._credential() == credential
            if self._renew and due:
                self._renewed_at = now
                self._configuration.api_key = (await self._renew()).api_key
            return self._credential() != credential


@contextmanager
def _connection_errors() -> Iterator[None]:
    try:
        yield
    except (aiohttp.ClientError, OSError, ConfigException) as error:  # OSError: timeouts as well
        message = f"lost the connection to the apiserver: {str(error) or type(error).__name__}"
        raise ConnectionLostError(message) from error


async def _refused(response: aiohttp.ClientResponse) -> ApiError:
    """Read an error answer: a Status object, or text from a path without a handler."""
    async with response:
        body = await _body(response)
    if body.startswith(b"{"):
        return refusal(response.status, decode_object(body))
    text = body[:200].decode(errors="replace").strip()
    return refusal(response.status, {"reason": response.reason, "message": text})


async def _body(response: aiohttp.ClientResponse) -> bytes:
    with _connection_errors():
        return await response.read()


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield chunks as they arrive: aiohttp's line reader rejects lines above its limit."""
    with _connection_errors():
        async for chunk in response.content.iter_any():
            yield chunk
