"""Write objects as YAML that every Kubernetes client reads back unchanged."""

import io
import re
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter

#: Strings that YAML 1.1 reads as something else: booleans, null, numbers in any base, sexagesimals and dates. A YAML 1.2
#: writer leaves ``Y`` or ``on`` bare, and the apiserver then gets a boolean.
AMBIGUOUS: Final = re.compile(
    r"y|n|yes|no|on|off|true|false|null|~|[-+]?(\d[\d_]*)?\.?[\d_]*([eE][-+]?\d+)?|[-+]?0[xXbBoO][\da-fA-F_]+"
    r"|[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?|[-+]?\.(inf|nan)|\d{4}-\d{1,2}-\d{1,2}.*|=|<<",
    re.IGNORECASE,
)


#: Line breaks of YAML 1.1 that are none of YAML 1.2, and the byte order mark: only escapes carry them through both.
_ESCAPED: Final = re.compile("[\x85\u2028\u2029\ufeff]")


class _Representer(RoundTripRepresenter):
    """Quotes ambiguous strings, writes multi-line strings as blocks, and uses no aliases."""

    def ignore_aliases(self, _data: Any) -> bool:  # noqa: ANN401 - any JSON value
        return True


def _string(representer: RoundTripRepresenter, text: str) -> ScalarNode:
    style = None
    if "\n" in text and not re.search(r"[ \t]\n|[^\n\x20-\x7e\xa0-\ud7ff]", text):
        style = "|"
    elif AMBIGUOUS.fullmatch(text) or _ESCAPED.search(text):
        style = '"'
    node: ScalarNode = representer.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


def _float(representer: RoundTripRepresenter, number: float) -> ScalarNode:
    text = repr(number)
    if "e" in text and "." not in text:
        # YAML 1.1 takes 1e-07 for a string.
        text = text.replace("e", ".0e", 1)
    node: ScalarNode = representer.represent_scalar(
        "tag:yaml.org,2002:float", {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)
    )
    return node


_Representer.add_representer(str, _string)
_Representer.add_representer(float, _float)


def dump(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Format ``value`` as one YAML document; keys keep their order."""
    writer = YAML()
    writer.Representer = _Representer
    writer.default_flow_style = False
    writer.width = 4096
    writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(value, stream)
    return stream.getvalue().removesuffix("...\n")
