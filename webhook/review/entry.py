"""The result of the review of one object."""

import enum
from dataclasses import dataclass, field
from typing import Any

from gpugate.policies.findings import Finding, Judged, Severity
from gpugate.policies.framework.decision import Change
from gpugate.policies.kube.fields import dotted, lookup
from gpugate.webhook.admission.response import strip_immutable_words
from gpugate.webhook.files.documents import UnreadableInput


class Outcome(enum.Enum):
    """The outcome of the review of one document."""

    CLEAN = "clean"
    CHANGED = "changed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    INVALID = "invalid"


@dataclass(slots=True)
class ReviewEntry:
    """The review of one object.

    Attributes:
        document: its document in the file, from 1; 0 for the file itself.
        before: the object as read; None for an unreadable one.
        after: the object after the rules' changes; the same as ``before`` if nothing changed or it was refused.
        patch: JSON Patch from ``before`` to ``after``.
        would_change: changes that rules in Warn and DryRun would make.
        note: why a document was skipped or is invalid.
        policies: the policies that decided it, as ``name@generation``.
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
        value = lookup(self.before, path)
        return value if isinstance(value, str) else ""

    @property
    def api_version(self) -> str:
        """Return the object's ``apiVersion``, empty without one."""
        return self._text("apiVersion")

    @property
    def kind(self) -> str:
        """Return the object's ``kind``, empty without one."""
        return self._text("kind")

    @property
    def namespace(self) -> str:
        """Return the object's namespace, empty without one."""
        return self._text("metadata", "namespace")

    @property
    def name(self) -> str:
        """Return the object's name or generateName, empty without both."""
        return self._text("metadata", "name") or self._text("metadata", "generateName")

    @property
    def title(self) -> str:
        """Return the object's title for reports."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}".strip() or (f"document {self.document}" if self.document else "input")

    def invalidate(self, reason: str, problem: str) -> None:
        """Make the document invalid: its content cannot be reviewed."""
        self.outcome, self.note = Outcome.INVALID, problem
        finding = Finding(reason, (), problem, "Correct the file and run the command again.")
        self.findings = [Judged("input", Severity.DENY, finding)]

    def as_json(self) -> dict[str, Any]:
        """Return the entry for ``-o json``."""
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
            "findings": [finding_as_json(finding) for finding in self.findings],
        }
        if self.would_change:
            entry["wouldChange"] = [
                {"rule": change.rule, "mode": change.mode.value, "notes": list(change.notes)} for change in self.would_change
            ]
        if self.note:
            entry["note"] = self.note
        return entry


def unreadable_entry(unreadable: UnreadableInput) -> ReviewEntry:
    """Return the entry of an unreadable document or file."""
    entry = ReviewEntry(unreadable.file, unreadable.number, Outcome.INVALID)
    entry.invalidate("Unreadable", unreadable.problem)
    return entry


def finding_as_json(judged: Judged) -> dict[str, str]:
    """Return a finding for ``-o json``."""
    return {
        "rule": judged.rule,
        "reason": judged.finding.reason,
        "path": dotted(judged.finding.path),
        "severity": judged.severity.value,
        "message": strip_immutable_words(judged.finding.message),
        "remedy": strip_immutable_words(judged.finding.remedy),
    }
