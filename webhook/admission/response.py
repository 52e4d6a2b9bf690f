"""Format a decision for the user, the audit log and the API."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gpugate.policies.findings import Judged, Level, Mode, Severity
from gpugate.policies.framework.decision import Change, Decision, Warnings
from gpugate.policies.kube.fields import dotted
from gpugate.policies.workloads.recorded_edits import ANNOTATION
from gpugate.webhook.admission.admission_review import AdmissionResponse

#: Longest audit annotation; the apiserver keeps them in every audit event. Characters.
_LONGEST_AUDIT: Final = 512
#: Audit annotation with the policies of the answer and their generations.
POLICIES: Final = "policies"
#: The apiserver may cut longer warnings (``k8s.io/apiserver`` ``endpoints/filters/warning.go``). Characters.
_LONGEST_WARNING: Final = 1024
_MOST_WARNINGS: Final = 16
#: Longest list of changes in a warning; with what follows it stays below 256 characters, which the apiserver always leaves whole.
_LONGEST_CHANGES: Final = 190
_LOUD: Final[Mapping[str, Warnings]] = MappingProxyType({})
#: Suffix of the audit annotations on what a rule would change, by its mode.
_WOULD_CHANGE: Final = {Mode.DRY_RUN: "dryrun", Mode.WARN: "warn-change"}
#: Limits of a refusal, which is shown in Events, conditions and terminals. Characters.
_LONGEST_MESSAGE: Final = 1024
_LONGEST_REMEDY: Final = 512
_LONGEST_REASON: Final = 2000
_MOST_REASONS: Final = 16
#: Flux with force and kubectl apply --force read these words, even in a 403, as a request to delete and re-create.
_FATAL: Final = re.compile(r"is immutable|immutable field", re.IGNORECASE)

#: The apiserver drops a warning with any of these.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def strip_immutable_words(text: str) -> str:
    """Replace words in ``text`` that make a GitOps tool delete the running object."""
    return _FATAL.sub("is fixed", text)


def sentence(judged: Judged) -> str:
    """Format a finding in one line: rule, field, message and remedy."""
    finding = judged.finding
    place = f" {dotted(finding.path)}:" if finding.path else ""
    return f"{judged.rule}:{place} {cut(finding.message, _LONGEST_MESSAGE)}. {cut(finding.remedy, _LONGEST_REMEDY)}"


def refusal(title: str, judged: list[Judged]) -> str:
    """Format the message of a refusal of the object ``title``."""
    lines = [cut(sentence(finding), _LONGEST_REASON) for finding in judged]
    if len(lines) == 1:
        return strip_immutable_words(f"gpugate refuses {title}: {lines[0]}")
    shown = [f"- {line}" for line in lines[:_MOST_REASONS]]
    if len(lines) > _MOST_REASONS:
        shown.append(f"- and {len(lines) - _MOST_REASONS} more")
    return strip_immutable_words(f"gpugate refuses {title} for {len(lines)} reasons:\n" + "\n".join(shown))


def cut(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """Cut ``text`` to at most ``longest`` characters, with dots for a missing end."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def one_line(text: str) -> str:
    """Return ``text`` on one line, without control characters."""
    return _CONTROL.sub(" ", text)


def _warning(text: str, longest: int = _LONGEST_WARNING) -> str:
    """Format ``text`` for a warning header: one line, no control characters, at most ``longest`` characters."""
    return cut(strip_immutable_words(one_line(text)), longest)


def _announcement(head: str, changes: Iterable[Change], more: str = "") -> str:
    """Format ``changes`` in a warning of at most 256 characters: the first, the number of others, and ``more`` about these."""
    parts = [f"{change.rule}: {note}" for change in changes for note in change.notes]
    length, shown = len(head) - 2, 0
    for part in parts:
        length += 2 + len(part)
        if length > _LONGEST_CHANGES and shown:
            break
        shown += 1
    text = _warning(head + "; ".join(parts[:shown]), _LONGEST_CHANGES)
    others = len(parts) - shown
    return f"{text}; +{others} more{more}" if others else text


