"""Parse Kubernetes quantities exactly: ``16Gi`` as bytes, ``1500m`` as millicores.

Grammar and rounding follow ``k8s.io/apimachinery/pkg/api/resource`` (``Quantity``): decimal and
binary suffixes, decimal exponents, and values rounded *up* (away from zero) to the unit requested. Parsers
raise a :class:`QuantityError`.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30
NO_AMOUNTS: Final[Mapping[str, int]] = MappingProxyType({})

_PATTERN: Final = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)
_SUFFIXES: Final[dict[str, Fraction]] = {
    **{suffix: Fraction(1, 1000**power) for power, suffix in enumerate("mun", start=1)},
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}
#: Maximum length in characters; the API server's own parser caps values at int64.
_LONGEST: Final = 64
_LARGEST: Final = (1 << 63) - 1


class QuantityError(ValueError):
    """A text that is no Kubernetes quantity; its message says how to write one."""


@lru_cache(maxsize=8192)
def _parse(text: str) -> Fraction:
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        message = f"{text[:_LONGEST]!r} is no Kubernetes quantity{_hint(text)}"
        raise QuantityError(message)
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits)
    if exponent:
        value *= Fraction(10) ** int(exponent)
    elif suffix:
        value *= _SUFFIXES[suffix]
    if value > _LARGEST:
        value = Fraction(_LARGEST)
    return -value if sign == "-" else value


def _hint(text: str) -> str:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtTpP])(i?)[bB]?", text.strip()[:_LONGEST])
    if match is None:
        return " (examples: 16Gi, 500m, 4)"
    number, unit, binary = match.groups()
    return f": write {number}" + (f"{unit.upper()}i" if binary or unit != "k" else "k")


@lru_cache(maxsize=8192)
def _scaled_up(text: str, scale: int) -> int:
    value = _parse(text) * scale
    rounded = -(-abs(value.numerator) // value.denominator)
    return rounded if value >= 0 else -rounded


def _text(quantity: object) -> str:
    if type(quantity) is str:
        return quantity
    if isinstance(quantity, bool) or not isinstance(quantity, int | float):
        message = f"{quantity!r:.64} is no Kubernetes quantity (examples: 16Gi, 500m, 4)"
        raise QuantityError(message)
    return repr(quantity)


def exact(quantity: object) -> Fraction:
    """Return the value of ``quantity`` (a string, or a number as YAML gives it), not rounded."""
    return _parse(_text(quantity))


def whole(quantity: object) -> int:
    """Return the value rounded up to a whole number: bytes of memory, a count of devices."""
    return _scaled_up(_text(quantity), 1)


def millicores(quantity: object) -> int:
    """Return a CPU quantity in millicores, rounded up."""
    return _scaled_up(_text(quantity), 1000)


def unit_of(resource: str) -> Callable[[object], int]:
    """Return the reader of amounts of ``resource``: millicores of CPU (also ``requests.cpu``), whole numbers of all else."""
    return millicores if resource.rpartition(".")[2] == "cpu" else whole


@lru_cache(maxsize=4096)
def format_bytes(size: int) -> str:
    """Return ``size`` in bytes as the shortest exact binary quantity: ``17179869184`` is ``16Gi``."""
    for exponent, suffix in ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        unit = 1 << exponent
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def show_bytes(size: int) -> str:
    """Return ``size`` in bytes for a message: exact if short, in binary or decimal units; else GiB or MiB with one decimal."""
    exact_text = format_bytes(size)
    if len(exact_text) <= len("2048Gi"):
        return exact_text
    # A size that users write in decimal units (20G) stays decimal.
    for unit, suffix in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if unit <= size < 10**5 * unit and size % (unit // 10) == 0:
            return f"{size / unit:g}{suffix}"
    unit, suffix = (GIB, "Gi") if size >= GIB else (MIB, "Mi")
    rounded = f"{size / unit:.1f}{suffix}"
    # 256.0Gi beside 256Gi in a sum hides the difference.
    return exact_text if rounded.endswith(f".0{suffix}") and exact_text.endswith("i") else rounded


def format_millicores(amount: int) -> str:
    """Return ``amount`` in millicores as a CPU quantity: ``4000`` is ``4``, ``1500`` is ``1500m``."""
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"


def show_amount(resource: str, amount: int) -> str:
    """Return ``amount`` of ``resource`` (also a quota's name) for a message: bytes, millicores or a count."""
    name = resource.removeprefix("requests.").removeprefix("limits.")
    if name == "cpu":
        return format_millicores(amount)
    if name in {"memory", "ephemeral-storage", "storage"} or name.startswith("hugepages-"):
        return show_bytes(amount)
    return str(amount)
