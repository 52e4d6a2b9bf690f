"""Review documents from files, by the same engine as the webhook, and lint the objects around workloads."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Judged, Mode, Severity, judge
from gpugate.policies.framework.decision import Decision
from gpugate.policies.kube.accelerators import is_accelerator, suggestion
from gpugate.policies.kube.fields import MalformedError, clone
from gpugate.policies.lint import device_plugin, registry
from gpugate.policies.lint.api_versions import current
from gpugate.policies.lint.context import LintContext
from gpugate.policies.lint.snippets import Part, part_in
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds import POD, kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.admission.handler import REVIEWED_OPERATIONS, REVIEWED_SUBRESOURCES
from gpugate.webhook.files.documents import Document, UnreadableInput, parse
from gpugate.webhook.review.entry import Outcome, ReviewEntry, unreadable_entry

_REVIEW: Final = "AdmissionReview"
_NO_KIND: Final = "is not a Kubernetes object (no apiVersion and kind)"
#: Namespaces that the namespaceSelector of the webhooks excludes.
_NOT_REVIEWED: Final = frozenset({"gpugate-system", "kube-system"})
_PLUGIN_NOTE: Final = (
    "is a configuration of NVIDIA's device plugin: put it into a ConfigMap, as the text of a key; the plugin's Helm chart "
    "reads the name of the ConfigMap from config.name"
)


class _ReviewContext(NamedTuple):
    """The arguments of :func:`review`; ``lint`` is None if objects around workloads are not checked."""

    policies: PolicySet
    snapshot: ClusterSnapshot
    namespace: str
    at_source: bool
    now: float | None
    lint: LintContext | None


def review(
    documents: Iterable[Document | UnreadableInput],
    policies: PolicySet,
    snapshot: ClusterSnapshot,
    namespace: str = "",
    *,
    at_source: bool = False,
    now: float | None = None,
) -> Iterator[ReviewEntry]:
    """Review every document; ``namespace`` is for objects without one, empty for ``default``.

    With ``at_source``, the changes go into the source files: no edit is withheld for GitOps, refused objects are changed as far
    as the rules can, and objects around workloads are not checked. Exemptions end at the time ``now``, in seconds since 1970;
    None never ends them.
    """
    documents = list(documents)
    values = (document.value for document in documents if isinstance(document, Document))
    lint = None if at_source else LintContext(values, snapshot, namespace, _embedded)
    context = _ReviewContext(policies, snapshot, namespace, at_source, now, lint)
    for document in documents:
        if isinstance(document, UnreadableInput):
            yield unreadable_entry(document)
        else:
            yield _review_one(document, context)


def _embedded(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse YAML embedded in an object; None if it does not parse."""
    document = next(parse("", text), None)
    return document.value if isinstance(document, Document) else None


def _review_one(document: Document, context: _ReviewContext) -> ReviewEntry:
    value = document.value
    entry = ReviewEntry(document.file, document.number, Outcome.SKIPPED, value, value)
    if isinstance(value, dict) and value.get("kind") == _REVIEW and not context.at_source:
        _run(entry, partial(_review_request, entry, value.get("request"), context))
        return entry
    if not _has_kind(value):
        entry.note = _NO_KIND
        if context.lint is not None and isinstance(value, dict):
            _run(entry, partial(_review_fragment, entry, value, context))
        return entry
    # Review an object of a retired API version as one of the current version.
    version = entry.api_version if context.lint is None else current(entry.api_version, entry.kind)
    _run(entry, partial(_decide_object, entry, version, context, namespace=context.namespace))
    if context.lint is not None and entry.outcome is not Outcome.INVALID:
        findings = registry.findings_of(entry.before, context.lint)
        if entry.outcome is Outcome.SKIPPED and (findings or registry.is_linted(entry.api_version, entry.kind)):
            entry.outcome = Outcome.CLEAN
        _add(entry, findings)
    return entry


