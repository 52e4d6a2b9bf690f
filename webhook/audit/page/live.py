"""Serve the page of the latest audit: read only, rendered once for each audit, outside of the event loop.

Rendering ten thousand workloads takes about a second. A thread renders on the first request; the compressed result is kept
until the next audit. Concurrent requests wait for the same rendering.
"""

import asyncio
import gzip
import hashlib
import ipaddress
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.output.json import as_json
from gpugate.webhook.audit.page.render import content_security_policy, render, waiting

#: Seconds after which a browser reloads before the first audit.
RETRY: Final = 10
_LEVEL: Final = 6
#: Names that only resolve inside the cluster.
_CLUSTER_DOMAINS: Final = (".svc", ".cluster.local")


class Rendering(NamedTuple):
    """One rendering of an audit: gzip-compressed bytes, and its ETag."""

    compressed: bytes
    tag: str


class _Renderer:
    """One rendering of the latest audit, made in a thread and kept until the next audit."""

    def __init__(self, make: Callable[[Audit], bytes]) -> None:
        self._make = make
        self._audit: Audit | None = None
        self._rendering: Rendering | None = None
        self._lock = asyncio.Lock()

    async def of(self, audit: Audit) -> Rendering:
        # One rendering at a time: two would need twice the memory for the same result.
        async with self._lock:
            if self._rendering is None or self._audit is not audit:
                self._rendering = await asyncio.to_thread(_render, self._make, audit)
                self._audit = audit
            return self._rendering


def _render(make: Callable[[Audit], bytes], audit: Audit) -> Rendering:
    body = make(audit)
    return Rendering(gzip.compress(body, _LEVEL, mtime=0), hashlib.sha256(body).hexdigest()[:32])


def add_page(app: web.Application, latest: Callable[[], Audit | None]) -> None:
    """Add the routes ``/`` and ``/audit.json`` to ``app``; ``latest`` returns the audit, None before the first."""

    def handler(make: Callable[[Audit], bytes], kind: str, before_first: bytes) -> Handler:
        renderer = _Renderer(make)

        async def handle(request: web.Request) -> web.StreamResponse:
            audit = latest()
            return _not_yet(before_first, kind) if audit is None else await _answer(request, await renderer.of(audit), kind)

        return handle

    app.router.add_get("/", handler(render, "text/html; charset=utf-8", waiting()))
    app.router.add_get("/audit.json", handler(as_json, "application/json", b'{"error": "the first audit is running"}\n'))


def _headers(kind: str) -> dict[str, str]:
    return {
        hdrs.CONTENT_TYPE: kind,
        # Only the browser caches it and revalidates each time: an unchanged page costs an empty answer.
        hdrs.CACHE_CONTROL: "private, no-cache",
        hdrs.VARY: hdrs.ACCEPT_ENCODING,
        "Content-Security-Policy": f"{content_security_policy()}; frame-ancestors 'none'",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _not_yet(body: bytes, kind: str) -> web.Response:
    headers = _headers(kind) | {hdrs.RETRY_AFTER: str(RETRY), hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(status=503, body=body, headers=headers)


async def _answer(request: web.Request, rendering: Rendering, kind: str) -> web.Response:
    headers = _headers(kind) | {hdrs.ETAG: f'"{rendering.tag}"'}
    if _is_current(request, rendering.tag):
        return web.Response(status=304, headers=headers)
    if _takes_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")):
        return web.Response(body=rendering.compressed, headers=headers | {hdrs.CONTENT_ENCODING: "gzip"})
    return web.Response(body=await asyncio.to_thread(gzip.decompress, rendering.compressed), headers=headers)


def _is_current(request: web.Request, tag: str) -> bool:
    """Return whether the browser has the rendering with ``tag`` (proxies that compress mark it as weak)."""
    return any(known.value in {tag, "*"} for known in request.if_none_match or ())


def _takes_gzip(accepted: str) -> bool:
    for option in accepted.split(","):
        coding, *rest = (part.strip() for part in option.lower().split(";"))
        if coding in {"gzip", "x-gzip", "*"}:
            weight = next((part[2:] for part in rest if part.startswith("q=")), "1")
            return weight.strip("0.") != ""
    return False


def is_expected(host: str, allowed: Collection[str]) -> bool:
    """Return whether ``host``, with or without port, is an address, this machine, the Service, or one of ``allowed``."""
    name = _name_of(host).lower().rstrip(".")
    return _is_address(name) or name in {"localhost", *allowed} or name.endswith(_CLUSTER_DOMAINS)


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def only_expected(allowed: Collection[str]) -> Middleware:
    """Return the middleware that answers requests with an expected Host header only, against DNS rebinding.

    The page has no authentication. Behind `kubectl port-forward` every page of the browser can reach it, and a site whose name
    resolves to 127.0.0.1 after loading could read it. Such a request has that site's name as its host.
    """
    known = frozenset(name.lower() for name in allowed)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_expected(request.host, known):
            return await handler(request)
        text = "unexpected host name: start the controller with --allow-host NAME to allow it\n"
        return web.Response(status=421, text=text)

    return check
