"""Run the checks of rules on the edited object, and turn denials into warnings where the request did not cause them."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.engine.edit_guard import EditGuard, warn_if_fix_withheld, warn_if_mended
from gpugate.policies.findings import Finding, Level, aged
from gpugate.policies.framework.decision import BoundRule, BoundRules, Decision, RuleFailure
from gpugate.policies.kube.fields import MalformedError, Object, Path, lookup, named_path
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.workloads.kinds import CONTROLLERS
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.transition import Transition, semantically_equal
from gpugate.policies.workloads.workload import Workload

#: The switch of a CronJob that stops its schedule.
_SCHEDULE_SUSPENDED: Final[Path] = ("spec", "suspend")
_TOLERATE_ALL: Final[tuple[Object, ...]] = ({"operator": "Exists"},)


def check_all(
    workload: Workload,
    bound: BoundRules,
    snapshot: ClusterSnapshot,
    decision: Decision,
    guard: EditGuard,
    *,
    twin: Workload | None = None,
) -> None:
    """Run every check of ``bound`` on the edited ``workload`` and add the findings to ``decision``.

    ``twin``: an edited copy, for an object that is never edited. What the edits would have mended is a warning.

    Raises:
        MalformedError: a field of the object has a type or value that the API does not accept.
    """
    _predict_tolerations(workload, bound, snapshot)
    regressions = None if workload.transition is None else _Regressions(workload.transition, bound, snapshot)
    for binding in bound.checking:
        try:
            known = binding.findings(workload, snapshot)
            if not known:
                continue
            if snapshot.stale:
                known = [aged(finding, snapshot.stale) for finding in known]
            # Unknown findings that the policy refuses pass the same filters as denials.
            refuses = _refuses_unknown(binding, workload, snapshot)
            findings = [finding.as_denial() for finding in known] if refuses else known
            if regressions is not None and _denies(findings):
                findings = regressions.only(binding, findings)
            findings = _relax(findings, workload, binding, snapshot)
            if _denies(findings):
                findings = _unless_mended(findings, workload, binding, snapshot, guard, twin)
        except MalformedError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken rule must not stop the webhook
            record_failure(decision, binding, error)
            continue
        for finding, before in zip(findings, known, strict=True):
            reported = finding if workload.is_whole else finding._replace(path=workload.reported_path(finding.path))
            reported = guard.soften(reported)
            refused = reported.level is Level.DENY
            if before.level is Level.UNKNOWN:
                reported = reported._replace(level=Level.UNKNOWN, remedy=before.remedy)
            decision.findings.append(binding.judge(reported, refuse_unknown=refused))


def _unless_mended(
    findings: list[Finding],
    workload: Workload,
    binding: BoundRule,
    snapshot: ClusterSnapshot,
    guard: EditGuard,
    twin: Workload | None,
) -> list[Finding]:
    """Return ``findings``, as warnings if edits that gpugate does not make here would have mended the object."""
    if twin is not None:
        return warn_if_mended(findings, twin, binding, snapshot)
    if guard.guards_anything and not binding.deny_on_git_conflict:
        return warn_if_fix_withheld(findings, workload, binding, snapshot, guard)
    return findings


def _denies(findings: Sequence[Finding]) -> bool:
    return any(finding.level is Level.DENY for finding in findings)


def _refuses_unknown(binding: BoundRule, workload: Workload, snapshot: ClusterSnapshot) -> bool:
    """Tell whether unknown findings are denials, before :class:`_Regressions` and the relaxations.

    Not on a pod whose owner was reviewed, while the facts of the rule are not synced: its controller would fail with it.
    """
    pending = (snapshot.sync_state(resource) is SyncState.PENDING for resource in binding.rule.needs)
    return binding.deny_on_unknown and not (workload.owner_was_reviewed() and any(pending))


def _predict_tolerations(workload: Workload, bound: Sequence[BoundRule], snapshot: ClusterSnapshot) -> None:
    """Record tolerations that will be added at pod creation, so that node checks on the template see them."""
    if workload.is_pod():
        return
    if not workload.is_whole:
        # The tolerations of such pods are in another object.
        for pods in [pods for pods in workload.pod_sets if not pods.is_whole]:
            pods.predict(_TOLERATE_ALL)
    for binding in bound:
        if not (binding.rule.applied_at_pods and binding.edits):
            continue
        try:
            edits = list(binding.rule.mutate(workload, binding.params, snapshot))
        except MalformedError:
            raise
        except Exception:  # noqa: BLE001, S112 - reported where the edits of the rule are applied
            continue
        values: dict[Path, list[Object]] = {}
        for edit in edits:
            values.setdefault(edit.path, []).append(edit.value)
        for pods in workload.pod_sets if values else ():
            pods.predict(tuple(values.get(pods.field("tolerations"), ())))


class _Regressions:
    """Turns denials of an UPDATE into warnings, unless the request makes something worse.

    A status write or a smaller scale must not fail for a fault that the object had before.
    """

    def __init__(self, transition: Transition, bound: Sequence[BoundRule], snapshot: ClusterSnapshot) -> None:
        self._transition = transition
        self._bound = bound
        self._snapshot = snapshot

    def only(self, binding: BoundRule, findings: list[Finding]) -> list[Finding]:
        """Return ``findings`` of the rule that ``binding`` binds, those that are no regression as warnings."""
        if self._transition.suspend_toggled:
            return [finding.as_warning() for finding in findings]
        findings = [finding.as_warning() if self._is_about_unchanged(finding) else finding for finding in findings]
        if not _denies(findings):
            return findings
        root, old = self._transition.after.root, self._transition.old
        measures: dict[tuple[str, object], int] = {}
        for finding in binding.findings(self._before, self._snapshot):
            if _is_parked(finding, self._before):
                continue
            if finding.level is Level.DENY or (binding.deny_on_unknown and finding.level is Level.UNKNOWN and self._only_metadata):
                key = (finding.reason, named_path(old, finding.path))
                measures[key] = max(finding.measure, measures.get(key, 0))
        return [
            finding.as_warning()
            if finding.measure <= measures.get((finding.reason, named_path(root, finding.path)), -1)
            else finding
            for finding in findings
        ]

    @cached_property
    def _before(self) -> Workload:
        before = self._transition.before
        before.refresh()
        _predict_tolerations(before, self._bound, self._snapshot)
        return before

    @cached_property
    def _unchanged(self) -> list[Path]:
        """Paths of templates that the request neither changes nor makes more pods of: what fitted five pods fits two."""
        transition = self._transition
        workload = transition.after
        if workload.is_pod() or transition.queue_changed or transition.own_annotations_changed:
            return []
        return [pods.path for pods in workload.pod_sets if not transition.template_changed(pods) and transition.scaled(pods) <= 0]

    @cached_property
    def _only_metadata(self) -> bool:
        """Whether no template, queue or annotation of gpugate changes and no pod is added: what was unknown is no worse."""
        transition, pod_sets = self._transition, self._transition.after.pod_sets
        if not transition.after.is_pod():
            return bool(pod_sets) and len(self._unchanged) == len(pod_sets)
        before = transition.pods_before(pod_sets[0])
        if before is None or transition.queue_changed or transition.own_annotations_changed:
            return False
        return semantically_equal(pod_sets[0].spec, before.spec)

    def _is_about_unchanged(self, finding: Finding) -> bool:
        return any(finding.path[: len(path)] == path for path in self._unchanged)


def _relax(findings: list[Finding], workload: Workload, binding: BoundRule, snapshot: ClusterSnapshot) -> list[Finding]:
    """Return ``findings``; those that rest on today's nodes are warnings if the pods may run on other nodes.

    So are those that rest on any fact of the cluster, about pods of which the object creates none now.
    All are warnings in the template of a child (a JobSet's Job): its owner was admitted and would wait for it, and its pods are
    reviewed themselves.
    """
    if workload.is_template() and workload.is_child():
        return [finding.as_warning() for finding in findings]
    findings = [finding.as_warning() if _is_parked(finding, workload) else finding for finding in findings]
    denied = any(finding.level is Level.DENY and "nodes" in finding.rests_on for finding in findings)
    if not denied or not _may_run_elsewhere(workload, binding, snapshot):
        return findings
    return [finding.as_warning() if "nodes" in finding.rests_on else finding for finding in findings]


def _is_parked(finding: Finding, workload: Workload) -> bool:
    """Tell whether ``finding`` rests on the cluster and the object creates no such pods now: scaled to 0, or suspended by a user.

    Kueue suspends the workloads of its queues until it admits them.
    """
    if workload.is_pod() or not finding.rests_on:
        return False
    is_suspended = workload.kind.is_suspended(workload.root) and queue_label(workload) is None
    if is_suspended or (workload.kind.scheduled and lookup(workload.root, _SCHEDULE_SUSPENDED) is True):
        return True
    return any(pods.count == 0 and finding.path[: len(pods.path)] == pods.path for pods in workload.pod_sets)


def _may_run_elsewhere(workload: Workload, binding: BoundRule, snapshot: ClusterSnapshot) -> bool:
    """Tell whether the pods may run on nodes that are not known: of another cluster, or made by an autoscaler."""
    manager = None if workload.kind.managed_by is None else lookup(workload.root, workload.kind.managed_by)
    if type(manager) is str and manager not in CONTROLLERS:
        return True
    queue = cluster_queue_of(workload, snapshot)
    if queue is not None and queue.checked:
        return True
    # A pool without nodes now is unseen, so every node of the cluster counts.
    return binding.autoscaler == "Present" or (binding.autoscaler == "Detect" and snapshot.autoscaled)


def record_failure(decision: Decision, binding: BoundRule, error: Exception) -> None:
    """Add the error of a broken rule to ``decision`` for the log, and once a finding in the rule's mode for the user."""
    rule = binding.rule.id
    decision.failures.append(RuleFailure(rule, error))
    if any(judged.rule == rule and judged.finding.reason == "InternalError" for judged in decision.findings):
        return
    message = f"the rule {rule} failed on this object ({type(error).__name__}): an error in gpugate, not in the object"
    remedy = "Report the error with the object, and set the rule's mode to Mutate until it is fixed."
    decision.findings.append(binding.judge(Finding("InternalError", (), message, remedy)))
