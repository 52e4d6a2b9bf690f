"""Reading manifests: files, directories and standard input, YAML and JSON, many documents, lists."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLWarning
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"
#: A manifest above this is a mistake (a dump, an archive). Bytes.
_LARGEST: Final = 256 * 1024 * 1024
_HIDDEN: Final = "."
#: Values in one document; aliases of aliases can stand for more than any memory holds.
_MOST_VALUES: Final = 5_000_000
#: No Kubernetes object comes near, and the YAML writer does hardly more.
_DEEPEST: Final = 256
#: What ends a comment.
_LINE_ENDS: Final = "\n\0\r\x85\u2028\u2029"
#: Whole numbers beyond these are floating-point numbers to the Kubernetes clients.
_LEAST, _GREATEST = -(1 << 63), (1 << 64) - 1


class _Scanner(Scanner):
    """Takes tabs between tokens where the Kubernetes clients do: not where they would indent."""

    def scan_to_next_token(self) -> None:
        """Go past spaces, line breaks and comments."""
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


class _Constructor(SafeConstructor):
    """Makes plain JSON values: what looks like a date is a string, as it is for the Kubernetes clients."""


def _placed(kind: str) -> Callable[[Any, ScalarNode], Any]:
    """The constructor of ``kind`` whose errors say where the value is."""
    construct = getattr(SafeConstructor, f"construct_yaml_{kind}")

    def guarded(constructor: _Constructor, node: ScalarNode) -> Any:  # noqa: ANN401 - what the kind is in Python
        try:
            return construct(constructor, node)
        except (ValueError, LookupError):
            problem = f"{node.value!r:.40} is no {kind}"
            raise ConstructorError(None, None, problem, node.start_mark) from None

    return guarded


for _kind in ("bool", "int", "float"):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_kind}", _placed(_kind))
_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


class Document(NamedTuple):
    """One object of an input.

    Attributes:
        file: where it was read from, as the user named it; ``-`` for standard input.
        number: which document of the file it is, from 1; elements of a List share their document's number.
        value: what it holds.
        place: where the object lies in its document: empty, or below a List's ``items``.
    """

    file: str
    number: int
    value: Any
    place: tuple[str | int, ...] = ()


class UnreadableInput(NamedTuple):
    """An input that could not be read.

    Attributes:
        file: where it is.
        number: which document, from 1; 0 for the file itself.
        problem: what is wrong, with line and column where there are any.
    """

    file: str
    number: int
    problem: str


def files_of(paths: Iterable[str]) -> Iterator[str | UnreadableInput]:
    """Every manifest file that ``paths`` name, those of a directory sorted and hidden ones left out."""
    for name in paths:
        if name == STDIN:
            yield name
            continue
        path = Path(name)
        try:
            is_directory, exists = path.is_dir(), path.exists()
        except OSError as error:
            yield UnreadableInput(name, 0, f"cannot be read: {error.strerror or error}")
            continue
        if is_directory:
            found = sorted(
                one
                for one in path.rglob("*")
                if one.suffix in SUFFIXES
                and one.is_file()
                and not any(part.startswith(_HIDDEN) for part in one.relative_to(path).parts)
            )
            if not found:
                yield UnreadableInput(name, 0, f"the directory holds no {', '.join(SUFFIXES)} file")
            yield from (str(one) for one in found)
        elif exists:
            yield name
        else:
            yield UnreadableInput(name, 0, "there is no such file or directory")


class FileText(NamedTuple):
    """A file as it was read.

    Attributes:
        file: where it was read from, as the user named it.
        raw: its bytes.
        text: its text, a byte order mark left out.
    """

    file: str
    raw: bytes
    text: str


def read(file: str) -> Iterator[Document | UnreadableInput]:
    """The documents of one file; Lists are taken apart, empty documents left out.

    A document that does not parse ends the file: where the next one begins can't be told then.
    """
    source = load(file)
    if isinstance(source, UnreadableInput):
        yield source
        return
    yield from unfolded(parse(file, source.text))


def load(file: str) -> FileText | UnreadableInput:
    """The text of one file."""
    try:
        raw = _bytes(file)
        text = raw.decode("utf-8-sig") if len(raw) <= _LARGEST else ""
    except OSError as error:
        return UnreadableInput(file, 0, f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        return UnreadableInput(file, 0, f"is not UTF-8 text: byte {error.start} cannot be decoded")
    if len(raw) > _LARGEST:
        return UnreadableInput(file, 0, f"is larger than {_LARGEST >> 20} MiB")
    return FileText(file, raw, text)


def parse(file: str, text: str) -> Iterator[Document | UnreadableInput]:
    """The documents in a file's ``text``, Lists and all; empty ones left out."""
    values = json_values(text)
    if values is None:
        yield from _yaml(file, text)
        return
    for number, value in enumerate(values, start=1):
        if _is_deep(value):
            yield UnreadableInput(file, number, f"is nested deeper than {_DEEPEST} levels")
        else:
            yield Document(file, number, value)


def unfolded(documents: Iterable[Document | UnreadableInput]) -> Iterator[Document | UnreadableInput]:
    """``documents`` with Lists taken apart."""
    for one in documents:
        if isinstance(one, UnreadableInput):
            yield one
        else:
            yield from _unfold(one)


