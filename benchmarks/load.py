"""Starting a server, sending it reviews over TLS, and reading what CPU it took."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson


class Server(NamedTuple):
    """A server under load."""

    pid: int
    port: int


class Result(NamedTuple):
    """What one run cost.

    Attributes:
        reviews: reviews answered.
        cpu_ms: milliseconds of CPU, user and system, per review in the server.
        p50: median latency in milliseconds.
        p99: 99th percentile in milliseconds.
    """

    reviews: int
    cpu_ms: float
    p50: float
    p99: float


@contextmanager
def running(command: list[str], log: Path) -> Iterator[Server]:
    """Run ``command``, a server that says in its log where it listens, until the block ends."""
    with log.open("wb") as stream, subprocess.Popen(command, stderr=stream, stdout=stream) as process:  # noqa: S603
        try:
            yield Server(process.pid, port_in(log, process))
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def port_in(log: Path, process: subprocess.Popen[bytes] | None = None, message: str = "listening") -> int:
    """The port that a server says in its log with ``message``, as soon as it says so."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        for line in log.read_bytes().splitlines():
            if line.startswith(b"{") and f'"{message}"'.encode() in line:
                return int(str(orjson.loads(line)["address"]).rpartition(":")[2])
        time.sleep(0.05)
    message = f"the server did not start:\n{log.read_text()}"
    raise RuntimeError(message)


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU, user and system, that the process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """MiB that the process holds (``VmRSS``) or held at most (``VmHWM``)."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    message = f"process {pid} has no {field}"
    raise RuntimeError(message)


async def settled(pid: int, pause: float = 0.3) -> float:
    """Wait until the process does nothing any more; return the seconds of CPU that it has taken."""
    spent = cpu_seconds(pid)
    while True:
        await asyncio.sleep(pause)
        now = cpu_seconds(pid)
        # A tick of the clock is 10 ms; a loop that stands by takes less than one in most pauses.
        if now - spent <= 0.01:
            return now
        spent = now


class Probe:
    """One kept-alive connection that asks a server's own endpoints, over TLS if a CA is given."""

    def __init__(self, server: Server, ca: Path | None) -> None:
        self._port = server.port
        self._context = ssl.create_default_context(cafile=ca) if ca else None
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[bool, bytes, float]:
        """Whether ``path`` answered 200, its body, and after how many seconds."""
        if self._stream is None:
            name = "localhost" if self._context else None
            self._stream = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context, server_hostname=name)
        reader, writer = self._stream
        started = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_length(head))
        return head.startswith(b"HTTP/1.1 200"), body, time.perf_counter() - started

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream[1].close()


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])


async def _client(port: int, context: ssl.SSLContext, request: bytes, until: float, times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    while time.perf_counter() < until:
        started = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            message = f"the server answered {head[:200]!r}"
            raise RuntimeError(message)
        await reader.readexactly(_length(head))
        times.append(time.perf_counter() - started)
    writer.close()


async def load(server: Server, path: str, body: bytes, ca: Path, *, seconds: float, connections: int = 8) -> Result:
    """Send ``body`` to ``path`` over and over for ``seconds``."""
    context = ssl.create_default_context(cafile=ca)
    head = f"POST {path}?timeout=3s HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    times: list[float] = []
    before = cpu_seconds(server.pid)
    until = time.perf_counter() + seconds
    await asyncio.gather(*(_client(server.port, context, request, until, times) for _ in range(connections)))
    spent = cpu_seconds(server.pid) - before
    times.sort()
    return Result(len(times), 1000 * spent / len(times), 1000 * times[len(times) // 2], 1000 * times[int(len(times) * 0.99)])
