"""Serve the page of the latest audit: read only, rendered once for each audit, outside of the event loop.

Rendering ten thousand workloads takes about a second. A thread renders on the first request; the compressed result is kept
until the next audit. Concurrent requests wait for the same rendering.
"""

import asyncio
import gzip
import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

from aiohttp import hdrs, web

from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.output.json import as_json
from gpugate.webhook.audit.page.render import content_security_policy, render, waiting

#: Seconds after which a browser reloads before the first audit.
RETRY: Final = 10
_LEVEL: Final = 6
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"

Latest = Callable[[], Audit | None]


class Made(NamedTuple):
    """One rendering of an audit: gzip-compressed bytes, and its ETag."""

    compressed: bytes
    tag: str


class _Representation:
    """One rendering of the latest audit, made in a thread and kept until the next audit."""

    def __init__(self, make: Callable[[Audit], bytes]) -> None:
        self._make = make
        self._audit: Audit | None = None
        self._made: Made | None = None
        self._lock = asyncio.Lock()

    async def of(self, audit: Audit) -> Made:
        # One rendering at a time: two would need twice the memory for the same result.
        async with self._lock:
            if self._made is None or self._audit is not audit:
                self._made = await asyncio.to_thread(_made, self._make, audit)
                self._audit = audit
            return self._made


def _made(make: Callable[[Audit], bytes], audit: Audit) -> Made:
    body = make(audit)
    return Made(gzip.compress(body, _LEVEL, mtime=0), hashlib.sha256(body).hexdigest()[:32])


def add_page(app: web.Application, latest: Latest) -> None:
    """Add the routes ``/`` and ``/audit.json`` to ``app``; ``latest`` returns the audit, None before the first."""
    page, document = _Representation(render), _Representation(as_json)

    async def html(request: web.Request) -> web.StreamResponse:
        audit = latest()
        if audit is None:
            return _not_yet(waiting(), _HTML)
        return await _answer(request, await page.of(audit), _HTML)

    async def json(request: web.Request) -> web.StreamResponse:
        audit = latest()
        if audit is None:
            return _not_yet(b'{"error": "the first audit is under way"}\n', _JSON)
        return await _answer(request, await document.of(audit), _JSON)

    app.router.add_get("/", html)
    app.router.add_get("/audit.json", json)


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


async def _answer(request: web.Request, made: Made, kind: str) -> web.Response:
    headers = _headers(kind) | {hdrs.ETAG: f'"{made.tag}"'}
    if _is_current(request, made.tag):
        return web.Response(status=304, headers=headers)
    if _takes_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")):
        return web.Response(body=made.compressed, headers=headers | {hdrs.CONTENT_ENCODING: "gzip"})
    return web.Response(body=await asyncio.to_thread(gzip.decompress, made.compressed), headers=headers)


def _is_current(request: web.Request, tag: str) -> bool:
    """Return whether the browser has the rendering with ``tag`` (proxies that compress mark it as weak)."""
    return any(one.value in {tag, "*"} for one in request.if_none_match or ())


def _takes_gzip(accepted: str) -> bool:
    """Return whether an ``Accept-Encoding`` accepts gzip with a positive weight."""
    for one in accepted.split(","):
        coding, *rest = (part.strip() for part in one.lower().split(";"))
        if coding in {"gzip", "x-gzip", "*"}:
            weight = next((part[2:] for part in rest if part.startswith("q=")), "1")
            return weight.strip("0.") != ""
    return False
