"""Write changed objects back into the text of their file, and verify the result."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ruamel.yaml.error import YAMLError

from gpugate.webhook.files.documents import Document, json_values, parse
from gpugate.webhook.files.rewrite.documents import Chunk, json_chunks, yaml_chunks
from gpugate.webhook.files.rewrite.editor import same, splices
from gpugate.webhook.files.rewrite.layout import CannotWriteError, OverlapError, Splice, line_number, spliced
from gpugate.webhook.files.rewrite.layout_json import json_layout
from gpugate.webhook.files.rewrite.layout_yaml import yaml_layout
from gpugate.webhook.files.rewrite.style import line_break


class RewriteFailure(NamedTuple):
    """A document left unchanged because its new content could not be written.

    Attributes:
        line: line number, from 1.
        problem: the reason.
    """

    line: int
    problem: str


class Rewritten(NamedTuple):
    """The result for a file.

    Attributes:
        text: its new text.
        failures: documents left unchanged, by number.
    """

    text: str
    failures: dict[int, RewriteFailure]


def rewrite(text: str, documents: Mapping[int, Any], wanted: Mapping[int, Any]) -> Rewritten:
    """Return ``text`` with the ``wanted`` content of its documents.

    Args:
        text: text of a file.
        documents: content of each document, by number; empty ones may be left out.
        wanted: new content of the documents to change.
    """
    is_json = json_values(text) is not None
    chunks = [json_chunk for json_chunk in (json_chunks(text) if is_json else yaml_chunks(text)) if json_chunk.number in wanted]
    parts: dict[Chunk, str] = {}
    failures: dict[int, RewriteFailure] = {}
    eol = line_break(text)
    for chunk in chunks:
        part = text[chunk.start : chunk.end]
        try:
            parts[chunk] = _document(part, documents[chunk.number], wanted[chunk.number], eol, is_json=is_json)
        except (CannotWriteError, OverlapError) as error:
            failures[chunk.number] = RewriteFailure(line_number(text, chunk.start + error.at), str(error))
    for attempt in _attempts(parts, wanted):
        changed = spliced(text, [Splice(chunk.start, chunk.end, new) for chunk, new in attempt.items()])
        written = {chunk.number: wanted[chunk.number] for chunk in attempt}
        if _reads_as(changed, {**documents, **written}):
            unwritten = {number: failures.get(number, _NOT_READ_BACK) for number in wanted if number not in written}
            return Rewritten(changed, unwritten)
    return Rewritten(text, {number: failures.get(number, _NOT_READ_BACK) for number in wanted})


_NOT_READ_BACK = RewriteFailure(1, "the rewritten text does not read back as the wanted object; the object is left unchanged")


def _attempts(parts: Mapping[Chunk, str], wanted: Mapping[int, Any]) -> Iterator[Mapping[Chunk, str]]:
    """Yield all documents together, and then only those that read back as wanted on their own."""
    yield parts
    yield {chunk: new for chunk, new in parts.items() if _reads_as(new, {1: wanted[chunk.number]})}


def _document(text: str, before: Any, wanted: Any, eol: str, *, is_json: bool) -> str:  # noqa: ANN401 - any JSON value
    """Return the ``text`` of one document with the ``wanted`` content."""
    try:
        layout = json_layout(text) if is_json else yaml_layout(text)
        if layout is None:
            raise CannotWriteError((), 0, "is empty")
        return spliced(text, splices(layout, before, wanted, eol, json=is_json))
    except (YAMLError, RecursionError) as error:
        raise CannotWriteError((), 0, f"cannot be taken apart ({type(error).__name__})") from None


def _reads_as(text: str, held: Mapping[int, Any]) -> bool:
    """Return whether ``text`` holds exactly these documents."""
    result = {one.number: one.value if isinstance(one, Document) else None for one in parse("", text)}
    kept = {number: value for number, value in held.items() if value is not None}
    return result.keys() == kept.keys() and all(same(result[number], kept[number]) for number in kept)
