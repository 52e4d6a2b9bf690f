"""Decide reviews one at a time, small ones first, with turns of the event loop in between."""

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from aiohttp import web

from gpugate.webhook.admission.overload.bodies import Bodies
from gpugate.webhook.admission.overload.callers import Callers, caller_of
from gpugate.webhook.admission.overload.shedding import OverloadedError, Shedding

#: Reviews that wait: as many as there are connections. A usual one takes a fraction of a millisecond.
MOST_WAITING: Final = 512
#: Seconds of the apiserver's timeout that are left for the connection and the way of the answer, at most this part of it.
_MARGIN: Final = 1.0
_PART: Final = 0.2
#: Bodies up to this size may be decided at once. Bytes.
_SMALL: Final = 64 * 1024
#: Seconds of CPU that reviews may take in one turn of the event loop, but for one that takes longer. Not of the clock: while the
#: process waits for a CPU, connections would get more turns than reviews.
_TURN: Final = 0.005
#: Part of the time of a longer review for which the event loop then does other work, and its limit in seconds: a probe on a new
#: connection takes several turns.
_REST: Final = 0.1
_LONGEST_REST: Final = 0.02
#: A large body waits for smaller ones a second for each of these, and at most for half of its time. Bytes.
_BYTES_PER_SECOND: Final = 1024 * 1024


#: Decides a review; None means that it should be decided again a moment later.
Decide: TypeAlias = Callable[[], bytes | None]


def deadline_of(arrived: float, timeout: float) -> float:
    """Return until when a review that ``arrived`` can be decided, on the same clock; ``timeout`` is the apiserver's, in seconds."""
    return arrived + timeout - min(_MARGIN, _PART * timeout)


class _Waiting:
    """A review that waits for its turn."""

    __slots__ = ("answer", "body", "decide", "order", "request")

    def __init__(
        self, order: float, decide: Decide, body: bytes, request: web.BaseRequest, answer: asyncio.Future[bytes | None]
    ) -> None:
        self.order, self.decide, self.body, self.request, self.answer = order, decide, body, request, answer

    def __lt__(self, other: "_Waiting") -> bool:
        return self.order < other.order


class ReviewQueue:
    """Reviews that wait for their decision.

    A small review is decided at once if none waits, this turn of the event loop has time and its caller had no long reviews of
    late. All others wait, ordered by their arrival, their size and the time that long reviews of their caller have taken. A
    review that cannot be decided in time is given up, and if too many wait the last in order.
    """

    def __init__(self, bodies: Bodies, shedding: Shedding, most: int = MOST_WAITING) -> None:
        """Let at most ``most`` reviews wait; their bytes count in ``bodies``."""
        self._bodies, self._shedding, self._most = bodies, shedding, most
        self._heap: list[_Waiting] = []
        self._turn_ends = 0.0
        self._worker: asyncio.Task[None] | None = None
        self._callers = Callers()

    @property
    def number(self) -> int:
        """Return the number of reviews that wait."""
        return len(self._heap)

    async def answer(self, decide: Decide, body: bytes, deadline: float, request: web.BaseRequest) -> bytes | None:
        """Return what ``decide`` returns for the review in ``body``, until ``deadline`` on the monotonic clock.

        Raises:
            OverloadedError: the review was given up.
        """
        if not self._heap and len(body) <= _SMALL and not self._recent(body, time.monotonic()):
            now = time.thread_time()
            if self._has_time(now):
                return self._timed(decide, body, now)
        return await self._wait(decide, body, deadline, request)

    def _recent(self, body: bytes, now: float) -> float:
        """Return the seconds that long reviews of the same caller have taken of late."""
        return self._callers.spent(caller_of(body), now) if self._callers else 0.0

    def _timed(self, decide: Decide, body: bytes, started: float) -> bytes | None:
        """Decide a review that ``started`` at this CPU time, and remember who asked if it took much of it."""
        before = time.monotonic()
        try:
            return decide()
        finally:
            now = time.monotonic()
            # A review took no more CPU than time, and a look at the CPU time is a system call.
            if Callers.is_long(now - before):
                spent = time.thread_time() - started
                if Callers.is_long(spent):
                    self._callers.add(caller_of(body), spent, now)

    def _has_time(self, now: float) -> bool:
        """Return whether this turn of the event loop has time for another review; ``now``: the CPU time."""
        if not self._turn_ends:
            self._turn_ends = now + _TURN
            asyncio.get_running_loop().call_soon(self._end_turn)
        return now < self._turn_ends

    def _end_turn(self) -> None:
        self._turn_ends = 0.0

    async def _wait(self, decide: Decide, body: bytes, deadline: float, request: web.BaseRequest) -> bytes | None:
        now, loop = time.monotonic(), asyncio.get_running_loop()
        order = now + min(len(body) / _BYTES_PER_SECOND + self._recent(body, now), (deadline - now) / 2)
        waiting = _Waiting(order, decide, body, request, loop.create_future())
        held = self._bodies.hold(len(body), lambda error: self._give_up(waiting, error))
        try:
            heapq.heappush(self._heap, waiting)
            if len(self._heap) > self._most:
                self._give_up(max(self._heap), self._shedding.error("queue"))
            if self._worker is None:
                self._worker = loop.create_task(self._work(), name="reviews")
            async with asyncio.timeout_at(deadline):
                return await waiting.answer
        except TimeoutError:
            error = self._shedding.error("deadline")
            raise error from None
        finally:
            self._remove(waiting)
            self._bodies.release(held)

    def _remove(self, waiting: _Waiting) -> None:
        if waiting in self._heap:
            self._heap.remove(waiting)
            heapq.heapify(self._heap)

    def _give_up(self, waiting: _Waiting, error: OverloadedError) -> None:
        self._remove(waiting)
        if not waiting.answer.done():
            waiting.answer.set_exception(error)

    async def _work(self) -> None:
        """Decide what waits, until nothing does."""
        rest = 0.0
        try:
            while self._heap:
                await asyncio.sleep(rest)
                started = now = time.thread_time()
                while self._heap and now < started + _TURN:
                    self._decide(heapq.heappop(self._heap), now)
                    now = time.thread_time()
                spent = now - started
                rest = min(_REST * spent, _LONGEST_REST) if spent > 2 * _TURN else 0.0
        finally:
            self._worker = None

    def _decide(self, waiting: _Waiting, started: float) -> None:
        if waiting.answer.done():
            return
        if waiting.request.transport is None:
            # The client has left: nobody needs the answer.
            waiting.answer.set_exception(self._shedding.error("gone"))
            return
        try:
            answer = self._timed(waiting.decide, waiting.body, started)
        except Exception as error:  # noqa: BLE001 - raised where the review waits
            waiting.answer.set_exception(error)
        else:
            waiting.answer.set_result(answer)