def json_values(text: str) -> list[Any] | None:
    """The JSON values that ``text`` holds one after the other; None where it is something else."""
    return _json(text) if text.lstrip()[:1] in {"{", "["} else None


def _bytes(file: str) -> bytes:
    """What ``file`` holds, and no more than shows that it is too large: a device has no end."""
    if file != STDIN:
        with Path(file).open("rb") as stream:
            return stream.read(_LARGEST + 1)
    return b"" if sys.stdin is None else sys.stdin.buffer.read(_LARGEST + 1)


def _json(text: str) -> list[Any] | None:
    """The JSON documents in ``text``, one after the other as ``kubectl`` takes them; None where it is not JSON throughout.

    What is not may be flow-style YAML: the YAML reader takes that, and says where it breaks.
    """
    try:
        return [orjson.loads(text)]
    except orjson.JSONDecodeError:
        pass
    decoder, values, at = json.JSONDecoder(), [], _after_space(text, 0)
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            values.append(_plain(value))
            at = _after_space(text, end)
    except (ValueError, RecursionError):
        return None
    return values


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _is_deep(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    level = [value]
    for _ in range(_DEEPEST + 1):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [child for children in inner for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def _yaml(file: str, text: str) -> Iterator[Document | UnreadableInput]:
    number = 0
    documents = yaml_reader().load_all(text)
    while True:
        number += 1
        try:
            with warnings.catch_warnings():
                # 1e9 without a dot is a number to the Kubernetes clients, too.
                warnings.simplefilter("ignore", YAMLWarning)
                value = _plain(next(documents))
        except StopIteration:
            return
        except RecursionError:
            yield UnreadableInput(file, number, "is nested too deeply to be read")
            return
        except (YAMLError, ValueError) as error:
            yield UnreadableInput(file, number, _explain(error, text))
            return
        if value is not None:
            yield Document(file, number, value)


def yaml_reader() -> YAML:
    """A reader by the rules of YAML 1.1, as the Kubernetes clients read it: an unquoted yes or off is a boolean."""
    loader = YAML(typ="safe", pure=True)
    loader.Constructor = _Constructor
    loader.Scanner = _Scanner
    loader.version = (1, 1)
    return loader


@lru_cache(maxsize=1024)
def plain_key(text: str) -> str:
    """What an unquoted key of YAML is called once it is read: ``1`` for ``1``, ``true`` for ``yes``."""
    try:
        return _key(yaml_reader().load(text))
    except YAMLError:
        return text


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    """``value`` as JSON would hold it: keys are strings, nothing refers to itself."""
    budget = _MOST_VALUES

    def convert(one: Any, depth: int) -> Any:  # noqa: ANN401
        nonlocal budget
        budget -= 1
        if budget < 0:
            message = "its aliases stand for more values than can be read"
            raise ValueError(message)
        if depth > _DEEPEST:
            message = f"is nested deeper than {_DEEPEST} levels"
            raise ValueError(message)
        if isinstance(one, dict):
            return {_key(key): convert(item, depth + 1) for key, item in one.items()}
        if isinstance(one, list | tuple | set):
            return [convert(item, depth + 1) for item in one]
        return _scalar(one)

    return convert(value, 0)


def _scalar(value: Any) -> Any:  # noqa: ANN401 - any YAML scalar
    if isinstance(value, str):
        # An escape may stand for half a character, which no JSON can hold.
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if type(value) is int and not _LEAST <= value <= _GREATEST:
        try:
            return float(value)
        except OverflowError:
            message = f"holds a whole number of {value.bit_length()} bits"
            raise ValueError(message) from None
    return value


def _key(key: Any) -> str:  # noqa: ANN401 - any YAML scalar
    plain = _scalar(key)
    if isinstance(plain, str):
        return plain
    return orjson.dumps(plain).decode() if isinstance(plain, bool | int | float | None) else str(plain)


def _explain(error: Exception, text: str) -> str:
    if isinstance(error, ReaderError):
        before = text[: error.position]
        column = error.position - before.rfind("\n")
        return f"line {before.count(chr(10)) + 1}, column {column}: the character U+{ord(text[error.position]):04X} is not allowed"
    if not isinstance(error, MarkedYAMLError):
        return str(error).splitlines()[0] if str(error) else f"is no valid YAML ({type(error).__name__})"
    mark = error.problem_mark or error.context_mark
    what = error.problem or error.context or "does not parse"
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    hint = " (a tag that Kubernetes does not know)" if isinstance(error, ConstructorError) and "tag" in what else ""
    if "<block end>" in what:
        # The reader's own words for a line that stands further left than what it belongs to.
        hint = ": the line is not indented as the lines above it are"
    return f"{place}{what}{hint}"


def _unfold(document: Document) -> Iterator[Document]:
    value = document.value
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list):
        for at, item in enumerate(value["items"]):
            inherited = item
            if isinstance(item, dict) and kind != "List" and "kind" not in item:
                # The elements of a typed list (PodList) leave out what the list says.
                inherited = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
            yield from _unfold(Document(document.file, document.number, inherited, (*document.place, "items", at)))
        return
    yield document


def read_all(paths: Iterable[str]) -> Iterator[Document | UnreadableInput]:
    """Every document that ``paths`` name."""
    for file in files_of(paths):
        if isinstance(file, UnreadableInput):
            yield file
        else:
            yield from read(file)
