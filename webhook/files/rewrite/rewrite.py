"""Write changed objects back into the text of their file, and verify the result."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ruamel.yaml.error import YAMLError

from gpugate.webhook.files.documents import Document, json_values, parse
from gpugate.webhook.files.rewrite.editor import same, splices
from gpugate.webhook.files.rewrite.layout import CannotWriteError, Chunk, OverlapError, Splice, line_number, spliced
from gpugate.webhook.files.rewrite.layout_json import json_chunks, json_layout
from gpugate.webhook.files.rewrite.layout_yaml import yaml_chunks, yaml_layout
from gpugate.webhook.files.rewrite.writers import line_break


class RewriteFailure(NamedTuple):
    """Why the new content of a document could not be written, and the line of the problem, from 1."""

    line: int
    problem: str


class Rewritten(NamedTuple):
    """The new text of a file, and why documents of these numbers were left unchanged."""

    text: str
    failures: dict[int, RewriteFailure]


def rewrite(text: str, documents: Mapping[int, Any], desired: Mapping[int, Any]) -> Rewritten:
    """Return the ``text`` of a file with the ``desired`` content of some documents; ``documents`` are those that are not empty."""
    is_json = json_values(text) is not None
    chunks = [chunk for chunk in (json_chunks(text) if is_json else yaml_chunks(text)) if chunk.number in desired]
    parts: dict[Chunk, str] = {}
    failures: dict[int, RewriteFailure] = {}
    eol = line_break(text)
    for chunk in chunks:
        part = text[chunk.start : chunk.end]
        try:
            parts[chunk] = _document(part, documents[chunk.number], desired[chunk.number], eol, is_json=is_json)
        except (CannotWriteError, OverlapError) as error:
            failures[chunk.number] = RewriteFailure(line_number(text, chunk.start + error.at), str(error))
    # Try all documents together, and then only those that read back as desired on their own.
    for alone in (False, True):
        attempt = {chunk: new for chunk, new in parts.items() if not alone or _reads_as(new, {1: desired[chunk.number]})}
        changed = spliced(text, [Splice(chunk.start, chunk.end, new) for chunk, new in attempt.items()])
        written = {chunk.number: desired[chunk.number] for chunk in attempt}
        if _reads_as(changed, {**documents, **written}):
            unwritten = {number: failures.get(number, _NOT_READ_BACK) for number in desired if number not in written}
            return Rewritten(changed, unwritten)
    return Rewritten(text, {number: failures.get(number, _NOT_READ_BACK) for number in desired})


_NOT_READ_BACK = RewriteFailure(1, "the rewritten text does not read back as the new object; the object is left unchanged")


def _document(text: str, before: Any, desired: Any, eol: str, *, is_json: bool) -> str:  # noqa: ANN401 - any JSON value
    try:
        layout = json_layout(text) if is_json else yaml_layout(text)
        if layout is None:
            raise CannotWriteError((), 0, "is empty")
        return spliced(text, splices(layout, before, desired, eol, json=is_json))
    except (YAMLError, RecursionError) as error:
        raise CannotWriteError((), 0, f"cannot be analysed ({type(error).__name__})") from None


def _reads_as(text: str, documents: Mapping[int, Any]) -> bool:
    """Return whether ``text`` contains exactly these documents, by number."""
    parsed = {document.number: document.value if isinstance(document, Document) else None for document in parse("", text)}
    expected = {number: value for number, value in documents.items() if value is not None}
    return parsed.keys() == expected.keys() and all(same(parsed[number], expected[number]) for number in expected)
