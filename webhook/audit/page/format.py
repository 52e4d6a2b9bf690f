"""Format numbers, amounts, times and texts of the audit page."""

import re
from datetime import timedelta
from typing import Final

#: Between the thousands of a number, and between a number and its unit: a narrow space at which no line is broken.
THIN: Final = "\N{NARROW NO-BREAK SPACE}"
#: Characters of one text that the page shows; JSON has the whole.
LONGEST: Final = 2000
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
#: Characters that break the layout, change the text direction or are invisible: controls, direction marks and overrides,
#: zero-width characters, and unpaired surrogates, which are not UTF-8.
_HARMFUL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def number(count: int) -> str:
    """Format ``count`` with thin spaces between thousands."""
    return f"{count:,}".replace(",", THIN)


def memory(size: int) -> str:
    """Format ``size`` in bytes in the largest unit with a value of one or more, in at most three digits."""
    amount, unit = float(abs(size)), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    sign = "-" if size < 0 else ""
    return f"{sign}{_digits(amount)}{THIN}{_UNITS[unit]}"


def cores(millicores: int) -> str:
    """Format ``millicores`` as CPUs."""
    return number(millicores // 1000) if millicores % 1000 == 0 else _digits(millicores / 1000)


def hours(seconds: int) -> str:
    """Format ``seconds`` as hours, in at most three digits below one hundred."""
    return _digits(seconds / 3600)


def amount_of(resource: str, value: int) -> str:
    """Format ``value`` of ``resource`` (also as a quota names it) with its unit."""
    name = resource.removeprefix("requests.").removeprefix("limits.")
    if name == "cpu":
        return cores(value)
    if name in {"memory", "ephemeral-storage", "storage"} or name.startswith("hugepages-"):
        return memory(value)
    return number(value)


def _digits(amount: float) -> str:
    whole = round(amount)
    if abs(amount) >= 100 or abs(amount - whole) < 0.005:
        return number(whole)
    return f"{amount:.3g}"


def shown(text: str, longest: int = LONGEST) -> str:
    """Replace characters in ``text`` that deceive or disturb a reader, and cut very long text."""
    kept = text[:longest]
    safe = _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", kept)
    rest = len(text) - len(kept)
    return f"{safe} … ({number(rest)} more characters)" if rest else safe


def lasted(span: timedelta) -> str:
    """Format a duration in its two largest units: ``3 h 5 min``."""
    minutes = max(0, int(span.total_seconds())) // 60
    for size, unit, less, smaller in ((1440, "d", 60, "h"), (60, "h", 1, "min")):
        if minutes >= size:
            rest = minutes % size // less
            return f"{number(minutes // size)}{THIN}{unit}" + (f" {rest}{THIN}{smaller}" if rest else "")
    return f"{minutes}{THIN}min"
