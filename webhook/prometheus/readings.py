"""Read all devices once, and join the answers by device.

Health compares counters now and a day ago; a counter that is smaller now was reset by a reboot or a driver and counts from 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from gpugate.policies.cluster.gpu_usage import DeviceUse, Health, Span, Times
from gpugate.policies.kube.quantity import MIB
from gpugate.webhook.prometheus import queries
from gpugate.webhook.prometheus.client import QueryError, TimeSeries
from gpugate.webhook.prometheus.labels import NOBODY, DeviceHolder, DeviceKey, Labels, card_of, exporters_among, holder_of, node_of
from gpugate.webhook.prometheus.queries import Queries

#: Largest number of time windows: policies with a window for each namespace must not multiply the queries.
MOST_TIMES: Final = 8
_RATIO: Final = 100.0
Key: TypeAlias = tuple[DeviceKey, DeviceHolder]


class ReadingQuery(Protocol):
    """The query interface that a reading needs."""

    async def ask(self, query: str, at: float) -> list[TimeSeries]:
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


async def read(prometheus: ReadingQuery, wanted: Times, at: float, matchers: Iterable[str] = ()) -> Readings:
    """Query everything for the ``wanted`` time windows.

    A failed query becomes a remark. Without the first query, which lists the devices, there is no reading.

    Raises:
        PrometheusError: Prometheus is not usable.
    """
    windows, ages = wanted.windows[:MOST_TIMES], wanted.ages[: 2 * MOST_TIMES]
    session = _ReadingSession(prometheus, Queries(matchers), at)
    now = await prometheus.ask(session.queries.gauges(), at)
    there = {row.labels.get("__name__", "") for row in now}
    if not now:
        return Readings(at, remarks=("Prometheus has no series of dcgm-exporter (DCGM_FI_...): no figures of GPUs are known",))
    if there.isdisjoint(queries.UTILISATIONS):
        names = " nor ".join(queries.UTILISATIONS)
        session.remarks.add(f"Prometheus has neither {names}: which GPUs are idle is not known")
    if len(wanted.windows) > MOST_TIMES:
        session.remarks.add(
            f"policies name {len(wanted.windows)} times for idle GPUs: only the {MOST_TIMES} shortest are looked at"
        )
    figures = [
        (metric, seconds, function)
        for metric in queries.UTILISATIONS
        if metric in there
        for seconds in windows
        for function in ("max", "sum", "count")
    ]
    *over, peaks, hot, watts, drawn, health, before = await asyncio.gather(
        *(session.over(function, metric, seconds) for metric, seconds, function in figures),
        session.over("max", queries.USED, windows[-1]) if windows else _none(),
        session.over("max", queries.TEMPERATURE, windows[0]) if windows else _none(),
        session.over("sum", queries.POWER, windows[0]) if windows else _none(),
        session.over("count", queries.POWER, windows[0]) if windows else _none(),
        session.one(session.queries.health()),
        session.one(session.queries.counters_before(COUNTED_OVER)),
    )
    held = await asyncio.gather(*(session.one(session.queries.held_before(seconds)) for seconds in ages))
    value = _SeriesByDevice(exporters_among(row.labels for row in now))
    devices = value.devices(
        now,
        spans=_Spans(value, windows, dict(zip(figures, over, strict=True))),
        held=dict(zip(ages, (value.keys(rows) for rows in held), strict=True)),
        memory=value.highest(peaks),
        temperature=value.highest(hot),
        power=_averages(value.sums(watts), value.sums(drawn)),
        health=healths_of(health, before),
    )
    return Readings(at, windows, devices, tuple(sorted(session.remarks)))


async def _none() -> list[TimeSeries]:
    return []


class _ReadingSession:
    """The queries of one reading; a failed query becomes a remark."""

    def __init__(self, prometheus: ReadingQuery, every: Queries, at: float) -> None:
        self.queries = every
        self.remarks: set[str] = set()
        self._prometheus = prometheus
        self._at = at

    async def one(self, query: str) -> list[TimeSeries]:
        try:
            return await self._prometheus.ask(query, self._at)
        except QueryError as error:
            self.remarks.add(f"{error} (part of the figures of GPUs is missing)")
            return []

    async def over(self, function: str, metric: str, seconds: int) -> list[TimeSeries]:
        return await self.one(self.queries.over(function, metric, seconds))


def _averages(sums: dict[Key, float], counts: dict[Key, float]) -> dict[Key, float]:
    return {key: total / counts[key] for key, total in sums.items() if counts.get(key)}


class _SeriesByDevice:
    """Groups series by device and holder; merges several series of one device after an exporter restart."""

    def __init__(self, exporters: frozenset[tuple[str, str]]) -> None:
        self._exporters = exporters

    def key(self, labels: Labels) -> Key:
        return card_of(labels), holder_of(labels, self._exporters)

    def keys(self, rows: Iterable[TimeSeries]) -> frozenset[Key]:
        return frozenset(self.key(row.labels) for row in rows)

    def highest(self, rows: Iterable[TimeSeries]) -> dict[Key, float]:
        result: dict[Key, float] = {}
        for row in rows:
            key = self.key(row.labels)
            result[key] = max(row.value, result.get(key, row.value))
        return result

    def sums(self, rows: Iterable[TimeSeries]) -> dict[Key, float]:
        result: dict[Key, float] = {}
        for row in rows:
            key = self.key(row.labels)
            result[key] = result.get(key, 0.0) + row.value
        return result

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
        metrics = self._by_key(now)
        result = []
        for key, (labels, values) in _real(metrics).items():
            card, holder = key
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

    def _by_key(self, now: Iterable[TimeSeries]) -> dict[Key, tuple[Labels, dict[str, float]]]:
        result: dict[Key, tuple[Labels, dict[str, float]]] = {}
        for row in now:
            _, values = result.setdefault(self.key(row.labels), (row.labels, {}))
            name = row.labels.get("__name__", "")
            values[name] = max(row.value, values.get(name, row.value))
        return result


def _real(metrics: dict[Key, tuple[Labels, dict[str, float]]]) -> dict[Key, tuple[Labels, dict[str, float]]]:
    """Drop cards that are partitioned into MIG slices, and free entries of devices that a pod holds."""
    cut = {card.card for card, _ in metrics if card.slice}
    had = {card for card, holder in metrics if holder != NOBODY}
    return {
        (card, holder): result
        for (card, holder), result in metrics.items()
        if not (holder == NOBODY and (card in had or (not card.slice and card.card in cut)))
    }


def _order(device: DeviceUse) -> tuple[object, ...]:
    number = int(device.number) if device.number.isdigit() else -1
    return (device.namespace, device.pod, device.node, number, device.uuid, device.slice, device.container, device.share)


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None else int(mebibytes * MIB)


def _utilisation(percent: float | None, ratio: float | None) -> float | None:
    """Return the larger of both, in percent: a device is idle only if both say so."""
    result = [one for one in (percent, None if ratio is None else ratio * _RATIO) if one is not None]
    return min(max(result), 100.0) if result else None


class _Figures(NamedTuple):
    """Utilisation over one time window, by device and holder."""

    peak: dict[Key, float]
    average: dict[Key, float]


class _Spans:
    """Utilisation over all time windows."""

    def __init__(self, found: _SeriesByDevice, windows: Sequence[int], rows: dict[tuple[str, int, str], list[TimeSeries]]) -> None:
        self._windows = windows
        self._figures: dict[tuple[str, int], _Figures] = {}
        for metric, seconds in dict.fromkeys((metric, seconds) for metric, seconds, _ in rows):
            peak, total, count = (rows[metric, seconds, function] for function in ("max", "sum", "count"))
            averages = _averages(found.sums(total), found.sums(count))
            self._figures[metric, seconds] = _Figures(found.highest(peak), averages)

    def of(self, key: Key) -> tuple[Span, ...]:
        """Return the figures of one device, without windows that have no data."""
        spans = (self._span(key, seconds) for seconds in self._windows)
        return tuple(span for span in spans if span.peak is not None or span.average is not None)

    def _span(self, key: Key, seconds: int) -> Span:
        empty = _Figures({}, {})
        percent, ratio = (self._figures.get((metric, seconds), empty) for metric in queries.UTILISATIONS)
        return Span(
            seconds,
            _utilisation(percent.peak.get(key), ratio.peak.get(key)),
            _utilisation(percent.average.get(key), ratio.average.get(key)),
        )


#: Time between the compared counters: a day, in seconds.
COUNTED_OVER: Final = 86_400
#: Clock event reasons that mean heat: hardware slowdown, software and hardware thermal slowdown.
_HEAT: Final = 0x08 | 0x20 | 0x40


def healths_of(now: Iterable[TimeSeries], before: Iterable[TimeSeries]) -> dict[DeviceKey, Health]:
    """Return the health signs of every card and slice."""
    here, there = _by_card(now), _by_card(before)
    return {card: _health(values, there.get(card, {})) for card, values in here.items()}


def _by_card(rows: Iterable[TimeSeries]) -> dict[DeviceKey, dict[str, float]]:
    result: dict[DeviceKey, dict[str, float]] = {}
    for row in rows:
        values = result.setdefault(card_of(row.labels), {})
        name = row.labels.get("__name__", "")
        values[name] = max(row.value, values.get(name, row.value))
    return result


def _health(now: dict[str, float], before: dict[str, float]) -> Health:
    def risen(name: str) -> int | None:
        value, start = now.get(name), before.get(name)
        if value is None or start is None:
            return None
        return int(value - start if value >= start else value)

    errors = [one for one in map(risen, queries.LINK_ERRORS) if one is not None]
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