def _announcements(decision: Decision, quiet: Mapping[str, Warnings]) -> Iterator[str]:
    """Yield a warning that says what is changed, and one that says what rules in Warn would change."""
    if decision.changes and not decision.refused:
        changes = [change for change in decision.changes if _is_told(quiet, change.rule, Warnings.ALL)]
        if changes:
            yield _announcement("gpugate changed ", changes, f", see annotation {ANNOTATION}")
    if decision.would_change:
        would = [change for change in decision.would_change if change.mode is Mode.WARN]
        would = [change for change in would if _is_told(quiet, change.rule, Warnings.ALL)]
        if would:
            yield _announcement("gpugate would change ", would)


def _is_told(quiet: Mapping[str, Warnings], rule: str, what: Warnings) -> bool:
    return rule not in quiet or quiet[rule].includes(what)


def _reports(decision: Decision, quiet: Mapping[str, Warnings]) -> list[str]:
    """Return the warnings about findings that do not refuse."""
    findings = [finding for finding in decision.findings if finding.severity in {Severity.WARN, Severity.UNKNOWN}]
    if quiet:
        findings = [
            finding
            for finding in findings
            if _is_told(quiet, finding.rule, Warnings.REFUSALS if finding.finding.level is Level.DENY else Warnings.FINDINGS)
        ]
    return [
        _warning(f"would be refused: {sentence(finding)}" if finding.would_refuse else sentence(finding))
        for finding in findings[:_MOST_WARNINGS]
    ]


def _audit(decision: Decision, policies: str) -> dict[str, str]:
    audit = {POLICIES: policies}
    for change in decision.changes:
        audit[change.rule] = cut("; ".join(change.notes), _LONGEST_AUDIT)
    for change in decision.would_change:
        audit[f"{change.rule}.{_WOULD_CHANGE[change.mode]}"] = cut(f"would change: {'; '.join(change.notes)}", _LONGEST_AUDIT)
    if not decision.findings:
        return audit
    by_key: dict[str, list[str]] = {}
    for finding in decision.findings:
        suffix = finding.severity.value
        if finding.severity is Severity.DRYRUN:
            suffix = "dryrun-deny" if finding.would_refuse else "dryrun-finding"
        elif finding.would_refuse:
            suffix = "warn-deny"
        text = f"{finding.finding.reason} at {dotted(finding.finding.path)}"
        if finding.would_refuse or finding.severity is Severity.DENY:
            # Give the reason: users decide by it whether to enforce a rule.
            text = f"{text}: {finding.finding.message}"
        by_key.setdefault(f"{finding.rule}.{suffix}", []).append(text)
    for key, texts in by_key.items():
        audit[key] = cut("; ".join(texts), _LONGEST_AUDIT)
    return audit


def build_response(
    title: str,
    decision: Decision,
    policies: str,
    *,
    quiet: Mapping[str, Warnings] = _LOUD,
    announce: bool = True,
) -> AdmissionResponse:
    """Build the response for the object called ``title``, decided by ``policies``.

    Args:
        title: the object.
        decision: the decision on it.
        policies: the policies that decided, for the audit log.
        quiet: of what users are warned, by rule; without an entry, of everything.
        announce: whether somebody reads a warning about changes: the controller of a pod does not.
    """
    changed = decision.changes or decision.would_change
    warnings = list(_announcements(decision, quiet)) if announce and changed else []
    if not decision.findings:
        return AdmissionResponse(True, decision.patch, warnings, _audit(decision, policies))  # noqa: FBT003
    denials = [finding for finding in decision.findings if finding.severity is Severity.DENY]
    warnings += _reports(decision, quiet)
    return AdmissionResponse(
        allowed=not denials,
        patch=[] if denials else decision.patch,
        warnings=warnings,
        audit=_audit(decision, policies),
        message=refusal(title, denials) if denials else "",
    )


def undecided(problem: str, mode: Mode) -> AdmissionResponse:
    """Build the response for an object without a decision; ``mode`` is the strongest of the rules that would decide.

    It is refused in Enforce, and otherwise allowed with a warning, or in DryRun with a record for the audit log alone.
    """
    if mode is Mode.ENFORCE:
        return AdmissionResponse(allowed=False, patch=[], warnings=[], audit={}, message=strip_immutable_words(problem))
    if mode is Mode.DRY_RUN:
        return AdmissionResponse(allowed=True, patch=[], warnings=[], audit={"undecided": cut(problem, _LONGEST_AUDIT)})
    return AdmissionResponse(allowed=True, patch=[], warnings=[_warning(problem)], audit={})


#: The answer for objects that gpugate does not review.
PASS: Final = AdmissionResponse(allowed=True, patch=[], warnings=[], audit={})
