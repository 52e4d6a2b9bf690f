"""The result of the review of one object."""

import enum
from dataclasses import dataclass, field
from typing import Any

from gpugate.policies.findings import Judged
from gpugate.policies.framework.decision import Change
from gpugate.policies.kube.fields import dotted
from gpugate.webhook.admission.response import strip_immutable_words


class Outcome(enum.Enum):
    """Outcome of one document."""

    CLEAN = "clean"
    CHANGED = "changed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    INVALID = "invalid"


@dataclass(slots=True)
class ReviewEntry:
    """The review of one object.

    Attributes:
        file: its file.
        document: its document in the file, from 1.
        outcome: its outcome.
        before: the object as read; None for an unreadable one.
        after: the object after the rules' changes; the same as ``before`` if nothing changed or it was refused.
        patch: JSON Patch from ``before`` to ``after``.
        changes: changes by rule.
        would_change: changes that rules in DryRun would make.
        findings: the findings.
        note: why a document was skipped or is invalid.
        policies: the policies it was judged by, as ``name@generation``.
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
        result = self.before
        for part in path:
            result = result.get(part) if isinstance(result, dict) else None
        return result if isinstance(result, str) else ""

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
            entry["wouldChange"] = [{"rule": one.rule, "notes": list(one.notes)} for one in self.would_change]
        if self.note:
            entry["note"] = self.note
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
