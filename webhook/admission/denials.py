"""Report denials: metrics, and an Event on the controller or the namespace.

A refused object is never stored, so an Event about it could not be found: the Event is about the controller that created the
object, or about the Namespace. Denials of rules in Warn and DryRun are reported as well, with another reason.

Without a client certificate, only what the watch confirms becomes an Event: an admitted pod (`HeldEvents`). A refusal leaves
nothing to confirm it by.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from gpugate.policies.findings import Judged, Mode, Severity
from gpugate.policies.framework.decision import Decision
from gpugate.policies.workloads.kinds import kind_of
from gpugate.webhook.admission.admission_review import AdmissionResponse, Request
from gpugate.webhook.admission.held_events import HeldEvents
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.response import cut, one_line, sentence, strip_immutable_words
from gpugate.webhook.kube.event_series import Reference, about_namespace
from gpugate.webhook.kube.events import EventSink

REFUSED: Final = "Refused"
WOULD_REFUSE: Final = "WouldRefuse"
#: Action of the Event by operation of the request.
_ACTIONS: Final[Mapping[str, str]] = {"CREATE": "Create", "UPDATE": "Update"}
#: Most findings in one Event, and the characters that they share; an Event's note holds 1024 bytes.
_MOST: Final = 3
_NOTE_CHARACTERS: Final = 900
#: Rule label of refusals without a rule: an unreadable object, or a failure of gpugate.
_NO_RULE: Final = "none"


class _Subject(NamedTuple):
    """The object of an Event, and the title of the refused object in its text."""

    regarding: Reference
    title: str


class DenialReporter:
    """Counts denials, real ones and those of Warn and DryRun, and emits Events about them."""

    def __init__(self, metrics: Metrics, events: EventSink | None = None, *, held: HeldEvents | None = None) -> None:
        """Prepare to emit ``events``; with ``held``, callers are not authenticated, and only confirmed Events are emitted."""
        self._metrics = metrics
        self._events = events
        self._held = held

    def report(self, endpoint: str, request: Request, response: AdmissionResponse, decision: Decision | None) -> None:
        """Report the denials of one answered review.

        Nothing is reported twice: /validate never sees what /mutate refuses, and rehearsed ones are reported at /validate only,
        which sees every object in its final form.
        """
        findings = decision.findings if decision is not None else ()
        if not response.allowed:
            denied = [finding for finding in findings if finding.severity is Severity.DENY]
            self._metrics.refused({denial.rule for denial in denied} or {_NO_RULE}, Mode.ENFORCE, dry_run=request.dry_run)
            subject = _requester(request)
            note = f"gpugate refuses {subject.title}: {_describe(denied)}" if denied else response.message
            self._emit(REFUSED, subject, note, request, allowed=False)
        would = [finding for finding in findings if finding.would_refuse] if endpoint == "validate" else []
        if would:
            silent = {judged.rule for judged in would if judged.severity is Severity.DRYRUN}
            told = {judged.rule for judged in would if judged.severity is not Severity.DRYRUN}
            self._metrics.refused(silent, Mode.DRY_RUN, dry_run=request.dry_run)
            self._metrics.refused(told, Mode.WARN, dry_run=request.dry_run)
            subject = _rehearsal_subject(request, stored=response.allowed)
            note = f"{'' if told else 'dry run: '}gpugate would refuse {subject.title}: {_describe(would)}"
            self._emit(WOULD_REFUSE, subject, note, request, allowed=response.allowed)

    def _emit(self, reason: str, subject: _Subject, note: str, request: Request, *, allowed: bool) -> None:
        if self._events is None or request.dry_run:
            return
        emit = partial(
            self._events.emit,
            subject.regarding,
            reason=reason,
            message=strip_immutable_words(one_line(note)),
            action=_ACTIONS.get(request.operation, "Admit"),
            # An allowed object needs no action.
            kind="Normal" if reason == WOULD_REFUSE else "Warning",
        )
        if self._held is None:
            emit()
        elif allowed and (uid := _uid_of_new_pod(request)):
            owner = _controller(request)
            self._held.hold(uid, request.namespace, owner.regarding.uid if owner is not None else "", emit)
        else:
            self._metrics.event("unconfirmed")


def _describe(findings: Sequence[Judged]) -> str:
    if len(findings) == 1:
        return sentence(findings[0])
    parts = [cut(sentence(finding), _NOTE_CHARACTERS // min(len(findings), _MOST)) for finding in findings[:_MOST]]
    if len(findings) > _MOST:
        parts.append(f"and {len(findings) - _MOST} more")
    return "; ".join(parts)


def _requester(request: Request) -> _Subject:
    """Return the object for an Event about a refusal: the object itself on UPDATE, else its controller or namespace."""
    if request.operation == "UPDATE":
        return _itself(request) or _namespace(request)
    return _controller(request) or _namespace(request)


def _rehearsal_subject(request: Request, *, stored: bool) -> _Subject:
    """Return the object for an Event of Warn or DryRun: the controller, whose pods share one Event, else the object."""
    if request.operation == "UPDATE" or not stored:
        return _requester(request)
    return _controller(request) or _itself(request) or _namespace(request)


def _namespace(request: Request) -> _Subject:
    name = request.generated_name or request.name or _metadata(request.object).get("name") or "without a name"
    return _Subject(about_namespace(request.namespace), f"{request.kind} {name}")


def _itself(request: Request) -> _Subject | None:
    metadata = _metadata(request.old or request.object)
    name, uid = metadata.get("name"), metadata.get("uid")
    if type(name) is not str or type(uid) is not str or not name or not uid:
        return None
    title = f"this {request.operation}" if request.operation == "UPDATE" else f"this {request.kind}"
    return _Subject(Reference(request.api_version, request.kind, request.namespace, name, uid), title)


def _controller(request: Request) -> _Subject | None:
    owners = _metadata(request.object).get("ownerReferences")
    for owner in owners if type(owners) is list else ():
        if type(owner) is not dict or owner.get("controller") is not True:
            continue
        api_version, kind, name, uid = (owner.get(key) for key in ("apiVersion", "kind", "name", "uid"))
        if type(api_version) is str and type(kind) is str and type(name) is str and type(uid) is str and name and kind:
            # Leave out the name of the pod: all pods of a Job share one Event.
            return _Subject(Reference(api_version, kind, request.namespace, name, uid), f"its {request.kind}s")
    return None


def _uid_of_new_pod(request: Request) -> str:
    """Return the uid of the pod that ``request`` creates; empty for another object, which the watch would not show."""
    uid = _metadata(request.object).get("uid")
    if type(uid) is not str or request.operation != "CREATE" or request.subresource:
        return ""
    kind = kind_of(request.api_version, request.kind)
    return uid if kind is not None and kind.is_pod else ""


def _metadata(obj: Mapping[str, Any] | None) -> Mapping[str, Any]:
    result = obj.get("metadata") if obj is not None else None
    return result if type(result) is dict else {}
