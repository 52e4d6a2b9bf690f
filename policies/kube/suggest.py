"""Find the known word that a misspelled one stands for."""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

#: Allowed edits by the maximum length of a part; a longer part may have ``_MOST_SLIPS``.
_SLIPS: Final = ((3, 0), (11, 1))
_MOST_SLIPS: Final = 2
#: Maximum length in characters of a name that is looked up (label key, environment variable).
_LONGEST: Final = 128
#: Minimum length of a prefix that stands for the whole part: ``mem`` for ``memory``.
_SHORTEST: Final = 3
_PARTS: Final = re.compile(r"[-_./]")
#: Characters that one swap moves.
_SWAPPED: Final = 2
_DIGITS: Final = re.compile(r"\d")


def distance(one: str, other: str, most: int) -> int:
    """Return the edit distance of two words, ``most`` + 1 if it is larger.

    An edit inserts, deletes or changes a character, or swaps it with the next one.
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
    """Return whether two words are at most one edit apart, from what remains without common prefix and suffix."""
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
    """Return the edit distance of two parts of words; None if they are too different."""
    if one == other:
        return 0
    shorter, longer = (one, other) if len(one) <= len(other) else (other, one)
    if len(shorter) >= _SHORTEST and longer.startswith(shorter):
        # An abbreviation: TOPO for TOPOLOGY.
        return 1
    most = next((slips for length, slips in _SLIPS if len(longer) <= length), _MOST_SLIPS)
    edits = distance(one, other, most)
    return edits if edits <= most else None


class _Word(NamedTuple):
    """A word in lower case, its parts, and the word without its digits."""

    text: str
    parts: list[str]
    bare: str


@lru_cache(maxsize=4096)
def _word(text: str) -> _Word:
    return _Word(text, _PARTS.split(text), _DIGITS.sub("", text))


def _numbers_alone_differ(one: _Word, other: _Word) -> bool:
    # node-layer-1 is no misspelling of node-layer-2.
    return one.bare == other.bare and (one.bare != one.text or other.bare != other.text)


def _apart(one: str, other: str) -> int | None:
    """Return the edit distance of two words in lower case; None if they are too different."""
    domain, slash, name = one.rpartition("/")
    if slash and "/" in other:
        # The domain of a key is long: equal domains do not make the names similar.
        other_domain, _, other_name = other.rpartition("/")
        if domain != other_domain:
            return _apart(domain, other_domain) if name == other_name else None
        one, other = name, other_name
    return _names_apart(_word(one), _word(other))


def _names_apart(one: _Word, other: _Word) -> int | None:
    if _numbers_alone_differ(one, other):
        return None
    if len(one.parts) != len(other.parts):
        # At most one separator is missing or superfluous.
        return 1 if _is_one_slip(one.text, other.text) else None
    total = 0
    for mine, theirs in zip(one.parts, other.parts, strict=True):
        slips = _part_apart(mine, theirs)
        if slips is None or total + slips > _MOST_SLIPS:
            return None
        total += slips
    return total


def closest_match(word: str, known: Collection[str]) -> str | None:
    """Return the word of ``known`` closest to ``word``, ignoring case; None if none is close.

    Words that differ in a number alone are different names, not misspellings.
    """
    if len(word) > _LONGEST or word in known:
        return None
    written = word.lower()
    best: tuple[int, str] | None = None
    for candidate in sorted(known):
        slips = _apart(written, candidate.lower())
        if slips is not None and (best is None or slips < best[0]):
            best = (slips, candidate)
    return None if best is None else best[1]
