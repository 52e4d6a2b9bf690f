"""Times of an audit, in RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(text: str) -> datetime | None:
    """The time that an RFC 3339 text names; None where it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def rfc3339(seconds: float) -> str:
    """A time in seconds since the epoch, in RFC 3339; empty where no calendar has it."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""
