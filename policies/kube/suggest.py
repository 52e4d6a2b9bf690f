"""Find the known word closest to a misspelled word."""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final

from gpugate.policies.kube.memo import cached

#: Allowed edits by the maximum length of a part; a longer part may have ``_MOST_EDITS``.
_ALLOWED_EDITS: Final = ((3, 0), (11, 1))
_MOST_EDITS: Final = 2
#: Maximum length in characters of a name that is looked up (label key, environment variable).
_LONGEST: Final = 128
#: Minimum length of an abbreviation of a part: ``mem`` for ``memory``.
_SHORTEST: Final = 3
_PARTS: Final = re.compile(r"[-_./]")
_DIGITS: Final = re.compile(r"\d")


def distance(word: str, other: str, most: int) -> int:
    """Return the edit distance of two words, ``most`` + 1 if it is larger.

    An edit inserts, deletes or changes a character, or swaps it with the next one.
    """
    if abs(len(word) - len(other)) > most:
        return most + 1
    above: list[int] = []
    row = list(range(len(other) + 1))
    for i, character in enumerate(word):
        earlier, above, row = above, row, [i + 1]
        for j, other_character in enumerate(other):
            edits = min(above[j + 1] + 1, row[j] + 1, above[j] + (character != other_character))
            if i and j and character == other[j - 1] and other_character == word[i - 1]:
                edits = min(edits, earlier[j - 1] + 1)
            row.append(edits)
        if min(row) > most:
            return most + 1
    return min(row[-1], most + 1)


def _is_one_edit(word: str, other: str) -> bool:
    """Return whether two words are at most one edit apart: what remains without common prefix and suffix."""
    if abs(len(word) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(word), len(other)) and word[start] == other[start]:
        start += 1
    word, other = word[start:], other[start:]
    while word and other and word[-1] == other[-1]:
        word, other = word[:-1], other[:-1]
    return max(len(word), len(other)) <= 1 or (len(word) == len(other) == 2 and word == other[::-1])


def _part_apart(word: str, other: str) -> int | None:
    """Return the edit distance of two parts of words; None if they are too different."""
    if word == other:
        return 0
    shorter, longer = (word, other) if len(word) <= len(other) else (other, word)
    if len(shorter) >= _SHORTEST and longer.startswith(shorter):
        # An abbreviation: TOPO for TOPOLOGY.
        return 1
    most = next((edits for length, edits in _ALLOWED_EDITS if len(longer) <= length), _MOST_EDITS)
    edits = distance(word, other, most)
    return edits if edits <= most else None


@cached(4096)
def _split(word: str) -> tuple[list[str], str]:
    """Return the parts of a word, and the word without its digits."""
    return _PARTS.split(word), _DIGITS.sub("", word)


def _apart(word: str, other: str) -> int | None:
    """Return the edit distance of two words in lower case; None if they are too different."""
    domain, slash, name = word.rpartition("/")
    if slash and "/" in other:
        # The domain of a key is long: equal domains do not make the names similar.
        other_domain, _, other_name = other.rpartition("/")
        if domain != other_domain:
            return _apart(domain, other_domain) if name == other_name else None
        word, other = name, other_name
    return _names_apart(word, other)


def _names_apart(word: str, other: str) -> int | None:
    (parts, without_digits), (other_parts, other_without_digits) = _split(word), _split(other)
    if without_digits == other_without_digits and (without_digits != word or other_without_digits != other):
        # Only numbers differ: node-layer-1 is no misspelling of node-layer-2.
        return None
    if len(parts) != len(other_parts):
        # At most one separator is missing or superfluous.
        return 1 if _is_one_edit(word, other) else None
    total = 0
    for part, other_part in zip(parts, other_parts, strict=True):
        edits = _part_apart(part, other_part)
        if edits is None or total + edits > _MOST_EDITS:
            return None
        total += edits
    return total


class _Words:
    """Known words, by what words that are close to them have in common with them.

    Attributes:
        by_domain: words with a domain (``domain/name``), by the domain in lower case.
        by_name: words with a domain, by the name in lower case.
        by_parts: words, by their number of parts; those with a domain are compared as a whole, too, with words that have none.
        plain_by_parts: words without a domain, by their number of parts.
    """

    __slots__ = ("by_domain", "by_name", "by_parts", "plain_by_parts")

    def __init__(self, known: Iterable[str]) -> None:
        self.by_domain: dict[str, list[str]] = {}
        self.by_name: dict[str, list[str]] = {}
        self.by_parts: dict[int, list[str]] = {}
        self.plain_by_parts: dict[int, list[str]] = {}
        for word in known:
            domain, slash, name = word.lower().rpartition("/")
            parts = len(_PARTS.findall(word))
            self.by_parts.setdefault(parts, []).append(word)
            if slash:
                self.by_domain.setdefault(domain, []).append(word)
                self.by_name.setdefault(name, []).append(word)
            else:
                self.plain_by_parts.setdefault(parts, []).append(word)

    def near(self, word: str) -> Iterator[str]:
        """Return the words that may be close to ``word``, in lower case; of all others :func:`_apart` says None."""
        domain, slash, name = word.rpartition("/")
        if slash:
            yield from self.by_domain.get(domain, ())
            yield from self.by_name.get(name, ())
        parts = len(_PARTS.findall(word))
        for number in (parts - 1, parts, parts + 1):
            yield from (self.plain_by_parts if slash else self.by_parts).get(number, ())


@lru_cache(maxsize=64)
def _words(known: frozenset[str]) -> _Words:
    return _Words(known)


def closest_match(word: str, known: Collection[str]) -> str | None:
    """Return the word of ``known`` closest to ``word``, ignoring case; None if none is close.

    Words that differ in a number alone are different names, not misspellings.
    """
    if len(word) > _LONGEST or word in known:
        return None
    written = word.lower()
    best: tuple[int, str] | None = None
    for candidate in _words(frozenset(known)).near(written):
        edits = _apart(written, candidate.lower())
        if edits is not None and (best is None or (edits, candidate) < best):
            best = (edits, candidate)
    return None if best is None else best[1]
