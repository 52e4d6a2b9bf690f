"""Read the full list of a kind: as the start of a watch if the apiserver supports it, else page by page.

A streamed list costs the apiserver no list in its memory, and only one object at a time is decoded here (KEP-3157,
"watch-list"; on by default since Kubernetes 1.34). Both yield to other tasks after each object, so that a long list does not
delay reviews.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.errors import NOT_FOUND, ApiError, ConnectionLostError
from gpugate.webhook.kube.types import EventType, JsonObject, ListWatch, Strip, WatchedKind

CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
#: The annotation of the bookmark behind the last object of a streamed list (``metav1.InitialEventsAnnotationKey``).
_END: Final = "k8s.io/initial-events-end"
Take: TypeAlias = Callable[[EventType, JsonObject], object]


class ListCollector:
    """Objects of a list read so far, stripped, by namespace and name.

    Attributes:
        records: results of the strip function.
    """

    __slots__ = ("_strip", "records")

    def __init__(self, strip: Strip) -> None:
        self._strip = strip
        self.records: dict[str, Any] = {}

    def take(self, event_type: EventType, item: JsonObject) -> None:
        """Keep an object, or drop a deleted one: objects may change during a streamed list."""
        metadata = item["metadata"]
        key = f"{metadata.get('namespace', '')}/{metadata['name']}"
        if event_type == "DELETED":
            self.records.pop(key, None)
        else:
            self.records[key] = self._strip(item)


async def read_streamed(events: AsyncIterator[JsonObject], take: Take) -> str:
    """Read the events of a watch up to the end of its list; return the list's resourceVersion.

    Raises:
        ConnectionLostError: the stream ended early; the list is incomplete.
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
    """Read all pages of the newest list, `limit` objects each (0: one page); return its resourceVersion.

    Raises:
        Gone: a continue token expired; the list is incomplete.
    """
    token: str | None = None
    while True:
        page = await source.list(
            path, limit=limit, continue_=token, field_selector=kind.field_selector, label_selector=kind.label_selector
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
        item = items.pop()  # free items one by one: freeing a whole page at once blocks
        item.setdefault("apiVersion", group_version)
        item.setdefault("kind", name)
        take("ADDED", item)
        del item
        await asyncio.sleep(0)


_PAGE: Final = 500
_FORBIDDEN: Final = 403


def is_refused(error: ApiError) -> bool:
    """Return whether the error is 403 Forbidden: the caller is known and lacks the right."""
    return error.status == _FORBIDDEN


async def pages_of(
    client: ApiClient, kind: WatchedKind, version: str, namespaces: Collection[str] = ()
) -> AsyncIterator[list[JsonObject]]:
    """Yield the objects of ``kind``, a page at a time.

    Args:
        client: the API client.
        kind: the kind to read.
        version: a served version of it.
        namespaces: read these if the whole cluster is forbidden; empty for no fallback.

    Raises:
        ClusterError: the cluster does not answer or refuses, also in one of the namespaces.
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
    read = _one_namespace if kind.plural == "namespaces" else _pages
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


async def _one_namespace(client: ApiClient, kind: WatchedKind, version: str, namespace: str) -> AsyncIterator[list[JsonObject]]:
    """Yield the Namespace of this name: rights in one namespace allow a get, not a list."""
    try:
        yield [{**await client.get(f"{kind.path(version)}/{quote(namespace, safe='')}"), **kind.type_in(version)}]
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
