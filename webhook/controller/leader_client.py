"""An API client that writes only while this controller leads."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from gpugate.webhook.kube.errors import ClusterError

JsonObject: TypeAlias = dict[str, Any]


class Api(Protocol):
    """The API client; `gpugate.webhook.kube.client.ApiClient` implements it."""

    async def get(self, path: str) -> JsonObject:
        """Return the object at `path`."""

    async def list(self, path: str, *, limit: int, field_selector: str | None = None) -> JsonObject:
        """Return the objects of a collection."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Return whether the cluster serves the resource now."""

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at `path`."""

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Merge `patch` into the object at `path`."""

    async def delete(self, path: str, *, uid: str = "") -> None:
        """Delete the object at `path`, with a `uid` only that one."""


class NotLeadingError(ClusterError):
    """A write was blocked: another controller may lead."""


class LeaderOnlyClient:
    """An API client that refuses to write unless ``leads`` returns true.

    A process that was frozen (a paused machine) continues its work long after another controller took over, and before it checks
    its Lease: so the Lease's time is checked before each write.
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
        """Return whether the cluster serves the resource now."""
        return await self._api.served(group, version, plural)

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        """Create an object in the collection at `path`.

        Raises:
            NotLeadingError: another controller may lead; `patch` and `delete` raise it as well.
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
