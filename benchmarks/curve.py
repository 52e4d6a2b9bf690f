"""What one review costs in process, against clusters of growing size."""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import orjson

from benchmarks import other_objects, reviews
from benchmarks.objects import Nodes
from benchmarks.pods import Pods
from gpugate.policies.cluster.builder import SnapshotBuilder
from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.policy.models import Policy
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.kinds import FACT_KINDS, Observed, reducer_for
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log

KINDS = {kind.resource: kind for kind in FACT_KINDS}
KNOWN: Mapping[str, SyncState] = dict.fromkeys(KINDS, SyncState.SYNCED)
_REVIEWS = 100
_ROUNDS = 15


def recorded_review() -> bytes:
    """The recorded review as a team of the recorded cluster sends it."""
    return reviews.recorded(namespace="team-1", queue="research")


class Size(NamedTuple):
    """A cluster's size."""

    nodes: int
    pods: int


class Cost(NamedTuple):
    """Microseconds of CPU that one review takes: one after another, and the first after a node changed."""

    mutate: float
    validate: float
    first: float


#: Stands for no facts at all: nobody watches a cluster.
WITHOUT = Size(-1, -1)


def read_all(resource: str, raws: Iterator[bytes]) -> list[Observed]:
    """The records of objects as they come off the wire."""
    read = reducer_for(KINDS[resource])
    return [read(orjson.loads(raw)) for raw in raws]


def _clusters(nodes: Sequence[int], pods: Sequence[int], seed: int) -> Iterator[tuple[Size, ClusterSnapshot]]:
    """Facts of every size: as many builders as sizes in nodes, each growing by pods."""
    node_reads = read_all("nodes", Nodes(nodes[-1], seed).all(1))
    pod_reads = read_all("pods", Pods(pods[-1], nodes[-1], seed).all(1))
    others = {
        resource: read_all(resource, (other_objects.render(resource, at, 1, seed) for at in range(count)))
        for resource, (*_, count) in other_objects.KINDS.items()
    }
    for node_count in nodes:
        builder = SnapshotBuilder()
        for resource, reads in others.items():
            # Objects that describe one node each, or come with workloads, are as many as the cluster is large.
            most = node_count if len(reads) > other_objects.NAMESPACES else len(reads)
            builder.replace(resource, {one.key: one.record for one in reads[:most]})
        builder.replace("nodes", {one.key: one.record for one in node_reads[:node_count]})
        done = 0
        for pod_count in pods:
            for one in pod_reads[done:pod_count]:
                builder.put("pods", one.key, one.record)
            done = pod_count
            yield Size(node_count, pod_count), builder.snapshot(KNOWN)


class Bench:
    """A door that answers one review over and over."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self._state = CurrentState(policies=policies)
        self._log = io.StringIO()
        self._door = AdmissionHandler(self._state, Metrics(), Log(self._log))

    def bodies(self, snapshot: ClusterSnapshot) -> dict[str, bytes]:
        """The review for /mutate, and that for /validate: the same object as mutated."""
        self._state.publish(snapshot)
        mutate, validate = reviews.bodies(recorded_review(), self._door.answer)
        return {"mutate": mutate, "validate": validate}

    def time(self, snapshot: ClusterSnapshot, endpoint: str, body: bytes, times: int) -> float:
        """Microseconds of CPU for one answer, ``times`` in a row."""
        self._state.publish(snapshot)
        answer = self._door.answer
        started = time.process_time()
        for _ in range(times):
            answer(endpoint, body)
        spent = time.process_time() - started
        self._log.seek(0)
        self._log.truncate()
        return 1e6 * spent / times


def measure(nodes: Sequence[int], pods: Sequence[int], seed: int, policies: Sequence[Policy]) -> dict[Size, Cost]:
    """The cost of a review at every size, all sizes in turns, so that they see the same machine; the best round counts."""
    clusters = {WITHOUT: EMPTY_SNAPSHOT, **dict(_clusters(nodes, pods, seed))}
    bench = Bench(policies)
    bodies = {size: bench.bodies(snapshot) for size, snapshot in clusters.items()}
    best: dict[Size, list[float]] = {size: [float("inf")] * 3 for size in clusters}
    gc.collect()
    gc.freeze()
    for _ in range(_ROUNDS):
        for size, snapshot in clusters.items():
            mutate, validate = bodies[size]["mutate"], bodies[size]["validate"]
            # A changed node empties what was remembered of the shapes.
            fresh = [replace(snapshot, memo={}) for _ in range(10)]
            first = sum(bench.time(one, "mutate", mutate, 1) for one in fresh) / len(fresh)
            found = (bench.time(snapshot, "mutate", mutate, _REVIEWS), bench.time(snapshot, "validate", validate, _REVIEWS), first)
            best[size] = [min(pair) for pair in zip(best[size], found, strict=True)]
    gc.unfreeze()
    return {size: Cost(*found) for size, found in best.items()}
