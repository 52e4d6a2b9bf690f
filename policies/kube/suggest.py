"""Find the known word closest to a misspelled one."""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

#: Allowed edits by the maximum length of a part; a longer part may have ``_MOST_EDITS``.
_ALLOWED_EDITS: Final = ((3, 0), (11, 1))
_MOST_EDITS: Final = 2
#: Maximum length in characters of a name that is looked up (label key, environment variable).
_LONGEST: Final = 128
#: Minimum length of an abbreviation of a part: ``mem`` for ``memory``.
_SHORTEST: Final = 3
_PARTS: Final = re.compile(r"[-_./]")
_DIGITS: Final = re.compile(r"\d")


def distance(one: str, other: str, most: int) -> int:
    """Return the edit distance of two words, ``most`` + 1 if it is larger.

    An edit inserts, deletes or changes a character, or swaps it with the next one.
    """
    if abs(len(one) - len(other)) > most:
        return most + 1
    above: list[int] = []
    row = list(range(len(other) + 1))
    for i, character in enumerate(one):
        earlier, above, row = above, row, [i + 1]
        for j, other_character in enumerate(other):
            edits = min(above[j + 1] + 1, row[j] + 1, above[j] + (character != other_character))
            if i and j and character == other[j - 1] and other_character == one[i - 1]:
                edits = min(edits, earlier[j - 1] + 1)
            row.append(edits)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def _is_one_edit(one: str, other: str) -> bool:
    """Return whether two words are at most one edit apart: what remains without common prefix and suffix."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    one, other = one[start:], other[start:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == len(other) == 2 and one == other[::-1])


def _part_apart(one: str, other: str) -> int | None:
    """Return the edit distance of two parts of words; None if they are too different."""
    if one == other:
        return 0
    shorter, longer = (one, other) if len(one) <= len(other) else (other, one)
    if len(shorter) >= _SHORTEST and longer.startswith(shorter):
        # An abbreviation: TOPO for TOPOLOGY.
        return 1
    most = next((edits for length, edits in _ALLOWED_EDITS if len(longer) <= length), _MOST_EDITS)
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
    if one.bare == other.bare and (one.bare != one.text or other.bare != other.text):
        # Only numbers differ: node-layer-1 is no misspelling of node-layer-2.
        return None
    if len(one.parts) != len(other.parts):
        # At most one separator is missing or superfluous.
        return 1 if _is_one_edit(one.text, other.text) else None
    total = 0
    for part, other_part in zip(one.parts, other.parts, strict=True):
        edits = _part_apart(part, other_part)
        if edits is None or total + edits > _MOST_EDITS:
            return None
        total += edits
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
        edits = _apart(written, candidate.lower())
        if edits is not None and (best is None or edits < best[0]):
            best = (edits, candidate)
    return None if best is None else best[1]
