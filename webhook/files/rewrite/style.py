"""The style that a document is written in, so that what is put in looks like the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from gpugate.webhook.files.rewrite.layout import Collection, Layout, LayoutNode, Mapping, Scalar, Sequence, line_start, walk
from gpugate.webhook.files.rewrite.writers import JsonWriter, YamlWriter

_STEP: Final = 2
_QUOTES: Final = ('"', "'")


def line_break(text: str) -> str:
    """The line break that ``text`` mostly uses."""
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    return max(counts, key=lambda one: counts[one])


def yaml_writer(layout: Layout) -> YamlWriter:
    """A writer that indents and quotes as the document does."""
    steps: Counter[int] = Counter()
    dashes: Counter[int] = Counter()
    quotes: Counter[str] = Counter()
    for node, holder in walk(layout.root):
        if isinstance(node, Scalar) and node.style in _QUOTES:
            quotes[node.style] += 1
        if isinstance(holder, Mapping) and isinstance(node, Collection) and not holder.flow and not node.flow:
            (steps if isinstance(node, Mapping) else dashes)[node.column - holder.column] += 1
    step = _most_used(steps, _STEP)
    quote = "'" if quotes["'"] > quotes['"'] else '"'
    return YamlWriter(quote=quote, step=max(step, 1), dash=max(_most_used(dashes, step), 0))


def _most_used(counts: Counter[int], default: int) -> int:
    return min(counts, key=lambda one: (-counts[one], one)) if counts else default


def json_writer(layout: Layout) -> JsonWriter:
    """A writer with the spaces of the document."""
    text = layout.text
    for node, holder in walk(layout.root):
        if isinstance(holder, Mapping):
            entry = next(one for one in holder.entries if one.value is node)
            colon = ": " if text[entry.colon + 1 : entry.colon + 2].isspace() else ":"
            spaced = colon == ": " or "\n" in text
            return JsonWriter(colon=colon, comma=", " if spaced else ",")
    return JsonWriter()


def indentation(text: str, at: int) -> str:
    """The white space that the line around ``at`` begins with."""
    start = line_start(text, at)
    end = start
    while end < len(text) and text[end] in " \t":
        end += 1
    return text[start:end]


def begins_line(text: str, at: int) -> bool:
    """Whether nothing but white space stands before ``at`` in its line."""
    return not text[line_start(text, at) : at].strip(" \t")


def json_step(layout: Layout) -> str:
    """By how much a JSON document indents; empty where it does not."""
    root = layout.root
    children = _children(root)
    if not children or not begins_line(layout.text, children[0].start):
        return ""
    return indentation(layout.text, children[0].start).removeprefix(indentation(layout.text, root.start))


def _children(node: LayoutNode) -> list[LayoutNode]:
    if isinstance(node, Mapping):
        return [one.key for one in node.entries]
    return node.items if isinstance(node, Sequence) else []


def shared_quotes(nodes: Iterable[LayoutNode]) -> str:
    """The quotes that all of these scalars are in; empty where one has none, or they differ."""
    styles = {one.style if isinstance(one, Scalar) else "" for one in nodes}
    return styles.pop() if len(styles) == 1 and styles <= set(_QUOTES) else ""
