"""Into which MIG slices a card can be cut, by the model's name as the driver gives it and by the memory that it has.

Names and fractions are those of NVIDIA's MIG User Guide, "Supported MIG Profiles". Slices with media extensions are left out: they
hold no more. A slice has a little less memory than its fraction of the card (an A100 of 80 GB: 9.5 of 10 GiB; an H200: 16 of 17.5),
so nine tenths of it count here, and nothing is called enough that is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final, NamedTuple

from gpugate.policies.kube.quantity import GIB

#: The part of a slice's fraction of its card that is counted on.
_SURE: Final = Fraction(9, 10)
#: Compute slices and the fraction of memory of each slice of a card with seven compute slices, the smallest first.
_SEVEN: Final = tuple((compute, Fraction(eighths, 8)) for compute, eighths in ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4)))
_FOUR: Final = ((1, Fraction(1, 4)), (2, Fraction(1, 2)))
_PROFILE: Final = re.compile(r"(?:(\d)c\.)?(\d)g\.\d+gb", re.ASCII)


class _Family(NamedTuple):
    """Cards that are cut alike.

    Attributes:
        models: what their names have in them.
        compute: how many compute slices they have.
        sizes: GB in the names of their slices, by GiB of the whole card.
    """

    models: re.Pattern[str]
    compute: int
    sizes: dict[int, tuple[int, ...]]


_FAMILIES: Final = (
    _Family(re.compile(r"\bA(?:100|800)\b"), 7, {40: (5, 10, 10, 20, 20), 80: (10, 20, 20, 40, 40)}),
    _Family(
        re.compile(r"\b(?:H100|H800|H20|GH200)\b"),
        7,
        {80: (10, 20, 20, 40, 40), 94: (12, 24, 24, 47, 47), 96: (12, 24, 24, 48, 48), 141: (18, 35, 35, 71, 71)},
    ),
    _Family(re.compile(r"\bH200\b"), 7, {141: (18, 35, 35, 71, 71)}),
    _Family(re.compile(r"\bB200\b"), 7, {180: (23, 45, 45, 90, 90)}),
    _Family(re.compile(r"\bA30\b"), 4, {24: (6, 12)}),
    _Family(re.compile(r"\bRTX PRO 6000 Blackwell\b"), 4, {96: (24, 48)}),
)


class Slice(NamedTuple):
    """One way to cut a card.

    Attributes:
        profile: its name: ``1g.10gb``.
        compute: the part of the card's compute that it has.
        memory: bytes that it has for sure.
    """

    profile: str
    compute: Fraction
    memory: int


def slices_of(model: str, memory: int) -> tuple[Slice, ...]:
    """The slices of a card called ``model`` with ``memory`` bytes, the smallest first; none where it has none, or is unknown."""
    family = _family(model)
    if family is None or memory <= 0:
        return ()
    size = min(family.sizes, key=lambda one: (abs(one - memory / GIB), one))
    return tuple(_slices(family, family.sizes[size], memory))


def _family(model: str) -> _Family | None:
    return next((one for one in _FAMILIES if one.models.search(model)), None)


def _slices(family: _Family, sizes: tuple[int, ...], memory: int) -> Iterator[Slice]:
    for (compute, fraction), size in zip(_SEVEN if family.compute == 7 else _FOUR, sizes, strict=True):
        yield Slice(f"{compute}g.{size}gb", Fraction(compute, family.compute), int(memory * fraction * _SURE))


def card_of(profile: str, model: str) -> int | None:
    """Bytes of the smallest card called ``model`` that has slices of this name; None where none is known to."""
    family = _family(model)
    if family is None:
        return None
    for size, sizes in sorted(family.sizes.items()):
        if any(one.profile == profile for one in _slices(family, sizes, size * GIB)):
            return size * GIB
    return None


def part_of(profile: str, model: str) -> Fraction:
    """What part of the compute of a card called ``model`` a slice has; 1 for no slice, or one of an unreadable name."""
    found = _PROFILE.fullmatch(profile)
    if found is None:
        return Fraction(1)
    family = _family(model)
    return min(Fraction(1), Fraction(int(found[1] or found[2]), family.compute if family else 7))
