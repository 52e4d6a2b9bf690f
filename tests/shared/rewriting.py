"""Changing the data of a text and writing it back, in one call."""

from __future__ import annotations

from typing import Any

from gpugate.policies.kube.fields import clone
from gpugate.webhook.files.documents import Document, parse
from gpugate.webhook.files.rewrite.rewrite import Rewritten, rewrite

#: As a value: take the field out.
GONE = object()


def documents(text: str) -> dict[int, Any]:
    found = list(parse("test.yaml", text))
    assert all(isinstance(one, Document) for one in found), found
    return {one.number: one.value for one in found if isinstance(one, Document)}


def changed(value: Any, edits: dict[str, Any]) -> Any:
    """``value`` with each of ``edits`` made: a dotted place, ``-`` the end of a list, and what goes there."""
    wanted = clone(value)
    for place, new in edits.items():
        *way, last = (int(part) if part.isdigit() else part for part in place.split("."))
        holder = wanted
        for part in way:
            holder = holder[part]
        if new is GONE:
            del holder[last]
        elif last == "-":
            holder.append(new)
        else:
            holder[last] = new
    return wanted


def written(text: str, edits: dict[str, Any], number: int = 1) -> Rewritten:
    held = documents(text)
    return rewrite(text, held, {number: changed(held[number], edits)})


def text_after(text: str, edits: dict[str, Any], number: int = 1) -> str:
    """The text once the document ``number`` holds what the ``edits`` make of it."""
    result = written(text, edits, number)
    assert not result.failures, result.failures
    return result.text