def _has_kind(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(value, dict) and isinstance(value.get("apiVersion"), str) and isinstance(value.get("kind"), str)


def _run(entry: ReviewEntry, step: Callable[[], None]) -> None:
    """Run one step of a review; a malformed object makes its entry invalid."""
    try:
        step()
    except MalformedError as error:
        entry.invalidate("Malformed", str(error))
    except RecursionError:
        entry.invalidate("Malformed", "is nested too deeply to be read")


def _review_request(entry: ReviewEntry, request: Any, context: _ReviewContext) -> None:  # noqa: ANN401 - any JSON value
    """Review the object of an AdmissionReview."""
    if not isinstance(request, dict) or not isinstance(request.get("object"), dict):
        entry.note = "an AdmissionReview without request.object: nothing to review"
        return
    operation, subresource = str(request.get("operation") or "CREATE"), str(request.get("subResource") or "")
    if operation not in REVIEWED_OPERATIONS or subresource not in REVIEWED_SUBRESOURCES:
        entry.note = f"an AdmissionReview of {operation:.60} {subresource:.60}".rstrip() + ": not reviewed by gpugate"
        return
    # The object has the kind of the request if it has none itself.
    kind = request["kind"] if isinstance(request.get("kind"), dict) else {}
    group, version = kind.get("group"), kind.get("version")
    types = {"apiVersion": f"{group}/{version}" if group else version, "kind": kind.get("kind")}
    entry.before = entry.after = {**types, **request["object"]}
    if not _has_kind(entry.before):
        entry.note = _NO_KIND
        return
    namespace, old = request.get("namespace"), request.get("oldObject")
    _decide_object(
        entry,
        current(entry.api_version, entry.kind),
        context,
        namespace=namespace if isinstance(namespace, str) else context.namespace,
        operation=operation,
        old=old if isinstance(old, dict) and operation == "UPDATE" else None,
        subresource=subresource,
    )


def _decide_object(entry: ReviewEntry, api_version: str, context: _ReviewContext, *, namespace: str, **request: Any) -> None:  # noqa: ANN401
    """Decide the object of ``entry``, as one of ``api_version``; ``request`` is passed to `open_workload`."""
    kind = kind_of(api_version, entry.kind)
    if kind is None:
        accelerator = _accelerator_in(entry.before)
        if accelerator:
            entry.note = f"gpugate does not read kind {entry.kind}, which requests {accelerator}: its pods are reviewed at creation"
        return
    if (entry.namespace or namespace) in _NOT_REVIEWED:
        entry.note = f"is in namespace {entry.namespace or namespace}, whose objects gpugate leaves alone"
        return
    after = clone(entry.before)
    workload = open_workload(kind, after, context.snapshot, namespace=entry.namespace or namespace, **request)
    decision = _decide(entry, workload, context)
    entry.findings, entry.changes, entry.would_change = decision.findings, decision.changes, decision.would_change
    entry.outcome = Outcome.REFUSED if decision.refused else Outcome.CHANGED if decision.patch else Outcome.CLEAN
    if not decision.refused or context.at_source:
        entry.patch, entry.after = decision.patch, after


def _decide(entry: ReviewEntry, workload: Workload, context: _ReviewContext) -> Decision:
    bound = context.policies.bind(context.snapshot.namespace_labels(workload.namespace), workload.labels())
    decision = decide(workload, bound, context.snapshot, remember=False, at_source=context.at_source, now=context.now)
    entry.policies = bound.policies
    return decision


def _accelerator_in(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    """Return an accelerator name, or a misspelt one, that ``value`` requests anywhere; None if there is none."""
    if isinstance(value, dict):
        for kind in ("limits", "requests"):
            amounts = value.get(kind)
            for name in amounts if isinstance(amounts, dict) else ():
                if is_accelerator(name) or suggestion(name):
                    return str(name)
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((accelerator for accelerator in map(_accelerator_in, children) if accelerator), None)


def _review_fragment(entry: ReviewEntry, value: dict[str, Any], context: _ReviewContext) -> None:
    """Review a configuration of the device plugin, or a part of a manifest inside a Pod."""
    part = None if device_plugin.is_config(value) else part_in(value)
    if part is not None:
        _review_part(entry, part, context)
    elif device_plugin.is_config(value):
        entry.note, entry.outcome = _PLUGIN_NOTE, Outcome.CLEAN
        _add(entry, [judge(registry.RULE, Mode.ENFORCE, finding) for finding in device_plugin.check_config((), value)])


def _review_part(entry: ReviewEntry, part: Part, context: _ReviewContext) -> None:
    try:
        decision = _decide(entry, open_workload(POD, part.pod, context.snapshot), context)
    except MalformedError as error:
        raise MalformedError(part.within(error.path) or error.path, error.problem) from None
    entry.note = f"is a part of a manifest: {part.inside}. It is reviewed there"
    # Keep the findings about fields of the part.
    paths = ((judged, part.within(judged.finding.path)) for judged in decision.findings)
    entry.findings = [judged._replace(finding=judged.finding._replace(path=path)) for judged, path in paths if path is not None]
    refused = any(finding.severity is Severity.DENY for finding in entry.findings)
    patch = [] if refused else part.patch(decision.patch)
    entry.outcome = Outcome.REFUSED if refused else Outcome.CHANGED if patch else Outcome.CLEAN
    if patch:
        entry.patch, entry.after, entry.changes = patch, part.taken_from(part.pod), decision.changes


def _add(entry: ReviewEntry, findings: list[Judged]) -> None:
    """Add lint findings to the entry of an object."""
    entry.findings = sorted([*entry.findings, *findings], key=lambda finding: finding.sort_key)
    if any(finding.severity is Severity.DENY for finding in findings):
        entry.outcome, entry.after = Outcome.REFUSED, entry.before
        entry.patch, entry.changes = [], []
