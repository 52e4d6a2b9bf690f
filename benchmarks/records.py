"""What it costs to read and to keep one object, for every kind that facts are made from."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import NamedTuple

import orjson

from benchmarks import other_objects
from benchmarks.curve import KINDS, KNOWN, read_all
from benchmarks.objects import Nodes
from benchmarks.pods import Pods
from gpugate.policies.cluster.builder import SnapshotBuilder
from gpugate.webhook.cache.kinds import reducer_for

_SAMPLE = 1000
_REPEATS = 20


class KindCost(NamedTuple):
    """What one object of a kind costs.

    Attributes:
        wire: bytes off the wire.
        parse: microseconds of CPU to parse the JSON.
        read: microseconds of CPU to make the record.
        put: microseconds of CPU to keep it.
        kept: bytes that stay.
    """

    wire: int
    parse: float
    read: float
    put: float
    kept: int


def _raws(resource: str, nodes: int, seed: int) -> list[bytes]:
    if resource == "nodes":
        return [Nodes(nodes, seed).render(at, 1) for at in range(min(nodes, _SAMPLE))]
    if resource == "pods":
        pods = Pods(_SAMPLE, nodes, seed)
        return [pods.render(at, 1) for at in range(_SAMPLE)]
    count = other_objects.KINDS[resource][-1]
    return [other_objects.render(resource, at, 1, seed) for at in range(min(count, _SAMPLE))]


def _each(work: Callable[[], object], count: int) -> float:
    started = time.process_time()
    work()
    return 1e6 * (time.process_time() - started) / count


def cost_of(resource: str, nodes: int, seed: int) -> KindCost:
    """What one object of ``resource`` costs, over a sample of them: the best of some rounds."""
    raws = _raws(resource, nodes, seed)
    read, count = reducer_for(KINDS[resource]), len(raws)
    rounds = max(3, 200 // count)
    objects = [orjson.loads(raw) for raw in raws[:200]]
    parse = min(_each(lambda: [orjson.loads(raw) for raw in raws[:200]], len(objects)) for _ in range(rounds))
    strip = min(_each(lambda: [read(one) for one in objects], len(objects)) for _ in range(rounds))
    reads = [read(one) for one in objects]

    def fill() -> None:
        builder = SnapshotBuilder()
        for one in reads:
            builder.put(resource, one.key, one.record)

    put = min(_each(fill, len(reads)) for _ in range(rounds))
    return KindCost(sum(map(len, raws)) // count, parse, strip, put, _kept(resource, raws))


def _kept(resource: str, raws: list[bytes]) -> int:
    """Bytes that an object takes once it is kept: what all other kinds share of it is known before."""
    read = reducer_for(KINDS[resource])
    for raw in raws[:10]:
        read(orjson.loads(raw))
    builder = SnapshotBuilder()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for raw in raws:
        one = read(orjson.loads(raw))
        builder.put(resource, one.key, one.record)
        del one
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) // len(raws)


def kind_costs(nodes: int, seed: int) -> dict[str, KindCost]:
    """What one object costs, by kind."""
    return {resource: cost_of(resource, max(nodes, 1), seed) for resource in KINDS}


class Turns(NamedTuple):
    """Milliseconds of CPU that a new snapshot takes after one thing changed: median and longest."""

    what: str
    median: float
    longest: float


def snapshot_costs(nodes: int, pods: int, seed: int) -> list[Turns]:
    """What a snapshot of a cluster of ``nodes`` and ``pods`` costs after changes."""
    all_nodes, all_pods = Nodes(nodes, seed), Pods(pods, nodes, seed)
    builder = SnapshotBuilder()
    for resource, raws in (("nodes", all_nodes.all(1)), ("pods", all_pods.all(1))):
        for one in read_all(resource, raws):
            builder.put(resource, one.key, one.record)
    builder.snapshot(KNOWN)

    def put(resource: str, raws: Iterator[bytes]) -> None:
        for one in read_all(resource, raws):
            builder.put(resource, one.key, one.record)

    def pod(first: int, count: int) -> Iterator[bytes]:
        return (all_pods.render((first + at) % pods, 2, phase=("Pending", "Running")[first % 2]) for at in range(count))

    changes: dict[str, Callable[[int], None]] = {
        "nothing": lambda _: None,
        "a heartbeat": lambda at: put("nodes", iter([all_nodes.render(at, 2, time=f"2026-11-03T06:00:{at:02}Z")])),
        "a pod": lambda at: put("pods", pod(at, 1)),
        "1,000 pods": lambda at: put("pods", pod(1000 * at, 1000)),
        "a node": lambda at: put("nodes", iter([all_nodes.render(at, 2, memory_less_kib=1 << 20)])),
    }
    return [_turns(what, change, builder) for what, change in changes.items()]


def _turns(what: str, change: Callable[[int], None], builder: SnapshotBuilder) -> Turns:
    times = []
    for at in range(_REPEATS):
        change(at)
        started = time.process_time()
        builder.snapshot(KNOWN)
        times.append(1000 * (time.process_time() - started))
    return Turns(what, sorted(times)[_REPEATS // 2], max(times))
