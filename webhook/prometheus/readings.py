"""Read all devices once, and join the answers by device.

Health compares counters now and a day ago; a counter that is smaller now was reset by a reboot or a driver and counts from 0.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar

from gpugate.policies.cluster.gpu_usage import DeviceUse, Health, Span, Times
from gpugate.policies.kube.quantity import MIB
from gpugate.webhook.prometheus import queries
from gpugate.webhook.prometheus.client import QueryError, TimeSeries
from gpugate.webhook.prometheus.queries import (
    NO_HOLDER,
    DeviceHolder,
    DeviceKey,
    Labels,
    Queries,
    card_of,
    exporters_among,
    holder_of,
    node_of,
)

#: Largest number of time windows: policies with a window for each namespace must not multiply the queries.
MOST_TIMES: Final = 8
Key: TypeAlias = tuple[DeviceKey, DeviceHolder]
_Group = TypeVar("_Group", bound=Hashable)


class QueryApi(Protocol):
    """The query interface that a reading needs."""

    async def query(self, query: str, at: float) -> list[TimeSeries]:
        """Return the series of ``query`` at a time."""


@dataclass(frozen=True, slots=True)
class Readings:
    """All devices at one time.

    Attributes:
        at: that time, in seconds since 1970.
        windows: time windows of the figures, in seconds, sorted.
        devices: the devices, sorted; free ones have no pod.
        remarks: what Prometheus did not answer, sorted.
    """

    at: float
    windows: tuple[int, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    remarks: tuple[str, ...] = ()


async def read(prometheus: QueryApi, times: Times, at: float, matchers: Iterable[str] = ()) -> Readings:
    """Query everything for the time windows.

    A failed query becomes a remark. Without the first query, which lists the devices, there is no reading.

    Raises:
        PrometheusError: Prometheus is not usable.
    """
    windows, ages = times.windows[:MOST_TIMES], times.ages[: 2 * MOST_TIMES]
    shortest = windows[0] if windows else None
    session = _ReadingSession(prometheus, Queries(matchers), at)
    now = await prometheus.query(session.queries.gauges(), at)
    metrics = {row.labels.get("__name__", "") for row in now}
    if not now:
        return Readings(at, remarks=("Prometheus has no series of dcgm-exporter (DCGM_FI_...): no GPU figures are known",))
    if metrics.isdisjoint(queries.UTILISATIONS):
        names = " nor ".join(queries.UTILISATIONS)
        session.remarks.add(f"Prometheus has neither {names}: idle GPUs are not known")
    if len(times.windows) > MOST_TIMES:
        session.remarks.add(f"policies name {len(times.windows)} times for idle GPUs: only the {MOST_TIMES} shortest are read")
    figures = [
        (metric, seconds, function)
        for metric in queries.UTILISATIONS
        if metric in metrics
        for seconds in windows
        for function in ("max", "sum", "count")
    ]
    *over, memory, temperature, power, power_samples, health, before = await asyncio.gather(
        *(session.over(function, metric, seconds) for metric, seconds, function in figures),
        session.over("max", queries.USED, windows[-1] if windows else None),
        session.over("max", queries.TEMPERATURE, shortest),
        session.over("sum", queries.POWER, shortest),
        session.over("count", queries.POWER, shortest),
        session.one(session.queries.health()),
        session.one(session.queries.counters_before(COUNTED_OVER)),
    )
    held = await asyncio.gather(*(session.one(session.queries.held_before(seconds)) for seconds in ages))
    series = _SeriesByDevice(exporters_among(row.labels for row in now))
    devices = series.devices(
        now,
        spans=_Spans(series, windows, dict(zip(figures, over, strict=True))),
        held=dict(zip(ages, (series.keys(rows) for rows in held), strict=True)),
        memory=series.merge(memory, max),
        temperature=series.merge(temperature, max),
        power=series.averages(power, power_samples),
        health=healths_of(health, before),
    )
    return Readings(at, windows, devices, tuple(sorted(session.remarks)))


class _ReadingSession:
    def __init__(self, prometheus: QueryApi, every: Queries, at: float) -> None:
        self.queries = every
        self.remarks: set[str] = set()
        self._prometheus = prometheus
        self._at = at

    async def one(self, query: str) -> list[TimeSeries]:
        try:
            return await self._prometheus.query(query, self._at)
        except QueryError as error:
            self.remarks.add(f"{error} (some GPU figures are missing)")
            return []

    async def over(self, function: str, metric: str, seconds: int | None) -> list[TimeSeries]:
        return [] if seconds is None else await self.one(self.queries.over(function, metric, seconds))


class _SeriesByDevice:
    """Groups series by device and holder; merges several series of one device after an exporter restart."""

    def __init__(self, exporters: frozenset[tuple[str, str]]) -> None:
        self._exporters = exporters

    def key(self, labels: Labels) -> Key:
        return card_of(labels), holder_of(labels, self._exporters)

    def keys(self, rows: Iterable[TimeSeries]) -> frozenset[Key]:
        return frozenset(self.key(row.labels) for row in rows)

    def merge(self, rows: Iterable[TimeSeries], combine: Callable[[float, float], float]) -> dict[Key, float]:
        result: dict[Key, float] = {}
        for row in rows:
            key = self.key(row.labels)
            result[key] = combine(result[key], row.value) if key in result else row.value
        return result

    def averages(self, sums: Iterable[TimeSeries], counts: Iterable[TimeSeries]) -> dict[Key, float]:
        numbers = self.merge(counts, operator.add)
        return {key: total / numbers[key] for key, total in self.merge(sums, operator.add).items() if numbers.get(key)}

    def devices(
        self,
        now: Sequence[TimeSeries],
        *,
        spans: _Spans,
        held: dict[int, frozenset[Key]],
        memory: dict[Key, float],
        temperature: dict[Key, float],
        power: dict[Key, float],
        health: dict[DeviceKey, Health],
    ) -> tuple[DeviceUse, ...]:
        """Return the current devices."""
        labels_of = {self.key(row.labels): row.labels for row in reversed(now)}
        metrics = _highest_by_metric(now, self.key)
        result = []
        for key in _existing(metrics):
            card, holder = key
            labels, values = labels_of[key], metrics[key]
            parts = [values.get(name) for name in (queries.USED, queries.FREE)]
            total = None if None in parts else sum(part or 0.0 for part in parts) + values.get(queries.RESERVED, 0.0)
            result.append(
                DeviceUse(
                    holder.namespace,
                    holder.pod,
                    holder.container,
                    node_of(labels),
                    labels.get("gpu", ""),
                    labels.get("UUID", ""),
                    labels.get("modelName", ""),
                    card.slice,
                    labels.get("GPU_I_PROFILE", ""),
                    holder.share,
                    max((seconds for seconds, keys in held.items() if key in keys), default=0),
                    _utilisation(values.get(queries.UTIL), values.get(queries.ACTIVE)),
                    spans.of(key),
                    _bytes(total),
                    _bytes(values.get(queries.USED)),
                    _bytes(memory.get(key)),
                    power.get(key),
                    temperature.get(key),
                    health.get(card) or health.get(DeviceKey(card.card, "")) or Health(),
                )
            )
        return tuple(sorted(result, key=_order))


def _highest_by_metric(rows: Iterable[TimeSeries], key: Callable[[Labels], _Group]) -> dict[_Group, dict[str, float]]:
    result: dict[_Group, dict[str, float]] = {}
    for row in rows:
        values = result.setdefault(key(row.labels), {})
        name = row.labels.get("__name__", "")
        values[name] = max(row.value, values.get(name, row.value))
    return result


def _existing(keys: Collection[Key]) -> list[Key]:
    """Return the devices without cards that are partitioned into MIG slices, and without free entries of held devices."""
    partitioned = {card.card for card, _ in keys if card.slice}
    held = {card for card, holder in keys if holder != NO_HOLDER}
    return [
        (card, holder)
        for card, holder in keys
        if holder != NO_HOLDER or not (card in held or (not card.slice and card.card in partitioned))
    ]


def _order(device: DeviceUse) -> tuple[object, ...]:
    number = int(device.number) if device.number.isdigit() else -1
    return (device.namespace, device.pod, device.node, number, device.uuid, device.slice, device.container, device.share)


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None else int(mebibytes * MIB)


def _utilisation(percent: float | None, ratio: float | None) -> float | None:
    """Return the larger of both, in percent: a device is idle only if both say so."""
    values = [value for value in (percent, None if ratio is None else ratio * 100) if value is not None]
    return min(max(values), 100.0) if values else None


class _Spans:
    def __init__(self, series: _SeriesByDevice, windows: Sequence[int], rows: dict[tuple[str, int, str], list[TimeSeries]]) -> None:
        self._windows = windows
        pairs = dict.fromkeys((metric, seconds) for metric, seconds, _ in rows)
        self._peaks = {pair: series.merge(rows[*pair, "max"], max) for pair in pairs}
        self._averages = {pair: series.averages(rows[*pair, "sum"], rows[*pair, "count"]) for pair in pairs}

    def of(self, key: Key) -> tuple[Span, ...]:
        """Return the figures of one device, without windows that have no data."""
        spans = (
            Span(seconds, self._at(self._peaks, key, seconds), self._at(self._averages, key, seconds)) for seconds in self._windows
        )
        return tuple(span for span in spans if span.peak is not None or span.average is not None)

    @staticmethod
    def _at(figures: dict[tuple[str, int], dict[Key, float]], key: Key, seconds: int) -> float | None:
        return _utilisation(*(figures.get((metric, seconds), {}).get(key) for metric in queries.UTILISATIONS))


#: Time between the compared counters: a day, in seconds.
COUNTED_OVER: Final = 86_400
#: Clock event reasons that mean heat: hardware slowdown, software and hardware thermal slowdown.
_HEAT: Final = 0x08 | 0x20 | 0x40


def healths_of(now: Iterable[TimeSeries], before: Iterable[TimeSeries]) -> dict[DeviceKey, Health]:
    """Return the health signs of every card and slice."""
    start = _highest_by_metric(before, card_of)
    return {card: _health(values, start.get(card, {})) for card, values in _highest_by_metric(now, card_of).items()}


def _health(now: dict[str, float], before: dict[str, float]) -> Health:
    def risen(name: str) -> int | None:
        value, start = now.get(name), before.get(name)
        if value is None or start is None:
            return None
        return int(value - start if value >= start else value)

    errors = [count for count in map(risen, queries.LINK_ERRORS) if count is not None]
    heat, linked = risen(queries.THERMAL), risen(queries.NVLINK)
    reasons = [int(now[name]) & _HEAT for name in queries.REASONS if name in now]
    xid = now.get(queries.XID)
    return Health(
        COUNTED_OVER,
        risen(queries.SINGLE_BIT),
        risen(queries.DOUBLE_BIT),
        risen(queries.REPLAYS),
        sum(errors) if errors else None,
        None if xid is None else int(xid),
        None if heat is None and not reasons else bool(heat) or any(reasons),
        None if linked is None else linked > 0,
    )
