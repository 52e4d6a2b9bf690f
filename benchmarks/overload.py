"""`make bench-overload`: more reviews than the server can decide, from as many connections as an apiserver would open.

Every connection sends a review, waits for its answer as long as the webhook's timeout allows, and sends the next. Like the
apiserver, it closes the connection when the time is over, and sends a review again after a 429 or 503 with ``Retry-After``.
Meanwhile a probe asks /healthz on a new connection every 100 ms, as the kubelet does.
"""

import argparse
import asyncio
import contextlib
import ssl
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import uvloop

from benchmarks import reviews
from benchmarks.bench import EXAMPLES
from benchmarks.load import Server, cpu_seconds, memory_mib, running
from gpugate.certs.store import ensure

#: Bytes of the environment variables of a large body.
_LARGE = 1_000_000


class Flood:
    """What all connections together saw.

    Attributes:
        times: seconds of each review that was answered in time, with its retries.
        outcomes: number of reviews by outcome.
        probes: seconds of each probe.
    """

    def __init__(self, server: Server, ca: Path, timeout: float) -> None:
        self.server, self.timeout = server, timeout
        self.context = ssl.create_default_context(cafile=ca)
        self.times: list[float] = []
        self.outcomes: Counter[str] = Counter()
        self.probes: list[float] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.server.port, ssl=self.context, server_hostname="localhost")

    async def client(self, request: bytes, until: float) -> None:
        stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        while time.perf_counter() < until:
            started = time.perf_counter()
            try:
                async with asyncio.timeout(self.timeout):
                    while True:
                        stream = stream or await self.connect()
                        status, head = await exchange(stream, request)
                        if b"connection: close" in head:
                            stream[1].close()
                            stream = None
                        if status not in {429, 503} or b"retry-after" not in head:
                            break
                        self.outcomes["sent again"] += 1
                        await asyncio.sleep(1)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                self.outcomes["too late" if isinstance(error, TimeoutError) else "closed"] += 1
                if stream is not None:
                    stream[1].transport.abort()
                stream = None
            else:
                self.outcomes[str(status)] += 1
                if status == 200:
                    self.times.append(time.perf_counter() - started)
        if stream is not None:
            stream[1].transport.abort()

    async def probe(self, until: float) -> None:
        while time.perf_counter() < until:
            started = time.perf_counter()
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                stream = await self.connect()
                await exchange(stream, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                stream[1].transport.abort()
            self.probes.append(time.perf_counter() - started)
            await asyncio.sleep(0.1)


async def exchange(stream: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: bytes) -> tuple[int, bytes]:
    reader, writer = stream
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
    return int(head.split(b" ", 2)[1]), head


def large_review(review: bytes) -> bytes:
    """Return the review with a megabyte of environment variables in the first container."""
    made: Any = orjson.loads(review)
    container = made["request"]["object"]["spec"]["containers"][0]
    container["env"] = [{"name": f"NAME_{number}", "value": "x" * 970} for number in range(_LARGE // 1000)]
    return orjson.dumps(made)


def _request(body: bytes, timeout: float) -> bytes:
    head = f"POST /validate?timeout={timeout:g}s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def flood(server: Server, ca: Path, options: argparse.Namespace) -> Flood:
    run = Flood(server, ca, options.timeout)
    small = reviews.recorded()
    large = large_review(small)
    until = time.perf_counter() + options.seconds
    clients = []
    for number in range(options.connections):
        body = large if number < options.large * options.connections else small
        clients.append(run.client(_request(body, options.timeout), until))
    await asyncio.gather(run.probe(until), *clients)
    return run


def main() -> int:
    """Flood a server, and print what its clients saw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--timeout", type=float, default=3.0, help="the webhook's timeoutSeconds")
    parser.add_argument("--large", type=float, default=0.0, help="part of the connections that send a megabyte")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        bundle = ensure(work / "tls", ["localhost", "127.0.0.1"], datetime.now(UTC))
        serve = [str(Path(sys.executable).with_name("gpugate")), "serve", "--listen=127.0.0.1:0", f"--tls-dir={work / 'tls'}"]
        serve += [f"--policy={EXAMPLES / 'policy.yaml'}", f"--cluster={EXAMPLES / 'cluster.yaml'}", "--drain-delay=0"]
        with (
            running(serve, work / "gpugate.log") as server,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            before = cpu_seconds(server.pid)
            run = runner.run(flood(server, bundle.paths.ca_certificate, options))
            spent, peak = cpu_seconds(server.pid) - before, memory_mib(server.pid, "VmHWM")
    _report(run, spent, peak)
    return 0


def _report(run: Flood, spent: float, peak: float) -> None:
    times, probes = sorted(run.times) or [float("nan")], sorted(run.probes)
    outcomes = {name: count for name, count in run.outcomes.items() if name != "sent again"}
    total = sum(outcomes.values())
    print(f"{total} reviews, {100 * len(run.times) / max(total, 1):.1f} % answered in time: {dict(run.outcomes)}")
    print(f"latency p50 {times[len(times) // 2]:.2f} s, p99 {times[int(len(times) * 0.99)]:.2f} s")
    print(f"/healthz on a new connection: p50 {probes[len(probes) // 2]:.3f} s, longest {probes[-1]:.3f} s")
    print(f"server: {spent:.1f} s of CPU, at most {peak:.0f} MiB")


if __name__ == "__main__":
    sys.exit(main())
