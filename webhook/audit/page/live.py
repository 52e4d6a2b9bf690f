"""The page of the latest audit, served: read only, made once for each audit, and off the event loop.

Making the page of ten thousand workloads takes about a second. It is made in a thread when somebody asks for it, and kept,
compressed, until there is a newer audit; while it is made, whoever asks for the same waits for the same.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple

from aiohttp import hdrs, web

from gpugate.webhook.audit.model import Audit
from gpugate.webhook.audit.output.json import as_json
from gpugate.webhook.audit.page.render import content_security_policy, render, waiting

#: Seconds after which a browser asks again while there is no audit yet.
RETRY: Final = 10
_LEVEL: Final = 6
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"

Latest = Callable[[], Audit | None]


class Made(NamedTuple):
    """One representation of an audit: its bytes, compressed with gzip, and the tag by which a browser knows that it has it."""

    compressed: bytes
    tag: str


class _Representation:
    """One representation of the latest audit, made in a thread and kept until there is a newer one."""

    def __init__(self, make: Callable[[Audit], bytes]) -> None:
        self._make = make
        self._audit: Audit | None = None
        self._made: Made | None = None
        self._lock = asyncio.Lock()

    async def of(self, audit: Audit) -> Made:
        # Two at once would take twice the memory, and the second would find the first's work done.
        async with self._lock:
            if self._made is None or self._audit is not audit:
                self._made = await asyncio.to_thread(_made, self._make, audit)
                self._audit = audit
            return self._made


def _made(make: Callable[[Audit], bytes], audit: Audit) -> Made:
    body = make(audit)
    return Made(gzip.compress(body, _LEVEL, mtime=0), hashlib.sha256(body).hexdigest()[:32])


def add_page(app: web.Application, latest: Latest) -> None:
    """Add to ``app`` the routes ``/`` and ``/audit.json``, which show what ``latest`` gives: None before the first audit."""
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


def page_app(latest: Latest) -> web.Application:
    """An application with the page alone."""
    app = web.Application()
    add_page(app, latest)
    return app


def _headers(kind: str) -> dict[str, str]:
    return {
        hdrs.CONTENT_TYPE: kind,
        # Kept by nobody but the one who asked, and asked for again each time: an unchanged page costs an empty answer.
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
    if _has(request, made.tag):
        return web.Response(status=304, headers=headers)
    if _takes_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")):
        return web.Response(body=made.compressed, headers=headers | {hdrs.CONTENT_ENCODING: "gzip"})
    return web.Response(body=await asyncio.to_thread(gzip.decompress, made.compressed), headers=headers)


def _has(request: web.Request, tag: str) -> bool:
    """Whether the browser has what bears ``tag`` (proxies that compress mark it as weak)."""
    return any(one.value in {tag, "*"} for one in request.if_none_match or ())


def _takes_gzip(accepted: str) -> bool:
    """Whether an ``Accept-Encoding`` names gzip, with a weight above nothing."""
    for one in accepted.split(","):
        coding, *rest = (part.strip() for part in one.lower().split(";"))
        if coding in {"gzip", "x-gzip", "*"}:
            weight = next((part[2:] for part in rest if part.startswith("q=")), "1")
            return weight.strip("0.") != ""
    return False
