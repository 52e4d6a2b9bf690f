"""Offline review: the same engine as at the door, over documents from files."""

from __future__ import annotations

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
from gpugate.webhook.admission.handler import JUDGED, SUBRESOURCES
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
    """Judge every document.

    Args:
        documents: what was read.
        policies: the policies to judge by.
        snapshot: the cluster.
        namespace: where objects go that state no namespace; ``default`` where it is empty.
        at_source: whether the documents are to be changed where they are kept: nothing is held back then for what keeps
            them, and what is refused is changed as far as the rules can.
        now: the time, in seconds since 1970, at which exemptions may have ended; without it, none has.
    """
    documents = list(documents)
    around = None if at_source else _around(documents, snapshot, namespace)
    for document in documents:
        if isinstance(document, UnreadableInput):
            yield _invalid(ReviewEntry(document.file, document.number, Outcome.INVALID), "Unreadable", document.problem)
        else:
            yield _review_one(document, policies, snapshot, _Way(namespace, at_source, now, around))


def _around(documents: Iterable[Document | UnreadableInput], snapshot: ClusterSnapshot, namespace: str) -> LintContext:
    return LintContext((one.value for one in documents if isinstance(one, Document)), snapshot, namespace, _embedded)


def _embedded(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The value of YAML that stands in an object as a text; None where it does not parse."""
    found = next(parse("", text), None)
    return found.value if isinstance(found, Document) else None


def _invalid(entry: ReviewEntry, reason: str, problem: str) -> ReviewEntry:
    entry.outcome = Outcome.INVALID
    entry.note = problem
    finding = Finding(reason, (), problem, "Correct the manifest and review it again.")
    entry.findings = [Judged("input", Severity.DENY, finding)]
    return entry


class _Way(NamedTuple):
    """How all documents are judged, as :func:`review` is told."""

    namespace: str
    at_source: bool
    now: float | None
    around: LintContext | None


def _review_one(document: Document, policies: PolicySet, snapshot: ClusterSnapshot, way: _Way) -> ReviewEntry:
    value, old, operation, subresource, namespace = document.value, None, "CREATE", "", way.namespace
    if isinstance(value, dict) and value.get("kind") == _REVIEW and not way.at_source:
        request = value.get("request")
        if not isinstance(request, dict) or not isinstance(request.get("object"), dict):
            entry = ReviewEntry(document.file, document.number, Outcome.SKIPPED, value, value)
            entry.note = "an AdmissionReview without request.object: nothing to judge"
            return entry
        operation, subresource = str(request.get("operation") or "CREATE"), str(request.get("subResource") or "")
        if operation not in JUDGED or subresource not in SUBRESOURCES:
            entry = ReviewEntry(document.file, document.number, Outcome.SKIPPED, value, value)
            entry.note = f"an AdmissionReview of {operation:.60} {subresource:.60}".rstrip() + ": none of gpugate's business"
            return entry
        value, old = _typed(request), request.get("oldObject")
        stated = request.get("namespace")
        namespace = stated if isinstance(stated, str) else namespace
    around = way.around if value is document.value else None
    entry = ReviewEntry(document.file, document.number, Outcome.SKIPPED, value, value)
    if not isinstance(value, dict) or not isinstance(value.get("apiVersion"), str) or not isinstance(value.get("kind"), str):
        entry.note = "is no Kubernetes object (no apiVersion and kind)"
        if around is not None:
            _or_invalid(entry, lambda: review_part(entry, policies, snapshot, way.now))
        return entry
    old = old if isinstance(old, dict) and operation == "UPDATE" else None
    request = _Request(namespace, operation, old, subresource, way)
    _or_invalid(entry, lambda: _judge(entry, policies, snapshot, request))
    if around is not None:
        review_setup(entry, around)
    return entry


def _or_invalid(entry: ReviewEntry, judge: Callable[[], None]) -> None:
    try:
        judge()
    except MalformedError as error:
        _invalid(entry, "Malformed", str(error))
    except RecursionError:
        _invalid(entry, "Malformed", "is nested too deeply to be read")


def accelerator_in(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """An accelerator, or what looks like one, that is asked for anywhere in ``value``; None where there is none."""
    if isinstance(value, dict):
        for kind in ("limits", "requests"):
            amounts = value.get(kind)
            for name in amounts if isinstance(amounts, dict) else ():
                if is_accelerator(name) or suggestion(name):
                    return str(name)
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for found in map(accelerator_in, children) if found), None)


def _typed(request: dict[str, Any]) -> dict[str, Any]:
    """The request's object with the kind that the request states, where it has none itself."""
    kind = request.get("kind") if isinstance(request.get("kind"), dict) else {}
    group, version = (kind or {}).get("group"), (kind or {}).get("version")
    stated = {"apiVersion": f"{group}/{version}" if group else version, "kind": (kind or {}).get("kind")}
    return {**stated, **request["object"]}


class _Request(NamedTuple):
    """How an object comes."""

    namespace: str
    operation: str
    old: dict[str, Any] | None
    subresource: str
    way: _Way


def _judge(entry: ReviewEntry, policies: PolicySet, snapshot: ClusterSnapshot, request: _Request) -> None:
    # What is written for a version that is gone is told all that it would be told in the right one.
    version = entry.api_version if request.way.around is None else current(entry.api_version, entry.kind)
    kind = kind_of(version, entry.kind)
    if kind is None:
        asked = accelerator_in(entry.before)
        if asked:
            entry.note = (
                f"{entry.kind} is no kind that gpugate reads, though it names {asked}: its pods are judged when they are made"
            )
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
    decision = decide(workload, bound, snapshot, remember=False, at_source=request.way.at_source, now=request.way.now)
    entry.policies = bound.policies
    entry.findings, entry.changes, entry.would_change = decision.findings, decision.changes, decision.would_change
    entry.outcome = Outcome.REFUSED if decision.refused else Outcome.CHANGED if decision.patch else Outcome.CLEAN
    if not decision.refused or request.way.at_source:
        entry.patch, entry.after = decision.patch, after
