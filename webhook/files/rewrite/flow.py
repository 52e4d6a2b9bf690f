"""Edit maps and lists in flow style (brackets)."""

import re
from collections.abc import Sequence as Elements
from typing import Final, NamedTuple

from gpugate.webhook.files.rewrite.layout import (
    CannotWriteError,
    Collection,
    LayoutNode,
    MapEntry,
    Mapping,
    Sequence,
    Splice,
    line_end,
)
from gpugate.webhook.files.rewrite.style import begins_line, indentation

_BLANK: Final = re.compile(r"(?:\s|(?<![^\s,\[{])#[^\n\r\x85\u2028\u2029]*)*")
_BLANK_OR_COMMENT: Final = re.compile(r"[ \t]*(?:(?<=[ \t])#.*)?")


class Lines(NamedTuple):
    """Line break and indentation step."""

    eol: str
    step: str


def children(node: Collection) -> list[LayoutNode | MapEntry]:
    """Return the entries or items of ``node``."""
    if isinstance(node, Mapping):
        return list(node.entries)
    return list(node.items) if isinstance(node, Sequence) else []


def start_of(child: LayoutNode | MapEntry) -> int:
    """Return the start index of an entry or item."""
    return child.key.start if isinstance(child, MapEntry) else child.start


def add(text: str, node: Collection, written: Elements[str], comma: str, lines: Lines) -> list[Splice]:
    """Return splices that append ``written`` elements to those of ``node``."""
    if node.opening < 0:
        raise CannotWriteError(node.path, node.start, "is written without braces of its own")
    present = children(node)
    if not present:
        return [_fill(text, node, written, comma, lines)]
    last = present[-1]
    behind = comma_behind(text, last.end)
    at = last.end if behind < 0 else behind + 1
    if not begins_line(text, start_of(last)):
        new = comma.join(written)
        return [Splice(at, at, f"{comma}{new}" if behind < 0 else f"{comma[1:]}{new},")]
    indent = lines.eol + indentation(text, start_of(last))
    new = f",{indent}".join(written)
    if behind >= 0:
        new += ","
    rest = line_end(text, at)
    if _BLANK_OR_COMMENT.fullmatch(text, at, rest):
        # A comment behind the last element stays with it.
        comma_there = [Splice(at, at, ",")] if behind < 0 else []
        return [*comma_there, Splice(rest, rest, indent + new)]
    return [Splice(at, at, ("," if behind < 0 else "") + indent + new)]


def _fill(text: str, node: Collection, written: Elements[str], comma: str, lines: Lines) -> Splice:
    inner = text[node.opening + 1 : node.end - 1]
    if inner.strip():
        # A comment: the closing bracket is on its own line.
        return Splice(node.end - 1, node.end - 1, comma.join(written) + " ")
    if lines.step:
        outer = lines.eol + indentation(text, node.opening)
        indent = outer + lines.step
        return Splice(node.opening + 1, node.end - 1, indent + f",{indent}".join(written) + outer)
    return Splice(node.opening + 1, node.end - 1, comma.join(written))


def comma_behind(text: str, at: int) -> int:
    """Return the index of the next comma; -1 if a closing bracket comes first."""
    match = _BLANK.match(text, at)
    at = match.end() if match else at
    return at if text[at : at + 1] == "," else -1


def remove(node: Mapping, gone: Elements[MapEntry]) -> list[Splice]:
    """Return splices that remove the entries ``gone``, which are not all of them."""
    splices = []
    for at, entry in enumerate(node.entries):
        if entry not in gone:
            continue
        if at + 1 < len(node.entries):
            splices.append(Splice(entry.key.start, node.entries[at + 1].key.start, ""))
        elif node.entries[at - 1] not in gone:
            splices.append(Splice(node.entries[at - 1].end, entry.end, ""))
        else:
            raise CannotWriteError(entry.value.path, entry.key.start, "cannot be taken out from between its brackets")
    return splices
