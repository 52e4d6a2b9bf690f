"""Bodies of reviews, with a bound on the bytes of all that arrive or wait."""

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from gpugate.webhook.admission.overload.shedding import OverloadedError, Shedding

#: Largest body. The apiserver stores at most 1.5 MiB, and an UPDATE contains two objects; the rest is for the request's other
#: fields and for the characters that JSON escapes. Bytes.
BODY_LIMIT: Final = 4 * 1024 * 1024
#: Bytes of all bodies that arrive or wait. A usual review has some 6 KB.
MOST_BYTES: Final = 32 * 1024 * 1024


class TooLargeError(Exception):
    """A body is larger than the limit."""


class Held:
    """The bytes of one body.

    Attributes:
        size: bytes that have arrived.
        give_up: called with the reason if another body needs the room.
    """

    __slots__ = ("give_up", "size")

    def __init__(self, give_up: Callable[[OverloadedError], None]) -> None:
        self.size = 0
        self.give_up = give_up


class Bodies:
    """Reads bodies, and gives up the largest where all together have too many bytes.

    So a small review never waits for room that large ones have taken.
    """

    def __init__(self, shedding: Shedding, *, most: int = MOST_BYTES) -> None:
        """Read bodies of at most ``most`` bytes together."""
        self._most, self._shedding = most, shedding
        self._held: dict[Held, None] = {}
        self._bytes = 0

    @property
    def held(self) -> int:
        """Return the bytes of all bodies that arrive or wait."""
        return self._bytes

    async def read(self, request: web.BaseRequest, deadline: float) -> bytes:
        """Return the body of ``request``, if it arrives until ``deadline`` on the monotonic clock.

        Raises:
            TooLargeError: the body is larger than the limit.
            OverloadedError: other bodies need the room.
            TimeoutError: the body did not arrive in time.
        """
        content = request.content
        if (request.content_length or 0) > BODY_LIMIT:
            raise TooLargeError
        chunks: list[bytes] = []
        given_up: list[OverloadedError] = []
        timer = asyncio.timeout_at(deadline)

        def give_up(error: OverloadedError) -> None:
            given_up.append(error)
            timer.reschedule(0)

        held = Held(give_up)
        self._held[held] = None
        try:
            async with timer:
                while chunk := await content.readany():
                    if given_up:
                        break
                    chunks.append(chunk)
                    self.add(held, len(chunk))
                    if held.size > BODY_LIMIT:
                        raise TooLargeError
            if not given_up:
                return b"".join(chunks)
        except TimeoutError:
            if not given_up:
                raise
        except ConnectionError:
            given_up.append(self._shedding.error("gone"))
        finally:
            # An error keeps this frame alive, perhaps until the next run of the garbage collector.
            chunks.clear()
            self.release(held)
        raise given_up.pop()

    def hold(self, size: int, give_up: Callable[[OverloadedError], None]) -> Held:
        """Count a whole body of ``size`` bytes that waits.

        Raises:
            OverloadedError: other bodies need the room.
        """
        held = Held(give_up)
        self._held[held] = None
        try:
            self.add(held, size)
        except OverloadedError:
            self.release(held)
            raise
        return held

    def add(self, held: Held, size: int) -> None:
        """Count ``size`` more bytes of a body.

        Raises:
            OverloadedError: there is no room, and this body is the largest.
        """
        held.size += size
        self._bytes += size
        while self._bytes > self._most:
            largest = max(self._held, key=lambda other: other.size)
            error = self._shedding.error("bytes")
            if largest is held:
                raise error
            self.release(largest)
            largest.give_up(error)

    def release(self, held: Held) -> None:
        """Forget the bytes of a body."""
        if held in self._held:
            del self._held[held]
            self._bytes -= held.size
