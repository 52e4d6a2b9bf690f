"""Write the webhook's changes of objects into their manifests."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Judged, Severity
from gpugate.policies.kube.fields import clone, lookup
from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.files.documents import STDIN, Document, FileText, UnreadableInput, expand_lists, load, parse, read_unexpanded
from gpugate.webhook.files.rewrite.rewrite import RewriteFailure, rewrite
from gpugate.webhook.review.entry import Outcome, ReviewEntry, unreadable_entry
from gpugate.webhook.review.review import review

_KUSTOMIZATIONS: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
#: Start of a template action, such as Helm's.
_ACTION: Final = "{{"
_NO_ROOTS: Final[Mapping[str, Path]] = {}
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Opened:
    """A file with its documents, Lists not expanded; ``entries`` instead of them if it is unreadable or not a manifest."""

    source: FileText | None
    whole_documents: list[Document] = field(default_factory=list)
    entries: list[ReviewEntry] = field(default_factory=list)

    def objects(self) -> list[Document | UnreadableInput]:
        """Return its objects, Lists expanded."""
        return list(expand_lists(self.whole_documents))


@dataclass(slots=True)
class Fixed:
    """The result for a file: its text before and after, its bytes as read, and the reviews of its objects.

    Attributes:
        unwritten: number of objects whose changes could not be written.
    """

    file: str
    before: str
    after: str
    raw: bytes
    entries: list[ReviewEntry]
    unwritten: int = 0

    @property
    def changes(self) -> bool:
        """Return whether the file should change."""
        return self.before != self.after

    @property
    def content(self) -> bytes:
        """Return its fixed bytes, with the byte order mark."""
        return (_BOM if self.raw.startswith(_BOM) else b"") + self.after.encode()


class _Patches:
    """The patch files that kustomizations list: those among the files, and in the folders above them."""

    def __init__(self, files: Iterable[str]) -> None:
        self._known: dict[Path, Path] = {}
        self._seen: set[Path] = set()
        for file in files:
            if Path(file).name in _KUSTOMIZATIONS:
                self._read(Path(os.path.realpath(file)))

    def patched_by(self, file: str) -> Path | None:
        """Return the kustomization that lists ``file`` as a patch; None if none does."""
        path = Path(os.path.realpath(file))
        for folder in path.parents:
            for name in _KUSTOMIZATIONS:
                self._read(folder / name)
            if (folder / ".git").exists():
                break
        return self._known.get(path)

    def _read(self, kustomization: Path) -> None:
        if kustomization in self._seen:
            return
        self._seen.add(kustomization)
        for document in read_unexpanded([str(kustomization)]) if kustomization.is_file() else ():
            for name in _patch_names(document.value) if isinstance(document, Document) else ():
                # An inline patch is no file name.
                if "\n" not in name:
                    self._known.setdefault(Path(os.path.realpath(kustomization.parent / name)), kustomization)


def _patch_names(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        return
    for key in ("patches", "patchesStrategicMerge", "patchesJson6902"):
        patches = value.get(key)
        for patch in patches if isinstance(patches, list) else ():
            name = patch.get("path") if isinstance(patch, dict) else patch
            if isinstance(name, str):
                yield name


def open_files(
    files: Sequence[str | UnreadableInput], named: Iterable[str], roots: Mapping[str, Path] = _NO_ROOTS
) -> Iterator[Opened]:
    """Read every file once; those of ``named``, which the user named one by one, must be manifests.

    ``roots`` has the real paths of the folders that other files must lie in.
    """
    named_files = set(named)
    patches = _Patches(file for file in files if isinstance(file, str))
    for file in files:
        if isinstance(file, UnreadableInput):
            yield Opened(None, entries=[unreadable_entry(file)])
        else:
            yield _open(file, patches, roots.get(file), is_named=file in named_files)


def _open(file: str, patches: _Patches, root: Path | None, *, is_named: bool) -> Opened:
    source = load(file, root)
    if isinstance(source, UnreadableInput):
        return Opened(None, entries=[unreadable_entry(source)])
    note = _incomplete(file, source, patches)
    if note:
        skipped = ReviewEntry(file, 0, Outcome.SKIPPED, note=note)
        return Opened(None, entries=[unreadable_entry(UnreadableInput(file, 0, note)) if is_named else skipped])
    documents = list(parse(file, source.text))
    problems = [document for document in documents if isinstance(document, UnreadableInput)]
    if problems and _ACTION in source.text:
        template = "is a template, not YAML; `gpugate review --helm CHART --values FILE` reviews the output of a Helm chart"
        problems = [UnreadableInput(file, 0, template)]
    if problems:
        return Opened(None, entries=[unreadable_entry(problem) for problem in problems])
    return Opened(source, [document for document in documents if isinstance(document, Document)])


def _incomplete(file: str, source: FileText, patches: _Patches) -> str:
    """Return why a file is not a complete manifest; empty if it is one."""
    if file == STDIN:
        return ""
    chart = _chart_of(file)
    if chart is not None and _ACTION in source.text:
        return f"is a template of the Helm chart {chart}, not YAML: `gpugate review --helm {chart}` reviews the output of the chart"
    kustomization = patches.patched_by(file)
    if kustomization is not None:
        return f"is a patch of {os.path.relpath(kustomization)}, not a complete object: review it by `gpugate review -k DIR`"
    return ""


def _chart_of(file: str) -> Path | None:
    """Return the Helm chart of the template ``file``; None if it is not in a chart."""
    folders = (folder for folder in Path(file).parents if folder.name == "templates")
    return next((folder.parent for folder in folders if (folder.parent / "Chart.yaml").is_file()), None)


def fix(
    opened: Iterable[Opened], policies: PolicySet, snapshot: ClusterSnapshot, namespace: str = "", *, now: float | None = None
) -> Iterator[Fixed]:
    """Review every object, at the time ``now`` if given, and write the rules' edits into the text of its file."""
    for file in opened:
        if file.source is None:
            yield Fixed(file.entries[0].file, "", "", b"", file.entries)
            continue
        objects = file.objects()
        entries = list(review(objects, policies, snapshot, namespace, at_source=True, now=now))
        yield _fixed(file.source, file.whole_documents, objects, entries)


