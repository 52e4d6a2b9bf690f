"""What writes for a leader, and for nobody who may have been replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from gpugate.webhook.kube.types import ClusterError

JsonObject: TypeAlias = dict[str, Any]


class Api(Protocol):
    """The apiserver; `gpugate.webhook.kube.client.ApiClient` is one."""

    async def get(self, path: str) -> JsonObject:
        """Return the object at `path`."""

    async def list(self, path: str, *, limit: int, field_selector: str | None = None) -> JsonObject:
        """Return the objects of a collection."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Say whether the resource is served now."""

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at `path`."""

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Merge `patch` into the object at `path`."""

    async def delete(self, path: str, *, uid: str = "") -> None:
        """Delete the object at `path`, with a `uid` only that one."""


class NotLeadingError(ClusterError):
    """A write was held back: another controller may lead by now."""


class LeaderOnlyClient:
    """An apiserver whose writing side is open only while ``leads`` says so.

    A process that stood still (a frozen node, a paused machine) goes on in the middle of what it did, long after another has taken
    over, and before it has looked at its Lease: so the Lease's time is looked at before each single write.
    """

    def __init__(self, api: Api, leads: Callable[[], bool]) -> None:
        self._api = api
        self._leads = leads

    async def get(self, path: str) -> JsonObject:
        """Return the object at `path`."""
        return await self._api.get(path)

    async def list(self, path: str, *, limit: int, field_selector: str | None = None) -> JsonObject:
        """Return the objects of a collection."""
        return await self._api.list(path, limit=limit, field_selector=field_selector)

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Say whether the resource is served now."""
        return await self._api.served(group, version, plural)

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at `path`.

        Raises:
            NotLeadingError: another controller may lead by now; `patch` and `delete` raise it, too.
        """
        self._check()
        return await self._api.create(path, item)

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Merge `patch` into the object at `path`."""
        self._check()
        return await self._api.patch(path, patch)

    async def delete(self, path: str, *, uid: str = "") -> None:
        """Delete the object at `path`, with a `uid` only that one."""
        self._check()
        await self._api.delete(path, uid=uid)

    def _check(self) -> None:
        if not self._leads():
            message = "the Lease was not renewed in time: another controller may lead by now"
            raise NotLeadingError(message)
