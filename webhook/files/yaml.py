"""Read YAML 1.1 as the Kubernetes clients read it, and write YAML that they read back unchanged."""

import io
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import orjson
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scanner import Scanner

#: Largest number of values that the aliases of one document stand for: nested aliases can exceed any memory.
_MOST_ALIASED: Final = 100_000
#: Largest depth: far above any Kubernetes object, just below the limit of the YAML writer.
DEEPEST: Final = 256
_TOO_DEEP: Final = f"is nested deeper than {DEEPEST} levels"
#: Characters that end a comment.
_LINE_ENDS: Final = "\n\0\r\x85\u2028\u2029"
#: Kubernetes clients read larger integers as floating-point numbers.
_LEAST, _GREATEST = -(1 << 63), (1 << 64) - 1
#: Strings that YAML 1.1 reads as something else: booleans, null, numbers in any base, sexagesimals and dates. A YAML 1.2
#: writer leaves ``Y`` or ``on`` bare, and the apiserver then gets a boolean.
AMBIGUOUS: Final = re.compile(
    r"y|n|yes|no|on|off|true|false|null|~|[-+]?(\d[\d_]*)?\.?[\d_]*([eE][-+]?\d+)?|[-+]?0[xXbBoO][\da-fA-F_]+"
    r"|[-+]?\d[\d_]*(:[0-5]?\d)+(\.\d*)?|[-+]?\.(inf|nan)|\d{4}-\d{1,2}-\d{1,2}.*|=|<<",
    re.IGNORECASE,
)
#: Line breaks of YAML 1.1 that are none of YAML 1.2, and the byte order mark: only escapes carry them through both.
_ESCAPED: Final = re.compile("[\x85\u2028\u2029\ufeff]")


class _Scanner(Scanner):
    """Accepts tabs between tokens as the Kubernetes clients do, but not as indentation."""

    def scan_to_next_token(self) -> None:
        """Skip spaces, line breaks and comments."""
        peek, forward = self.reader.peek, self.reader.forward
        while True:
            space = " \t" if self.flow_level or not self.allow_simple_key else " "
            while peek() in space:
                forward()
            if peek() == "#":
                while peek() not in _LINE_ENDS:
                    forward()
            if not self.scan_line_break():
                return
            if not self.flow_level:
                self.allow_simple_key = True

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:  # noqa: N803, ANN401 - as in ruamel.yaml
        """Begin a list or map in brackets, unless it is nested too deeply: each level makes the scanner slower."""
        if len(self.flow_context) > DEEPEST:
            raise ValueError(_TOO_DEEP)
        super().fetch_flow_collection_start(TokenClass, to_push)


class _Composer(Composer):
    """Refuses documents that are nested too deeply, or whose aliases stand for too many values, before these are made."""

    def __init__(self, loader: Any = None) -> None:  # noqa: ANN401 - as in ruamel.yaml
        super().__init__(loader=loader)
        #: Number of values of each node that is complete, by its id, and those of the open ones so far.
        self._sizes: dict[int, int] = {}
        self._open: list[int] = []
        self._aliased = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - as in ruamel.yaml
        """Return the next node.

        Raises:
            ValueError: it is nested too deeply, or the aliases so far expand to too many values.
        """
        if not self._open:
            self._sizes, self._aliased = {}, 0
        elif len(self._open) > DEEPEST:
            raise ValueError(_TOO_DEEP)
        is_alias = self.parser.check_event(AliasEvent)
        self._open.append(1)
        try:
            node = super().compose_node(parent, index)
        finally:
            size = self._open.pop()
        if is_alias:
            size = self._sizes.get(id(node), 1)
            self._aliased += size
            if self._aliased > _MOST_ALIASED:
                message = f"its aliases expand to more than {_MOST_ALIASED} values: write these values out, or use fewer aliases"
                raise ValueError(message)
        elif node.anchor is not None:
            self._sizes[id(node)] = size
        if self._open:
            self._open[-1] += size
        return node


