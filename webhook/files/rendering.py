"""Run the user's kustomize or helm, and read the rendered documents."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from gpugate.policies.kube.fields import lookup
from gpugate.webhook.files.documents import Document, UnreadableInput, expand_lists, parse
from gpugate.webhook.files.rewrite.layout_yaml import yaml_chunks
from gpugate.webhook.runtime.errors import InputError

#: Timeout of a tool. Seconds.
TIMEOUT: Final = 120
#: Longest error output of a tool that is shown. Characters.
_LONGEST: Final = 2000
#: Terminal escapes and control characters, removed from a tool's output.
_CONTROL: Final = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SOURCE: Final = re.compile(r"^# Source: (.+)$", re.MULTILINE)
#: Annotation with the origin of an object, written by kustomize for ``buildMetadata: [originAnnotations]``.
_ORIGIN: Final = ("metadata", "annotations", "config.kubernetes.io/origin")


_Documents: TypeAlias = Iterator[Document | UnreadableInput]


class Chart(NamedTuple):
    """The arguments of `helm template`; ``sets`` are ``key=value`` pairs, an empty namespace is the default one."""

    chart: str
    values: Sequence[Path] = ()
    sets: Sequence[str] = ()
    release: str = "release-name"
    namespace: str = ""


def kustomize(folder: Path) -> _Documents:
    """Run `kustomize build` on a folder, or `kubectl kustomize` if only kubectl is installed.

    Raises:
        InputError: the tool is missing, or fails.
    """
    tool = shutil.which("kustomize")
    command = [tool, "build"] if tool else [shutil.which("kubectl") or "", "kustomize"]
    if not command[0]:
        link = "https://kubectl.docs.kubernetes.io/installation/kustomize/"
        message = f"-k needs kustomize or kubectl, and neither is on the PATH: install kustomize ({link}) or kubectl"
        raise InputError(message)
    shown = f"{'kustomize build' if tool else 'kubectl kustomize'} {folder}"
    return _named_by_origin(parse(shown, _run([*command, _argument(str(folder))], shown)), str(folder))


def helm(chart: Chart) -> _Documents:
    """Run `helm template` on a chart.

    Raises:
        InputError: helm is missing, or fails.
    """
    tool = shutil.which("helm")
    if tool is None:
        message = "--helm needs helm, which is not on the PATH: install Helm 3 or later (https://helm.sh/docs/intro/install/)"
        raise InputError(message)
    command = [tool, "template", _argument(chart.release), _argument(chart.chart)]
    for file in chart.values:
        command += ["--values", str(file)]
    for pair in chart.sets:
        command += ["--set", pair]
    if chart.namespace:
        command += ["--namespace", chart.namespace]
    shown = f"helm template {chart.chart}"
    text = _run(command, shown)
    return _named_by_source(parse(shown, text), text, chart.chart)


def _argument(text: str) -> str:
    """Return ``text``, a positional argument; raise an InputError if a tool would read it as an option."""
    if text.startswith("-"):
        message = f"{text!r} would be read as an option: write ./{text} for a folder of this name"
        raise InputError(message)
    return text


def _run(command: list[str], shown: str) -> str:
    try:
        process = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False, stdin=subprocess.DEVNULL)  # noqa: S603 - no shell, the user's own tool
    except subprocess.TimeoutExpired:
        message = f"{shown} did not end within {TIMEOUT} seconds"
        raise InputError(message) from None
    except OSError as error:
        message = f"{shown} cannot be run: {error.strerror or error}"
        raise InputError(message) from None
    if process.returncode:
        output = _CONTROL.sub("", process.stderr.decode("utf-8", "replace")).strip() or "no error output"
        message = f"{shown} failed: {output[:_LONGEST]}"
        raise InputError(message)
    try:
        return process.stdout.decode("utf-8")
    except UnicodeDecodeError:
        message = f"the output of {shown} is not UTF-8 text"
        raise InputError(message) from None


def _named_by_source(documents: _Documents, text: str, chart: str) -> _Documents:
    """Name each document by its template, which helm writes into a comment."""
    chunks = {chunk.number: text[chunk.start : chunk.end] for chunk in yaml_chunks(text)}
    for document in documents:
        match = _SOURCE.search(chunks.get(document.number, ""))
        named = document._replace(file=f"{chart} ({match[1].strip()})") if match else document
        yield from expand_lists([named])


def _named_by_origin(documents: _Documents, folder: str) -> _Documents:
    for document in expand_lists(documents):
        path = _origin(document.value) if isinstance(document, Document) else None
        yield document._replace(file=f"{folder} ({path})") if path else document


def _origin(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    text = lookup(value, _ORIGIN)
    document = next(parse("", text), None) if isinstance(text, str) else None
    path = lookup(document.value, ("path",)) if isinstance(document, Document) else None
    return path if isinstance(path, str) else None
