"""Format values in the style of the surrounding text."""

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

from gpugate.webhook.files.yaml_out import AMBIGUOUS

#: Strings that YAML 1.1 and 1.2 both read as plain text, unless they are ambiguous.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_./$\\^+~(][A-Za-z0-9_./@%+=~$\\^();-]*(?:(?: |:(?! ))[A-Za-z0-9_./@%+=~$\\^();-]+)*")
_PLAIN_IN_FLOW: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@%+=~-]*")
#: Text that fits in single quotes on one line.
_SINGLE: Final = re.compile(r"[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")
#: Characters that YAML reads as line breaks, or rejects.
_UNSEEN: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


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

    colon: str = ": "
    comma: str = ", "

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
    colon: str = ": "
    comma: str = ", "

    def scalar(self, value: Any, *, flow: bool = True, style: str = "") -> str:  # noqa: ANN401 - any JSON value
        """Format a scalar on one line."""
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
    """Format ``value`` as JSON that a YAML parser reads the same."""
    # YAML knows all escapes of JSON except unpaired surrogates, which no manifest holds.
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))
