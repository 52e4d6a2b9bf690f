"""Look out for absent kinds: one small question to the apiserver for all of them together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from gpugate.webhook.kube.types import ListWatch, WatchedKind

#: Seconds for which an answer serves all who ask: well below the time between two looks of one reflector.
_SHARED: Final = 2.5


class Discovery:
    """What groups and versions the apiserver offers, shared by all reflectors of a process.

    It says where a look is worthwhile, nothing more: an apiserver that has only just started lists groups before
    it has them all, so that nothing is absent because it is missing here.
    """

    def __init__(self, source: ListWatch, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked_at = float("-inf")
        self._offered: frozenset[str] = frozenset()

    async def may_serve(self, kind: WatchedKind) -> bool:
        """Say whether a version of the kind's group that can be read is offered, though perhaps without the kind.

        Raises:
            ClusterError: the apiserver did not say.
        """
        async with self._lock:
            if self._clock() - self._asked_at >= _SHARED:
                groups = (await self._source.get("/apis")).get("groups") or ()
                self._offered = frozenset(one["groupVersion"] for group in groups for one in group["versions"])
                self._asked_at = self._clock()
        return not kind.group or any(f"{kind.group}/{version}" in self._offered for version in kind.versions)


class ServedKinds(Protocol):
    """Who knows what the cluster serves."""

    async def served(self, group: str, version: str, plural: str) -> bool:
        """Say whether the resource is served now."""


async def version_of(client: ServedKinds, kind: WatchedKind) -> str | None:
    """The first of the kind's versions that the cluster serves; None where it serves none.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    for version in kind.versions:
        if await client.served(kind.group, version, kind.plural):
            return version
    return None
