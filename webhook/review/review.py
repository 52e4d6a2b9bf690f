"""Review documents from files, by the same engine as the webhook."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Finding, Judged, Severity
from gpugate.policies.kube.accelerators import is_accelerator, suggestion
from gpugate.policies.kube.fields import MalformedError, clone
from gpugate.policies.lint.api_versions import current
from gpugate.policies.lint.context import LintContext
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.webhook.admission.handler import REVIEWED_OPERATIONS, REVIEWED_SUBRESOURCES
from gpugate.webhook.files.documents import Document, UnreadableInput, parse
from gpugate.webhook.review.entry import Outcome, ReviewEntry, finding_as_json
from gpugate.webhook.review.lint import review_part, review_setup

__all__ = ["Outcome", "ReviewEntry", "finding_as_json", "review"]

_REVIEW: Final = "AdmissionReview"


def review(
    documents: Iterable[Document | UnreadableInput],
    policies: PolicySet,
    snapshot: ClusterSnapshot,
    namespace: str = "",
    *,
    at_source: bool = False,
    now: float | None = None,
) -> Iterator[ReviewEntry]:
    """Review every document.

    Args:
        documents: the documents.
        policies: the policies.
        snapshot: the cluster.
        namespace: namespace of objects that state none; empty for ``default``.
        at_source: whether the changes go into the source files: no edit is withheld for GitOps, and refused objects are
            changed as far as the rules can.
        now: the time, in seconds since 1970, for the end of exemptions; None never ends them.
    """
    documents = list(documents)
    lint_context = None if at_source else _lint_context(documents, snapshot, namespace)
    for document in documents:
        if isinstance(document, UnreadableInput):
            yield _invalid(ReviewEntry(document.file, document.number, Outcome.INVALID), "Unreadable", document.problem)
        else:
            yield _review_one(document, policies, snapshot, _Settings(namespace, at_source, now, lint_context))


def _lint_context(documents: Iterable[Document | UnreadableInput], snapshot: ClusterSnapshot, namespace: str) -> LintContext:
    return LintContext((document.value for document in documents if isinstance(document, Document)), snapshot, namespace, _embedded)


def _embedded(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse YAML embedded in an object; None if it does not parse."""
    document = next(parse("", text), None)
    return document.value if isinstance(document, Document) else None


def _invalid(entry: ReviewEntry, reason: str, problem: str) -> ReviewEntry:
    entry.outcome = Outcome.INVALID
    entry.note = problem
    finding = Finding(reason, (), problem, "Correct the manifest and review it again.")
    entry.findings = [Judged("input", Severity.DENY, finding)]
    return entry


class _Settings(NamedTuple):
    """The settings of one review, from the arguments of :func:`review`."""

    namespace: str
    at_source: bool
    now: float | None
    lint_context: LintContext | None


def _review_one(document: Document, policies: PolicySet, snapshot: ClusterSnapshot, settings: _Settings) -> ReviewEntry:
    value, old, operation, subresource, namespace = document.value, None, "CREATE", "", settings.namespace
    if isinstance(value, dict) and value.get("kind") == _REVIEW and not settings.at_source:
        request = value.get("request")
        if not isinstance(request, dict) or not isinstance(request.get("object"), dict):
            entry = ReviewEntry(document.file, document.number, Outcome.SKIPPED, value, value)
            entry.note = "an AdmissionReview without request.object: nothing to judge"
            return entry
        operation, subresource = str(request.get("operation") or "CREATE"), str(request.get("subResource") or "")
        if operation not in REVIEWED_OPERATIONS or subresource not in REVIEWED_SUBRESOURCES:
            entry = ReviewEntry(document.file, document.number, Outcome.SKIPPED, value, value)
            entry.note = f"an AdmissionReview of {operation:.60} {subresource:.60}".rstrip() + ": not reviewed by gpugate"
            return entry
        value, old = _typed(request), request.get("oldObject")
        stated = request.get("namespace")
        namespace = stated if isinstance(stated, str) else namespace
    lint_context = settings.lint_context if value is document.value else None
    entry = ReviewEntry(document.file, document.number, Outcome.SKIPPED, value, value)
    if not isinstance(value, dict) or not isinstance(value.get("apiVersion"), str) or not isinstance(value.get("kind"), str):
        entry.note = "is no Kubernetes object (no apiVersion and kind)"
        if lint_context is not None:
            _or_invalid(entry, lambda: review_part(entry, policies, snapshot, settings.now))
        return entry
    old = old if isinstance(old, dict) and operation == "UPDATE" else None
    request = _Request(namespace, operation, old, subresource, settings)
    _or_invalid(entry, lambda: _judge(entry, policies, snapshot, request))
    if lint_context is not None:
        review_setup(entry, lint_context)
    return entry


def _or_invalid(entry: ReviewEntry, judge: Callable[[], None]) -> None:
    try:
        judge()
    except MalformedError as error:
        _invalid(entry, "Malformed", str(error))
    except RecursionError:
        _invalid(entry, "Malformed", "is nested too deeply to be read")


def accelerator_in(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """Return an accelerator name, or a misspelt one, that ``value`` requests anywhere; None if there is none."""
    if isinstance(value, dict):
        for kind in ("limits", "requests"):
            amounts = value.get(kind)
            for name in amounts if isinstance(amounts, dict) else ():
                if is_accelerator(name) or suggestion(name):
                    return str(name)
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((accelerator for accelerator in map(accelerator_in, children) if accelerator), None)


def _typed(request: dict[str, Any]) -> dict[str, Any]:
    """Return the request's object with the kind of the request, if it has none itself."""
    kind = request.get("kind") if isinstance(request.get("kind"), dict) else {}
    group, version = (kind or {}).get("group"), (kind or {}).get("version")
    stated = {"apiVersion": f"{group}/{version}" if group else version, "kind": (kind or {}).get("kind")}
    return {**stated, **request["object"]}


class _Request(NamedTuple):
    """The request around one object."""

    namespace: str
    operation: str
    old: dict[str, Any] | None
    subresource: str
    settings: _Settings


def _judge(entry: ReviewEntry, policies: PolicySet, snapshot: ClusterSnapshot, request: _Request) -> None:
    # Review an object of a retired API version as one of the current version.
    version = entry.api_version if request.settings.lint_context is None else current(entry.api_version, entry.kind)
    kind = kind_of(version, entry.kind)
    if kind is None:
        accelerator = accelerator_in(entry.before)
        if accelerator:
            entry.note = f"gpugate does not read kind {entry.kind}, which requests {accelerator}: its pods are reviewed at creation"
        return
    after = clone(entry.before)
    workload = open_workload(
        kind,
        after,
        snapshot,
        namespace=entry.namespace or request.namespace,
        operation=request.operation,
        old=request.old,
        subresource=request.subresource,
    )
    bound = policies.bind(snapshot.namespace_labels(workload.namespace), workload.labels())
    decision = decide(workload, bound, snapshot, remember=False, at_source=request.settings.at_source, now=request.settings.now)
    entry.policies = bound.policies
    entry.findings, entry.changes, entry.would_change = decision.findings, decision.changes, decision.would_change
    entry.outcome = Outcome.REFUSED if decision.refused else Outcome.CHANGED if decision.patch else Outcome.CLEAN
    if not decision.refused or request.settings.at_source:
        entry.patch, entry.after = decision.patch, after
