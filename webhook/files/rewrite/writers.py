"""Writing values as text in the style of their surroundings."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

from gpugate.webhook.files.yaml_out import AMBIGUOUS

#: Strings that YAML 1.1 and 1.2 both read as they stand, unless they look like something else.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./$\\^+~(][A-Za-z0-9_./@%+=~$\\^();-]*(?:(?: |:(?! ))[A-Za-z0-9_./@%+=~$\\^();-]+)*")
_PLAIN_IN_FLOW: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@%+=~-]*")
#: What single quotes can hold on one line.
_SINGLE: Final = re.compile(r"[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")
#: Characters that YAML takes for line breaks, or refuses to read.
_UNSEEN: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


class FlowWriter(ABC):
    """Writes values within brackets.

    Attributes:
        colon: what stands between a key and its value.
        comma: what stands between two elements on one line.
    """

    colon: str = ": "
    comma: str = ", "

    @abstractmethod
    def scalar(self, value: Any, *, flow: bool = True, style: str = "") -> str:  # noqa: ANN401 - any JSON value
        """``value``, no map or list, on one line; in the quotes ``style`` where it needs or bears them."""

    def inline(self, value: Any, style: str = "", pad: str = "") -> str:  # noqa: ANN401 - any JSON value
        """``value`` on one line, maps and lists in brackets; ``pad``: what stands inside of the brackets of a map."""
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
    """Writes JSON."""

    colon: str = ": "
    comma: str = ", "

    def scalar(self, value: Any, *, flow: bool = True, style: str = "") -> str:  # noqa: ANN401, ARG002 - any JSON value
        """``value`` as JSON has it."""
        return _json(value)

    def lines(self, value: Any, indent: str, step: str, eol: str) -> str:  # noqa: ANN401 - any JSON value
        """``value`` over several lines, those behind the first one at ``indent`` and deeper."""
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
    """Writes YAML so that parsers of YAML 1.1 and 1.2 read the same.

    Attributes:
        quote: the quotes for strings that need some.
        step: how much deeper a map stands than the map that holds it.
        dash: how much deeper the dashes of a list stand than the key that holds it.
    """

    quote: str = '"'
    step: int = 2
    dash: int = 2
    colon: str = ": "
    comma: str = ", "

    def scalar(self, value: Any, *, flow: bool = True, style: str = "") -> str:  # noqa: ANN401 - any JSON value
        """``value`` on one line."""
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return _float(value)
        if not isinstance(value, str):
            return str(value)
        plain = (_PLAIN_IN_FLOW if flow else _PLAIN).fullmatch(value) and not AMBIGUOUS.fullmatch(value)
        if plain and not style:
            return value
        return _quoted(value, style or self.quote)

    def block(self, value: Any, column: int, style: str = "") -> list[str]:  # noqa: ANN401 - any JSON value
        """``value`` as lines that begin at ``column``; a scalar or something empty is one line."""
        if isinstance(value, dict) and value:
            return [line for key, item in value.items() for line in self.entry(key, item, column, style)]
        if isinstance(value, list) and value:
            return [line for item in value for line in self.item(item, column, style)]
        return [" " * column + self.inline(value, style)]

    def entry(self, key: str, value: Any, column: int, style: str = "") -> list[str]:  # noqa: ANN401 - any JSON value
        """``key: value`` as lines, the key at ``column``."""
        written = " " * column + self.scalar(key, flow=False, style=style) + ":"
        if isinstance(value, dict | list) and value:
            return [written, *self.block(value, column + (self.step if isinstance(value, dict) else self.dash), style)]
        shown = self.inline(value) if isinstance(value, dict | list) else self.scalar(value, flow=False, style=style)
        return [f"{written} {shown}"]

    def item(self, value: Any, column: int, style: str = "", gap: int = 1) -> list[str]:  # noqa: ANN401 - any JSON value
        """``- value`` as lines, the dash at ``column`` and ``gap`` spaces behind it."""
        deeper = column + 1 + gap
        dash = " " * column + "-" + " " * gap
        if isinstance(value, dict | list) and value:
            first, *others = self.block(value, deeper, style)
            return [dash + first[deeper:], *others]
        return [dash + (self.inline(value) if isinstance(value, dict | list) else self.scalar(value, flow=False, style=style))]


def _float(value: float) -> str:
    text = repr(value)
    if "e" in text and "." not in text:
        # YAML 1.1 takes 1e-07 for a string.
        text = text.replace("e", ".0e", 1)
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)


def _quoted(text: str, quote: str) -> str:
    if quote == "'" and _SINGLE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    return _json(text)


def _json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """``value`` as JSON that a parser of YAML reads the same."""
    # JSON's escapes are all known to YAML, but for half characters, which no manifest holds.
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
