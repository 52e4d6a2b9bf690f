"""RFC 3339 times."""

from datetime import UTC, datetime


def moment(text: str) -> datetime | None:
    """Parse an RFC 3339 time; None if the text is none."""
    try:
        result = datetime.fromisoformat(text)
    except ValueError:
        return None
    return result if result.tzinfo else result.replace(tzinfo=UTC)


def rfc3339(seconds: float) -> str:
    """Format seconds since 1970 in RFC 3339; empty if out of range."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""
