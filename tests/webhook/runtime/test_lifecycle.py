"""How the long-lived programs end: everything is over, whatever broke."""

from __future__ import annotations

import asyncio

import pytest

from gpugate.webhook.runtime.lifecycle import cancelled, until_signal

pytestmark = pytest.mark.asyncio


async def test_every_task_is_over_even_where_one_had_broken() -> None:
    ended: list[str] = []

    async def lasting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("in order")

    async def broken() -> None:
        message = "a mistake"
        raise ValueError(message)

    tasks = [asyncio.create_task(broken()), asyncio.create_task(lasting())]
    with pytest.raises(ValueError, match="a mistake"):
        await until_signal(tasks)
    await cancelled(tasks)
    assert ended == ["in order"]


async def test_who_is_cancelled_while_it_waits_for_the_end_hears_of_it() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)
                if stop.is_set():
                    raise

    stop = asyncio.Event()
    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(cancelled([task]))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 5)
    stop.set()
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert task.done()
