"""Recognise files that are parts of something else: patches of a kustomization, templates of a Helm chart."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from gpugate.webhook.files.documents import Document, load, parse
from gpugate.webhook.files.documents import FileText as Text

KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_CHART: Final = "Chart.yaml"
_TEMPLATES: Final = "templates"
_ACTION: Final = "{{"


class Patches:
    """The patch files named by kustomizations beside the files, above them and among them."""

    def __init__(self, files: Iterable[str]) -> None:
        self._known: dict[Path, Path] = {}
        self._seen: set[Path] = set()
        for file in files:
            if Path(file).name in KUSTOMIZATIONS:
                self._read(Path(os.path.realpath(file)))

    def patched_by(self, file: str) -> Path | None:
        """Return the kustomization that lists ``file`` as a patch; None if none does."""
        path = Path(os.path.realpath(file))
        for folder in path.parents:
            for name in KUSTOMIZATIONS:
                self._read(folder / name)
            if (folder / ".git").exists():
                break
        return self._known.get(path)

    def _read(self, kustomization: Path) -> None:
        if kustomization in self._seen:
            return
        self._seen.add(kustomization)
        if not kustomization.is_file():
            return
        text = load(str(kustomization))
        for one in parse("", text.text) if isinstance(text, Text) else ():
            for name in _patches(one.value) if isinstance(one, Document) else ():
                # An inline patch is no file name.
                if "\n" not in name:
                    self._known.setdefault(Path(os.path.realpath(kustomization.parent / name)), kustomization)


def _patches(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        return
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        listed = value.get(key)
        for one in listed if isinstance(listed, list) else ():
            name = one.get("path") if isinstance(one, dict) else one
            if isinstance(name, str):
                yield name


def chart_of(file: str) -> Path | None:
    """Return the Helm chart of the template ``file``; None if it is no template."""
    path = Path(file)
    for folder in path.parents:
        if folder.name == _TEMPLATES and (folder.parent / _CHART).is_file():
            return folder.parent
    return None


def is_template(text: str) -> bool:
    """Return whether ``text`` contains template actions such as Helm's."""
    return _ACTION in text
