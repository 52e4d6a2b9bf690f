"""Times as people say them."""

from __future__ import annotations

from typing import Final

HOUR: Final = 3600
DAY: Final = 24 * HOUR


def lasting(seconds: int) -> str:
    """A time in its largest whole unit: ``30 days``, ``24h``, ``90m``, ``45s``."""
    if seconds > DAY and seconds % DAY == 0:
        return f"{seconds // DAY} days"
    for unit, name in ((HOUR, "h"), (60, "m")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds // unit}{name}"
    return f"{seconds}s"
