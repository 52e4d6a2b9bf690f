"""Report how current the watched kinds are: in the log, in metrics, and as stale facts of the snapshot."""

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

#: Age from which facts of a failing or forbidden watch are out of date. Seconds.
_BROKEN: Final = 60.0
#: Age for any watch: a healthy one proves itself after four minutes at most (`KindState.age`). Seconds.
_SILENT: Final = 360.0
_FAILING: Final = frozenset({"failing", "forbidden"})


def out_of_date(states: Iterable[KindState], now: float) -> dict[str, int]:
    """Return the ages in whole minutes of resources that are out of date at ``now``, on the reflectors' clock."""
    ages = ((state, state.age(now)) for state in states)
    return {
        state.resource: int(age // 60)
        for state, age in ages
        if age is not None and age >= (_BROKEN if state.phase in _FAILING else _SILENT)
    }


def unreadable(states: Iterable[KindState]) -> frozenset[str]:
    """Return the served resources that have never been read, because of errors or missing rights."""
    return frozenset(state.resource for state in states if not state.synced and state.phase in _FAILING)


async def monitor_watches(watchers: Sequence[Reflector], store: SnapshotStore, log: Log) -> None:
    """Log state changes of the watchers, and mark stale facts in the store, until cancelled."""
    seen: dict[str, tuple[str, str | None]] = {}
    while True:
        for watcher in watchers:
            state = watcher.state
            now = (state.phase, state.error)
            if seen.get(state.resource) != now:
                seen[state.resource] = now
                write = log.warning if state.phase in _FAILING else log.info
                fields = {"kind": state.kind, "resource": state.resource, "phase": state.phase}
                write("watch", **fields, objects=state.objects, error=state.error)
        states = [watcher.state for watcher in watchers]
        store.mark_stale(out_of_date(states, time.monotonic()), unreadable(states))
        await asyncio.sleep(1.0)


_FACT_GAUGES: Final = (
    ("gpugate_facts_synced", "1 if a resource was read in full or is known to be absent, even if it fails since."),
    ("gpugate_facts_age_seconds", "Time since the last event, bookmark or finished list; none before the first list."),
    ("gpugate_facts_objects", "Objects in the snapshot."),
)
_FACT_COUNTERS: Final = (
    ("gpugate_facts_relists", "Full lists after the first one."),
    ("gpugate_facts_reconnects", "Watches resumed without a list."),
)
_POLICY_GAUGES: Final = (
    ("gpugate_policy_generation", "Generation of a GPUPolicy in force; 0 if none is."),
    ("gpugate_policy_invalid", "1 if the newest generation of a GPUPolicy is invalid."),
)


def fact_families(watched: Iterable[KindState]) -> Iterator[Metric]:
    """Yield the metrics of the watchers."""
    now = time.monotonic()
    synced, age, objects = (GaugeMetricFamily(name, text, labels=["resource"]) for name, text in _FACT_GAUGES)
    relists, reconnects = (CounterMetricFamily(name, text, labels=["resource"]) for name, text in _FACT_COUNTERS)
    for state in watched:
        labels, seconds = [state.resource], state.age(now)
        synced.add_metric(labels, float(state.synced))
        objects.add_metric(labels, state.objects)
        relists.add_metric(labels, state.relists)
        reconnects.add_metric(labels, state.reconnects)
        if seconds is not None:
            age.add_metric(labels, seconds)
    yield from (synced, age, objects, relists, reconnects)


def policy_families(policies: Iterable[SeenPolicy]) -> Iterator[Metric]:
    """Yield the generation in force of each GPUPolicy, and whether its newest generation is invalid."""
    in_force, invalid = (GaugeMetricFamily(name, text, labels=["policy"]) for name, text in _POLICY_GAUGES)
    for policy in policies:
        in_force.add_metric([policy.name], policy.in_force or 0)
        invalid.add_metric([policy.name], float(bool(policy.error)))
    yield from (in_force, invalid)
