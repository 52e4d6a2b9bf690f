"""Answer requests with an expected Host header only, against DNS rebinding.

The page has no authentication. Behind `kubectl port-forward` every page of the browser can reach it, and a site whose name
resolves to 127.0.0.1 after loading could read it. Such a request has that site's name as its host.
"""

import ipaddress
from collections.abc import Collection
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

_OWN: Final = ("localhost",)
#: Names that only resolve inside the cluster.
_INSIDE: Final = (".svc", ".cluster.local")


def is_expected(host: str, allowed: Collection[str]) -> bool:
    """Return whether ``host``, with or without port, is an address, this machine, the Service, or one of ``allowed``."""
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
    """Return the middleware that rejects all other requests."""
    known = frozenset(name.lower() for name in allowed)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_expected(request.host, known):
            return await handler(request)
        text = "unexpected host name: start the controller with --allow-host NAME to allow it\n"
        return web.Response(status=421, text=text)

    return check
