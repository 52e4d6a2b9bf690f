"""Connections that no apiserver opens: requests in two readings, idle connections, resets."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop

from tests.drills.honest import honest
from tests.drills.replica import EXAMPLES, Replica, replica, until
from tests.drills.wire import ClosedError, Connection
from tests.shared.reviews import admission, pod, well_formed

Adds = Callable[[str, str, str, str], None]
_IDLE = 2_000
_RESETS = 1_000

_BODY = orjson.dumps(admission(pod(), uid="outer"))
#: A second request, which only a server that misreads the first one answers.
_INNER = orjson.dumps(admission(pod(), uid="smuggled"))
_SMUGGLED = (
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_INNER) + _INNER
)


def _post(*headers: bytes, body: bytes = b"", end: bytes = b"\r\n") -> bytes:
    return end.join((b"POST /mutate HTTP/1.1", b"Host: x", b"Content-Type: application/json", *headers, b"", b"")) + body


_LENGTH = b"Content-Length: %d" % len(_BODY)
_CHUNKED = b"Transfer-Encoding: chunked"
_CHUNK = b"%x\r\n" % len(_BODY) + _BODY + b"\r\n"
_END = b"0\r\n\r\n"

#: Requests that two servers could read in two ways. What comes after the body would be a second request to one of them.
AMBIGUOUS: dict[str, bytes] = {
    "a length and chunks": _post(_LENGTH, _CHUNKED, body=_END + _SMUGGLED),
    "chunks and a length": _post(_CHUNKED, _LENGTH, body=_CHUNK + _END + _SMUGGLED),
    "two lengths": _post(_LENGTH, b"Content-Length: 0", body=_BODY + _SMUGGLED),
    "two lengths in one header": _post(b"Content-Length: %d, 0" % len(_BODY), body=_BODY + _SMUGGLED),
    "a length of +": _post(b"Content-Length: +%d" % len(_BODY), body=_BODY + _SMUGGLED),
    "a length below zero": _post(b"Content-Length: -1", body=_SMUGGLED),
    "a length in hexadecimal": _post(b"Content-Length: 0x%x" % len(_BODY), body=_BODY + _SMUGGLED),
    "a length with an underscore": _post(b"Content-Length: 1_0", body=_BODY + _SMUGGLED),
    "a length of 400 digits": _post(b"Content-Length: " + b"9" * 400, body=_SMUGGLED),
    "a length in other digits": _post("Content-Length: \u0661".encode(), body=_SMUGGLED),
    "a length with a space before the colon": _post(b"Content-Length : %d" % len(_BODY), body=_BODY + _SMUGGLED),
    "an encoding that is not known": _post(b"Transfer-Encoding: xchunked", body=_CHUNK + _END + _SMUGGLED),
    "chunked that is not last": _post(b"Transfer-Encoding: chunked, identity", body=_CHUNK + _END + _SMUGGLED),
    "chunked twice": _post(b"Transfer-Encoding: chunked, chunked", body=_CHUNK + _END + _SMUGGLED),
    "an encoding with a vertical tab": _post(b"Transfer-Encoding: \x0bchunked", body=_CHUNK + _END + _SMUGGLED),
    "an encoding with a space before the colon": _post(b"Transfer-Encoding : chunked", body=_CHUNK + _END + _SMUGGLED),
    "an encoding in a folded line": _post(_LENGTH, b"Transfer-Encoding:\r\n chunked", body=_END + _SMUGGLED),
    "a folded line": _post(_LENGTH, b"X: a\r\n b", body=_BODY + _SMUGGLED),
    "bare line feeds": _post(_LENGTH, body=_BODY + _SMUGGLED, end=b"\n"),
    "a header that ends with a line feed": _post(b"X: a\nTransfer-Encoding: chunked", _LENGTH, body=_END + _SMUGGLED),
    "a carriage return within a header": _post(b"X: a\rTransfer-Encoding: chunked", _LENGTH, body=_END + _SMUGGLED),
    "a null byte within a header": _post(b"X: a\x00b", _LENGTH, body=_BODY + _SMUGGLED),
    "no name of a header": _post(b": a", _LENGTH, body=_BODY + _SMUGGLED),
    "a chunk size of +": _post(_CHUNKED, body=b"+" + _CHUNK + _END + _SMUGGLED),
    "a chunk size of 0x": _post(_CHUNKED, body=b"0x" + _CHUNK + _END + _SMUGGLED),
    "a chunk size below zero": _post(_CHUNKED, body=b"-1\r\n" + _SMUGGLED),
    "a chunk size with a space": _post(_CHUNKED, body=b"%x \r\n" % len(_BODY) + _BODY + b"\r\n" + _END + _SMUGGLED),
    "a chunk size of 100 digits": _post(_CHUNKED, body=b"f" * 100 + b"\r\n" + _SMUGGLED),
    "a chunk size with a line feed": _post(_CHUNKED, body=b"%x\n" % len(_BODY) + _BODY + b"\r\n" + _END + _SMUGGLED),
    "a line feed in an extension": _post(_CHUNKED, body=b"%x;a\nb\r\n" % len(_BODY) + _BODY + b"\r\n" + _END + _SMUGGLED),
    "a chunk longer than its size": _post(_CHUNKED, body=b"5\r\n" + _BODY + b"\r\n" + _END + _SMUGGLED),
    "a trailer that states a length": _post(_CHUNKED, body=_CHUNK + b"0\r\nContent-Length: 5\r\n\r\n" + _SMUGGLED),
    "a second request line": _post(_LENGTH, b"GET /healthz HTTP/1.1", body=_BODY + _SMUGGLED),
    "HTTP/1.0 with chunks": _post(_CHUNKED, body=_CHUNK + _END + _SMUGGLED).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "HTTP/0.9": b"GET /healthz\r\n" + _SMUGGLED,
    "HTTP/2 without TLS negotiation": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SMUGGLED,
}
#: Requests that can be read in one way alone, and end before the next one begins.
PIPELINED: dict[str, bytes] = {
    "two in one write": _post(_LENGTH, body=_BODY) + _SMUGGLED,
    "chunks, then another": _post(_CHUNKED, body=_CHUNK + _END) + _SMUGGLED,
    "an absolute address, then another": _post(_LENGTH, body=_BODY + _SMUGGLED).replace(
        b"/mutate", b"https://other.example/mutate", 1
    ),
    "ten in one write": _post(_LENGTH, body=_BODY) * 9 + _SMUGGLED,
}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Replica]:
    with replica(tmp_path / "replica", *EXAMPLES) as made:
        yield made


def _run(drill: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drill)


def _answers(raw: bytes) -> list[tuple[int, bytes]]:
    """Return status and body of every answer in ``raw``."""
    found = []
    while raw:
        head, _, rest = raw.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or b"0")
        found.append((int(head.split(b" ", 2)[1]), rest[:length]))
        raw = rest[length:]
    return found


async def _said(server: Replica, raw: bytes, seconds: float) -> list[tuple[int, bytes]]:
    connection = Connection(server.port, server.context())
    await connection.send(raw)
    read = await connection.rest(seconds)
    connection.close()
    return _answers(read)


def test_requests_that_can_be_read_in_two_ways_are_refused_and_pipelines_are_answered_in_order(running: Replica, row: Adds) -> None:
    with honest(running) as stream:
        for name, raw in AMBIGUOUS.items():
            said = _run(_said(running, raw, 0.5))
            # One answer, or none: the rest of the bytes is never taken for a second request.
            assert [status for status, _ in said] in ([], [400]), (name, said)
        for name, raw in PIPELINED.items():
            said = _run(_said(running, raw, 0.5))
            assert {status for status, _ in said} == {200}, (name, said)
            assert well_formed(said[-1][1])["uid"] == "smuggled", name
            assert all(well_formed(body)["uid"] == "outer" for _, body in said[:-1]), name
    assert stream.result.bad == []
    assert not running.tracebacks()
    row(
        f"{len(AMBIGUOUS)} requests that can be read in two ways (two lengths, length and chunks, folded lines, ...), pipelining",
        "refused, and what follows is never read as a request; the next connection is answered right",
        "held",
        f"{len(AMBIGUOUS)} refused, {len(PIPELINED)} pipelines answered in order; honest: {stream.result}",
    )


async def _idle(server: Replica, number: int) -> list[Connection]:
    """Open connections that send nothing after the TLS handshake; a third of them part of a head, a third part of a body."""
    context, limit = server.context(), asyncio.Semaphore(50)
    beginnings = (b"", b"POST /mutate HTTP/1.1\r\nHost: x\r\nX-Slow:", _post(_LENGTH, body=_BODY[:100]))

    async def one(at: int) -> Connection:
        connection = Connection(server.port, context)
        async with limit:
            # A server that has enough connections may refuse this one.
            with suppress(OSError, ClosedError):
                await connection.open()
                if beginnings[at % 3]:
                    await connection.send(beginnings[at % 3])
        return connection

    return list(await asyncio.gather(*(one(at) for at in range(number))))


def test_2000_idle_connections_take_no_answer_from_anybody(running: Replica, row: Adds) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for pid in (0, running.pid):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(8192, limits[1]), limits[1]))
    try:
        memory, descriptors = running.memory(), running.descriptors()
        with honest(running) as stream, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            idle = runner.run(_idle(running, _IDLE))
            held, after = running.descriptors() - descriptors, running.memory()
            runner.run(asyncio.sleep(5))
            for connection in idle:
                connection.reset()
            runner.run(asyncio.sleep(0))
            until(lambda: running.descriptors() <= descriptors + 20, "the descriptors of the idle connections are free again")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert stream.result.bad == []
    assert not running.tracebacks()
    row(
        f"{_IDLE:,} connections that send nothing, part of a head, or part of a body",
        "honest reviews are answered right; memory and descriptors come back",
        "held; 63 MiB more",
        f"{held:,} held, {after - memory:.0f} MiB more; honest: {stream.result}",
    )


async def _resets(server: Replica, number: int) -> None:
    context, limit = server.context(), asyncio.Semaphore(20)

    async def one(at: int) -> None:
        connection = Connection(server.port, context)
        async with limit:
            try:
                whole = _post(_LENGTH, body=_BODY)
                # Within the head, within the body, after the request and within the answer.
                await connection.send(whole[: (60, len(whole) - 200, len(whole), len(whole))[at % 4]])
                if at % 4 == 3:
                    await connection.answer()
                    await connection.send(whole)
            except (ClosedError, OSError):
                pass
            connection.reset()

    await asyncio.gather(*(one(at) for at in range(number)))


def test_connections_that_are_reset_in_the_middle_harm_nobody(running: Replica, row: Adds) -> None:
    descriptors = running.descriptors()
    with honest(running) as stream:
        _run(_resets(running, _RESETS))
        until(lambda: running.descriptors() <= descriptors + 20, "the descriptors of the connections are free again")
    assert stream.result.bad == []
    assert not running.tracebacks()
    row(
        f"{_RESETS:,} connections reset within the head, the body or the answer",
        "no traceback, no descriptor left; honest reviews are answered right",
        "held",
        f"no traceback, descriptors as before; honest: {stream.result}",
    )
