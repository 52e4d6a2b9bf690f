"""Edit maps and lists in block style."""

import re
from typing import Final

from gpugate.webhook.files.rewrite.layout import MapEntry, Mapping, Splice, line_end, line_start, next_line
from gpugate.webhook.files.rewrite.style import begins_line

_BOUNDARY: Final = re.compile(r"(?:---|\.\.\.)(?:\s|$)")


def insertion(text: str, at: int, lines: list[str], eol: str) -> Splice:
    """Return the splice that inserts ``lines`` after the line around ``at`` or, at the start of a line, before it."""
    written = eol.join(lines)
    if at < len(text) or not text or text[-1] in "\n\r\x85\u2028\u2029":
        return Splice(at, at, written + eol)
    # The last line has no line break: the inserted text gets none either.
    return Splice(at, at, eol + written)


def behind(text: str, end: int, column: int) -> int:
    """Return where to insert a line after ``end``: behind comments of the same collection at ``column``."""
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


def remove(text: str, node: Mapping, entry: MapEntry) -> Splice:
    """Return the splice that removes ``entry`` with its lines."""
    start, end = entry.key.start, next_line(text, entry.end)
    if begins_line(text, start):
        return Splice(line_start(text, start), end, "")
    # The first key of a list item shares its line with the dash: the next key moves there.
    follower = node.entries[node.entries.index(entry) + 1] if entry is not node.entries[-1] else None
    return Splice(start, follower.key.start if follower else entry.end, "")
