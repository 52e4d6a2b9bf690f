"""Connections: how many, how long without a word, and which one makes room for another."""

from __future__ import annotations

import asyncio
import errno
import io
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import orjson
import pytest
from aiohttp import web

from gpugate.webhook.runtime import connections
from gpugate.webhook.runtime.connections import Listener
from gpugate.webhook.runtime.log import Log

pytestmark = pytest.mark.asyncio

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - the listener tells nobody
            await asyncio.sleep(0.001)


class Running:
    """A server, its log, and clients that are closed at the end."""

    def __init__(self, listener: Listener, output: io.StringIO, release: asyncio.Event) -> None:
        self.listener, self.output, self.release = listener, output, release
        self.writers: list[asyncio.StreamWriter] = []

    async def client(self, data: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port)
        self.writers.append(writer)
        writer.write(data)
        return reader

    async def handling(self, number: int) -> None:
        """Wait until so many requests have come."""
        server = self.listener._runner.server
        assert server is not None
        await until(lambda: server.requests_count >= number)

    async def served(self) -> asyncio.StreamReader:
        """A client that was answered, and is idle now."""
        reader = await self.client(GET)
        await answer(reader)
        return reader


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Running]:
    release, output = asyncio.Event(), io.StringIO()

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        if request.path == "/slow":
            await release.wait()
        return web.Response(body=b"x" * int(request.query.get("bytes", "2")))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = Listener(runner, ("127.0.0.1", 0), Log(output), **options)
    await listener.start()
    made = Running(listener, output, release)
    try:
        yield made
    finally:
        release.set()
        for writer in made.writers:
            writer.transport.abort()
        await runner.cleanup()


async def answer(reader: asyncio.StreamReader) -> bytes:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    await reader.readexactly(2)
    return head


async def closed(reader: asyncio.StreamReader) -> bool:
    """Wait until the server closes the connection."""
    with suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 30)
    return True


async def test_connections_are_answered_and_forgotten() -> None:
    async with running() as made:
        reader = await made.served()
        assert made.listener.number == 1
        made.writers[0].close()
        await closed(reader)
        await until(lambda: not made.listener.number)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:"])
async def test_a_connection_without_a_whole_head_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "_HEAD", 0.05)
    monkeypatch.setattr(connections, "_FRESH", 0.01)
    monkeypatch.setattr(connections, "_INTERVAL", 0.02)
    async with running() as made:
        assert await closed(await made.client(sent))
        assert made.listener.closed == {"head": 1}


async def test_a_client_that_does_not_read_its_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_UNREAD", 0.05)
    monkeypatch.setattr(connections, "_INTERVAL", 0.02)
    async with running() as made:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(client, ("127.0.0.1", made.listener.port))
            await loop.sock_sendall(client, b"GET /?bytes=50000000 HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: made.listener.closed)
        assert made.listener.closed == {"unread": 1}


async def test_of_too_many_the_one_that_never_asked_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_FRESH", -1.0)
    async with running(most=2) as made:
        idle = await made.served()
        silent = await made.client()
        await until(lambda: made.listener.number == 2)
        await made.served()
        assert await closed(silent)
        assert made.listener.closed == {"evicted": 1}
        made.writers[0].write(GET)
        assert (await answer(idle)).startswith(b"HTTP/1.1 200")


async def test_of_too_many_the_longest_idle_makes_room() -> None:
    async with running(most=2) as made:
        oldest, _ = await made.served(), await made.served()
        await made.served()
        assert await closed(oldest)
        assert (made.listener.closed, made.listener.number) == ({"evicted": 1}, 2)


async def test_an_unfinished_body_makes_room_before_a_review_that_waits() -> None:
    async with running(most=2) as made:
        waits = await made.client(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        unfinished = await made.client(POST)
        await made.handling(2)
        await made.served()
        assert await closed(unfinished)
        made.release.set()
        assert (await answer(waits)).startswith(b"HTTP/1.1 200")


async def test_no_review_that_waits_is_closed_for_another() -> None:
    async with running(most=1) as made:
        waits = await made.client(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await made.handling(1)
        assert await closed(await made.client(GET))
        assert made.listener.closed == {"refused": 1}
        made.release.set()
        assert (await answer(waits)).startswith(b"HTTP/1.1 200")


async def test_a_failed_accept_is_logged_once_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PAUSE", 0.01)
    async with running() as made:

        class Exhausted:
            """A socket that has no descriptor for a new connection, three times."""

            left = 3

            def __init__(self, real: socket.socket) -> None:
                self.real = real

            def fileno(self) -> int:
                return self.real.fileno()

            def getsockname(self) -> Any:
                return self.real.getsockname()

            def close(self) -> None:
                self.real.close()

            def accept(self) -> Any:
                if self.left:
                    self.left -= 1
                    raise OSError(errno.EMFILE, "Too many open files")
                return self.real.accept()

        idle = await made.served()
        [real] = made.listener._sockets
        asyncio.get_running_loop().remove_reader(real)
        made.listener._sockets[:] = [Exhausted(real)]  # type: ignore[list-item]
        made.listener._resume()
        await made.served()
        assert await closed(idle)
        assert made.listener.closed == {"exhausted": 3, "evicted": 1}
        made.listener._log.flush()
        [line] = [orjson.loads(line) for line in made.output.getvalue().splitlines()]
        assert (line["message"], line["error"]) == ("cannot accept connections", "Too many open files")


async def test_after_the_stop_nobody_connects() -> None:
    async with running() as made:
        port = made.listener.port
        await made.listener.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
