"""Format a decision for the user, the audit log and the API."""

import re
from typing import Final

from gpugate.policies.findings import Judged, Severity
from gpugate.policies.framework.decision import Decision
from gpugate.policies.kube.fields import dotted
from gpugate.webhook.admission.admission_review import AdmissionResponse

#: Longest audit annotation; the apiserver keeps them in every audit event. Characters.
_LONGEST_AUDIT: Final = 512
#: Audit annotation with the policies of the answer and their generations.
POLICIES: Final = "policies"
#: The apiserver may cut longer warnings (``k8s.io/apiserver`` ``endpoints/filters/warning.go``). Characters.
_LONGEST_WARNING: Final = 1024
_MOST_WARNINGS: Final = 16
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


def _warning(text: str) -> str:
    """Format ``text`` for a warning header: one line, no control characters, bounded length."""
    return cut(strip_immutable_words(one_line(text)), _LONGEST_WARNING)


def _audit(decision: Decision, policies: str) -> dict[str, str]:
    audit = {POLICIES: policies}
    for change in decision.changes:
        audit[change.rule] = cut("; ".join(change.notes), _LONGEST_AUDIT)
    for change in decision.would_change:
        audit[f"{change.rule}.dryrun"] = cut(f"would change: {'; '.join(change.notes)}", _LONGEST_AUDIT)
    if not decision.findings:
        return audit
    by_key: dict[str, list[str]] = {}
    for finding in decision.findings:
        suffix = finding.severity.value
        if finding.severity is Severity.DRYRUN:
            suffix = "dryrun-deny" if finding.would_refuse else "dryrun-finding"
        text = f"{finding.finding.reason} at {dotted(finding.finding.path)}"
        if finding.would_refuse or finding.severity is Severity.DENY:
            # Give the reason: users decide by it whether to enforce a rule.
            text = f"{text}: {finding.finding.message}"
        by_key.setdefault(f"{finding.rule}.{suffix}", []).append(text)
    for key, texts in by_key.items():
        audit[key] = cut("; ".join(texts), _LONGEST_AUDIT)
    return audit


def build_response(title: str, decision: Decision, policies: str) -> AdmissionResponse:
    """Build the response for the object called ``title``, decided by ``policies``."""
    if not decision.findings:
        return AdmissionResponse(True, decision.patch, [], _audit(decision, policies))  # noqa: FBT003
    denials = [finding for finding in decision.findings if finding.severity is Severity.DENY]
    lines = [finding for finding in decision.findings if finding.severity in {Severity.WARN, Severity.UNKNOWN}]
    warnings = [_warning(sentence(line)) for line in lines[:_MOST_WARNINGS]]
    return AdmissionResponse(
        allowed=not denials,
        patch=[] if denials else decision.patch,
        warnings=warnings,
        audit=_audit(decision, policies),
        message=refusal(title, denials) if denials else "",
    )


def undecided(problem: str, *, refuse: bool) -> AdmissionResponse:
    """Build the response for an object without a decision: refused, or allowed with a warning."""
    if refuse:
        return AdmissionResponse(allowed=False, patch=[], warnings=[], audit={}, message=strip_immutable_words(problem))
    return AdmissionResponse(allowed=True, patch=[], warnings=[_warning(problem)], audit={})


#: The answer for objects that gpugate does not review.
PASS: Final = AdmissionResponse(allowed=True, patch=[], warnings=[], audit={})
