"""Which known word somebody meant who wrote one that nobody knows."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

#: Up to so many characters a part of a word may hold so many slips and still be told for another; a longer one ``_MOST_SLIPS``.
_SLIPS: Final = ((3, 0), (11, 1))
_MOST_SLIPS: Final = 2
#: No name that is looked up is longer (the key of a label, an environment variable). Characters.
_LONGEST: Final = 128
#: The fewest characters of a part that still stand for a longer one: ``mem`` for ``memory``.
_SHORTEST: Final = 3
_PARTS: Final = re.compile(r"[-_./]")
#: Characters that change places in one slip.
_SWAPPED: Final = 2
_DIGITS: Final = re.compile(r"\d")


def distance(one: str, other: str, most: int) -> int:
    """How many slips lie between two words, ``most`` + 1 where there are more.

    A slip is a character put in, left out, changed, or swapped with the next one.
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    above: list[int] = []
    row = list(range(len(other) + 1))
    for at, mine in enumerate(one):
        earlier, above, row = above, row, [at + 1]
        for place, theirs in enumerate(other):
            least = min(above[place + 1] + 1, row[place] + 1, above[place] + (mine != theirs))
            if at and place and mine == other[place - 1] and theirs == one[at - 1]:
                least = min(least, earlier[place - 1] + 1)
            row.append(least)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def _is_one_slip(one: str, other: str) -> bool:
    """Whether at most one slip lies between two words: what is left of them without their common ends shows it."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    one, other = one[start:], other[start:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == len(other) == _SWAPPED and one == other[::-1])


def _part_apart(one: str, other: str) -> int | None:
    """How many slips lie between two parts of words; None where that is too many for the same part."""
    if one == other:
        return 0
    shorter, longer = (one, other) if len(one) <= len(other) else (other, one)
    if len(shorter) >= _SHORTEST and longer.startswith(shorter):
        # Cut short: TOPO for TOPOLOGY.
        return 1
    most = next((slips for length, slips in _SLIPS if len(longer) <= length), _MOST_SLIPS)
    found = distance(one, other, most)
    return found if found <= most else None


class _Word(NamedTuple):
    """A word in lower case, its parts, and what it is without its digits."""

    text: str
    parts: list[str]
    bare: str


@lru_cache(maxsize=4096)
def _word(text: str) -> _Word:
    return _Word(text, _PARTS.split(text), _DIGITS.sub("", text))


def _numbers_alone_differ(one: _Word, other: _Word) -> bool:
    # node-layer-1 is no slip for node-layer-2.
    return one.bare == other.bare and (one.bare != one.text or other.bare != other.text)


def _apart(one: str, other: str) -> int | None:
    """How many slips lie between two words in lower case; None where that is too many for the same word."""
    domain, slash, name = one.rpartition("/")
    if slash and "/" in other:
        # The domain of a key is long and says little: what is alike in it does not make the names alike.
        other_domain, _, other_name = other.rpartition("/")
        if domain != other_domain:
            return _apart(domain, other_domain) if name == other_name else None
        one, other = name, other_name
    return _names_apart(_word(one), _word(other))


def _names_apart(one: _Word, other: _Word) -> int | None:
    if _numbers_alone_differ(one, other):
        return None
    if len(one.parts) != len(other.parts):
        # At most a separator is missing, or there is one too many.
        return 1 if _is_one_slip(one.text, other.text) else None
    found = 0
    for mine, theirs in zip(one.parts, other.parts, strict=True):
        slips = _part_apart(mine, theirs)
        if slips is None or found + slips > _MOST_SLIPS:
            return None
        found += slips
    return found


def closest_match(word: str, known: Collection[str]) -> str | None:
    """The word among ``known`` that ``word`` is most likely meant to be, capitals aside; None where none is near.

    What differs in a number alone is another thing and not the same misspelt.
    """
    if len(word) > _LONGEST or word in known:
        return None
    written = word.lower()
    best: tuple[int, str] | None = None
    for one in sorted(known):
        slips = _apart(written, one.lower())
        if slips is not None and (best is None or slips < best[0]):
            best = (slips, one)
    return None if best is None else best[1]