class _Constructor(SafeConstructor):
    """Makes plain JSON values; a date stays a string, as for the Kubernetes clients."""


def _constructor_of(kind: str) -> Callable[[Any, ScalarNode], Any]:
    """Return the constructor of ``kind``, with positions in its errors."""
    construct = getattr(SafeConstructor, f"construct_yaml_{kind}")

    def guarded(constructor: _Constructor, node: ScalarNode) -> Any:  # noqa: ANN401 - of the Python type for the kind
        try:
            return construct(constructor, node)
        except (ValueError, LookupError):
            problem = f"{node.value!r:.40} is not a {kind}"
            raise ConstructorError(None, None, problem, node.start_mark) from None

    return guarded


for _kind in ("bool", "int", "float"):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_kind}", _constructor_of(_kind))
_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def yaml_reader() -> YAML:
    """Return a YAML 1.1 reader as the Kubernetes clients have it: an unquoted yes or off is a boolean."""
    loader = YAML(typ="safe", pure=True)
    loader.Composer = _Composer
    loader.Constructor = _Constructor
    loader.Scanner = _Scanner
    loader.version = (1, 1)
    return loader


@lru_cache(maxsize=1024)
def plain_key(text: str) -> str:
    """Return the data of an unquoted YAML key: ``1`` for ``1``, ``true`` for ``yes``."""
    try:
        return _key(yaml_reader().load(text))
    except YAMLError:
        return text


def plain_value(value: Any) -> Any:  # noqa: ANN401 - any YAML value
    """Convert ``value`` to JSON data: string keys, no references.

    Raises:
        ValueError: it is nested too deeply, such as a list that has itself as an element.
    """

    def convert(item: Any, depth: int) -> Any:  # noqa: ANN401
        if depth > DEEPEST:
            raise ValueError(_TOO_DEEP)
        if isinstance(item, dict):
            return {_key(key): convert(child, depth + 1) for key, child in item.items()}
        if isinstance(item, list | tuple | set):
            return [convert(child, depth + 1) for child in item]
        return _scalar(item)

    return convert(value, 0)


def _scalar(value: Any) -> Any:  # noqa: ANN401 - any YAML scalar
    if isinstance(value, str):
        # An escape may be an unpaired surrogate, which JSON cannot hold.
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if type(value) is int and not _LEAST <= value <= _GREATEST:
        try:
            return float(value)
        except OverflowError:
            message = f"contains an integer of {value.bit_length()} bits"
            raise ValueError(message) from None
    return value


def _key(key: Any) -> str:  # noqa: ANN401 - any YAML scalar
    plain = _scalar(key)
    if isinstance(plain, str):
        return plain
    return orjson.dumps(plain).decode() if isinstance(plain, bool | int | float | None) else str(plain)


def explain(error: Exception, text: str) -> str:
    """Return what is wrong with a YAML ``text``, with line and column where the parser gives them."""
    if isinstance(error, ReaderError):
        before = text[: error.position]
        column = error.position - before.rfind("\n")
        return f"line {before.count(chr(10)) + 1}, column {column}: the character U+{ord(text[error.position]):04X} is not allowed"
    if not isinstance(error, MarkedYAMLError):
        return str(error).splitlines()[0] if str(error) else f"is not valid YAML ({type(error).__name__})"
    mark = error.problem_mark or error.context_mark
    what = error.problem or error.context or "does not parse"
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    hint = " (a tag that Kubernetes does not know)" if isinstance(error, ConstructorError) and "tag" in what else ""
    if "<block end>" in what:
        # ruamel.yaml's message for a line with too little indentation.
        hint = ": the line is not indented like the lines above it"
    return f"{place}{what}{hint}"


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
    node: ScalarNode = representer.represent_scalar("tag:yaml.org,2002:float", yaml_float(number))
    return node


def yaml_float(number: float) -> str:
    """Format ``number`` for YAML."""
    text = repr(number)
    if "e" in text and "." not in text:
        # YAML 1.1 reads 1e-07 as a string.
        text = text.replace("e", ".0e", 1)
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)


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
