"""Where everything in a document stands: maps, lists and scalars with their places in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpugate.policies.kube.fields import Path, dotted

#: What ends a line in YAML 1.1, longest first.
BREAKS = ("\r\n", "\n", "\r", "\x85", "\u2028", "\u2029")


class CannotWriteError(Exception):
    """A change that cannot be written into the text without changing something else.

    Attributes:
        path: the field.
        at: where it stands in the text, an index.
        problem: why not.
    """

    def __init__(self, path: Path, at: int, problem: str) -> None:
        super().__init__(f"{dotted(path)}: {problem}")
        self.path = path
        self.at = at
        self.problem = problem


@dataclass(slots=True, eq=False)
class LayoutNode:
    """Anything in a document.

    Attributes:
        start: index of its first character, that of its anchor or tag where it has one.
        end: index behind its last character; comments and blank lines behind it are not its own.
        path: where it lies in the document's data, by the text that defines it.
    """

    start: int
    end: int
    path: Path


@dataclass(slots=True, eq=False)
class Scalar(LayoutNode):
    """A scalar.

    Attributes:
        style: its quotes (``'`` or ``"``), ``|`` or ``>`` for a block, empty for a plain one.
        content: index behind its anchor.
    """

    style: str = ""
    content: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is written at all, which stands for null."""
        return self.start == self.end


@dataclass(slots=True, eq=False)
class Alias(LayoutNode):
    """An alias, ``*name``, and what it stands for."""

    target: LayoutNode


@dataclass(slots=True, eq=False)
class MapEntry:
    """A key of a map with its value.

    Attributes:
        key: the key's own place.
        name: the key as data; None where it is no scalar.
        value: the value.
        colon: index of the colon between the two; -1 where there is none.
    """

    key: LayoutNode
    name: str | None
    value: LayoutNode
    colon: int

    @property
    def end(self) -> int:
        """Index behind the last character of key and value."""
        return max(self.key.end, self.value.end, self.colon + 1)


@dataclass(slots=True, eq=False)
class Collection(LayoutNode):
    """A map or a list.

    Attributes:
        flow: whether it stands in brackets.
        opening: of one in brackets, the index of the opening one; -1 where it has none (the ``a: b`` of ``[a: b]``).
        column: of one without brackets, the column of its keys or dashes.
    """

    flow: bool = False
    opening: int = -1
    column: int = 0


@dataclass(slots=True, eq=False)
class Mapping(Collection):
    """A map.

    Attributes:
        entries: its own entries.
        merged: what its ``<<`` keys merge into it.
    """

    entries: list[MapEntry] = field(default_factory=list)
    merged: list[LayoutNode] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Sequence(Collection):
    """A list and its elements."""

    items: list[LayoutNode] = field(default_factory=list)


@dataclass(slots=True)
class Layout:
    """A document's text and what stands in it.

    Attributes:
        text: the text.
        root: what the document holds.
        has_aliases: whether a node stands for another.
    """

    text: str
    root: LayoutNode
    has_aliases: bool = False


def walk(node: LayoutNode) -> Iterator[tuple[LayoutNode, LayoutNode | None]]:
    """Every node below ``node`` and itself, each with the map or list that holds it; aliases are not followed."""
    waiting: list[tuple[LayoutNode, LayoutNode | None]] = [(node, None)]
    while waiting:
        one, holder = waiting.pop()
        yield one, holder
        if isinstance(one, Mapping):
            waiting.extend((entry.value, one) for entry in one.entries)
        elif isinstance(one, Sequence):
            waiting.extend((item, one) for item in one.items)


def line_end(text: str, at: int) -> int:
    """The index at which the line around ``at`` ends, before its line break."""
    while at < len(text) and text[at] not in "\n\r\x85\u2028\u2029":
        at += 1
    return at


def next_line(text: str, at: int) -> int:
    """The index at which the line behind that around ``at`` begins."""
    end = line_end(text, at)
    return end + 2 if text.startswith("\r\n", end) else min(end + 1, len(text))


def line_start(text: str, at: int) -> int:
    """The index at which the line around ``at`` begins."""
    while at > 0 and text[at - 1] not in "\n\r\x85\u2028\u2029":
        at -= 1
    return at


def line_number(text: str, at: int) -> int:
    """The number of the line around ``at``, from 1."""
    before = text[:at]
    return 1 + sum(before.count(one) for one in BREAKS[1:]) - before.count("\r\n")
