"""Detect the style of a document, so that inserted text looks like the rest."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from gpugate.webhook.files.rewrite.layout import Collection, Layout, LayoutNode, Mapping, Scalar, Sequence, line_start, walk
from gpugate.webhook.files.rewrite.writers import JsonWriter, YamlWriter

_STEP: Final = 2
_QUOTES: Final = ('"', "'")


def line_break(text: str) -> str:
    """Return the most frequent line break of ``text``."""
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    return max(counts, key=lambda count: counts[count])


def yaml_writer(layout: Layout) -> YamlWriter:
    """Return a writer with the indentation and quotes of the document."""
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
    return min(counts, key=lambda count: (-counts[count], count)) if counts else default


def json_writer(layout: Layout) -> JsonWriter:
    """Return a writer with the spacing of the document."""
    text = layout.text
    for node, holder in walk(layout.root):
        if isinstance(holder, Mapping):
            entry = next(entry for entry in holder.entries if entry.value is node)
            colon = ": " if text[entry.colon + 1 : entry.colon + 2].isspace() else ":"
            spaced = colon == ": " or "\n" in text
            return JsonWriter(colon=colon, comma=", " if spaced else ",")
    return JsonWriter()


def indentation(text: str, at: int) -> str:
    """Return the white space at the start of the line around ``at``."""
    start = line_start(text, at)
    end = start
    while end < len(text) and text[end] in " \t":
        end += 1
    return text[start:end]


def begins_line(text: str, at: int) -> bool:
    """Return whether only white space precedes ``at`` in its line."""
    return not text[line_start(text, at) : at].strip(" \t")


def json_step(layout: Layout) -> str:
    """Return the indentation step of a JSON document; empty for a single-line one."""
    root = layout.root
    children = _children(root)
    if not children or not begins_line(layout.text, children[0].start):
        return ""
    return indentation(layout.text, children[0].start).removeprefix(indentation(layout.text, root.start))


def _children(node: LayoutNode) -> list[LayoutNode]:
    if isinstance(node, Mapping):
        return [entry.key for entry in node.entries]
    return node.items if isinstance(node, Sequence) else []


def shared_quotes(nodes: Iterable[LayoutNode]) -> str:
    """Return the quotes that all of these scalars have in common; empty if they differ or one has none."""
    styles = {node.style if isinstance(node, Scalar) else "" for node in nodes}
    return styles.pop() if len(styles) == 1 and styles <= set(_QUOTES) else ""
