"""Answer one AdmissionReview: decode, decide, encode."""

import time
import traceback
from dataclasses import replace
from typing import Any, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide, in_flight_entry
from gpugate.policies.engine.owners import rests_on_discovery
from gpugate.policies.findings import Judged, Mode, Severity
from gpugate.policies.framework.decision import Decision, Phase
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.admission.admission_review import AdmissionResponse, BadRequestError, Request, parse, render
from gpugate.webhook.admission.denials import DenialReporter
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.admission.recorder import ReviewRecorder
from gpugate.webhook.admission.response import PASS, POLICIES, build_response, cut, undecided
from gpugate.webhook.admission.withheld_names import NameFilter
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log

_PHASES: Final = {"mutate": Phase.MUTATE, "validate": Phase.CHECK}
#: Largest ``timeoutSeconds`` of a webhook. Seconds.
LONGEST_TIMEOUT: Final = 30.0
#: Age of what is known about the cluster's kinds, up to which a missing kind does not exist. Seconds.
_RECENT: Final = 0.5
REVIEWED_OPERATIONS: Final = frozenset({"CREATE", "UPDATE"})
#: Subresources with the whole pod that can change its spec.
REVIEWED_SUBRESOURCES: Final = frozenset({"", "ephemeralcontainers", "resize"})


class _NotYetDecidedError(Exception):
    """The review should be decided again a moment later."""


class AdmissionHandler:
    """Answers reviews from the current snapshot of a state."""

    def __init__(
        self,
        state: CurrentState,
        metrics: Metrics,
        log: Log,
        ledger: InFlightLedger | None = None,
        *,
        denials: DenialReporter | None = None,
        review_recorder: ReviewRecorder | None = None,
        authenticated: bool = True,
    ) -> None:
        """Prepare to answer; callers that are not ``authenticated`` get answers without names of nodes and of other teams."""
        self._state, self._metrics, self._log = state, metrics, log
        self._ledger, self._review_recorder = ledger, review_recorder
        self._denials = denials or DenialReporter(metrics)
        self._name_filter = None if authenticated else NameFilter()

    def answer(self, endpoint: str, body: bytes, *, timeout: float = LONGEST_TIMEOUT, since: float | None = None) -> bytes:
        """Return the response to the review in ``body`` at ``endpoint`` (``mutate`` or ``validate``), from the current snapshot.

        ``timeout`` is that of the apiserver in seconds; ``since`` is when the review arrived, on the monotonic clock, else now.

        Raises:
            BadRequestError: the body is not a review that can be answered.
        """
        answer = self.answer_or_defer(endpoint, body, may_wait=False, timeout=timeout, since=since)
        assert answer is not None  # noqa: S101 - waiting was not allowed
        return answer

    def answer_or_defer(
        self, endpoint: str, body: bytes, *, may_wait: bool, timeout: float = LONGEST_TIMEOUT, since: float | None = None
    ) -> bytes | None:
        """Answer like `answer`, or return None if the review should be decided again a moment later.

        The watch lags behind the apiserver by milliseconds: the snapshot may not yet have a new queue, or still have a deleted pod,
        and a refusal for it would stop a correct sync. So a refusal that depends on facts alone is decided twice, and so is an
        object whose owner is of a kind that the cluster did not serve when it was last asked.

        Raises:
            BadRequestError: the body is not a review that can be answered.
        """
        started = time.perf_counter()
        request = parse(body)
        try:
            response, decision = self._decide(request, _PHASES[endpoint], timeout, may_wait=may_wait, since=since)
        except _NotYetDecidedError:
            return None
        except MalformedError as error:
            problem = f"gpugate cannot read {_title(request)}: {error}"
            response, decision = undecided(problem, self._strongest_mode(request)), None
        except RecursionError:
            message = "the object is nested too deeply"
            raise BadRequestError(message, reason="depth") from None
        except BadRequestError:
            raise
        except Exception as error:  # noqa: BLE001 - answer with the reason instead of a 500
            response, decision = self._failed_review(endpoint, request, error), None
        defers = may_wait and endpoint == "validate" and self._ledger is not None
        if defers and decision is not None and _rests_on_facts(decision):
            return None
        answer = render(request.uid, response)
        recorded = not request.unread and (decision is not None or not response.allowed)
        if self._review_recorder is not None and recorded:
            self._review_recorder.record(endpoint, body, response, decision, self._state.in_force.policies.policies)
        self._account(endpoint, request, response, decision, time.perf_counter() - started)
        return answer

    def _decide(
        self, request: Request, phase: Phase, timeout: float, *, may_wait: bool, since: float | None
    ) -> tuple[AdmissionResponse, Decision | None]:
        snapshot, policies = self._state.in_force
        workload = open_request(request, snapshot, policies.most_pod_sets)
        if workload is None:
            return PASS, None
        bound = policies.bind(snapshot.namespace_labels(workload.namespace), workload.labels())
        if rests_on_discovery(workload, request.user, bound.controllers, snapshot):
            snapshot = self._discovered(snapshot, may_wait=may_wait, since=since)
        if self._ledger is not None:
            self._ledger.expire()
            if request.operation == "CREATE":
                self._ledger.supersede(request.kind, workload.namespace, workload.name)
        decision = decide(workload, bound, snapshot, phase, now=time.time(), user=request.user)
        if self._ledger is not None and phase is Phase.CHECK and not decision.refused:
            self._record_in_flight(self._ledger, request, workload, timeout)
        shown = decision if self._name_filter is None else self._name_filter.filtered(decision, snapshot)
        response = build_response(_title(request), shown, bound.named, quiet=bound.warnings, announce=workload.controller() is None)
        return response, decision

    def _discovered(self, snapshot: ClusterSnapshot, *, may_wait: bool, since: float | None) -> ClusterSnapshot:
        """Return ``snapshot``, without the cluster's kinds if these were not read just now: a kind may have come since.

        Raises:
            _NotYetDecidedError: the kinds are read again, and the review may wait for them.
        """
        if self._state.discovered_at >= (time.monotonic() if since is None else since) - _RECENT:
            return snapshot
        self._state.rediscover()
        if may_wait:
            raise _NotYetDecidedError
        return replace(snapshot, served=None)

    def _record_in_flight(self, ledger: InFlightLedger, request: Request, workload: Workload, timeout: float) -> None:
        """Count an object that will be stored until the watch shows it."""
        if request.operation != "CREATE" or request.dry_run or request.subresource:
            return
        # The apiserver sets the uid before it calls validating webhooks.
        uid = workload.metadata().get("uid")
        admitted = in_flight_entry(workload) if type(uid) is str and uid else None
        if admitted is not None:
            ledger.admit(str(uid), admitted, timeout)

    def _strongest_mode(self, request: Request) -> Mode:
        """Return the strongest mode of any rule in the request's namespace; DryRun if none applies."""
        snapshot, policies = self._state.in_force
        bound = policies.bind(snapshot.namespace_labels(request.namespace), {})
        return min((rule.mode for rule in bound), key=list(Mode).index, default=Mode.DRY_RUN)

    def _failed_review(self, endpoint: str, request: Request, error: Exception) -> AdmissionResponse:
        """Return the response for a failure of gpugate itself: /mutate allows, /validate refuses."""
        self._metrics.broken()
        trace = "".join(traceback.format_exception(error))
        self._log.error("review failed", uid=request.uid, endpoint=endpoint, traceback=trace)
        problem = (
            f"gpugate failed on {_title(request)} ({type(error).__name__}): an error in gpugate, not in the object. "
            "Report it with the object, and set the mode of the policy to Mutate until it is fixed."
        )
        mode = self._strongest_mode(request)
        return undecided(problem, mode if endpoint == "validate" else mode.at_most(Mode.MUTATE))

    def _account(
        self, endpoint: str, request: Request, response: AdmissionResponse, decision: Decision | None, seconds: float
    ) -> None:
        outcome = "refused" if not response.allowed else "changed" if response.patch else "passed"
        self._metrics.reviewed(endpoint, request.kind, request.operation, outcome, seconds)
        fields: dict[str, Any] = {
            "uid": request.uid,
            "endpoint": endpoint,
            "operation": request.operation,
            "kind": request.kind,
            "namespace": request.namespace,
            "name": request.name,
            "user": request.user,
            "outcome": outcome,
            "ms": int(seconds * 1_000_000) / 1000,
        }
        policies = response.audit.get(POLICIES)
        if policies:
            fields["policies"] = policies
        if request.subresource:
            fields["subresource"] = request.subresource
        if request.dry_run:
            fields["dryRun"] = True
        if decision is not None and (decision.changes or decision.would_change or decision.findings or decision.failures):
            self._metrics.decided(decision)
            self._describe(decision, fields, request)
            self._denials.report(endpoint, request, response, decision)
        elif not response.allowed:
            fields["refusal"] = response.message
            self._denials.report(endpoint, request, response, None)
        self._log.review(fields)

    def _describe(self, decision: Decision, fields: dict[str, Any], request: Request) -> None:
        if decision.changes:
            fields["changed"] = [change.rule for change in decision.changes]
        if decision.would_change:
            fields["wouldChange"] = [change.rule for change in decision.would_change]
        if decision.findings:
            fields["findings"] = [f"{judged.severity.value} {judged.rule}/{judged.finding.reason}" for judged in decision.findings]
            denied = [_reason_of(finding) for finding in decision.findings if finding.severity is Severity.DENY]
            if denied:
                fields["denied"] = denied
            would = [_reason_of(finding) for finding in decision.findings if finding.would_refuse]
            if would:
                fields["wouldDeny"] = would
        for failure in decision.failures:
            trace = "".join(traceback.format_exception(failure.error))
            self._log.error("rule failed", uid=request.uid, rule=failure.rule, traceback=trace)


