"""Review objects around workloads (quotas, queues, alerts), and parts of manifests."""

from collections.abc import Iterable

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Finding, Judged, Mode, Severity, judge
from gpugate.policies.framework.decision import Decision
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.lint import device_plugin, registry
from gpugate.policies.lint.context import LintContext
from gpugate.policies.lint.snippets import Part, part_in
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds import POD
from gpugate.policies.workloads.open import open_workload
from gpugate.webhook.review.entry import Outcome, ReviewEntry


def review_setup(entry: ReviewEntry, context: LintContext) -> None:
    """Add the lint findings of an object to its entry."""
    if entry.outcome is Outcome.INVALID:
        return
    value = registry.findings_of(entry.before, context)
    if entry.outcome is Outcome.SKIPPED and (value or registry.is_linted(entry.api_version, entry.kind)):
        entry.outcome = Outcome.CLEAN
    _add(entry, value)


def review_part(entry: ReviewEntry, policies: PolicySet, snapshot: ClusterSnapshot, now: float | None) -> None:
    """Review a part of a manifest, which is no object of its own, inside a Pod."""
    value = entry.before
    if not isinstance(value, dict):
        return
    if device_plugin.is_config(value):
        entry.note = (
            "is a configuration of NVIDIA's device plugin: put it into a ConfigMap, as the text of a key; the plugin's Helm "
            "chart takes the ConfigMap's name as config.name"
        )
        _judged(entry, device_plugin.check_config((), value))
    else:
        part = part_in(value)
        if part is not None:
            _review_part(entry, part, policies, snapshot, now)


def _judged(entry: ReviewEntry, findings: Iterable[Finding]) -> None:
    entry.outcome = Outcome.CLEAN
    _add(entry, [judge(registry.RULE, Mode.ENFORCE, finding) for finding in findings])


def _add(entry: ReviewEntry, found: list[Judged]) -> None:
    entry.findings = sorted([*entry.findings, *found], key=lambda finding: finding.sort_key)
    if any(one.severity is Severity.DENY for one in found):
        entry.outcome, entry.after = Outcome.REFUSED, entry.before
        entry.patch, entry.changes = [], []


def _review_part(entry: ReviewEntry, part: Part, policies: PolicySet, snapshot: ClusterSnapshot, now: float | None) -> None:
    try:
        workload = open_workload(POD, part.pod, snapshot)
        bound = policies.bind(snapshot.namespace_labels(workload.namespace), workload.labels())
        decision = decide(workload, bound, snapshot, remember=False, now=now)
    except MalformedError as error:
        raise MalformedError(part.within(error.path) or error.path, error.problem) from None
    entry.note = f"is a part of a manifest: {part.inside}. It is judged there"
    entry.policies = bound.policies
    entry.findings = _of_part(part, decision)
    refused = any(finding.severity is Severity.DENY for finding in entry.findings)
    patch = [] if refused else part.patch(decision.patch)
    entry.outcome = Outcome.REFUSED if refused else Outcome.CHANGED if patch else Outcome.CLEAN
    if patch:
        entry.patch, entry.after, entry.changes = patch, part.taken_from(part.pod), decision.changes


def _of_part(part: Part, decision: Decision) -> list[Judged]:
    """Return the findings about fields of the part."""
    places = ((finding, part.within(finding.finding.path)) for finding in decision.findings)
    return [one._replace(finding=one.finding._replace(path=path)) for one, path in places if path is not None]
