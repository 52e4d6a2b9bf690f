"""Write the webhook's changes of an object into the manifest that it comes from."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Judged, Severity
from gpugate.policies.kube.fields import clone, lookup
from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.files.documents import STDIN, Document, FileText, UnreadableInput, load, parse, unfolded
from gpugate.webhook.files.parts import Patches, chart_of, is_template
from gpugate.webhook.files.rewrite.rewrite import RewriteFailure, rewrite
from gpugate.webhook.review.entry import ReviewEntry
from gpugate.webhook.review.review import Outcome, review

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(slots=True)
class Opened:
    """A file with its documents.

    Attributes:
        source: the file; None for an unreadable one.
        whole_documents: its documents, Lists not expanded.
        entries: results without a review: the file is no manifest, or unreadable.
    """

    source: FileText | None
    whole_documents: list[Document] = field(default_factory=list)
    entries: list[ReviewEntry] = field(default_factory=list)

    def objects(self) -> list[Document | UnreadableInput]:
        """Return its objects, Lists expanded."""
        return list(unfolded(self.whole_documents))


@dataclass(slots=True)
class Fixed:
    """The result for a file.

    Attributes:
        file: the file, as the user named it.
        before: its text.
        after: its fixed text.
        raw: its bytes as read.
        entries: reviews of its objects.
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


def open_files(files: Sequence[str | UnreadableInput], named: Iterable[str]) -> Iterator[Opened]:
    """Read every file once.

    Args:
        files: the files to read.
        named: files that the user named one by one; each of them must be a manifest.
    """
    named_files = set(named)
    patches = Patches(file for file in files if isinstance(file, str))
    for file in files:
        if isinstance(file, UnreadableInput):
            yield Opened(None, entries=[_unreadable(file)])
        else:
            yield _open(file, patches, must=file in named_files)


def _open(file: str, patches: Patches, *, must: bool) -> Opened:
    source = load(file)
    if isinstance(source, UnreadableInput):
        return Opened(None, entries=[_unreadable(source)])
    part = _part_of(file, source, patches)
    if part:
        return Opened(None, entries=[_unreadable(UnreadableInput(file, 0, part)) if must else _skipped(file, part)])
    result = list(parse(file, source.text))
    problems = [one for one in result if isinstance(one, UnreadableInput)]
    if problems and is_template(source.text):
        return Opened(None, entries=[_unreadable(UnreadableInput(file, 0, f"is a template, not YAML; {_RENDER}"))])
    if problems:
        return Opened(None, entries=[_unreadable(problem) for problem in problems])
    return Opened(source, [one for one in result if isinstance(one, Document)])


_RENDER: Final = "`gpugate review --helm CHART --values FILE` judges what a Helm chart renders"


def _part_of(file: str, source: FileText, patches: Patches) -> str:
    """Return why a file is no complete manifest; empty if it is one."""
    if file == STDIN:
        return ""
    chart = chart_of(file)
    if chart is not None and is_template(source.text):
        return f"is a template of the Helm chart {chart}, not YAML: `gpugate review --helm {chart}` judges what it renders"
    kustomization = patches.patched_by(file)
    if kustomization is not None:
        shown = os.path.relpath(kustomization)
        return f"is a patch of {shown}, no whole object: `gpugate review -k DIR` judges what is built with it"
    return ""


def _unreadable(unreadable: UnreadableInput) -> ReviewEntry:
    finding = Finding("Unreadable", (), unreadable.problem, "Correct the file and run it again.")
    return ReviewEntry(
        unreadable.file,
        unreadable.number,
        Outcome.INVALID,
        findings=[Judged("input", Severity.DENY, finding)],
        note=unreadable.problem,
    )


def _skipped(file: str, note: str) -> ReviewEntry:
    return ReviewEntry(file, 0, Outcome.SKIPPED, note=note)


def fix(
    opened: Iterable[Opened], policies: PolicySet, snapshot: ClusterSnapshot, namespace: str = "", *, now: float | None = None
) -> Iterator[Fixed]:
    """Review every object, at the time ``now`` if given, and write the rules' edits into the text of its file."""
    for one in opened:
        if one.source is None:
            yield Fixed(one.entries[0].file, "", "", b"", one.entries)
            continue
        objects = one.objects()
        entries = list(review(objects, policies, snapshot, namespace, at_source=True, now=now))
        yield _written(one.source, one.whole_documents, [(place, entry) for place, entry in zip(objects, entries, strict=True)])


def _written(
    source: FileText, whole_documents: Sequence[Document], judged: Sequence[tuple[Document | UnreadableInput, ReviewEntry]]
) -> Fixed:
    documents = {whole.number: whole.value for whole in whole_documents}
    wanted: dict[int, Any] = {}
    for place, entry in judged:
        if entry.patch and isinstance(place, Document):
            held = lookup(documents[place.number], place.place)
            # Items of a typed list (PodList) omit apiVersion and kind.
            after = {key: value for key, value in entry.after.items() if key in held or key not in {"apiVersion", "kind"}}
            if place.place:
                whole = wanted.get(place.number) or clone(documents[place.number])
                lookup(whole, place.place[:-1])[place.place[-1]] = after
                wanted[place.number] = whole
            else:
                wanted[place.number] = after
    text, failures = rewrite(source.text, documents, wanted) if wanted else (source.text, {})
    unwritten = [entry for _, entry in judged if entry.patch and entry.document in failures]
    for entry in unwritten:
        entry.findings = [*entry.findings, _not_written(entry, failures[entry.document])]
    return Fixed(source.file, source.text, text, source.raw, [entry for _, entry in judged], len(unwritten))


def _not_written(entry: ReviewEntry, failure: RewriteFailure) -> Judged:
    notes = "; ".join(note for change in entry.changes for note in change.notes)
    message = f"the changes could not be written into {entry.file}, line {failure.line}: {failure.problem}"
    return Judged("fix", Severity.WARN, Finding("NotWritten", (), message, f"Write them by hand: {notes}."))
