"""Read manifests from files, directories and standard input: YAML and JSON, many documents, Lists."""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from ruamel.yaml.error import YAMLError, YAMLWarning

from gpugate.webhook.files.yaml_in import DEEPEST, explain, plain_value, yaml_reader

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"
#: Largest manifest; a larger file is a mistake (a dump, an archive). Bytes.
_LARGEST: Final = 256 * 1024 * 1024
_HIDDEN: Final = "."


class Document(NamedTuple):
    """One object of an input.

    Attributes:
        file: its file, as the user named it; ``-`` for standard input.
        number: its document in the file, from 1; items of a List share the number of their document.
        value: its content.
        place: its path in the document: empty, or below the ``items`` of a List.
    """

    file: str
    number: int
    value: Any
    place: tuple[str | int, ...] = ()


class UnreadableInput(NamedTuple):
    """An unreadable input.

    Attributes:
        file: its file.
        number: its document, from 1; 0 for the file itself.
        problem: what is wrong, with line and column if known.
    """

    file: str
    number: int
    problem: str


def files_of(paths: Iterable[str]) -> Iterator[str | UnreadableInput]:
    """Yield every manifest file of ``paths``; files of a directory sorted, without hidden ones."""
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
            value = sorted(
                one
                for one in path.rglob("*")
                if one.suffix in SUFFIXES
                and one.is_file()
                and not any(part.startswith(_HIDDEN) for part in one.relative_to(path).parts)
            )
            if not value:
                yield UnreadableInput(name, 0, f"the directory holds no {', '.join(SUFFIXES)} file")
            yield from (str(one) for one in value)
        elif exists:
            yield name
        else:
            yield UnreadableInput(name, 0, "there is no such file or directory")


class FileText(NamedTuple):
    """The content of a file.

    Attributes:
        file: the file, as the user named it.
        raw: its bytes.
        text: its text, without the byte order mark.
    """

    file: str
    raw: bytes
    text: str


def read(file: str) -> Iterator[Document | UnreadableInput]:
    """Yield the documents of one file, Lists expanded, without empty documents.

    Reading ends at a document that does not parse: the start of the next one is then unknown.
    """
    source = load(file)
    if isinstance(source, UnreadableInput):
        yield source
        return
    yield from unfolded(parse(file, source.text))


def load(file: str) -> FileText | UnreadableInput:
    """Return the text of one file."""
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
    """Yield the documents of a file's ``text`` without empty ones; Lists are not expanded."""
    values = json_values(text)
    if values is None:
        yield from _yaml(file, text)
        return
    for number, value in enumerate(values, start=1):
        if _is_deep(value):
            yield UnreadableInput(file, number, f"is nested deeper than {DEEPEST} levels")
        else:
            yield Document(file, number, value)


def unfolded(documents: Iterable[Document | UnreadableInput]) -> Iterator[Document | UnreadableInput]:
    """Expand the Lists among ``documents``."""
    for document in documents:
        if isinstance(document, UnreadableInput):
            yield document
        else:
            yield from _unfold(document)


def json_values(text: str) -> list[Any] | None:
    """Return the concatenated JSON values in ``text``; None if it is something else."""
    return _json(text) if text.lstrip()[:1] in {"{", "["} else None


def _bytes(file: str) -> bytes:
    """Read ``file`` up to just above the size limit: a device may have no end."""
    if file != STDIN:
        with Path(file).open("rb") as stream:
            return stream.read(_LARGEST + 1)
    return b"" if sys.stdin is None else sys.stdin.buffer.read(_LARGEST + 1)


def _json(text: str) -> list[Any] | None:
    """Parse concatenated JSON documents as ``kubectl`` accepts them; None if any part is not JSON.

    Other text may be flow-style YAML: the YAML reader accepts that, and reports where it breaks.
    """
    try:
        return [orjson.loads(text)]
    except orjson.JSONDecodeError:
        pass
    decoder, values, at = json.JSONDecoder(), [], _after_space(text, 0)
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            values.append(plain_value(value))
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
    for _ in range(DEEPEST + 1):
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
                # Kubernetes clients read 1e9 without a dot as a number as well.
                warnings.simplefilter("ignore", YAMLWarning)
                value = plain_value(next(documents))
        except StopIteration:
            return
        except RecursionError:
            yield UnreadableInput(file, number, "is nested too deeply to be read")
            return
        except (YAMLError, ValueError) as error:
            yield UnreadableInput(file, number, explain(error, text))
            return
        if value is not None:
            yield Document(file, number, value)


def _unfold(document: Document) -> Iterator[Document]:
    value = document.value
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list):
        for at, item in enumerate(value["items"]):
            inherited = item
            if isinstance(item, dict) and kind != "List" and "kind" not in item:
                # Items of a typed list (PodList) omit apiVersion and kind.
                inherited = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
            yield from _unfold(Document(document.file, document.number, inherited, (*document.place, "items", at)))
        return
    yield document


def read_all(paths: Iterable[str]) -> Iterator[Document | UnreadableInput]:
    """Yield every document of ``paths``."""
    for file in files_of(paths):
        if isinstance(file, UnreadableInput):
            yield file
        else:
            yield from read(file)
