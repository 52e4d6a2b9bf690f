"""What a refusal leaves behind besides its answer: counts, and an Event where those look who wonder why nothing runs.

A refused object is never stored, so that nobody finds an Event about it: it goes to the controller that wanted the object, or to
the Namespace. What rules in DryRun would have refused is told likewise, by its own reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from gpugate.policies.findings import Judged, Mode, Severity
from gpugate.policies.framework.decision import Decision
from gpugate.webhook.admission.admission_review import AdmissionResponse, Request
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.response import cut, one_line, sentence, strip_immutable_words
from gpugate.webhook.kube.event_series import Kind, Reference, about_namespace

REFUSED: Final = "Refused"
WOULD_REFUSE: Final = "WouldRefuse"
#: What was tried, by the operation of the request.
_ACTIONS: Final[Mapping[str, str]] = {"CREATE": "Create", "UPDATE": "Update"}
#: Findings that one Event tells, and what each may take of it; an Event's note holds 1024 bytes.
_MOST: Final = 3
_ROOM: Final = 900
#: Where a refusal comes from that no rule made: an object that cannot be read, or gpugate itself.
_NO_RULE: Final = "none"


class EventSink(Protocol):
    """Takes what is to become an Event; `gpugate.webhook.kube.events.Recorder` is one."""

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: Kind = "Warning") -> None:
        """Have an Event about ``regarding`` sent; never blocks, never raises."""


class _Subject(NamedTuple):
    """Whom an Event is about, and what it calls the object that was refused."""

    regarding: Reference
    title: str


class DenialReporter:
    """Counts and tells what was refused, and what would have been."""

    __slots__ = ("_events", "_metrics")

    def __init__(self, metrics: Metrics, events: EventSink | None = None) -> None:
        """Count in ``metrics``, and tell ``events`` where there are any."""
        self._metrics = metrics
        self._events = events

    def report(self, endpoint: str, request: Request, verdict: AdmissionResponse, decision: Decision | None) -> None:
        """Leave the traces of one answered review.

        Told twice is nothing: what the mutating door refuses the validating one never sees, and what would be refused is told by
        the validating door alone, which sees every object that the other sees, as it is to be stored.
        """
        findings = decision.findings if decision is not None else ()
        if not verdict.allowed:
            denied = [one for one in findings if one.severity is Severity.DENY]
            self._metrics.refused({one.rule for one in denied} or {_NO_RULE}, Mode.ENFORCE, dry_run=request.dry_run)
            if self._events is not None and not request.dry_run:
                subject = _who_wanted(request)
                note = f"gpugate refuses {subject.title}: {_told(denied)}" if denied else verdict.message
                self._tell(REFUSED, subject, note, request)
        if not findings or endpoint != "validate":
            return
        would = [one for one in findings if one.would_refuse]
        if would:
            self._metrics.refused({one.rule for one in would}, Mode.DRY_RUN, dry_run=request.dry_run)
            if self._events is not None and not request.dry_run:
                subject = _who_gets(request, stored=verdict.allowed)
                self._tell(WOULD_REFUSE, subject, f"dry run: gpugate would refuse {subject.title}: {_told(would)}", request)

    def _tell(self, reason: str, subject: _Subject, note: str, request: Request) -> None:
        assert self._events is not None  # noqa: S101 - both callers asked
        self._events.emit(
            subject.regarding,
            reason=reason,
            message=strip_immutable_words(one_line(note)),
            action=_ACTIONS.get(request.operation, "Admit"),
            # Nobody has to do anything about what is let in.
            kind="Normal" if reason == WOULD_REFUSE else "Warning",
        )


def _told(findings: Sequence[Judged]) -> str:
    if len(findings) == 1:
        return sentence(findings[0])
    told = [cut(sentence(one), _ROOM // min(len(findings), _MOST)) for one in findings[:_MOST]]
    if len(findings) > _MOST:
        told.append(f"and {len(findings) - _MOST} more")
    return "; ".join(told)


def _who_wanted(request: Request) -> _Subject:
    """Whom a refusal is told: the object that is there on UPDATE, else what wanted to make it."""
    if request.operation == "UPDATE":
        return _itself(request) or _namespace(request)
    return _controller(request) or _namespace(request)


def _who_gets(request: Request, *, stored: bool) -> _Subject:
    """Whom it is told what would be refused: the controller, so that a thousand pods of it are one Event; else the object."""
    if request.operation == "UPDATE" or not stored:
        return _who_wanted(request)
    return _controller(request) or _itself(request) or _namespace(request)


def _namespace(request: Request) -> _Subject:
    metadata = _metadata(request.object)
    prefix = metadata.get("generateName")
    name = f"{prefix}*" if type(prefix) is str and prefix else request.name or metadata.get("name") or "without a name"
    return _Subject(about_namespace(request.namespace), f"{request.kind} {name}")


def _itself(request: Request) -> _Subject | None:
    metadata = _metadata(request.old or request.object)
    name, uid = metadata.get("name"), metadata.get("uid")
    if type(name) is not str or type(uid) is not str or not name or not uid:
        return None
    what = f"this {request.operation}" if request.operation == "UPDATE" else f"this {request.kind}"
    return _Subject(Reference(request.api_version, request.kind, request.namespace, name, uid), what)


def _controller(request: Request) -> _Subject | None:
    owners = _metadata(request.object).get("ownerReferences")
    for owner in owners if type(owners) is list else ():
        if type(owner) is not dict or owner.get("controller") is not True:
            continue
        api_version, kind, name, uid = (owner.get(key) for key in ("apiVersion", "kind", "name", "uid"))
        if type(api_version) is str and type(kind) is str and type(name) is str and type(uid) is str and name and kind:
            # Without its name: all pods of a Job are refused for the same, and that is one Event.
            return _Subject(Reference(api_version, kind, request.namespace, name, uid), f"its {request.kind}s")
    return None


def _metadata(obj: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = obj.get("metadata") if obj is not None else None
    return found if type(found) is dict else {}
