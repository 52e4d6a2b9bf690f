"""What a review says of one object."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from gpugate.policies.findings import Judged
from gpugate.policies.framework.decision import Change
from gpugate.policies.kube.fields import dotted
from gpugate.webhook.admission.response import strip_immutable_words


class Outcome(enum.Enum):
    """What became of one document."""

    CLEAN = "clean"
    CHANGED = "changed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    INVALID = "invalid"


@dataclass(slots=True)
class ReviewEntry:
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
        "message": strip_immutable_words(one.finding.message),
        "remedy": strip_immutable_words(one.finding.remedy),
    }
