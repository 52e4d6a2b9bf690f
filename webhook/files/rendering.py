"""Run the user's kustomize or helm, and read the rendered documents."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpugate.policies.kube.fields import lookup
from gpugate.webhook.files.documents import Document, UnreadableInput, parse, unfolded
from gpugate.webhook.files.rewrite.documents import yaml_chunks
from gpugate.webhook.runtime.errors import InputError

#: Timeout of a tool. Seconds.
PATIENCE: Final = 120
#: Longest error output of a tool that is shown. Characters.
_LONGEST: Final = 2000
#: Terminal escapes and control characters, removed from a tool's output.
_CONTROL: Final = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SOURCE: Final = re.compile(r"^# Source: (.+)$", re.MULTILINE)
#: Annotation with the origin of an object, written by kustomize for ``buildMetadata: [originAnnotations]``.
_ORIGIN: Final = ("metadata", "annotations", "config.kubernetes.io/origin")
_KUSTOMIZE_HINT: Final = "install kustomize (https://kubectl.docs.kubernetes.io/installation/kustomize/) or kubectl"
_HELM_HINT: Final = "install Helm 3 or later (https://helm.sh/docs/intro/install/)"


class Chart(NamedTuple):
    """A Helm chart to render.

    Attributes:
        chart: a folder, an archive, or any other argument of `helm template`.
        values: values files.
        sets: ``key=value`` pairs.
        release: name of the release.
        namespace: target namespace; empty for the default one.
    """

    chart: str
    values: Sequence[Path] = ()
    sets: Sequence[str] = ()
    release: str = "release-name"
    namespace: str = ""


def kustomize(folder: Path) -> Iterator[Document | UnreadableInput]:
    """Run `kustomize build` on a folder, or `kubectl kustomize` if only kubectl is installed.

    Raises:
        InputError: the tool is missing, or fails.
    """
    tool = shutil.which("kustomize")
    command = [tool, "build"] if tool else [shutil.which("kubectl") or "", "kustomize"]
    if not command[0]:
        message = f"-k needs kustomize or kubectl, and neither is on the PATH: {_KUSTOMIZE_HINT}"
        raise InputError(message)
    shown = f"{'kustomize build' if tool else 'kubectl kustomize'} {folder}"
    return _named_by_origin(_read(shown, _run([*command, _argument(str(folder))], shown)), str(folder))


def helm(chart: Chart) -> Iterator[Document | UnreadableInput]:
    """Run `helm template` on a chart.

    Raises:
        InputError: helm is missing, or fails.
    """
    tool = shutil.which("helm")
    if tool is None:
        message = f"--helm needs helm, and it is not on the PATH: {_HELM_HINT}"
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
    return _named_by_source(_read(shown, text), text, chart.chart)


def _argument(text: str) -> str:
    """Return ``text`` as a positional argument of a tool.

    Raises:
        InputError: the tool would read it as an option.
    """
    if text.startswith("-"):
        message = f"{text!r} would be taken for an option: write ./{text} for a folder of that name"
        raise InputError(message)
    return text


def _run(command: list[str], shown: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)  # noqa: S603 - no shell, the user's own tool
    except subprocess.TimeoutExpired:
        message = f"{shown} did not end within {PATIENCE} seconds"
        raise InputError(message) from None
    except OSError as error:
        message = f"{shown} cannot be run: {error.strerror or error}"
        raise InputError(message) from None
    if done.returncode:
        words = _CONTROL.sub("", done.stderr.decode("utf-8", "replace")).strip() or "it said nothing"
        message = f"{shown} failed: {words[:_LONGEST]}"
        raise InputError(message)
    try:
        return done.stdout.decode("utf-8")
    except UnicodeDecodeError:
        message = f"{shown} rendered something that is no UTF-8 text"
        raise InputError(message) from None


def _read(shown: str, text: str) -> list[Document | UnreadableInput]:
    return list(parse(shown, text))


def _named_by_source(documents: list[Document | UnreadableInput], text: str, chart: str) -> Iterator[Document | UnreadableInput]:
    """Name each document after its template, which helm writes into a comment."""
    chunks = {yaml_chunk.number: text[yaml_chunk.start : yaml_chunk.end] for yaml_chunk in yaml_chunks(text)}
    for document in documents:
        match = _SOURCE.search(chunks.get(document.number, ""))
        named = document._replace(file=f"{chart} ({match[1].strip()})") if match else document
        yield from unfolded([named])


def _named_by_origin(documents: list[Document | UnreadableInput], folder: str) -> Iterator[Document | UnreadableInput]:
    for one in unfolded(documents):
        path = _origin(one.value) if isinstance(one, Document) else None
        yield one._replace(file=f"{folder} ({path})") if path else one


def _origin(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    text = lookup(value, _ORIGIN)
    for one in parse("", text) if isinstance(text, str) else ():
        path = lookup(one.value, ("path",)) if isinstance(one, Document) else None
        return path if isinstance(path, str) else None
    return None