def _fixed(
    source: FileText,
    whole_documents: Sequence[Document],
    objects: Sequence[Document | UnreadableInput],
    entries: list[ReviewEntry],
) -> Fixed:
    documents = {whole.number: whole.value for whole in whole_documents}
    desired: dict[int, Any] = {}
    for document, entry in zip(objects, entries, strict=True):
        if not entry.patch or not isinstance(document, Document):
            continue
        before = lookup(documents[document.number], document.place)
        # Items of a typed list (PodList) omit apiVersion and kind.
        after = {key: value for key, value in entry.after.items() if key in before or key not in {"apiVersion", "kind"}}
        if document.place:
            whole = desired.get(document.number) or clone(documents[document.number])
            lookup(whole, document.place[:-1])[document.place[-1]] = after
            after = whole
        desired[document.number] = after
    text, failures = rewrite(source.text, documents, desired) if desired else (source.text, {})
    unwritten = [entry for entry in entries if entry.patch and entry.document in failures]
    for entry in unwritten:
        entry.findings = [*entry.findings, _not_written(entry, failures[entry.document])]
    return Fixed(source.file, source.text, text, source.raw, entries, len(unwritten))


def _not_written(entry: ReviewEntry, failure: RewriteFailure) -> Judged:
    notes = "; ".join(note for change in entry.changes for note in change.notes)
    message = f"the changes could not be written into {entry.file}, line {failure.line}: {failure.problem}"
    return Judged("fix", Severity.WARN, Finding("NotWritten", (), message, f"Write them by hand: {notes}."))
