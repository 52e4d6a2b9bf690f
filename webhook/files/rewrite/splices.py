"""Edits of a text at places of it, applied all at once."""

from __future__ import annotations

from typing import NamedTuple


class Splice(NamedTuple):
    """Text that takes the place of the characters from ``start`` to ``end``."""

    start: int
    end: int
    text: str


class OverlapError(Exception):
    """Two splices want the same characters.

    Attributes:
        at: where.
    """

    def __init__(self, at: int) -> None:
        super().__init__(f"two changes at {at}")
        self.at = at


def spliced(text: str, splices: list[Splice]) -> str:
    """``text`` with all ``splices`` made; insertions at one place stay in their order.

    Raises:
        OverlapError: two of them touch the same characters.
    """
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(splices, key=lambda one: one[:2]):
        if start < done:
            raise OverlapError(start)
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])
