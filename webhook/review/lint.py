"""Reviewing what is no workload: objects that teams set up around them, and parts of manifests."""

from __future__ import annotations

from collections.abc import Iterable

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.engine import decide
from gpugate.policies.findings import Finding, Judged, Mode, Severity, judge
from gpugate.policies.framework.decision import Decision
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.lint import device_plugin
from gpugate.policies.lint import lost_indentation as flattened
from gpugate.policies.lint import registry as catalogue
from gpugate.policies.lint.context import LintContext
from gpugate.policies.lint.snippets import Part, part_in
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds import POD
from gpugate.policies.workloads.open import open_workload
from gpugate.webhook.review.entry import Outcome, ReviewEntry


def review_setup(entry: ReviewEntry, around: LintContext) -> None:
    """Add to an entry what is found in its object beside what the rules for workloads say."""
    if entry.outcome is Outcome.INVALID:
        return
    found = catalogue.findings_of(entry.before, around)
    if entry.outcome is Outcome.SKIPPED and (found or catalogue.is_read(entry.api_version, entry.kind)):
        entry.outcome = Outcome.CLEAN
    _add(entry, found)


def review_part(entry: ReviewEntry, policies: PolicySet, snapshot: ClusterSnapshot, now: float | None) -> None:
    """Judge a part of a manifest, which is no object of its own, where it would stand."""
    value = entry.before
    if not isinstance(value, dict):
        return
    if flattened.is_flattened(value):
        entry.note = "is a part of a manifest whose indentation is lost"
        part = part_in(flattened.restored(value))
        if part is not None:
            _review_part(entry, part, policies, snapshot, now)
            entry.note = f"{entry.note}; the indentation of this one is lost"
        _judged(entry, flattened.check(value))
    elif device_plugin.is_config(value):
        entry.note = (
            "is a configuration of NVIDIA's device plugin: it belongs into a ConfigMap, as the text of a key; the plugin's Helm "
            "chart takes the ConfigMap's name as config.name"
        )
        _judged(entry, device_plugin.check_config((), value))
    else:
        part = part_in(value)
        if part is not None:
            _review_part(entry, part, policies, snapshot, now)


def _judged(entry: ReviewEntry, findings: Iterable[Finding]) -> None:
    entry.outcome = Outcome.CLEAN
    _add(entry, [judge(catalogue.RULE, Mode.ENFORCE, one) for one in findings])


def _add(entry: ReviewEntry, found: list[Judged]) -> None:
    entry.findings = sorted([*entry.findings, *found], key=lambda one: one.sort_key)
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
    refused = any(one.severity is Severity.DENY for one in entry.findings)
    patch = [] if refused else part.patch(decision.patch)
    entry.outcome = Outcome.REFUSED if refused else Outcome.CHANGED if patch else Outcome.CLEAN
    if patch:
        entry.patch, entry.after, entry.changes = patch, part.taken_from(part.pod), decision.changes


def _of_part(part: Part, decision: Decision) -> list[Judged]:
    """The findings about what stands in the part."""
    places = ((one, part.within(one.finding.path)) for one in decision.findings)
    return [one._replace(finding=one.finding._replace(path=path)) for one, path in places if path is not None]
