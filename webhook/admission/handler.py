"""Answering one review: bytes in, a decision, bytes out."""

from __future__ import annotations

import time
import traceback
from typing import Any, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.admitted import in_flight_entry
from gpugate.policies.engine.engine import decide
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
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log

_PHASES: Final = {"mutate": Phase.MUTATE, "validate": Phase.CHECK}
JUDGED: Final = frozenset({"CREATE", "UPDATE"})
#: Sub-resources that hold the whole pod and can make it worse.
SUBRESOURCES: Final = frozenset({"", "ephemeralcontainers", "resize"})


class AdmissionHandler:
    """Answers reviews from the current snapshot of a state."""

    __slots__ = ("_ledger", "_log", "_metrics", "_recording", "_state", "_traces")

    def __init__(
        self,
        state: CurrentState,
        metrics: Metrics,
        log: Log,
        ledger: InFlightLedger | None = None,
        *,
        traces: DenialReporter | None = None,
        recording: ReviewRecorder | None = None,
    ) -> None:
        self._ledger = ledger
        self._traces = traces or DenialReporter(metrics)
        self._recording = recording
        self._state = state
        self._metrics = metrics
        self._log = log

    def answer(self, endpoint: str, body: bytes) -> bytes:
        """The response to the review in ``body`` at ``endpoint`` (``mutate`` or ``validate``), from what is known now.

        Raises:
            BadRequestError: the body is no review that can be answered.
        """
        answer = self.answer_or_defer(endpoint, body, may_wait=False)
        assert answer is not None  # noqa: S101 - waiting was not allowed
        return answer

    def answer_or_defer(self, endpoint: str, body: bytes, *, may_wait: bool) -> bytes | None:
        """The same; None where the review should be answered a moment later: it would be refused for facts alone.

        The watch lags behind the apiserver by milliseconds. A queue that was made, or a pod that was deleted, just before may
        not show yet, and a refusal for it would stop a sync that has done nothing wrong. So a refusal is looked at twice.

        Raises:
            BadRequestError: the body is no review that can be answered.
        """
        started = time.perf_counter()
        request = parse(body)
        try:
            verdict, decision = self._judge(request, _PHASES[endpoint])
        except MalformedError as error:
            problem = f"gpugate cannot read {_title(request)}: {error}"
            verdict, decision = undecided(problem, refuse=self._enforces(request)), None
        except RecursionError:
            message = "the object is nested too deeply to be read"
            raise BadRequestError(message, reason="depth") from None
        except BadRequestError:
            raise
        except Exception as error:  # noqa: BLE001 - an answer that says so is worth more than a 500
            verdict, decision = self._broken(endpoint, request, error), None
        if may_wait and self._ledger is not None and decision is not None and _rests_on_facts(decision):
            return None
        answer = render(request.uid, verdict)
        if self._recording is not None and (decision is not None or not verdict.allowed):
            self._recording.take(endpoint, body, verdict, decision, self._state.in_force.policies.policies)
        self._account(endpoint, request, verdict, decision, time.perf_counter() - started)
        return answer

    def _judge(self, request: Request, phase: Phase) -> tuple[AdmissionResponse, Decision | None]:
        snapshot, policies = self._state.in_force
        workload = open_request(request, snapshot)
        if workload is None:
            return PASS, None
        bound = policies.bind(snapshot.namespace_labels(workload.namespace), workload.labels())
        if self._ledger is not None:
            self._ledger.expire()
            if request.operation == "CREATE":
                self._ledger.supersede(request.kind, workload.namespace, workload.name)
        decision = decide(workload, bound, snapshot, phase, now=time.time())
        if self._ledger is not None and phase is Phase.CHECK and not decision.refused:
            self._count_in(self._ledger, request, workload)
        return build_response(_title(request), decision, bound.named), decision

    def _count_in(self, ledger: InFlightLedger, request: Request, workload: Workload) -> None:
        """Count what is about to be stored until the watch shows it."""
        if request.operation != "CREATE" or request.dry_run or request.subresource:
            return
        # The apiserver has given the object its uid before it asks the validating webhooks.
        uid = workload.metadata().get("uid")
        admitted = in_flight_entry(workload) if type(uid) is str and uid else None
        if admitted is not None:
            ledger.admit(str(uid), admitted)

    def _enforces(self, request: Request) -> bool:
        """Whether any rule may refuse in the request's namespace."""
        snapshot, policies = self._state.in_force
        bound = policies.bind(snapshot.namespace_labels(request.namespace), {})
        return any(one.mode is Mode.ENFORCE for one in bound)

    def _broken(self, endpoint: str, request: Request, error: Exception) -> AdmissionResponse:
        """The verdict where gpugate itself broke: what the mutating door lets pass, the validating door stops."""
        self._metrics.broken()
        trace = "".join(traceback.format_exception(error))
        self._log.error("review failed", uid=request.uid, endpoint=endpoint, traceback=trace)
        problem = (
            f"gpugate failed on {_title(request)} ({type(error).__name__}): an error in gpugate, not in the object. "
            "Report it with the object, and set the policy's mode to Warn to go on meanwhile."
        )
        return undecided(problem, refuse=endpoint == "validate" and self._enforces(request))

    def _account(
        self, endpoint: str, request: Request, verdict: AdmissionResponse, decision: Decision | None, seconds: float
    ) -> None:
        outcome = "refused" if not verdict.allowed else "changed" if verdict.patch else "passed"
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
        policies = verdict.audit.get(POLICIES)
        if policies:
            fields["policies"] = policies
        if request.subresource:
            fields["subresource"] = request.subresource
        if request.dry_run:
            fields["dryRun"] = True
        if decision is not None and (decision.changes or decision.would_change or decision.findings or decision.failures):
            self._metrics.decided(decision)
            self._describe(decision, fields, request)
            self._traces.report(endpoint, request, verdict, decision)
        elif not verdict.allowed:
            fields["refusal"] = verdict.message
            self._traces.report(endpoint, request, verdict, None)
        self._log.review(fields)

    def _describe(self, decision: Decision, fields: dict[str, Any], request: Request) -> None:
        if decision.changes:
            fields["changed"] = [change.rule for change in decision.changes]
        if decision.would_change:
            fields["wouldChange"] = [change.rule for change in decision.would_change]
        if decision.findings:
            fields["findings"] = [f"{one.severity.value} {one.rule}/{one.finding.reason}" for one in decision.findings]
            denied = [_reason_of(one) for one in decision.findings if one.severity is Severity.DENY]
            if denied:
                fields["denied"] = denied
            would = [_reason_of(one) for one in decision.findings if one.would_refuse]
            if would:
                fields["wouldDeny"] = would
        for failure in decision.failures:
            trace = "".join(traceback.format_exception(failure.error))
            self._log.error("rule failed", uid=request.uid, rule=failure.rule, traceback=trace)


def open_request(request: Request, snapshot: ClusterSnapshot) -> Workload | None:
    """The lens over the object of ``request``; None where it is none of gpugate's business.

    Raises:
        BadRequestError: it brings no object.
        MalformedError: its pods are not where the API has them.
    """
    kind = kind_of(request.api_version, request.kind)
    if kind is None or request.operation not in JUDGED or request.subresource not in SUBRESOURCES:
        return None
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
    )


def _reason_of(one: Judged) -> str:
    return cut(f"{one.rule}/{one.finding.reason}: {one.finding.message}")


def _rests_on_facts(decision: Decision) -> bool:
    """Whether the object is refused, and for nothing that its own text shows."""
    return decision.refused and all(one.finding.rests_on for one in decision.findings if one.severity is Severity.DENY)


def _title(request: Request) -> str:
    name = request.name or _generated(request)
    return f"{request.kind} {request.namespace}/{name}" if request.namespace else f"{request.kind} {name}"


def _generated(request: Request) -> str:
    metadata = (request.object or {}).get("metadata")
    prefix = metadata.get("generateName") if type(metadata) is dict else None
    return f"{prefix}*" if type(prefix) is str and prefix else "without a name"
