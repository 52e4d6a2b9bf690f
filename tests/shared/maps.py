"""Random maps with optional keys, cheaper to draw than Hypothesis' own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

#: Hypothesis prefers small integers; with so few bits every one is as likely as any other.
_BITS = 7


def maps(
    required: Mapping[str, st.SearchStrategy[Any]], optional: Mapping[str, st.SearchStrategy[Any]] | None = None
) -> st.SearchStrategy[dict[str, Any]]:
    """Return maps with all keys of ``required`` and some of ``optional``.

    ``st.fixed_dictionaries`` draws a boolean for each optional key, and of a random policy with its cluster and workload that is
    half of all choices. Here one integer says which keys are there.
    """
    return _maps(tuple(required.items()), tuple((optional or {}).items()))


def chosen(draw: st.DrawFn, count: int) -> list[bool]:
    """Return whether each of ``count`` things is there."""
    bits: list[bool] = []
    while len(bits) < count:
        width = min(_BITS, count - len(bits))
        mask = draw(st.integers(0, (1 << width) - 1))
        bits += [bool(mask >> bit & 1) for bit in range(width)]
    return bits


@st.composite
def _maps(
    draw: st.DrawFn,
    required: tuple[tuple[str, st.SearchStrategy[Any]], ...],
    optional: tuple[tuple[str, st.SearchStrategy[Any]], ...],
) -> dict[str, Any]:
    made = {key: draw(values) for key, values in required}
    made |= {key: draw(values) for there, (key, values) in zip(chosen(draw, len(optional)), optional, strict=True) if there}
    return made
