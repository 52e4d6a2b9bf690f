"""Split the text of a file into its documents."""

import re
from typing import Final, NamedTuple

from gpugate.webhook.files.rewrite.layout import next_line
from gpugate.webhook.files.rewrite.layout_json import json_spans

_BREAKS: Final = "\n\r\x85\u2028\u2029"
#: At the start of a line these end a document, even inside a quoted or literal scalar.
_MARKER: Final = re.compile(rf"(?:(?<=[{_BREAKS}])|\A)(---|\.\.\.)(?=[ \t{_BREAKS}]|\Z)")
_IGNORED: Final = re.compile(
    r"(?:[ \t]*(?:#[^\n\r\x85\u2028\u2029]*)?|%[^\n\r\x85\u2028\u2029]*)(?:\r\n|[\n\r\x85\u2028\u2029]|\Z)"
)


class Chunk(NamedTuple):
    """The part of a text with one document.

    Attributes:
        number: number of the document, from 1.
        start: index of its first character.
        end: index after its last character.
    """

    number: int
    start: int
    end: int


def json_chunks(text: str) -> list[Chunk]:
    """Return the JSON values of ``text``."""
    return [Chunk(number, *span) for number, span in enumerate(json_spans(text), start=1)]


def yaml_chunks(text: str) -> list[Chunk]:
    """Return the YAML documents of ``text``, each with its directives, markers and surrounding comments."""
    chunks: list[Chunk] = []
    start, opened = 0, False
    for match in _MARKER.finditer(text):
        at = match.start()
        if match[1] == "---":
            if opened or _holds_something(text[start:at]):
                chunks.append(Chunk(len(chunks) + 1, start, at))
                start = at
            opened = True
        else:
            end = next_line(text, at)
            if opened or _holds_something(text[start:at]):
                chunks.append(Chunk(len(chunks) + 1, start, end))
            start, opened = end, False
    if opened or _holds_something(text[start:]):
        chunks.append(Chunk(len(chunks) + 1, start, len(text)))
    return chunks


def _holds_something(text: str) -> bool:
    """Return whether there is more than comments, directives and blank lines."""
    at = 0
    while at < len(text):
        match = _IGNORED.match(text, at)
        if match is None or match.end() == at:
            return True
        at = match.end()
    return False
