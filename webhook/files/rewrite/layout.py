"""The positions of maps, lists and scalars in the text of a document, and text edits (splices)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from gpugate.policies.kube.fields import Path, dotted

#: Line breaks of YAML 1.1, longest first.
BREAKS = ("\r\n", "\n", "\r", "\x85", "\u2028", "\u2029")


class CannotWriteError(Exception):
    """A change of the field ``path``, at index ``at`` of the text, that cannot be written without side effects."""

    def __init__(self, path: Path, at: int, problem: str) -> None:
        super().__init__(f"{dotted(path)}: {problem}")
        self.at = at


@dataclass(slots=True, eq=False)
class LayoutNode:
    """A node of a document: its path, and the indexes of its start (anchor and tag included) and end (without comments)."""

    start: int
    end: int
    path: Path


@dataclass(slots=True, eq=False)
class Scalar(LayoutNode):
    """A scalar.

    Attributes:
        style: ``'`` or ``"`` for a quoted scalar, ``|`` or ``>`` for a block scalar, empty for a plain one.
        content: index after its anchor.
    """

    style: str = ""
    content: int = 0

    @property
    def is_empty(self) -> bool:
        """Return whether the scalar has no text, which means null."""
        return self.start == self.end


@dataclass(slots=True, eq=False)
class Alias(LayoutNode):
    """An alias, ``*name``, and its target."""

    target: LayoutNode


@dataclass(slots=True, eq=False)
class MapEntry:
    """A key of a map with its value.

    Attributes:
        name: the key as data; None for a key that is not a scalar.
        colon: index of the colon between key and value; -1 without one.
    """

    key: LayoutNode
    name: str | None
    value: LayoutNode
    colon: int

    @property
    def end(self) -> int:
        """Return the index after the last character of key and value."""
        return max(self.key.end, self.value.end, self.colon + 1)


@dataclass(slots=True, eq=False)
class Collection(LayoutNode):
    """A map or a list.

    Attributes:
        flow: whether it is in flow style (brackets).
        opening: index of the opening bracket in flow style; -1 without one (the ``a: b`` of ``[a: b]``).
        column: column of its keys or dashes in block style.
    """

    flow: bool = False
    opening: int = -1
    column: int = 0


@dataclass(slots=True, eq=False)
class Mapping(Collection):
    """A map: its own entries, and the values of its ``<<`` keys."""

    entries: list[MapEntry] = field(default_factory=list)
    merged: list[LayoutNode] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Sequence(Collection):
    """A list and its items."""

    items: list[LayoutNode] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """The text of a document and its nodes."""

    text: str
    root: LayoutNode
    has_aliases: bool = False


def walk(node: LayoutNode) -> Iterator[tuple[LayoutNode, LayoutNode | None]]:
    """Yield ``node`` and every node below it, each with its parent; aliases are not followed."""
    pairs: list[tuple[LayoutNode, LayoutNode | None]] = [(node, None)]
    while pairs:
        current, parent = pairs.pop()
        yield current, parent
        if isinstance(current, Mapping):
            pairs.extend((entry.value, current) for entry in current.entries)
        elif isinstance(current, Sequence):
            pairs.extend((item, current) for item in current.items)


def skip_space(text: str, at: int) -> int:
    """Return the index of the next character from ``at`` that is no white space."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def line_end(text: str, at: int) -> int:
    """Return the end index of the line around ``at``, before its line break."""
    while at < len(text) and text[at] not in "\n\r\x85\u2028\u2029":
        at += 1
    return at


def next_line(text: str, at: int) -> int:
    """Return the start index of the line after the one around ``at``."""
    end = line_end(text, at)
    return end + 2 if text.startswith("\r\n", end) else min(end + 1, len(text))


def line_start(text: str, at: int) -> int:
    """Return the start index of the line around ``at``."""
    while at > 0 and text[at - 1] not in "\n\r\x85\u2028\u2029":
        at -= 1
    return at


def indentation(text: str, at: int) -> str:
    """Return the white space at the start of the line around ``at``."""
    start = line_start(text, at)
    end = start
    while end < len(text) and text[end] in " \t":
        end += 1
    return text[start:end]


def begins_line(text: str, at: int) -> bool:
    """Return whether only white space precedes ``at`` in its line."""
    return not text[line_start(text, at) : at].strip(" \t")


def line_number(text: str, at: int) -> int:
    """Return the number of the line around ``at``, from 1."""
    before = text[:at]
    return 1 + sum(before.count(line_break) for line_break in BREAKS[1:]) - before.count("\r\n")


class Chunk(NamedTuple):
    """The part of a text with one document: its number, from 1, and the indexes of its start and end."""

    number: int
    start: int
    end: int


class Splice(NamedTuple):
    """Text that replaces the characters from ``start`` to ``end``."""

    start: int
    end: int
    text: str


class OverlapError(Exception):
    """Two splices touch the same characters, at index ``at``."""

    def __init__(self, at: int) -> None:
        super().__init__(f"two changes at {at}")
        self.at = at


def spliced(text: str, splices: list[Splice]) -> str:
    """Apply all ``splices`` to ``text``; insertions at the same index keep their order.

    Raises:
        OverlapError: two of them touch the same characters.
    """
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(splices, key=lambda splice: splice[:2]):
        if start < done:
            raise OverlapError(start)
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])
