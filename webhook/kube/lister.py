"""Read the full list of a kind: streamed ahead of its watch where the apiserver can, else page by page.

A streamed list costs the apiserver no list in its memory, and here one object at a time is decoded
(KEP-3157, "watch-list"; on by default since Kubernetes 1.34). Either way others get their turn after each
object, so that no review waits for a list, however long it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import quote

from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.types import (
    NOT_FOUND,
    ApiError,
    ConnectionLostError,
    EventType,
    JsonObject,
    ListWatch,
    Strip,
    WatchedKind,
)

CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
#: The annotation of the bookmark behind the last object of a streamed list (``metav1.InitialEventsAnnotationKey``).
_END: Final = "k8s.io/initial-events-end"

Take: TypeAlias = Callable[[EventType, JsonObject], object]


class Gathered:
    """What has come in of a list, stripped, by namespace and name.

    Attributes:
        records: what the strip function made of each object.
    """

    __slots__ = ("_strip", "records")

    def __init__(self, strip: Strip) -> None:
        self._strip = strip
        self.records: dict[str, Any] = {}

    def take(self, event_type: EventType, item: JsonObject) -> None:
        """Keep an object, or drop a deleted one: objects may change while they are streamed."""
        metadata = item["metadata"]
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        if event_type == "DELETED":
            self.records.pop(key, None)
        else:
            self.records[key] = self._strip(item)


async def read_streamed(events: AsyncIterator[JsonObject], take: Take) -> str:
    """Take the events of a watch up to the end of its list; return the list's resourceVersion.

    Raises:
        ConnectionLostError: the stream ended before; what was taken is no list.
    """
    async for event in events:
        item: JsonObject = event["object"]
        if event["type"] in CHANGES:
            take(event["type"], item)
        elif (item["metadata"].get("annotations") or {}).get(_END) == "true":
            return str(item["metadata"]["resourceVersion"])
        await asyncio.sleep(0)
    message = "the watch ended before all objects had come"
    raise ConnectionLostError(message)


async def read_pages(source: ListWatch, kind: WatchedKind, path: str, limit: int, take: Take) -> str:
    """Take all pages of the newest list, `limit` objects each (0: one page); return its resourceVersion.

    Raises:
        Gone: a continue token expired on the way; what was taken is no list.
    """
    token: str | None = None
    while True:
        page = await source.list(
            path,
            limit=limit,
            continue_=token,
            field_selector=kind.field_selector,
            label_selector=kind.label_selector,
        )
        await _take_page(page, take)
        token = page["metadata"].get("continue")
        if not token:
            return str(page["metadata"]["resourceVersion"])


async def _take_page(page: JsonObject, take: Take) -> None:
    items = page.get("items") or []
    items.reverse()
    # Items of a list, unlike those of events, come without their type.
    group_version, name = page.get("apiVersion"), str(page.get("kind")).removesuffix("List")
    while items:
        item = items.pop()  # given back one by one: to free a page at once takes long, too
        item.setdefault("apiVersion", group_version)
        item.setdefault("kind", name)
        take("ADDED", item)
        del item
        await asyncio.sleep(0)


_PAGE: Final = 500
_FORBIDDEN: Final = 403


class ServedKinds(Protocol):
    """Who knows what the cluster serves."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Say whether the resource is served now."""


def is_refused(error: ApiError) -> bool:
    """Whether the caller is known and has no right to what he asked for."""
    return error.status == _FORBIDDEN


async def version_of(client: ServedKinds, kind: WatchedKind) -> str | None:
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
