"""`make bench`: CPU per review with every rule on, against the floor in the same run.

The body is a review of an 8-GPU pod as kube-apiserver 1.36 sent it (5.6 KB, mostly managed fields). Rounds alternate between
the two servers, so that both see the same machine; the medians count.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from benchmarks import reviews
from benchmarks.load import Result, Server, load, running
from gpugate.certs.store import ensure

EXAMPLES = Path(__file__).parent.parent / "examples"
#: The budget: a review may cost twice what the stack itself does.
_AT_MOST = 2.0


def asking(server: Server, ca: Path) -> Callable[[str, bytes], bytes]:
    """What sends one review to an endpoint of the server."""
    context = ssl.create_default_context(cafile=str(ca))

    def ask(endpoint: str, body: bytes) -> bytes:
        request = urllib.request.Request(f"https://localhost:{server.port}/{endpoint}", data=body)
        with urllib.request.urlopen(request, context=context, timeout=10) as response:
            return bytes(response.read())

    return ask


async def _rounds(
    gate: Server, floor: Server, bodies: tuple[bytes, bytes], ca: Path, seconds: float, rounds: int
) -> dict[str, list[Result]]:
    results: dict[str, list[Result]] = {}
    for _ in range(rounds):
        for path, body in zip(("/mutate", "/validate"), bodies, strict=True):
            for name, server in (("floor", floor), ("gpugate", gate)):
                results.setdefault(f"{name} {path}", []).append(await load(server, path, body, ca, seconds=seconds))
    return results


def main() -> int:
    """Measure, print a table, and fail where gpugate costs more than its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    parser.add_argument("--at-most", type=float, default=_AT_MOST, help="fail above this many times the floor")
    parser.add_argument("--rounds", type=int, default=3, help="rounds for each server and path")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        bundle = ensure(work / "tls", ["localhost", "127.0.0.1"], datetime.now(UTC))
        ca = bundle.paths.ca_certificate
        serve = [str(Path(sys.executable).with_name("gpugate")), "serve", "--listen=127.0.0.1:0", f"--tls-dir={work / 'tls'}"]
        serve += [f"--policy={EXAMPLES / 'policy.yaml'}", f"--cluster={EXAMPLES / 'cluster.yaml'}", "--drain-delay=0"]
        plain = [sys.executable, "-m", "benchmarks.floor", str(bundle.paths.certificate), str(bundle.paths.key)]
        with running(serve, work / "gpugate.log") as gate, running(plain, work / "floor.log") as floor:
            bodies = reviews.bodies(reviews.recorded(), asking(gate, ca))
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                results = runner.run(_rounds(gate, floor, bodies, ca, options.seconds, options.rounds))
    return _report(results, bodies, options.at_most)


def _report(results: dict[str, list[Result]], bodies: tuple[bytes, bytes], at_most: float) -> int:
    print(f"body: mutate {len(bodies[0])} bytes, validate {len(bodies[1])} bytes; CPU is the server's, user and system\n")
    print(f"{'':20} {'CPU ms/review':>14} {'p50 ms':>8} {'p99 ms':>8} {'reviews':>9}")
    cpu: dict[str, float] = {}
    for name, runs in sorted(results.items(), key=lambda item: item[0].split()[::-1]):
        cpu[name] = statistics.median(run.cpu_ms for run in runs)
        p50, p99 = statistics.median(run.p50 for run in runs), statistics.median(run.p99 for run in runs)
        print(f"{name:20} {cpu[name]:14.4f} {p50:8.2f} {p99:8.2f} {sum(run.reviews for run in runs):9}")
    both = {name: cpu[f"{name} /mutate"] + cpu[f"{name} /validate"] for name in ("floor", "gpugate")}
    print(f"\nmutate + validate: floor {both['floor']:.3f} ms, gpugate {both['gpugate']:.3f} ms")
    failed = False
    for path in ("/mutate", "/validate"):
        ratio = cpu[f"gpugate {path}"] / cpu[f"floor {path}"]
        failed = failed or ratio > at_most
        print(f"{path}: {ratio:.2f} x the floor (budget {at_most:g} x)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
