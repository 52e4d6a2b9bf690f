"""Find the layout of a JSON value that has been parsed before."""

import json
import re
from typing import Final

from gpugate.policies.kube.fields import Path
from gpugate.webhook.files.rewrite.layout import Chunk, Layout, LayoutNode, MapEntry, Mapping, Scalar, Sequence, skip_space

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE: Final = re.compile(r"[^\s,\]}]+")


def json_layout(text: str) -> Layout:
    """Return the layout of the one JSON value in ``text``."""
    return Layout(text, _value(text, skip_space(text, 0), ()))


def json_chunks(text: str) -> list[Chunk]:
    """Return the concatenated JSON values of ``text``."""
    chunks: list[Chunk] = []
    at = skip_space(text, 0)
    while at < len(text):
        end = _value(text, at, ()).end
        chunks.append(Chunk(len(chunks) + 1, at, end))
        at = skip_space(text, end)
    return chunks


def _value(text: str, at: int, path: Path) -> LayoutNode:
    opening = text[at]
    if opening == "{":
        return _entries(text, Mapping(at, at + 1, path, flow=True, opening=at))
    if opening == "[":
        return _items(text, Sequence(at, at + 1, path, flow=True, opening=at))
    match = (_STRING if opening == '"' else _BARE).match(text, at)
    return Scalar(at, match.end() if match else at + 1, path, '"' if opening == '"' else "", at)


def _entries(text: str, node: Mapping) -> Mapping:
    entries: dict[str, MapEntry] = {}
    at = skip_space(text, node.opening + 1)
    while text[at] != "}":
        key = _value(text, at, node.path)
        name = json.loads(text[key.start : key.end])
        colon = skip_space(text, key.end)
        value = _value(text, skip_space(text, colon + 1), (*node.path, name))
        # The last of duplicate keys wins.
        entries.pop(name, None)
        entries[name] = MapEntry(key, name, value, colon)
        at = _next(text, value.end)
    node.entries = list(entries.values())
    node.end = at + 1
    return node


def _items(text: str, node: Sequence) -> Sequence:
    at = skip_space(text, node.opening + 1)
    while text[at] != "]":
        item = _value(text, at, (*node.path, len(node.items)))
        node.items.append(item)
        at = _next(text, item.end)
    node.end = at + 1
    return node


def _next(text: str, at: int) -> int:
    """Return the index of the next element or of the closing bracket."""
    at = skip_space(text, at)
    return skip_space(text, at + 1) if text[at] == "," else at
