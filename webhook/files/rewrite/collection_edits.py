"""Add and remove elements of maps and lists, in block style and in flow style (brackets)."""

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
    begins_line,
    indentation,
    line_end,
    line_start,
    next_line,
)

_BOUNDARY: Final = re.compile(r"(?:---|\.\.\.)(?:\s|$)")
_BLANK: Final = re.compile(r"(?:\s|(?<![^\s,\[{])#[^\n\r\x85\u2028\u2029]*)*")
_BLANK_OR_COMMENT: Final = re.compile(r"[ \t]*(?:(?<=[ \t])#.*)?")


def insert_lines(text: str, at: int, lines: list[str], eol: str) -> Splice:
    """Return the splice that inserts ``lines`` after the line around ``at`` or, at the start of a line, before it."""
    inserted = eol.join(lines)
    if at < len(text) or not text or text[-1] in "\n\r\x85\u2028\u2029":
        return Splice(at, at, inserted + eol)
    # The last line has no line break: add none after the inserted text.
    return Splice(at, at, eol + inserted)


def after_comments(text: str, end: int, column: int) -> int:
    """Return the index for a new line after ``end``: after comments of the same collection at ``column``."""
    at = next_line(text, end)
    following = _next_content_column(text, at)
    while at < len(text):
        indent = _comment_column(text, at)
        if indent is None or indent < column or indent <= following:
            break
        at = next_line(text, at)
    return at


def _comment_column(text: str, at: int) -> int | None:
    """Return the column of a comment-only line that begins at ``at``; None for other lines."""
    start = at
    while at < len(text) and text[at] == " ":
        at += 1
    return at - start if text[at : at + 1] == "#" else None


def _next_content_column(text: str, at: int) -> int:
    """Return the column of the next line with content; -1 if the document ends first."""
    while at < len(text):
        end = line_end(text, at)
        line = text[at:end]
        bare = line.lstrip(" \t")
        if bare and not bare.startswith("#"):
            return -1 if _BOUNDARY.match(line) else len(line) - len(bare)
        at = next_line(text, end)
    return -1


def remove_lines(text: str, node: Mapping, entry: MapEntry) -> Splice:
    """Return the splice that removes ``entry`` with its lines."""
    start, end = entry.key.start, next_line(text, entry.end)
    if begins_line(text, start):
        return Splice(line_start(text, start), end, "")
    # The first key of a list item shares its line with the dash: the next key moves there.
    follower = node.entries[node.entries.index(entry) + 1] if entry is not node.entries[-1] else None
    return Splice(start, follower.key.start if follower else entry.end, "")


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


def append_in_brackets(text: str, node: Collection, new_elements: Elements[str], comma: str, lines: Lines) -> list[Splice]:
    """Return splices that append ``new_elements`` to those of ``node``."""
    if node.opening < 0:
        raise CannotWriteError(node.path, node.start, "has no brackets")
    elements = children(node)
    if not elements:
        return [_fill(text, node, new_elements, comma, lines)]
    last = elements[-1]
    comma_index = _comma_after(text, last.end)
    at = last.end if comma_index < 0 else comma_index + 1
    if not begins_line(text, start_of(last)):
        new = comma.join(new_elements)
        return [Splice(at, at, f"{comma}{new}" if comma_index < 0 else f"{comma[1:]}{new},")]
    indent = lines.eol + indentation(text, start_of(last))
    new = f",{indent}".join(new_elements)
    if comma_index >= 0:
        new += ","
    rest = line_end(text, at)
    if _BLANK_OR_COMMENT.fullmatch(text, at, rest):
        # Keep a comment after the last element beside it.
        missing_comma = [Splice(at, at, ",")] if comma_index < 0 else []
        return [*missing_comma, Splice(rest, rest, indent + new)]
    return [Splice(at, at, ("," if comma_index < 0 else "") + indent + new)]


def _fill(text: str, node: Collection, new_elements: Elements[str], comma: str, lines: Lines) -> Splice:
    inner = text[node.opening + 1 : node.end - 1]
    if inner.strip():
        # A comment: the closing bracket is on its own line.
        return Splice(node.end - 1, node.end - 1, comma.join(new_elements) + " ")
    if lines.step:
        outer = lines.eol + indentation(text, node.opening)
        indent = outer + lines.step
        return Splice(node.opening + 1, node.end - 1, indent + f",{indent}".join(new_elements) + outer)
    return Splice(node.opening + 1, node.end - 1, comma.join(new_elements))


def _comma_after(text: str, at: int) -> int:
    """Return the index of the next comma; -1 if a closing bracket comes first."""
    match = _BLANK.match(text, at)
    at = match.end() if match else at
    return at if text[at : at + 1] == "," else -1


def remove_in_brackets(node: Mapping, removed: Elements[MapEntry]) -> list[Splice]:
    """Return splices that remove the entries ``removed``, which are not all of them."""
    splices = []
    for at, entry in enumerate(node.entries):
        if entry not in removed:
            continue
        if at + 1 < len(node.entries):
            splices.append(Splice(entry.key.start, node.entries[at + 1].key.start, ""))
        elif node.entries[at - 1] not in removed:
            splices.append(Splice(node.entries[at - 1].end, entry.end, ""))
        else:
            raise CannotWriteError(entry.value.path, entry.key.start, "cannot be removed from between its brackets")
    return splices
