"""One reading of all devices: what Prometheus answers, put together device by device."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from gpugate.policies.cluster.gpu_usage import DeviceUse, Health, Span, Times
from gpugate.policies.kube.quantity import MIB
from gpugate.webhook.prometheus import queries
from gpugate.webhook.prometheus.client import QueryError, TimeSeries
from gpugate.webhook.prometheus.health import COUNTED_OVER, healths_of
from gpugate.webhook.prometheus.labels import NOBODY, DeviceHolder, DeviceKey, Labels, card_of, exporters_among, holder_of, node_of
from gpugate.webhook.prometheus.queries import Queries

#: Times that are asked for at the most: policies with a time of their own for each namespace must not grow the questions.
MOST_TIMES: Final = 8
_RATIO: Final = 100.0

Key: TypeAlias = tuple[DeviceKey, DeviceHolder]


class ReadingQuery(Protocol):
    """What a reading needs of Prometheus."""

    async def ask(self, query: str, at: float) -> list[TimeSeries]:
        """The series that ``query`` gives at a time."""


@dataclass(frozen=True, slots=True)
class Readings:
    """All devices at one time.

    Attributes:
        at: that time, in seconds since 1970.
        windows: the times over which their figures are, in seconds, sorted.
        devices: the devices, sorted; those that nobody has are among them, without a pod.
        remarks: what Prometheus did not tell, sorted.
    """

    at: float
    windows: tuple[int, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    remarks: tuple[str, ...] = ()


async def read(prometheus: ReadingQuery, wanted: Times, at: float, matchers: Iterable[str] = ()) -> Readings:
    """Ask for everything that ``wanted`` times need.

    A query that is not answered is a remark; without the first, which says what there is, there is no reading.

    Raises:
        PrometheusError: Prometheus cannot be asked.
    """
    windows, ages = wanted.windows[:MOST_TIMES], wanted.ages[: 2 * MOST_TIMES]
    asking = _Asking(prometheus, Queries(matchers), at)
    now = await prometheus.ask(asking.queries.gauges(), at)
    there = {one.labels.get("__name__", "") for one in now}
    if not now:
        return Readings(at, remarks=("Prometheus has no series of dcgm-exporter (DCGM_FI_...): no figures of GPUs are known",))
    if there.isdisjoint(queries.UTILISATIONS):
        names = " nor ".join(queries.UTILISATIONS)
        asking.remarks.add(f"Prometheus has neither {names}: which GPUs are idle is not known")
    if len(wanted.windows) > MOST_TIMES:
        asking.remarks.add(f"policies name {len(wanted.windows)} times for idle GPUs: only the {MOST_TIMES} shortest are looked at")
    figures = [
        (metric, seconds, function)
        for metric in queries.UTILISATIONS
        if metric in there
        for seconds in windows
        for function in ("max", "sum", "count")
    ]
    *over, peaks, hot, watts, drawn, health, before = await asyncio.gather(
        *(asking.over(function, metric, seconds) for metric, seconds, function in figures),
        asking.over("max", queries.USED, windows[-1]) if windows else _none(),
        asking.over("max", queries.TEMPERATURE, windows[0]) if windows else _none(),
        asking.over("sum", queries.POWER, windows[0]) if windows else _none(),
        asking.over("count", queries.POWER, windows[0]) if windows else _none(),
        asking.one(asking.queries.health()),
        asking.one(asking.queries.counters_before(COUNTED_OVER)),
    )
    held = await asyncio.gather(*(asking.one(asking.queries.held_before(seconds)) for seconds in ages))
    found = _Found(exporters_among(one.labels for one in now))
    devices = found.devices(
        now,
        spans=_Spans(found, windows, dict(zip(figures, over, strict=True))),
        held=dict(zip(ages, (found.keys(rows) for rows in held), strict=True)),
        memory=found.highest(peaks),
        temperature=found.highest(hot),
        power=_averages(found.sums(watts), found.sums(drawn)),
        health=healths_of(health, before),
    )
    return Readings(at, windows, devices, tuple(sorted(asking.remarks)))


async def _none() -> list[TimeSeries]:
    return []


class _Asking:
    """Questions of one reading, of which some may stay without an answer."""

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


class _Found:
    """Series by device and holder: several of one device, of an exporter that was restarted, come to one."""

    def __init__(self, exporters: frozenset[tuple[str, str]]) -> None:
        self._exporters = exporters

    def key(self, labels: Labels) -> Key:
        return card_of(labels), holder_of(labels, self._exporters)

    def keys(self, rows: Iterable[TimeSeries]) -> frozenset[Key]:
        return frozenset(self.key(one.labels) for one in rows)

    def highest(self, rows: Iterable[TimeSeries]) -> dict[Key, float]:
        found: dict[Key, float] = {}
        for one in rows:
            key = self.key(one.labels)
            found[key] = max(one.value, found.get(key, one.value))
        return found

    def sums(self, rows: Iterable[TimeSeries]) -> dict[Key, float]:
        found: dict[Key, float] = {}
        for one in rows:
            key = self.key(one.labels)
            found[key] = found.get(key, 0.0) + one.value
        return found

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
        """The devices that there are now."""
        metrics = self._by_key(now)
        found = []
        for key, (labels, values) in _real(metrics).items():
            card, holder = key
            parts = [values.get(name) for name in (queries.USED, queries.FREE)]
            total = None if None in parts else sum(one or 0.0 for one in parts) + values.get(queries.RESERVED, 0.0)
            found.append(
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
        return tuple(sorted(found, key=_order))

    def _by_key(self, now: Iterable[TimeSeries]) -> dict[Key, tuple[Labels, dict[str, float]]]:
        found: dict[Key, tuple[Labels, dict[str, float]]] = {}
        for one in now:
            _, values = found.setdefault(self.key(one.labels), (one.labels, {}))
            name = one.labels.get("__name__", "")
            values[name] = max(one.value, values.get(name, one.value))
        return found


def _real(metrics: dict[Key, tuple[Labels, dict[str, float]]]) -> dict[Key, tuple[Labels, dict[str, float]]]:
    """The devices without cards that are cut into slices, and without what nobody has where somebody has it."""
    cut = {card.card for card, _ in metrics if card.slice}
    had = {card for card, holder in metrics if holder != NOBODY}
    return {
        (card, holder): found
        for (card, holder), found in metrics.items()
        if not (holder == NOBODY and (card in had or (not card.slice and card.card in cut)))
    }


def _order(device: DeviceUse) -> tuple[object, ...]:
    number = int(device.number) if device.number.isdigit() else -1
    return (device.namespace, device.pod, device.node, number, device.uuid, device.slice, device.container, device.share)


def _bytes(mebibytes: float | None) -> int | None:
    return None if mebibytes is None else int(mebibytes * MIB)


def _utilisation(percent: float | None, ratio: float | None) -> float | None:
    """The larger of the two, in percent: a device is idle only where both say so."""
    found = [one for one in (percent, None if ratio is None else ratio * _RATIO) if one is not None]
    return min(max(found), 100.0) if found else None


class _Figures(NamedTuple):
    """A utilisation over one time, by device and holder."""

    peak: dict[Key, float]
    average: dict[Key, float]


class _Spans:
    """The figures of utilisation over the times that were asked for."""

    def __init__(self, found: _Found, windows: Sequence[int], rows: dict[tuple[str, int, str], list[TimeSeries]]) -> None:
        self._windows = windows
        self._figures: dict[tuple[str, int], _Figures] = {}
        for metric, seconds in dict.fromkeys((metric, seconds) for metric, seconds, _ in rows):
            peak, total, count = (rows[metric, seconds, function] for function in ("max", "sum", "count"))
            averages = _averages(found.sums(total), found.sums(count))
            self._figures[metric, seconds] = _Figures(found.highest(peak), averages)

    def of(self, key: Key) -> tuple[Span, ...]:
        """The figures of one device: those over times of which nothing is known left out."""
        spans = (self._span(key, seconds) for seconds in self._windows)
        return tuple(one for one in spans if one.peak is not None or one.average is not None)

    def _span(self, key: Key, seconds: int) -> Span:
        empty = _Figures({}, {})
        percent, ratio = (self._figures.get((metric, seconds), empty) for metric in queries.UTILISATIONS)
        return Span(
            seconds,
            _utilisation(percent.peak.get(key), ratio.peak.get(key)),
            _utilisation(percent.average.get(key), ratio.average.get(key)),
        )
