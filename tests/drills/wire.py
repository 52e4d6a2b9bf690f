"""Plain HTTP over TLS, written by hand: what a library would refuse to send, and what it would hide."""

from __future__ import annotations

import asyncio
import ssl


class ClosedError(Exception):
    """The server closed the connection before a whole answer was there."""


class Connection:
    """One kept-alive connection.

    Attributes:
        port: where the server listens.
        closed: whether the server said that it closes the connection.
    """

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self.port, self.closed = port, False
        self._context = context
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        self._stream = await asyncio.open_connection("127.0.0.1", self.port, ssl=self._context, server_hostname="localhost")

    def review(self, endpoint: str, body: bytes, *, timeout: float = 10.0) -> bytes:
        """Return the request that sends ``body`` to ``endpoint``."""
        head = f"POST /{endpoint}?timeout={timeout:g}s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send ``request``, and return status and body of the answer; a connection that had been idle is opened once more.

        Raises:
            ClosedError: the connection ended before the answer did.
        """
        used = self._stream is not None
        try:
            return await self._ask(request)
        except (ClosedError, ConnectionResetError, BrokenPipeError) as error:
            # Go's client sends again if a kept-alive connection ends before the first byte of an answer.
            if not used or str(error) == "halfway":
                raise
        self.close()
        return await self._ask(request)

    async def _ask(self, request: bytes) -> tuple[int, bytes]:
        if self._stream is None:
            await self.open()
        assert self._stream is not None
        self._stream[1].write(request)
        return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        """Read one answer.

        Raises:
            ClosedError: the connection ended before the answer did; ``halfway`` if part of it was there.
        """
        assert self._stream is not None
        reader = self._stream[0]
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lower = head.lower()
            self.closed = b"\r\nconnection: close" in lower
            length = int(lower.partition(b"content-length:")[2].split(b"\r\n", 1)[0] or b"0")
            return int(head.split(b" ", 2)[1]), await reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise ClosedError("halfway" if error.partial or self.closed else "idle") from None

    async def send(self, raw: bytes) -> None:
        """Send bytes as they are."""
        if self._stream is None:
            await self.open()
        assert self._stream is not None
        self._stream[1].write(raw)
        await self._stream[1].drain()

    async def rest(self, seconds: float) -> bytes:
        """Read until the server closes, or for ``seconds``."""
        assert self._stream is not None
        read = b""
        try:
            async with asyncio.timeout(seconds):
                while more := await self._stream[0].read(65536):
                    read += more
        except (TimeoutError, OSError):
            pass
        return read

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        if self._stream is not None:
            self._stream[1].transport.abort()
            self._stream = None

    def close(self) -> None:
        if self._stream is not None:
            self._stream[1].close()
            self._stream = None