def open_request(request: Request, snapshot: ClusterSnapshot, most_pod_sets: int) -> Workload | None:
    """Open the object of ``request`` as a workload; None if gpugate does not review it.

    Raises:
        BadRequestError: the request has no object.
        MalformedError: the object was not read, or a field that leads to the pods has the wrong type.
    """
    kind = kind_of(request.api_version, request.kind)
    if kind is None or request.operation not in REVIEWED_OPERATIONS or request.subresource not in REVIEWED_SUBRESOURCES:
        return None
    if request.unread:
        raise MalformedError(("object",), request.unread)
    if request.object is None:
        message = f"request.object must be an object on {request.operation}, is null"
        raise BadRequestError(message)
    return open_workload(
        kind,
        request.object,
        snapshot,
        namespace=request.namespace,
        operation=request.operation,
        old=request.old if request.operation == "UPDATE" else None,
        subresource=request.subresource,
        most_unread=most_pod_sets,
    )


def _reason_of(judged: Judged) -> str:
    return cut(f"{judged.rule}/{judged.finding.reason}: {judged.finding.message}")


def _rests_on_facts(decision: Decision) -> bool:
    """Return whether all refusals of the object depend on facts of the cluster."""
    return decision.refused and all(finding.finding.rests_on for finding in decision.findings if finding.severity is Severity.DENY)


def _title(request: Request) -> str:
    name = request.name or request.generated_name or "without a name"
    return f"{request.kind} {request.namespace}/{name}" if request.namespace else f"{request.kind} {name}"
