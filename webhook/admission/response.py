"""From a decision to the words that the user, the audit log and the API get."""

from __future__ import annotations

import re
from typing import Final

from gpugate.policies.findings import Judged, Severity
from gpugate.policies.framework.decision import Change, Decision
from gpugate.policies.kube.fields import dotted
from gpugate.webhook.admission.admission_review import AdmissionResponse

#: What an audit annotation holds at the most; the apiserver keeps them in every audit event. Characters.
_LONGEST_AUDIT: Final = 512
#: The audit annotation that names the policies, with their generations, that an answer is by.
POLICIES: Final = "policies"
#: A warning above this may be cut by the apiserver (``k8s.io/apiserver`` ``endpoints/filters/warning.go``). Characters.
_LONGEST_WARNING: Final = 1024
_MOST_WARNINGS: Final = 16
#: A refusal ends up in events, conditions and terminals: the sums of a pod with a thousand containers must not. Characters.
_LONGEST_MESSAGE: Final = 1024
_LONGEST_REMEDY: Final = 512
_LONGEST_REASON: Final = 2000
_MOST_REASONS: Final = 16
#: Flux with force and kubectl apply --force take these words, even under 403, for "delete it and create it anew".
_FATAL: Final = re.compile(r"is immutable|immutable field", re.IGNORECASE)

#: The apiserver drops a warning that has any of these.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def strip_immutable_words(text: str) -> str:
    """``text`` without the words that make a GitOps tool delete the running object."""
    return _FATAL.sub("is fixed", text)


def sentence(judged: Judged) -> str:
    """A finding in one line: rule, place, what is wrong with the sums, and the remedy."""
    finding = judged.finding
    place = f" {dotted(finding.path)}:" if finding.path else ""
    return f"{judged.rule}:{place} {cut(finding.message, _LONGEST_MESSAGE)}. {cut(finding.remedy, _LONGEST_REMEDY)}"


def refusal(title: str, judged: list[Judged]) -> str:
    """The message of a refusal of the object ``title``."""
    lines = [cut(sentence(one), _LONGEST_REASON) for one in judged]
    if len(lines) == 1:
        return strip_immutable_words(f"gpugate refuses {title}: {lines[0]}")
    told = [f"- {line}" for line in lines[:_MOST_REASONS]]
    if len(lines) > _MOST_REASONS:
        told.append(f"- and {len(lines) - _MOST_REASONS} more")
    return strip_immutable_words(f"gpugate refuses {title} for {len(lines)} reasons:\n" + "\n".join(told))


def cut(text: str, longest: int = _LONGEST_MESSAGE) -> str:
    """``text`` of at most ``longest`` characters, with dots where something is missing at its end."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def one_line(text: str) -> str:
    """``text`` on one line, without control characters."""
    return _CONTROL.sub(" ", text)


def _warning(text: str) -> str:
    """``text`` as a warning header can carry it: on one line, without control characters, not too long."""
    return cut(strip_immutable_words(one_line(text)), _LONGEST_WARNING)


def _audit(decision: Decision, policies: str) -> dict[str, str]:
    audit = {POLICIES: policies}
    for change in decision.changes:
        audit[change.rule] = cut(_notes(change), _LONGEST_AUDIT)
    for change in decision.would_change:
        audit[f"{change.rule}.dryrun"] = cut(f"would change: {_notes(change)}", _LONGEST_AUDIT)
    if not decision.findings:
        return audit
    by_key: dict[str, list[str]] = {}
    for one in decision.findings:
        suffix = one.severity.value
        if one.severity is Severity.DRYRUN:
            suffix = "dryrun-deny" if one.would_refuse else "dryrun-finding"
        text = f"{one.finding.reason} at {dotted(one.finding.path)}"
        if one.would_refuse or one.severity is Severity.DENY:
            # What is read to decide whether to enforce a rule says why without a look elsewhere.
            text = f"{text}: {one.finding.message}"
        by_key.setdefault(f"{one.rule}.{suffix}", []).append(text)
    for key, texts in by_key.items():
        audit[key] = cut("; ".join(texts), _LONGEST_AUDIT)
    return audit


def _notes(change: Change) -> str:
    return "; ".join(change.notes)


def build_response(title: str, decision: Decision, policies: str) -> AdmissionResponse:
    """The verdict on the object called ``title``, decided by ``policies``."""
    if not decision.findings:
        return AdmissionResponse(True, decision.patch, [], _audit(decision, policies))  # noqa: FBT003
    denials = [one for one in decision.findings if one.severity is Severity.DENY]
    told = [one for one in decision.findings if one.severity in {Severity.WARN, Severity.UNKNOWN}]
    warnings = [_warning(sentence(one)) for one in told[:_MOST_WARNINGS]]
    return AdmissionResponse(
        allowed=not denials,
        patch=[] if denials else decision.patch,
        warnings=warnings,
        audit=_audit(decision, policies),
        message=refusal(title, denials) if denials else "",
    )


def undecided(problem: str, *, refuse: bool) -> AdmissionResponse:
    """The verdict on an object that could not be judged: refused, or passed with a warning."""
    if refuse:
        return AdmissionResponse(allowed=False, patch=[], warnings=[], audit={}, message=strip_immutable_words(problem))
    return AdmissionResponse(allowed=True, patch=[], warnings=[_warning(problem)], audit={})


#: The answer to what is none of gpugate's business.
PASS: Final = AdmissionResponse(allowed=True, patch=[], warnings=[], audit={})
