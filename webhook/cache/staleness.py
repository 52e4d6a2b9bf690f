"""From what age on the facts of a kind are out of date, and which kinds are there but cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpugate.webhook.kube.types import KindState

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
