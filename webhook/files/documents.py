"""Read manifests from files, directories and standard input: YAML and JSON, many documents, Lists."""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from ruamel.yaml.error import YAMLError, YAMLWarning

from gpugate.webhook.files.rewrite.layout import skip_space
from gpugate.webhook.files.within import LeadsOutError, read_in
from gpugate.webhook.files.yaml import DEEPEST, explain, plain_value, yaml_reader

SUFFIXES: Final = (".yaml", ".yml", ".json")
STDIN: Final = "-"
#: Largest manifest; a larger file is a mistake (a dump, an archive). Bytes.
_LARGEST: Final = 256 * 1024 * 1024


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
    """A document of a file (0: the file itself) that cannot be read, and the reason, with line and column if known."""

    file: str
    number: int
    problem: str


class FileText(NamedTuple):
    """The bytes of a file, and their text without the byte order mark."""

    file: str
    raw: bytes
    text: str


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
            files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            visible = [str(file) for file in files if not any(part.startswith(".") for part in file.relative_to(path).parts)]
            if not visible:
                yield UnreadableInput(name, 0, f"the directory contains no {', '.join(SUFFIXES)} file")
            yield from visible
        else:
            yield name if exists else UnreadableInput(name, 0, "there is no such file or directory")


def read_all(paths: Iterable[str]) -> Iterator[Document | UnreadableInput]:
    """Yield the documents of ``paths``, Lists expanded, without empty documents.

    Reading of a file ends at a document that does not parse: the start of the next one is then unknown.
    """
    return expand_lists(read_unexpanded(paths))


def read_unexpanded(paths: Iterable[str]) -> Iterator[Document | UnreadableInput]:
    """Yield the documents of ``paths`` like `read_all`; Lists are not expanded."""
    for file in files_of(paths):
        source = file if isinstance(file, UnreadableInput) else load(file)
        if isinstance(source, UnreadableInput):
            yield source
        else:
            yield from parse(source.file, source.text)


def load(file: str, root: Path | None = None) -> FileText | UnreadableInput:
    """Return the text of one file, which must be a regular one in the folder with the real path ``root`` if that is given."""
    try:
        raw = _bytes(file) if root is None else read_in(file, root, _LARGEST + 1)
        text = raw.decode("utf-8-sig") if len(raw) <= _LARGEST else ""
    except LeadsOutError as error:
        return UnreadableInput(file, 0, str(error.strerror))
    except OSError as error:
        return UnreadableInput(file, 0, f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        return UnreadableInput(file, 0, f"is not UTF-8 text: byte {error.start} cannot be decoded")
    if len(raw) > _LARGEST:
        return UnreadableInput(file, 0, f"is larger than {_LARGEST >> 20} MiB")
    return FileText(file, raw, text)


def _bytes(file: str) -> bytes:
    """Read ``file`` up to just above the size limit: a device may have no end."""
    if file != STDIN:
        with Path(file).open("rb") as stream:
            return stream.read(_LARGEST + 1)
    return b"" if sys.stdin is None else sys.stdin.buffer.read(_LARGEST + 1)


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


def json_values(text: str) -> list[Any] | None:
    """Parse concatenated JSON values as ``kubectl`` accepts them; None if any part is not JSON.

    Other text may be flow-style YAML: the YAML reader accepts that, and reports where it breaks.
    """
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        return [orjson.loads(text)]
    except orjson.JSONDecodeError:
        pass
    decoder, values, at = json.JSONDecoder(), [], skip_space(text, 0)
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            values.append(plain_value(value))
            at = skip_space(text, end)
    except (ValueError, RecursionError):
        return None
    return values


def _is_deep(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    level = [value]
    for _ in range(DEEPEST + 1):
        groups = (item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list))
        level = [child for group in groups for child in group if isinstance(child, dict | list)]
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
                # Kubernetes clients also read 1e9, without a dot, as a number.
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


def expand_lists(documents: Iterable[Document | UnreadableInput]) -> Iterator[Document | UnreadableInput]:
    """Replace the Lists among ``documents`` by their items."""
    for document in documents:
        if not isinstance(document, Document) or not _is_list(document.value):
            yield document
            continue
        value = document.value
        kind = value["kind"].removesuffix("List")
        # Items of a typed list (PodList) omit apiVersion and kind.
        types = {"apiVersion": value.get("apiVersion"), "kind": kind} if kind else {}
        for at, item in enumerate(value["items"]):
            typed = {**types, **item} if isinstance(item, dict) and "kind" not in item else item
            yield from expand_lists([document._replace(value=typed, place=(*document.place, "items", at))])


def _is_list(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    kind = value.get("kind") if isinstance(value, dict) else None
    return isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list)
