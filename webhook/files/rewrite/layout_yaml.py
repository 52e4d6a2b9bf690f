"""Split a YAML file into its documents, and find the layout of a document from parser events."""

import re
from collections.abc import Iterator
from typing import Any, Final

from ruamel.yaml.events import AliasEvent, MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

from gpugate.policies.kube.fields import Path
from gpugate.webhook.files.rewrite.layout import (
    BREAKS,
    Alias,
    CannotWriteError,
    Chunk,
    Layout,
    LayoutNode,
    MapEntry,
    Mapping,
    Scalar,
    Sequence,
    next_line,
)
from gpugate.webhook.files.yaml import plain_key, yaml_reader

_ANCHOR: Final = re.compile(r"&[^\s,\[\]{}]+\s+")
_MERGE: Final = "<<"
#: Spaces, line breaks and comments between a key and its colon.
_GAP: Final = re.compile(r"(?:\s|(?<=\s)#[^\n\r\x85\u2028\u2029]*)*")
_BREAKS: Final = "\n\r\x85\u2028\u2029"
#: At the start of a line these end a document, even inside a quoted or literal scalar.
_MARKER: Final = re.compile(rf"(?:(?<=[{_BREAKS}])|\A)(---|\.\.\.)(?=[ \t{_BREAKS}]|\Z)")
_IGNORED: Final = re.compile(
    r"(?:[ \t]*(?:#[^\n\r\x85\u2028\u2029]*)?|%[^\n\r\x85\u2028\u2029]*)(?:\r\n|[\n\r\x85\u2028\u2029]|\Z)"
)


def yaml_chunks(text: str) -> list[Chunk]:
    """Return the YAML documents of ``text``, each with its directives, markers and surrounding comments."""
    chunks: list[Chunk] = []
    start, opened = 0, False
    for match in _MARKER.finditer(text):
        at = match.start()
        if match[1] == "---":
            if opened or _has_content(text[start:at]):
                chunks.append(Chunk(len(chunks) + 1, start, at))
                start = at
            opened = True
        else:
            end = next_line(text, at)
            if opened or _has_content(text[start:at]):
                chunks.append(Chunk(len(chunks) + 1, start, end))
            start, opened = end, False
    if opened or _has_content(text[start:]):
        chunks.append(Chunk(len(chunks) + 1, start, len(text)))
    return chunks


def _has_content(text: str) -> bool:
    """Return whether ``text`` contains more than comments, directives and blank lines."""
    at = 0
    while at < len(text):
        match = _IGNORED.match(text, at)
        if match is None or match.end() == at:
            return True
        at = match.end()
    return False


def yaml_layout(text: str) -> Layout | None:
    """Return the layout of the one document in ``text``; None if there is none.

    Raises:
        YAMLError: the text does not parse.
    """
    reader = _Reader(text, yaml_reader().parse(text))
    root = reader.document()
    return None if root is None else Layout(text, root, reader.has_aliases)


class _Reader:
    """Builds the layout; iterative over long documents, recursive over deep ones (the reader limits the depth)."""

    def __init__(self, text: str, events: Iterator[Any]) -> None:
        self._text = text
        self._events = events
        self._anchors: dict[str, LayoutNode] = {}
        self.has_aliases = False

    def document(self) -> LayoutNode | None:
        for event in self._events:
            if isinstance(event, AliasEvent | ScalarEvent | MappingStartEvent | SequenceStartEvent):
                return self._node(event, ())
        return None

    def _node(self, event: Any, path: Path) -> LayoutNode:  # noqa: ANN401 - an event of ruamel.yaml
        if isinstance(event, AliasEvent):
            self.has_aliases = True
            return Alias(event.start_mark.index, event.end_mark.index, path, self._anchors[event.anchor])
        if isinstance(event, ScalarEvent):
            return self._named(event, self._scalar(event, path))
        start, inner = event.start_mark.index, event.end_mark.index
        node: Mapping | Sequence = (
            Mapping(start, inner, path) if isinstance(event, MappingStartEvent) else Sequence(start, inner, path)
        )
        # Register before reading: the node may contain an alias of itself.
        self._named(event, node)
        if event.flow_style:
            node.flow = True
            bracket = "{" if isinstance(node, Mapping) else "["
            node.opening = inner - 1 if self._text[inner - 1 : inner] == bracket else -1
        elif isinstance(node, Mapping) or self._text[inner : inner + 1] == "-":
            node.column = event.end_mark.column
        else:
            # A list at the column of its key: the parser is past the first dash.
            node.column = event.end_mark.column - 1
        end = self._entries(node) if isinstance(node, Mapping) else self._items(node)
        node.end = end if node.flow or end > node.start else inner
        return node

    def _named(self, event: Any, node: LayoutNode) -> LayoutNode:  # noqa: ANN401 - an event of ruamel.yaml
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _scalar(self, event: ScalarEvent, path: Path) -> Scalar:
        text, start, end = self._text, event.start_mark.index, event.end_mark.index
        style = event.style or ""
        if style in {"|", ">"}:
            header = text[start : start + 3]
            last_break = next((line_break for line_break in BREAKS if text.endswith(line_break, start, end)), "")
            end = end - len(last_break) if "+" in header else start + len(text[start:end].rstrip())
        anchor = _ANCHOR.match(text, start, end) if event.anchor is not None else None
        return Scalar(start, end, path, style, anchor.end() if anchor else start)

    def _items(self, node: Sequence) -> int:
        end = node.end
        for event in self._events:
            if isinstance(event, SequenceEndEvent):
                return event.end_mark.index if node.flow else end
            item = self._node(event, (*node.path, len(node.items)))
            if isinstance(item, Scalar) and item.is_empty:
                # Move an empty item to its dash: the parser reports it after the comments.
                item.start = item.end = item.content = len(self._text[: item.start].rstrip())
            node.items.append(item)
            end = max(end, item.end)
        return end

    def _entries(self, node: Mapping) -> int:
        end = node.end
        for event in self._events:
            if isinstance(event, MappingEndEvent):
                return event.end_mark.index if node.flow else end
            entry = self._entry(node, event)
            if entry.name == _MERGE and isinstance(entry.key, Scalar) and not entry.key.style:
                node.merged.extend(entry.value.items if isinstance(entry.value, Sequence) else [entry.value])
            else:
                node.entries.append(entry)
            end = max(end, entry.end)
        return end

    def _entry(self, node: Mapping, event: Any) -> MapEntry:  # noqa: ANN401 - an event of ruamel.yaml
        key = self._node(event, node.path)
        name: str | None = None
        if isinstance(event, ScalarEvent):
            name = plain_key(event.value) if event.implicit[0] and not event.style else event.value
        elif isinstance(event, AliasEvent):
            raise CannotWriteError(node.path, event.start_mark.index, "has an alias as a key")
        value = self._node(next(self._events), (*node.path, name if name is not None else ""))
        gap = _GAP.match(self._text, key.end)
        colon = gap.end() if gap else key.end
        if self._text[colon : colon + 1] != ":":
            colon = -1
        if isinstance(value, Scalar) and value.is_empty:
            value.start = value.end = value.content = max(colon + 1, key.end)
        return MapEntry(key, name, value, colon)
