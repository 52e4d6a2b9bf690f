"""Measuring `gpugate serve` processes that watch recorded clusters."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from benchmarks.curve import Size
from benchmarks.load import Probe, Result, Server, cpu_seconds, load, memory_mib, settled

_ROUNDS = 3
#: Events a second while reviews are measured under them.
_RATE = 200
_PATIENCE = 300.0
_POLICIES = "gpugate.io/v1alpha1"


class Synced(NamedTuple):
    """What the start of a server came to: seconds, MiB, seconds of CPU, and the probes' answers in seconds."""

    seconds: float
    start_mib: float
    steady_mib: float
    peak_mib: float
    cpu: float
    probes: list[float]


@dataclass
class Report:
    """All that was measured of one server; times of reviews in milliseconds."""

    size: Size
    sync: float = 0.0
    sync_cpu: float = 0.0
    start_mib: float = 0.0
    steady_mib: float = 0.0
    peak_mib: float = 0.0
    after_mib: float = 0.0
    stall: float = 0.0
    slow_probes: float = 0.0
    pod_event: float = 0.0
    heartbeat: float = 0.0
    node_event: float = 0.0
    catch_up: float = 0.0
    late_idle: float = 0.0
    late_busy: float = 0.0
    mutate_cpu: float = 0.0
    validate_cpu: float = 0.0
    idle: str = ""
    busy: str = ""

    ROWS: ClassVar = (
        ("seconds until ready", "sync", "{:.1f}"),
        ("CPU seconds until ready", "sync_cpu", "{:.1f}"),
        ("RSS at start / MiB", "start_mib", "{:.0f}"),
        ("RSS synced / MiB", "steady_mib", "{:.0f}"),
        ("RSS at most / MiB", "peak_mib", "{:.0f}"),
        ("RSS after all events / MiB", "after_mib", "{:.0f}"),
        ("longest /healthz while syncing / ms", "stall", "{:.1f}"),
        ("/healthz above 20 ms while syncing / %", "slow_probes", "{:.2f}"),
        ("CPU of an event of a pod / us", "pod_event", "{:.0f}"),
        ("CPU of a node's heartbeat / us", "heartbeat", "{:.0f}"),
        ("CPU of a node that changes / us", "node_event", "{:.0f}"),
        ("seconds to catch up with all of the pods'", "catch_up", "{:.1f}"),
        ("a change shows after, idle / ms", "late_idle", "{:.1f}"),
        (f"a change shows after, {_RATE} events a s / ms", "late_busy", "{:.1f}"),
        ("CPU of a mutate review / ms", "mutate_cpu", "{:.3f}"),
        ("CPU of a validate review / ms", "validate_cpu", "{:.3f}"),
        ("mutate p50, p99, idle / ms", "idle", "{}"),
        (f"mutate p50, p99, {_RATE} events a s / ms", "busy", "{}"),
    )


