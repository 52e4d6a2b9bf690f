"""Reading a kind once, page by page: in the whole cluster, or where that is refused, in the namespaces that matter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Final, Protocol
from urllib.parse import quote

from gpugate.webhook.cluster import NOT_FOUND, ApiError, JsonObject, WatchedKind
from gpugate.webhook.cluster.client import ApiClient

_PAGE: Final = 500
_FORBIDDEN: Final = 403


class Discovery(Protocol):
    """Who knows what the cluster serves."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Say whether the resource is served now."""


def is_refused(error: ApiError) -> bool:
    """Whether the caller is known and has no right to what he asked for."""
    return error.status == _FORBIDDEN


async def version_of(client: Discovery, kind: WatchedKind) -> str | None:
    """The first of the kind's versions that the cluster serves; None where it serves none.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    for version in kind.versions:
        if await client.served(kind.group, version, kind.plural):
            return version
    return None


async def pages_of(
    client: ApiClient, kind: WatchedKind, version: str, namespaces: Collection[str] = ()
) -> AsyncIterator[list[JsonObject]]:
    """The objects of ``kind``, a page at a time.

    Args:
        client: the way to the cluster.
        kind: what is read.
        version: a version of it that is served.
        namespaces: where it is read if it may not be read in the whole cluster; nowhere where there are none.

    Raises:
        ClusterError: the cluster cannot be asked, or refuses, in one of the namespaces, too.
    """
    begun = False
    try:
        async for page in _pages(client, kind, version, ""):
            begun = True
            yield page
    except ApiError as error:
        if begun or not namespaces or not is_refused(error):
            raise
    else:
        return
    read = _itself if kind.plural == "namespaces" else _pages
    for namespace in namespaces:
        async for page in read(client, kind, version, namespace):
            yield page


async def _pages(client: ApiClient, kind: WatchedKind, version: str, namespace: str) -> AsyncIterator[list[JsonObject]]:
    path, typed = kind.path(version, namespace), kind.type_in(version)
    token: str | None = None
    while True:
        page = await client.list(path, limit=_PAGE, continue_=token, field_selector=kind.field_selector)
        yield [{**item, **typed} for item in page.get("items") or []]
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return


async def _itself(client: ApiClient, kind: WatchedKind, version: str, namespace: str) -> AsyncIterator[list[JsonObject]]:
    """The namespace of this name: who has rights in it alone may get it, and list none."""
    try:
        yield [{**await client.get(f"{kind.path(version)}/{quote(namespace, safe='')}"), **kind.type_in(version)}]
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
