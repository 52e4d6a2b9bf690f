"""The queue of reviews: who is decided when, and who is given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from gpugate.webhook.admission.overload import reviews
from gpugate.webhook.admission.overload.bodies import Bodies
from gpugate.webhook.admission.overload.reviews import ReviewQueue, deadline_of
from gpugate.webhook.admission.overload.shedding import OverloadedError, Shedding

pytestmark = pytest.mark.asyncio

SMALL, LARGE = 6_000, 1_000_000
CONNECTED = cast("web.BaseRequest", SimpleNamespace(transport=object()))
GONE = cast("web.BaseRequest", SimpleNamespace(transport=None))


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    thread_time = monotonic


class Reviews:
    """A queue whose decisions are written down."""

    def __init__(self, most: int = 256) -> None:
        self.shedding = Shedding()
        self.bodies = Bodies(self.shedding)
        self.queue = ReviewQueue(self.bodies, self.shedding, most)
        self.decided: list[str] = []

    def decision(self, name: str, then: Callable[[], None] = lambda: None) -> Callable[[], bytes]:
        def decide() -> bytes:
            self.decided.append(name)
            then()
            return name.encode()

        return decide

    def ask(self, name: str, size: int, patience: float = 60.0, **options: Any) -> asyncio.Task[bytes | None]:
        request = options.pop("request", CONNECTED)
        answer = self.queue.answer(self.decision(name, **options), bytes(size), time.monotonic() + patience, request)
        return asyncio.create_task(answer, name=name)


async def waiting(made: Reviews, number: int) -> None:
    """Let the tasks that ask come to the queue."""
    while made.queue.number < number:  # noqa: ASYNC110 - the queue tells nobody
        await asyncio.sleep(0)


async def test_a_small_review_is_decided_at_once_where_none_waits() -> None:
    made = Reviews()
    asked = made.queue.answer(made.decision("only"), bytes(SMALL), time.monotonic() + 60, CONNECTED)
    with pytest.raises(StopIteration) as ended:
        asked.send(None)
    assert ended.value.value == b"only"


async def test_small_reviews_wait_once_a_turn_of_the_loop_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(reviews, "time", clock)
    made = Reviews()

    def takes_long() -> None:
        clock.now += 1.0

    first = made.ask("first", SMALL, then=takes_long)
    second = made.ask("second", SMALL)
    await asyncio.sleep(0)
    assert (made.decided, made.queue.number) == (["first"], 1)
    assert await asyncio.gather(first, second) == [b"first", b"second"]


async def test_small_reviews_go_before_large_ones_that_came_first() -> None:
    made = Reviews()
    asked = [made.ask("large", LARGE), made.ask("larger", 2 * LARGE), made.ask("small", SMALL)]
    await asyncio.gather(*asked)
    assert made.decided == ["small", "large", "larger"]


async def test_a_large_review_goes_before_small_ones_that_come_much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(reviews, "time", clock)
    made = Reviews()
    asked = [made.ask("large", LARGE)]
    await waiting(made, 1)
    clock.now += 1.0
    asked += [made.ask("small", SMALL), made.ask("another", SMALL)]
    await asyncio.gather(*asked)
    assert made.decided == ["large", "small", "another"]


async def test_between_two_long_reviews_the_loop_does_other_work() -> None:
    made = Reviews()
    turns: list[int] = []
    ended = asyncio.Event()

    async def others() -> None:
        while not ended.is_set():
            turns.append(len(made.decided))
            await asyncio.sleep(0)

    def takes_long() -> None:
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass

    work = asyncio.create_task(others())
    await asyncio.gather(*(made.ask(str(number), LARGE, then=takes_long) for number in range(4)))
    ended.set()
    await work
    # More than a turn each: a probe needs several for its connection.
    assert all(turns.count(number) > 3 for number in (1, 2, 3))


async def test_of_too_many_reviews_the_last_in_order_is_given_up() -> None:
    made = Reviews(most=2)
    asked = [made.ask("large", LARGE), made.ask("larger", 2 * LARGE), made.ask("small", SMALL)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert made.decided == ["small", "large"]
    assert isinstance(results[1], OverloadedError)
    assert results[1].reason == "queue"
    assert made.shedding.counts == {"queue": 1}
    assert (made.queue.number, made.bodies.held) == (0, 0)


async def test_a_review_whose_time_is_over_is_given_up_and_never_decided() -> None:
    made = Reviews()
    asked = made.ask("late", LARGE, patience=-1.0)
    with pytest.raises(OverloadedError, match="before the apiserver gives up"):
        await asked
    await asyncio.gather(made.ask("next", LARGE))
    assert (made.decided, made.shedding.counts) == (["next"], {"deadline": 1})
    assert (made.queue.number, made.bodies.held) == (0, 0)


async def test_a_review_whose_client_has_left_is_not_decided() -> None:
    made = Reviews()
    asked = [made.ask("gone", LARGE, request=GONE), made.ask("next", LARGE)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(results[0], OverloadedError)
    assert (made.decided, made.shedding.counts) == (["next"], {"gone": 1})


async def test_an_error_reaches_the_one_who_asked_and_the_next_is_decided() -> None:
    made = Reviews()

    def breaks() -> None:
        message = "a mistake"
        raise ValueError(message)

    results = await asyncio.gather(made.ask("broken", LARGE, then=breaks), made.ask("next", LARGE), return_exceptions=True)
    assert isinstance(results[0], ValueError)
    assert results[1] == b"next"


async def test_one_who_leaves_while_it_waits_takes_no_place() -> None:
    made = Reviews()
    leaving, staying = made.ask("leaving", LARGE), made.ask("staying", LARGE)
    await waiting(made, 2)
    leaving.cancel()
    assert await staying == b"staying"
    assert made.decided == ["staying"]
    assert (made.queue.number, made.bodies.held) == (0, 0)


async def test_waiting_bodies_above_the_bytes_give_up_the_largest() -> None:
    made = Reviews()
    made.bodies._most = 3 * LARGE
    asked = [made.ask("large", LARGE), made.ask("larger", 2 * LARGE), made.ask("small", LARGE // 2)]
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(results[1], OverloadedError)
    assert results[1].reason == "bytes"
    assert made.decided == ["small", "large"]
    assert made.bodies.held == 0


@pytest.mark.parametrize(("seconds", "left"), [(30.0, 29.0), (5.0, 4.0), (3.0, 2.4), (0.001, 0.0008)])
async def test_the_answer_keeps_part_of_the_timeout_for_its_way(seconds: float, left: float) -> None:
    assert deadline_of(100.0, seconds) == pytest.approx(100.0 + left)
