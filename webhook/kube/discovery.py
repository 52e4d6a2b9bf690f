"""Find out which kinds the cluster serves."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from gpugate.webhook.kube.types import ListWatch, WatchedKind

#: Seconds for which all reflectors share one answer: well below the poll interval of one reflector.
_SHARED: Final = 2.5


class Discovery:
    """The groups and versions that the apiserver offers, shared by all reflectors of a process.

    A kind that is missing here may still come: an apiserver that has just started lists groups before it has all of them.
    """

    def __init__(self, source: ListWatch, clock: Callable[[], float] = time.monotonic) -> None:
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
                self._offered = frozenset(one["groupVersion"] for group in groups for one in group["versions"])
                self._asked_at = self._clock()
        return not kind.group or any(f"{kind.group}/{version}" in self._offered for version in kind.versions)


class ServedKinds(Protocol):
    """Tells which resources the cluster serves."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Return whether the cluster serves the resource now."""


async def version_of(client: ServedKinds, kind: WatchedKind) -> str | None:
    """Return the first of the kind's versions that the cluster serves; None if it serves none.

    Raises:
        ClusterError: the cluster did not answer.
    """
    for version in kind.versions:
        if await client.served(kind.group, version, kind.plural):
            return version
    return None
