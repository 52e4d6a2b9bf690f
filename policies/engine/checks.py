"""Running the checks of rules on the edited object, and making warnings of what nobody did just now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine.edit_guard import EditGuard, warn_if_fix_withheld
from gpugate.policies.engine.severity import is_suspend_toggle, relax_findings
from gpugate.policies.findings import Finding, Level, aged, judge
from gpugate.policies.framework.decision import BoundRule, Decision, RuleFailure
from gpugate.policies.kube.fields import MalformedError, Object, named_path
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.recorded_edits import ANNOTATION
from gpugate.policies.workloads.workload import Workload

_OWN_PREFIX: Final = "gpugate.io/"
_TOLERATE_ALL: Final[tuple[Object, ...]] = ({"operator": "Exists"},)


def check_all(
    workload: Workload, bound: Sequence[BoundRule], snapshot: ClusterSnapshot, decision: Decision, hold: EditGuard
) -> None:
    """Run every check of ``bound`` on the edited ``workload``, and put what is found into ``decision``.

    Raises:
        MalformedError: a field of the object has a type or value that the API does not accept.
    """
    _predict_tolerations(workload, bound, snapshot)
    for one in bound:
        try:
            findings = list(one.rule.findings(workload, one.params, snapshot))
            if findings:
                if snapshot.stale:
                    findings = [aged(finding, snapshot.stale) for finding in findings]
                findings = relax_findings(_only_regressions(workload, one, bound, snapshot, findings), workload, snapshot)
                if hold.guards_anything and not one.deny_on_git_conflict:
                    findings = warn_if_fix_withheld(findings, workload, one.rule, one.params, snapshot, hold)
        except MalformedError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken rule must not take the door down
            record_failure(decision, one, error)
            continue
        if findings and not workload.is_whole:
            findings = [finding._replace(path=workload.reported_path(finding.path)) for finding in findings]
        if findings:
            unknown = one.deny_on_unknown
            decision.findings.extend(
                [judge(one.rule.id, one.mode, hold.soften(finding), refuse_unknown=unknown) for finding in findings]
            )


def _predict_tolerations(workload: Workload, bound: Sequence[BoundRule], snapshot: ClusterSnapshot) -> None:
    """Note on a template what its pods will tolerate when they are made, though it must not say so itself."""
    if workload.is_pod():
        return
    for pods in workload.pod_sets if not workload.is_whole else ():
        # What these pods tolerate is written elsewhere.
        pods.predicted_tolerations = _TOLERATE_ALL if not pods.is_whole else ()
    for one in bound:
        if not one.rule.applied_at_pods:
            continue
        try:
            edits = list(one.rule.mutate(workload, one.params, snapshot))
        except MalformedError:
            raise
        except Exception:  # noqa: BLE001, S112 - told of where the rule's own edits are folded
            continue
        for pods in workload.pod_sets if edits else ():
            place = pods.field("tolerations")
            pods.predicted_tolerations = (*pods.predicted_tolerations, *(edit.value for edit in edits if edit.path == place))


def _only_regressions(
    workload: Workload, one: BoundRule, bound: Sequence[BoundRule], snapshot: ClusterSnapshot, findings: list[Finding]
) -> list[Finding]:
    """On UPDATE, what was as bad before is a warning now: nobody's status writes or scaling stop for an old sin."""
    if workload.operation != "UPDATE" or workload.old is None or all(found.level is not Level.DENY for found in findings):
        return findings
    before = open_workload(workload.kind, workload.old, snapshot, namespace=workload.namespace)
    if is_suspend_toggle(workload, before):
        return [found.as_warning() for found in findings]
    findings = _as_it_was(workload, before, findings)
    if all(found.level is not Level.DENY for found in findings):
        return findings
    _predict_tolerations(before, bound, snapshot)
    known: dict[tuple[str, object], int] = {}
    for found in one.rule.findings(before, one.params, snapshot):
        if found.level is Level.DENY:
            key = (found.reason, named_path(workload.old, found.path))
            known[key] = max(found.measure, known.get(key, 0))
    return [
        found.as_warning() if found.measure <= known.get((found.reason, named_path(workload.root, found.path)), -1) else found
        for found in findings
    ]


def _as_it_was(workload: Workload, before: Workload, findings: list[Finding]) -> list[Finding]:
    """``findings``, where what is told of a template is a warning if the UPDATE neither changes it nor makes more pods of it.

    What could be put in for five pods and not for two, or with the nodes of today, is nothing that scaling down does.
    """
    if workload.is_pod() or queue_label(workload) != queue_label(before) or _said(workload) != _said(before):
        return findings
    old = {pods.path: pods for pods in before.pod_sets}
    same = [
        pods.path
        for pods in workload.pod_sets
        if (was := old.get(pods.path)) is not None and was.root == pods.root and (pods.count or 0) <= (was.count or 0)
    ]
    return [found.as_warning() if any(found.path[: len(path)] == path for path in same) else found for found in findings]


def _said(workload: Workload) -> dict[str, object]:
    """What the object tells gpugate of its pods, its record aside."""
    return {key: value for key, value in workload.annotations().items() if key.startswith(_OWN_PREFIX) and key != ANNOTATION}


def record_failure(decision: Decision, one: BoundRule, error: Exception) -> None:
    """Put down that a rule broke: in the log the error, for the user a finding in the rule's mode."""
    decision.failures.append(RuleFailure(one.rule.id, error))
    if any(found.rule == one.rule.id and found.finding.reason == "InternalError" for found in decision.findings):
        return
    finding = Finding(
        "InternalError",
        (),
        f"the rule {one.rule.id} failed on this object ({type(error).__name__}): an error in gpugate, not in the object",
        "Report it with the object, and set the rule's mode to Warn to go on meanwhile.",
    )
    decision.findings.append(judge(one.rule.id, one.mode, finding))
