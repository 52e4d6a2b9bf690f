"""Offline review: the same engine as at the door, over documents from files."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gpugate.policies.accelerators import is_accelerator, suggestion
from gpugate.policies.decision import Change
from gpugate.policies.engine import decide
from gpugate.policies.facts import Facts
from gpugate.policies.fields import MalformedError, clone, dotted
from gpugate.policies.finding import Finding, Judged, Severity
from gpugate.policies.kinds import kind_of
from gpugate.policies.lens import open_workload
from gpugate.policies.policy import PolicySet
from gpugate.webhook.documents import Document, Unreadable
from gpugate.webhook.handlers import JUDGED, SUBRESOURCES
from gpugate.webhook.verdict import harmless

_REVIEW: Final = "AdmissionReview"


class Outcome(enum.Enum):
    """What became of one document."""

    CLEAN = "clean"
    CHANGED = "changed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    INVALID = "invalid"


@dataclass(slots=True)
class Entry:
    """One reviewed object.

    Attributes:
        file: where it was read from.
        document: which document of the file it is, from 1.
        outcome: what became of it.
        before: the object as it was read; None where nothing could be read.
        after: the object as the rules leave it; the same as ``before`` where nothing changed or it was refused.
        patch: JSON Patch from ``before`` to ``after``.
        changes: what each rule changed.
        would_change: what each rule in DryRun would have changed.
        findings: what was found.
        note: why a document was skipped or is invalid.
        policies: the policies that it was judged by, as ``name@generation``.
    """

    file: str
    document: int
    outcome: Outcome
    before: Any = None
    after: Any = None
    patch: list[dict[str, Any]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    would_change: list[Change] = field(default_factory=list)
    findings: list[Judged] = field(default_factory=list)
    note: str = ""
    policies: tuple[str, ...] = ()

    def _text(self, *path: str) -> str:
        found = self.before
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, str) else ""

    @property
    def api_version(self) -> str:
        """The object's ``apiVersion``, empty where it has none."""
        return self._text("apiVersion")

    @property
    def kind(self) -> str:
        """The object's ``kind``, empty where it has none."""
        return self._text("kind")

    @property
    def namespace(self) -> str:
        """The object's namespace, empty where it states none."""
        return self._text("metadata", "namespace")

    @property
    def name(self) -> str:
        """The object's name or generateName, empty where it has neither."""
        return self._text("metadata", "name") or self._text("metadata", "generateName")

    @property
    def title(self) -> str:
        """What the object is called in a report."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}".strip() or (f"document {self.document}" if self.document else "input")

    def as_json(self) -> dict[str, Any]:
        """The entry for ``-o json``."""
        entry = {
            "file": self.file,
            "document": self.document,
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "outcome": self.outcome.value,
            "policies": list(self.policies),
            "patch": self.patch,
            "findings": [finding_as_json(one) for one in self.findings],
        }
        if self.would_change:
            entry["wouldChange"] = [{"rule": one.rule, "notes": list(one.notes)} for one in self.would_change]
        if self.note:
            entry["note"] = self.note
        return entry


def finding_as_json(one: Judged) -> dict[str, str]:
    """A finding for ``-o json``."""
    return {
        "rule": one.rule,
        "reason": one.finding.reason,
        "path": dotted(one.finding.path),
        "severity": one.severity.value,
        "message": harmless(one.finding.message),
        "remedy": harmless(one.finding.remedy),
    }


def review(
    documents: Iterable[Document | Unreadable],
    policies: PolicySet,
    facts: Facts,
    namespace: str = "",
    *,
    at_source: bool = False,
    now: float | None = None,
) -> Iterator[Entry]:
    """Judge every document.

    Args:
        documents: what was read.
        policies: the policies to judge by.
        facts: the cluster.
        namespace: where objects go that state no namespace; ``default`` where it is empty.
        at_source: whether the documents are to be changed where they are kept: nothing is held back then for what keeps
            them, and what is refused is changed as far as the rules can.
        now: the time, in seconds since 1970, at which exemptions may have ended; without it, none has.
    """
    for document in documents:
        if isinstance(document, Unreadable):
            yield _invalid(Entry(document.file, document.number, Outcome.INVALID), "Unreadable", document.problem)
        else:
            yield _review_one(document, policies, facts, _Way(namespace, at_source, now))


def _invalid(entry: Entry, reason: str, problem: str) -> Entry:
    entry.outcome = Outcome.INVALID
    entry.note = problem
    finding = Finding(reason, (), problem, "Correct the manifest and review it again.")
    entry.findings = [Judged("input", Severity.DENY, finding)]
    return entry


class _Way(NamedTuple):
    """How all documents are judged, as :func:`review` is told."""

    namespace: str
    at_source: bool
    now: float | None


def _review_one(document: Document, policies: PolicySet, facts: Facts, way: _Way) -> Entry:
    value, old, operation, subresource, namespace = document.value, None, "CREATE", "", way.namespace
    if isinstance(value, dict) and value.get("kind") == _REVIEW and not way.at_source:
        request = value.get("request")
        if not isinstance(request, dict) or not isinstance(request.get("object"), dict):
            entry = Entry(document.file, document.number, Outcome.SKIPPED, value, value)
            entry.note = "an AdmissionReview without request.object: nothing to judge"
            return entry
        operation, subresource = str(request.get("operation") or "CREATE"), str(request.get("subResource") or "")
        if operation not in JUDGED or subresource not in SUBRESOURCES:
            entry = Entry(document.file, document.number, Outcome.SKIPPED, value, value)
            entry.note = f"an AdmissionReview of {operation:.60} {subresource:.60}".rstrip() + ": none of gpugate's business"
            return entry
        value, old = _typed(request), request.get("oldObject")
        stated = request.get("namespace")
        namespace = stated if isinstance(stated, str) else namespace
    entry = Entry(document.file, document.number, Outcome.SKIPPED, value, value)
    if not isinstance(value, dict) or not isinstance(value.get("apiVersion"), str) or not isinstance(value.get("kind"), str):
        entry.note = "is no Kubernetes object (no apiVersion and kind)"
        return entry
    if kind_of(value["apiVersion"], value["kind"]) is None:
        asked = accelerator_in(value)
        if asked:
            entry.note = (
                f"{value['kind']} is no kind that gpugate reads, though it names {asked}: its pods are judged when they are made"
            )
        return entry
    old = old if isinstance(old, dict) and operation == "UPDATE" else None
    request = _Request(namespace, operation, old, subresource, way)
    try:
        _judge(entry, policies, facts, request)
    except MalformedError as error:
        _invalid(entry, "Malformed", str(error))
    except RecursionError:
        _invalid(entry, "Malformed", "is nested too deeply to be read")
    return entry


def accelerator_in(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """An accelerator, or what looks like one, that is asked for anywhere in ``value``; None where there is none."""
    if isinstance(value, dict):
        for kind in ("limits", "requests"):
            amounts = value.get(kind)
            for name in amounts if isinstance(amounts, dict) else ():
                if is_accelerator(name) or suggestion(name):
                    return str(name)
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for found in map(accelerator_in, children) if found), None)


def _typed(request: dict[str, Any]) -> dict[str, Any]:
    """The request's object with the kind that the request states, where it has none itself."""
    kind = request.get("kind") if isinstance(request.get("kind"), dict) else {}
    group, version = (kind or {}).get("group"), (kind or {}).get("version")
    stated = {"apiVersion": f"{group}/{version}" if group else version, "kind": (kind or {}).get("kind")}
    return {**stated, **request["object"]}


class _Request(NamedTuple):
    """How an object comes."""

    namespace: str
    operation: str
    old: dict[str, Any] | None
    subresource: str
    way: _Way


def _judge(entry: Entry, policies: PolicySet, facts: Facts, request: _Request) -> None:
    kind = kind_of(entry.api_version, entry.kind)
    if kind is None:
        return
    after = clone(entry.before)
    workload = open_workload(
        kind,
        after,
        facts,
        namespace=entry.namespace or request.namespace,
        operation=request.operation,
        old=request.old,
        subresource=request.subresource,
    )
    bound = policies.bind(facts.namespace_labels(workload.namespace), workload.labels())
    decision = decide(workload, bound, facts, remember=False, at_source=request.way.at_source, now=request.way.now)
    entry.policies = bound.policies
    entry.findings, entry.changes, entry.would_change = decision.findings, decision.changes, decision.would_change
    entry.outcome = Outcome.REFUSED if decision.refused else Outcome.CHANGED if decision.patch else Outcome.CLEAN
    if not decision.refused or request.way.at_source:
        entry.patch, entry.after = decision.patch, after
