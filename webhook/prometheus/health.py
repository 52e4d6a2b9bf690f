"""Signs of a card's health, from counters now and some time ago.

Counters are compared at two points in time; one that is smaller now was reset by a reboot or a driver, and counts from nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpugate.policies.cluster.gpu_usage import Health
from gpugate.webhook.prometheus import queries
from gpugate.webhook.prometheus.client import TimeSeries
from gpugate.webhook.prometheus.labels import DeviceKey, card_of

#: Over how long counters are compared: a day, in seconds.
COUNTED_OVER: Final = 86_400
#: Bits of the reasons why clocks are lowered that are about heat: hardware slowdown, software and hardware thermal slowdown.
_HEAT: Final = 0x08 | 0x20 | 0x40


def healths_of(now: Iterable[TimeSeries], before: Iterable[TimeSeries]) -> dict[DeviceKey, Health]:
    """The signs of every card and slice."""
    here, there = _by_card(now), _by_card(before)
    return {card: _health(values, there.get(card, {})) for card, values in here.items()}


def _by_card(rows: Iterable[TimeSeries]) -> dict[DeviceKey, dict[str, float]]:
    found: dict[DeviceKey, dict[str, float]] = {}
    for one in rows:
        values = found.setdefault(card_of(one.labels), {})
        name = one.labels.get("__name__", "")
        values[name] = max(one.value, values.get(name, one.value))
    return found


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
