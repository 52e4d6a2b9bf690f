"""Log how far each watch has come, and tell the snapshot which facts are out of date."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpugate.webhook.cache.policies import SeenPolicy
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.reflector import Reflector
from gpugate.webhook.kube.types import KindState
from gpugate.webhook.runtime.log import Log

#: A watch that says itself that it fails, or is forbidden, makes facts of this age out of date. Seconds.
_BROKEN: Final = 60.0
#: So does silence: a healthy watch proves itself after four minutes at the most (`KindState.age`). Seconds.
_SILENT: Final = 360.0
_FAILING: Final = frozenset({"failing", "forbidden"})


def out_of_date(states: Iterable[KindState], now: float) -> dict[str, int]:
    """Resources whose facts are out of date at ``now``, on the reflectors' clock, with their ages in whole minutes."""
    found: dict[str, int] = {}
    for one in states:
        age = one.age(now)
        if age is not None and age >= (_BROKEN if one.phase in _FAILING else _SILENT):
            found[one.resource] = int(age // 60)
    return found


def unreadable(states: Iterable[KindState]) -> frozenset[str]:
    """Resources that could not be read since the cluster serves them: it may have been otherwise before."""
    return frozenset(one.resource for one in states if not one.synced and one.phase in _FAILING)


async def monitor_watches(watchers: Sequence[Reflector], store: SnapshotStore, log: Log) -> None:
    """Say in the log when the state of a watcher changes, and in the facts when one is out of date."""
    seen: dict[str, tuple[str, str | None]] = {}
    while True:
        for watcher in watchers:
            state = watcher.state
            now = (state.phase, state.error)
            if seen.get(state.resource) != now:
                seen[state.resource] = now
                write = log.info if state.phase in {"pending", "synced", "absent"} else log.warning
                write(
                    "watch", kind=state.kind, resource=state.resource, phase=state.phase, objects=state.objects, error=state.error
                )
        states = [watcher.state for watcher in watchers]
        store.mark_stale(out_of_date(states, time.monotonic()), unreadable(states))
        await asyncio.sleep(1.0)


_FACT_GAUGES: Final = (
    ("gpugate_facts_synced", "1 where a resource was read in full or is known to be absent, even if it fails since."),
    ("gpugate_facts_age_seconds", "Time since the last event, bookmark or finished list; none before the first list."),
    ("gpugate_facts_objects", "Objects that the facts are made from."),
)
_FACT_COUNTERS: Final = (
    ("gpugate_facts_relists", "Full lists after the first one."),
    ("gpugate_facts_reconnects", "Watches resumed without a list."),
)
_POLICY_GAUGES: Final = (
    ("gpugate_policy_generation", "The generation of a GPUPolicy that is in force; 0 where none is."),
    ("gpugate_policy_invalid", "1 where the newest generation of a GPUPolicy does not parse."),
)


def fact_families(watched: Iterable[KindState]) -> Iterator[Metric]:
    """What the watchers tell of themselves."""
    now = time.monotonic()
    synced, age, objects = (GaugeMetricFamily(name, text, labels=["resource"]) for name, text in _FACT_GAUGES)
    relists, reconnects = (CounterMetricFamily(name, text, labels=["resource"]) for name, text in _FACT_COUNTERS)
    for one in watched:
        labels, seconds = [one.resource], one.age(now)
        synced.add_metric(labels, float(one.synced))
        objects.add_metric(labels, one.objects)
        relists.add_metric(labels, one.relists)
        reconnects.add_metric(labels, one.reconnects)
        if seconds is not None:
            age.add_metric(labels, seconds)
    yield from (synced, age, objects, relists, reconnects)


def policy_families(policies: Iterable[SeenPolicy]) -> Iterator[Metric]:
    """Which generation of each GPUPolicy is in force, and whether its newest can be read."""
    in_force, invalid = (GaugeMetricFamily(name, text, labels=["policy"]) for name, text in _POLICY_GAUGES)
    for one in policies:
        in_force.add_metric([one.name], one.in_force or 0)
        invalid.add_metric([one.name], float(bool(one.error)))
    yield from (in_force, invalid)
