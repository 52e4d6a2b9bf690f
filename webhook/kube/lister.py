"""Find out which kinds the cluster serves, and read full lists: as the start of a watch if supported, else page by page.

A streamed list costs the apiserver no list in its memory, and only one object at a time is decoded here (KEP-3157,
"watch-list"; on by default since Kubernetes 1.34). Both yield to other tasks after each object, so that a long list does not
delay reviews.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import quote

from gpugate.webhook.kube.client import ApiClient
from gpugate.webhook.kube.errors import NOT_FOUND, ApiError, ConnectionLostError
from gpugate.webhook.kube.types import EventType, JsonObject, Strip, WatchedKind

CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
#: The annotation of the bookmark after the last object of a streamed list (``metav1.InitialEventsAnnotationKey``).
_END: Final = "k8s.io/initial-events-end"
Take: TypeAlias = Callable[[EventType, JsonObject], object]
_PAGE: Final = 500
_FORBIDDEN: Final = 403
#: Seconds for which all reflectors share one answer: well below the poll interval of one reflector.
_SHARED: Final = 2.5


class Discovery:
    """The API groups and versions of the cluster, shared by all reflectors of a process.

    A kind that is missing here may still come: an apiserver that has just started lists groups before it has all of them.
    """

    def __init__(self, source: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked_at = float("-inf")
        self._offered: frozenset[str] = frozenset()

    async def may_serve(self, kind: WatchedKind) -> bool:
        """Return whether the cluster offers a readable version of the kind's group; the kind itself may still be missing.

        Raises:
            ClusterError: the apiserver did not answer.
        """
        async with self._lock:
            if self._clock() - self._asked_at >= _SHARED:
                groups = (await self._source.get("/apis")).get("groups") or ()
                self._offered = frozenset(version["groupVersion"] for group in groups for version in group["versions"])
                self._asked_at = self._clock()
        return not kind.group or any(f"{kind.group}/{version}" in self._offered for version in kind.versions)


class ServedKinds(Protocol):
    """An API client that knows which resources the cluster serves."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Return whether the cluster serves the resource now."""


async def version_of(client: ServedKinds, kind: WatchedKind) -> str | None:
    """Return the first version of the kind that the cluster serves; None if it serves none.

    Raises:
        ClusterError: the cluster did not answer.
    """
    for version in kind.versions:
        if await client.served(kind.group, version, kind.plural):
            return version
    return None


class ListCollector:
    """The objects of a list read so far, by namespace and name: ``records``, the results of the strip function."""

    def __init__(self, strip: Strip) -> None:
        self._strip = strip
        self.records: dict[str, Any] = {}

    def take(self, event_type: EventType, item: JsonObject) -> None:
        """Add an object, or remove a deleted one: objects may change during a streamed list."""
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
    message = "the watch ended before the end of the list"
    raise ConnectionLostError(message)


async def read_pages(source: ApiClient, kind: WatchedKind, path: str, limit: int, take: Take) -> str:
    """Read all pages of the newest list, `limit` objects each (0: one page); return its resourceVersion.

    Raises:
        Gone: a continue token expired; the list is incomplete.
    """
    version = ""
    async for page in _raw_pages(source, kind, path, limit):
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
        version = page["metadata"]["resourceVersion"]
    return version


async def _raw_pages(client: ApiClient, kind: WatchedKind, path: str, limit: int) -> AsyncIterator[JsonObject]:
    token: str | None = None
    while True:
        page = await client.list(
            path, limit=limit, continue_=token, field_selector=kind.field_selector, label_selector=kind.label_selector
        )
        yield page
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return


def is_refused(error: ApiError) -> bool:
    """Return whether the error is 403 Forbidden: the caller is known and lacks the right."""
    return error.status == _FORBIDDEN


async def pages_of(
    client: ApiClient, kind: WatchedKind, version: str, namespaces: Collection[str] = ()
) -> AsyncIterator[list[JsonObject]]:
    """Yield the objects of ``kind`` in a served version, a page at a time; of ``namespaces`` if the whole cluster is forbidden.

    Raises:
        ClusterError: the cluster does not answer or refuses, also in one of the namespaces.
    """
    started = False
    try:
        async for page in _pages(client, kind, version, ""):
            started = True
            yield page
    except ApiError as error:
        if started or not namespaces or not is_refused(error):
            raise
    else:
        return
    read = _one_namespace if kind.plural == "namespaces" else _pages
    for namespace in namespaces:
        async for page in read(client, kind, version, namespace):
            yield page


async def _pages(client: ApiClient, kind: WatchedKind, version: str, namespace: str) -> AsyncIterator[list[JsonObject]]:
    types = kind.type_in(version)
    async for page in _raw_pages(client, kind, kind.path(version, namespace), _PAGE):
        yield [{**item, **types} for item in page.get("items") or []]


async def _one_namespace(client: ApiClient, kind: WatchedKind, version: str, namespace: str) -> AsyncIterator[list[JsonObject]]:
    """Yield the Namespace of this name: rights in one namespace allow a get, not a list."""
    try:
        yield [{**await client.get(f"{kind.path(version)}/{quote(namespace, safe='')}"), **kind.type_in(version)}]
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
