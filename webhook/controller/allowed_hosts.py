"""Whom the page answers: a browser that was led to it by another site's name gets nothing.

The page asks nobody who they are. Behind `kubectl port-forward` it is open to whatever else the browser runs, and a site whose
name turns to 127.0.0.1 after it was loaded could read it ("DNS rebinding"). Such a request carries that site's name as its host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

_OWN: Final = ("localhost",)
#: Names that only the cluster itself resolves.
_INSIDE: Final = (".svc", ".cluster.local")


def is_expected(host: str, allowed: Collection[str]) -> bool:
    """Whether a request may name ``host``, with or without a port: an address, this machine, the Service, or one of ``allowed``."""
    name = _name_of(host).lower().rstrip(".")
    return _is_address(name) or name in {*_OWN, *allowed} or name.endswith(_INSIDE)


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
    """The middleware that refuses all other requests."""
    known = frozenset(name.lower() for name in allowed)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_expected(request.host, known):
            return await handler(request)
        text = "this name is not expected here: start the controller with --allow-host and the name that people use\n"
        return web.Response(status=421, text=text)

    return check
