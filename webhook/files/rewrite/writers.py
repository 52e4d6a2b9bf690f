"""Detect the style of a document, and format values in it."""

import json
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gpugate.webhook.files.rewrite.layout import (
    Collection,
    Layout,
    LayoutNode,
    Mapping,
    Scalar,
    Sequence,
    begins_line,
    indentation,
    walk,
)
from gpugate.webhook.files.yaml import AMBIGUOUS, yaml_float

#: Strings that YAML 1.1 and 1.2 both read as plain text, unless they are ambiguous.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./$\\^+~(][A-Za-z0-9_./@%+=~$\\^();-]*(?:(?: |:(?! ))[A-Za-z0-9_./@%+=~$\\^();-]+)*")
_PLAIN_IN_FLOW: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@%+=~-]*")
#: Text that fits in single quotes on one line.
_SINGLE: Final = re.compile(r"[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")
#: Characters that YAML reads as line breaks, or rejects.
_UNSEEN: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")
_STEP: Final = 2
_QUOTES: Final = ('"', "'")


@dataclass(slots=True)
class FlowWriter(ABC):
    """Formats values in flow style.

    Attributes:
        colon: separator of key and value.
        comma: separator of two elements on one line.
    """

    colon: str = ": "
    comma: str = ", "

    @abstractmethod
    def scalar(self, value: Any, *, flow: bool = True, style: str = "") -> str:  # noqa: ANN401 - any JSON value
        """Format a scalar on one line, in the quotes ``style`` if it needs or allows quotes."""

    def inline(self, value: Any, style: str = "", pad: str = "") -> str:  # noqa: ANN401 - any JSON value
        """Format ``value`` on one line, maps and lists in brackets; ``pad`` goes inside of the brackets of a map."""
        if isinstance(value, dict):
            if not value:
                return "{}"
            inner = (f"{self.scalar(key, style=style)}{self.colon}{self.inline(item, style, pad)}" for key, item in value.items())
            return "{" + pad + self.comma.join(inner) + pad + "}"
        if isinstance(value, list):
            return "[" + self.comma.join(self.inline(item, style, pad) for item in value) + "]"
        return self.scalar(value, style=style)


@dataclass(slots=True)
class JsonWriter(FlowWriter):
    """Formats JSON."""

    def scalar(self, value: Any, *, flow: bool = True, style: str = "") -> str:  # noqa: ANN401, ARG002 - any JSON value
        """Format ``value`` as JSON."""
        return _json(value)

    def lines(self, value: Any, indent: str, step: str, eol: str) -> str:  # noqa: ANN401 - any JSON value
        """Format ``value`` on several lines, indented by ``indent`` after the first line."""
        if not value or not isinstance(value, dict | list):
            return self.inline(value)
        deeper = indent + step
        if isinstance(value, dict):
            inner = [f"{self.scalar(key)}{self.colon}{self.lines(item, deeper, step, eol)}" for key, item in value.items()]
        else:
            inner = [self.lines(item, deeper, step, eol) for item in value]
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        return f"{opening}{eol}{deeper}" + f",{eol}{deeper}".join(inner) + f"{eol}{indent}{closing}"