class Gate(NamedTuple):
    """A gpugate with its port for metrics, and the server of the recorded cluster that it watches."""

    size: Size
    server: Server
    metrics: Server
    played: Server
    ca: Path

    async def sync(self) -> Synced:
        """Wait until it is ready, asking how it is all the while."""
        started, at_start = time.perf_counter(), memory_mib(self.server.pid)
        probe, probes = Probe(self.server, self.ca), []
        while not (await probe.get("/readyz"))[0]:
            probes.append((await probe.get("/healthz"))[2])
            if time.perf_counter() - started > _PATIENCE:
                message = f"not ready after {_PATIENCE:.0f} s: {(await probe.get('/readyz'))[1].decode()}"
                raise RuntimeError(message)
            await asyncio.sleep(0.01)
        seconds, pid = time.perf_counter() - started, self.server.pid
        probe.close()
        spent = await settled(pid)
        return Synced(seconds, at_start, memory_mib(pid), memory_mib(pid, "VmHWM"), spent, probes or [0.0])

    async def order(self, what: str, count: int, *, at: int = 0, rate: float = 0.0) -> None:
        """Let things happen in the cluster; return once all of them are on their way."""
        url = f"http://127.0.0.1:{self.played.port}/-/events?what={what}&count={count}&at={at}&rate={rate}"

        def post() -> None:
            with urllib.request.urlopen(urllib.request.Request(url, data=b""), timeout=_PATIENCE) as response:
                json.load(response)

        await asyncio.to_thread(post)

    async def event_cost(self, what: str, count: int) -> tuple[float, float]:
        """Microseconds of CPU for each of ``count`` events that come at once, and the seconds until all are taken."""
        before, started = cpu_seconds(self.server.pid), time.perf_counter()
        await self.order(what, count)
        spent = await settled(self.server.pid)
        return 1e6 * (spent - before) / count, time.perf_counter() - started

    async def lateness(self, generation: int) -> float:
        """Milliseconds until a change of the policy shows."""
        probe, wanted = Probe(self.metrics, None), f"generation {generation}\n".encode()
        await probe.get("/readyz")
        started = time.perf_counter()
        await self.order("policy", 1, at=generation)
        while wanted not in (await probe.get("/readyz?verbose"))[1]:  # noqa: ASYNC110 - it shows in another process
            await asyncio.sleep(0.001)
        probe.close()
        return 1000 * (time.perf_counter() - started)


async def measure(
    gates: Sequence[tuple[Gate, Synced]], bodies: Sequence[tuple[bytes, bytes]], events: int, seconds: float
) -> list[Report]:
    """Reviews of all gates in turns, then what events cost each of them."""
    reports = [_started(gate, synced) for gate, synced in gates]
    mutates: list[list[Result]] = [[] for _ in gates]
    validates: list[list[Result]] = [[] for _ in gates]
    for _ in range(_ROUNDS):
        for at, (gate, _) in enumerate(gates):
            mutates[at].append(await load(gate.server, "/mutate", bodies[at][0], gate.ca, seconds=seconds, connections=1))
            validates[at].append(await load(gate.server, "/validate", bodies[at][1], gate.ca, seconds=seconds / 2, connections=1))
    for at, (gate, _) in enumerate(gates):
        report = reports[at]
        best = min(mutates[at], key=lambda run: run.p99)
        report.idle = f"{best.p50:.2f}, {best.p99:.2f}"
        report.mutate_cpu = min(run.cpu_ms for run in mutates[at])
        report.validate_cpu = min(run.cpu_ms for run in validates[at])
        report.late_idle = min([await gate.lateness(2 + number) for number in range(_ROUNDS)])
        if gate.size.pods:
            await _busy(gate, report, bodies[at][0], events, seconds)
        report.after_mib = memory_mib(gate.server.pid)
    return reports


def _started(gate: Gate, synced: Synced) -> Report:
    slow = sum(1 for one in synced.probes if one > 0.02)
    return Report(
        gate.size,
        sync=synced.seconds,
        sync_cpu=synced.cpu,
        start_mib=synced.start_mib,
        steady_mib=synced.steady_mib,
        peak_mib=synced.peak_mib,
        stall=1000 * max(synced.probes),
        slow_probes=100 * slow / len(synced.probes),
    )


async def _busy(gate: Gate, report: Report, body: bytes, events: int, seconds: float) -> None:
    """What events cost, and what they do to reviews."""
    flood = asyncio.create_task(gate.order("pod", int(_RATE * (seconds + 1)), at=1, rate=_RATE))
    run = await load(gate.server, "/mutate", body, gate.ca, seconds=seconds, connections=1)
    report.busy = f"{run.p50:.2f}, {run.p99:.2f}"
    report.late_busy = await gate.lateness(100)
    await flood
    await settled(gate.server.pid)
    report.pod_event, report.catch_up = await gate.event_cost("pod", events)
    report.heartbeat, _ = await gate.event_cost("heartbeat", events // 4)
    report.node_event, _ = await gate.event_cost("memory", events // 10)
