"""Format and parse times."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

HOUR: Final = 3600
DAY: Final = 24 * HOUR


def lasting(seconds: int) -> str:
    """Return a duration in its largest whole unit: ``30 days``, ``24h``, ``90m``, ``45s``."""
    if seconds > DAY and seconds % DAY == 0:
        return f"{seconds // DAY} days"
    for unit, name in ((HOUR, "h"), (60, "m")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds // unit}{name}"
    return f"{seconds}s"


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)


def instant_of(text: str) -> int | None:
    """Return the seconds since 1970 of a time, or of the end of a date in UTC; None if ``text`` is neither."""
    try:
        if _DATE.fullmatch(text):
            return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) + DAY
        if _TIME.fullmatch(text):
            return int(datetime.fromisoformat(re.sub(r"\.\d+", "", text).upper()).timestamp())
    except (ValueError, OverflowError):
        return None
    return None


def day_of(seconds: float) -> str:
    """Return the day in UTC of a point in time, such as ``2026-01-31``."""
    return (_EPOCH + timedelta(seconds=int(seconds))).strftime("%Y-%m-%d")


def end_of_day(seconds: float, days: int) -> int:
    """Return the end of the day in UTC that comes ``days`` after a point in time."""
    return (int(seconds) // DAY + days + 1) * DAY