@dataclass(slots=True)
class YamlWriter(FlowWriter):
    """Formats YAML that parsers of YAML 1.1 and 1.2 read the same.

    Attributes:
        quote: quotes for strings that need them.
        step: indentation of a map below its parent map.
        dash: indentation of the dashes of a list below its key.
    """

    quote: str = '"'
    step: int = 2
    dash: int = 2

    def scalar(self, value: Any, *, flow: bool = True, style: str = "") -> str:  # noqa: ANN401 - any JSON value
        """Format a scalar on one line."""
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return yaml_float(value)
        if not isinstance(value, str):
            return str(value)
        plain = (_PLAIN_IN_FLOW if flow else _PLAIN).fullmatch(value) and not AMBIGUOUS.fullmatch(value)
        if plain and not style:
            return value
        return _quoted(value, style or self.quote)

    def block(self, value: Any, column: int, style: str = "") -> list[str]:  # noqa: ANN401 - any JSON value
        """Format ``value`` as lines that begin at ``column``; a scalar or empty collection is one line."""
        if isinstance(value, dict) and value:
            return [line for key, item in value.items() for line in self.entry(key, item, column, style)]
        if isinstance(value, list) and value:
            return [line for item in value for line in self.item(item, column, style)]
        return [" " * column + self.inline(value, style)]

    def entry(self, key: str, value: Any, column: int, style: str = "") -> list[str]:  # noqa: ANN401 - any JSON value
        """Format ``key: value`` as lines, the key at ``column``."""
        written = " " * column + self.scalar(key, flow=False, style=style) + ":"
        if isinstance(value, dict | list) and value:
            return [written, *self.block(value, column + (self.step if isinstance(value, dict) else self.dash), style)]
        shown = self.inline(value) if isinstance(value, dict | list) else self.scalar(value, flow=False, style=style)
        return [f"{written} {shown}"]

    def item(self, value: Any, column: int, style: str = "", gap: int = 1) -> list[str]:  # noqa: ANN401 - any JSON value
        """Format ``- value`` as lines, the dash at ``column`` and ``gap`` spaces after it."""
        deeper = column + 1 + gap
        dash = " " * column + "-" + " " * gap
        if isinstance(value, dict | list) and value:
            first, *others = self.block(value, deeper, style)
            return [dash + first[deeper:], *others]
        return [dash + (self.inline(value) if isinstance(value, dict | list) else self.scalar(value, flow=False, style=style))]


def _quoted(text: str, quote: str) -> str:
    if quote == "'" and _SINGLE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    return _json(text)


def _json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Format ``value`` as JSON that a YAML parser reads the same: it knows all escapes but unpaired surrogates."""
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def line_break(text: str) -> str:
    """Return the most frequent line break of ``text``."""
    pairs = text.count("\r\n")
    counts = {"\n": text.count("\n") - pairs, "\r\n": pairs, "\r": text.count("\r") - pairs}
    return max(counts, key=counts.__getitem__)


def yaml_writer(layout: Layout) -> YamlWriter:
    """Return a writer with the indentation and quotes of the document."""
    steps: Counter[int] = Counter()
    dashes: Counter[int] = Counter()
    quotes: Counter[str] = Counter()
    for node, parent in walk(layout.root):
        if isinstance(node, Scalar) and node.style in _QUOTES:
            quotes[node.style] += 1
        if isinstance(parent, Mapping) and isinstance(node, Collection) and not parent.flow and not node.flow:
            (steps if isinstance(node, Mapping) else dashes)[node.column - parent.column] += 1
    step = _most_used(steps, _STEP)
    quote = "'" if quotes["'"] > quotes['"'] else '"'
    return YamlWriter(quote=quote, step=max(step, 1), dash=max(_most_used(dashes, step), 0))


def _most_used(counts: Counter[int], default: int) -> int:
    return min(counts, key=lambda count: (-counts[count], count)) if counts else default


def json_writer(layout: Layout) -> JsonWriter:
    """Return a writer with the spacing of the document."""
    text = layout.text
    for node, parent in walk(layout.root):
        if isinstance(parent, Mapping):
            entry = next(entry for entry in parent.entries if entry.value is node)
            colon = ": " if text[entry.colon + 1 : entry.colon + 2].isspace() else ":"
            spaced = colon == ": " or "\n" in text
            return JsonWriter(colon=colon, comma=", " if spaced else ",")
    return JsonWriter()


def json_step(layout: Layout) -> str:
    """Return the indentation step of a JSON document; empty for a single-line one."""
    root = layout.root
    if isinstance(root, Mapping):
        children = [entry.key for entry in root.entries]
    else:
        children = root.items if isinstance(root, Sequence) else []
    if not children or not begins_line(layout.text, children[0].start):
        return ""
    return indentation(layout.text, children[0].start).removeprefix(indentation(layout.text, root.start))


def shared_quotes(nodes: Iterable[LayoutNode]) -> str:
    """Return the quotes that all of these scalars have in common; empty if they differ or one has none."""
    styles = {node.style if isinstance(node, Scalar) else "" for node in nodes}
    return styles.pop() if len(styles) == 1 and styles <= set(_QUOTES) else ""
