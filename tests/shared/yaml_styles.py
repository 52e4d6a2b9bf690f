"""Values written as YAML in random styles, as people write it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gpugate.webhook.files.yaml import AMBIGUOUS

_COMMENTS = st.sampled_from(["", "", "", "  # why", " # a: b, {c} [d", "\t# tab"])
_LINES = st.sampled_from(["", "", "", "\n", "# c\n", "\n# c\n\n"])


class Style:
    """One way to write YAML; what it leaves open is drawn place by place."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.step = draw(st.sampled_from([2, 2, 2, 3, 4]))
        self.dash = draw(st.sampled_from([0, 2, self.step]))
        self.gap = draw(st.sampled_from([1, 1, 1, 3]))
        self.commented = draw(st.booleans())
        self.flows = draw(st.sampled_from(["never", "leaves", "any"]))
        self.quoted = draw(st.sampled_from(["plain", "plain", "mixed", "all"]))
        self.anchored = draw(st.booleans())
        self._anchors: list[tuple[str, Any]] = []

    def document(self, value: Any) -> str:
        """``value``, a map, as one document."""
        self._anchors = []
        if self.flows == "any" and self._draw(st.booleans()):
            return self._flow(value) + "\n"
        return self._map(value, 0)

    def _map(self, value: dict[str, Any], column: int) -> str:
        return "".join(self._lead(column) + " " * column + self._entry(key, item, column) for key, item in value.items())

    def _lead(self, column: int) -> str:
        lines = self._draw(_LINES) if self.commented else ""
        return lines.replace("#", " " * self._draw(st.sampled_from([column, column, 0])) + "#")

    def _tail(self) -> str:
        return (self._draw(_COMMENTS) if self.commented else "") + "\n"

    def _entry(self, key: str, item: Any, column: int) -> str:
        head = self._scalar(key) + ":"
        anchor, alias = self._shared(item)
        if alias:
            return f"{head} {alias}{self._tail()}"
        head += f" {anchor}" if anchor else ""
        if not isinstance(item, dict | list) or not item or self._is_flow(item):
            written = self._value(item)
            return f"{head}{' ' + written if written else ''}{self._tail()}"
        if isinstance(item, dict):
            return head + self._tail() + self._map(item, column + self.step)
        return head + self._tail() + self._list(item, column + self.dash)

    def _shared(self, item: Any) -> tuple[str, str]:
        """An anchor for ``item``, or an alias that stands for it."""
        if not self.anchored or not isinstance(item, dict | list) or not item:
            return "", ""
        for name, other in self._anchors:
            if other == item and self._draw(st.booleans()):
                return "", f"*{name}"
        if self._draw(st.booleans()):
            name = f"a{len(self._anchors)}"
            self._anchors.append((name, item))
            return f"&{name}", ""
        return "", ""

    def _list(self, items: list[Any], column: int) -> str:
        return "".join(self._lead(column) + " " * column + self._item(item, column) for item in items)

    def _item(self, item: Any, column: int) -> str:
        deeper = column + 1 + self.gap
        if isinstance(item, dict | list) and item and not self._is_flow(item):
            inner = self._map(item, deeper) if isinstance(item, dict) else self._list(item, deeper)
            if not inner[:deeper].strip(" ") and inner[deeper : deeper + 1] not in {"#", "\n"}:
                return "-" + " " * self.gap + inner[deeper:]
            return "-" + self._tail().replace("\t", " ") + inner
        return "-" + " " * self.gap + self._value(item) + self._tail()

    def _is_flow(self, item: Any) -> bool:
        if self.flows == "never":
            return False
        leaf = not any(isinstance(one, dict | list) for one in (item.values() if isinstance(item, dict) else item))
        return (leaf or self.flows == "any") and self._draw(st.booleans())

    def _value(self, item: Any) -> str:
        return self._flow(item) if isinstance(item, dict | list) else self._scalar(item)

    def _flow(self, item: Any) -> str:
        if isinstance(item, dict):
            pad = self._draw(st.sampled_from(["", " "])) if item else ""
            inner = ", ".join(f"{self._scalar(key)}: {self._flow(one)}" for key, one in item.items())
            return "{" + pad + inner + pad + "}"
        if isinstance(item, list):
            comma = "," if item and self._draw(st.sampled_from([False, False, True])) else ""
            return "[" + ", ".join(self._flow(one) for one in item) + comma + "]"
        return self._scalar(item)

    def _scalar(self, value: Any) -> str:
        if value is None:
            return self._draw(st.sampled_from(["null", "~"]))
        if not isinstance(value, str):
            return str(value).lower()
        plain = value.replace("-", "a").replace("/", "a").replace(".", "a").isalnum() and not AMBIGUOUS.fullmatch(value)
        if plain and value[0].isalnum() and (self.quoted == "plain" or (self.quoted == "mixed" and self._draw(st.booleans()))):
            return value
        return self._draw(st.sampled_from(['"{}"', "'{}'"])).format(value)


@st.composite
def texts(draw: st.DrawFn, values: st.SearchStrategy[list[dict[str, Any]]]) -> tuple[str, list[dict[str, Any]]]:
    """Documents, and a text that holds them: with either line break, with or without an end, more or less marked."""
    documents = draw(values)
    parts = [Style(draw).document(value) for value in documents]
    text = draw(st.sampled_from(["", "---\n", "# head\n---\n", "%YAML 1.1\n---\n"])) + parts[0]
    for part in parts[1:]:
        text += draw(st.sampled_from(["---\n", "--- # next\n", "...\n---\n", "---\n# c\n"])) + part
    text += draw(st.sampled_from(["", "", "...\n", "---\n", "\n\n", "# end\n"]))
    if draw(st.booleans()):
        text = text.removesuffix("\n")
    return (text.replace("\n", "\r\n") if draw(st.booleans()) else text), documents
