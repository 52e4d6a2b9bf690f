"""Keep the kinds that the cluster serves up to date: what is missing is asked for again before a review rests on it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from gpugate.policies.workloads.kinds.owners import ServedKinds
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.errors import ClusterError
from gpugate.webhook.runtime.log import Log

#: Seconds after which the kinds are read again if nobody asks, after an error, and between two answers at least.
_PERIOD: Final = 300.0
_RETRY: Final = 1.0
_SPACING: Final = 0.1
#: Seconds that a review waits for the kinds.
_LONGEST_WAIT: Final = 1.0


async def follow_served_kinds(
    read: Callable[[], Awaitable[ServedKinds]],
    state: CurrentState,
    publish: Callable[[ServedKinds], None],
    log: Log,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Read the kinds now, whenever the state asks for them, and every few minutes; ``publish`` gets those that changed."""
    wanted, done = asyncio.Event(), asyncio.Event()

    def rediscover() -> None:
        wanted.set()
        done.clear()

    async def rediscovered() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_WAIT):
                await done.wait()

    state.rediscover, state.rediscovered = rediscover, rediscovered
    known: ServedKinds | None = None
    failing = False
    while True:
        wanted.clear()
        asked_at, pause = clock(), _PERIOD
        try:
            served = await read()
        except (ClusterError, KeyError, TypeError, AttributeError) as error:
            pause = _RETRY
            if not failing:
                log.warning("cannot read which kinds the cluster serves", error=str(error) or repr(error))
            failing = True
        else:
            failing = False
            if served != known:
                publish(served)
            known, state.discovered_at = served, asked_at
            if not wanted.is_set():
                done.set()
        await asyncio.sleep(_SPACING)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await wanted.wait()
