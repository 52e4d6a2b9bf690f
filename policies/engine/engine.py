"""The engine: folds the rules' edits in order and runs every check on the edited object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine import exemptions
from gpugate.policies.engine.checks import check_all, record_failure
from gpugate.policies.engine.conflicts import drop_conflicting_defaults
from gpugate.policies.engine.edit_guard import EditGuard
from gpugate.policies.engine.immutable_fields import as_recreated, as_submitted, changes_immutable_fields
from gpugate.policies.engine.mutation_record import keep_record, merge_record, reapply, record
from gpugate.policies.engine.severity import same_requests
from gpugate.policies.findings import Judged, Mode, Severity, judge
from gpugate.policies.framework.decision import BoundRule, Change, Decision, Phase
from gpugate.policies.framework.rule import no_edits
from gpugate.policies.kube.equivalence import semantically_equal
from gpugate.policies.kube.fields import MalformedError, Object, clone, lookup
from gpugate.policies.kube.managers import with_kueue_marks
from gpugate.policies.patch import Edit, PatchBuilder
from gpugate.policies.rules.registry import BY_ID, RULES
from gpugate.policies.workloads.device_access import is_operator_validator
from gpugate.policies.workloads.metadata import annotation_changed
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.queue_name import MULTIKUEUE_ORIGIN, PREBUILT, queue_label
from gpugate.policies.workloads.workload import Workload


def decide(
    workload: Workload,
    bound: Sequence[BoundRule],
    snapshot: ClusterSnapshot,
    phase: Phase = Phase.REVIEW,
    *,
    remember: bool = True,
    at_source: bool = False,
    now: float | None = None,
) -> Decision:
    """Decide on ``workload``, editing it in place.

    Args:
        workload: the object under review.
        bound: the rules that apply to it, in the catalogue's order.
        snapshot: one snapshot of the cluster.
        phase: what is asked.
        remember: whether edits to a template are recorded in the object, as the door does at CREATE.
        at_source: whether the object is the manifest itself that a GitOps tool applies: nothing is held back from it then.
        now: the time, in seconds since 1970, at which exemptions may have ended; without it, none has.

    Raises:
        MalformedError: the object has a field that the API itself does not accept.
    """
    try:
        return _decide(workload, bound, snapshot, phase, remember=remember, at_source=at_source, now=now)
    except MalformedError as error:
        if workload.is_whole:
            raise
        raise MalformedError(workload.reported_path(error.path), error.problem) from error


def _decide(
    workload: Workload,
    bound: Sequence[BoundRule],
    snapshot: ClusterSnapshot,
    phase: Phase,
    *,
    remember: bool,
    at_source: bool,
    now: float | None,
) -> Decision:
    decision = Decision()
    if not _concerns(workload):
        return decision
    active, reported = _heed_exemptions(workload, bound, now)
    enforced = [one for one in active if one.mode is not Mode.DRY_RUN]
    if len(enforced) < len(active):
        _rehearse(workload, active, snapshot, phase, decision, at_source=at_source)
    exempt = bool(reported) and any(one.finding.reason == "Exempt" and one.severity is not Severity.DRYRUN for one in reported)
    sent = as_submitted(workload) if Phase.MUTATE in phase else None
    hold = EditGuard(workload, at_source=at_source)
    _run(hold, enforced, snapshot, phase, decision, exempt=exempt, remember=remember)
    if sent is not None and changes_immutable_fields(workload):
        _judge_anew(workload, sent, enforced, snapshot, decision)
    if reported and Phase.CHECK in phase:
        decision.findings.extend(reported)
    if len(decision.findings) > 1:
        decision.findings.sort(key=lambda one: one.sort_key)
    return decision


def _concerns(workload: Workload) -> bool:
    """Whether there is anything to judge.

    Not what is being deleted, nor the mirror of a static pod, nor what must stay as its owner made it, nor the pod that tries
    a node out for the GPU operator, nor an UPDATE that leaves spec, labels and annotations alone.
    """
    if workload.metadata().get("deletionTimestamp") is not None or _is_copy(workload) or is_operator_validator(workload):
        return False
    old = workload.old
    if workload.operation != "UPDATE" or old is None:
        return True
    if workload.root.get("spec") != old.get("spec"):
        return True
    new_meta, old_meta = workload.metadata(), old.get("metadata")
    if type(old_meta) is not dict:
        return True
    return any((new_meta.get(key) or {}) != (old_meta.get(key) or {}) for key in ("labels", "annotations"))


def _is_mirror(workload: Workload) -> bool:
    """Whether Kueue compares the object with one that is kept elsewhere (MultiKueue) or was counted before: changed, it ends.

    It is judged like any other: a label that anybody may write turns no rule off.
    """
    labels = workload.labels()
    return PREBUILT in labels or MULTIKUEUE_ORIGIN in labels


def _is_copy(workload: Workload) -> bool:
    """Whether the object repeats what somebody else states: a static pod's mirror, a Deployment's ReplicaSet."""
    if workload.is_pod():
        return "kubernetes.io/config.mirror" in workload.annotations()
    return workload.kind.is_revision_of_owner and workload.controller() is not None


def _heed_exemptions(workload: Workload, bound: Sequence[BoundRule], now: float | None) -> tuple[list[BoundRule], list[Judged]]:
    plea = exemptions.requested_exemption(workload)
    if not plea.rules:
        return list(bound), []
    found = {one.rule: one for one in exemptions.exempted(plea, bound, now)}
    active = [one for one in bound if one.rule.id not in found or not found[one.rule.id].holds]
    reported = [judge(one.rule.id, one.mode, found[one.rule.id].finding) for one in bound if one.rule.id in found]
    names = {*BY_ID, *(one.rule.id for one in bound)}
    reported.extend(judge("exemption", Mode.WARN, finding) for finding in exemptions.unknown_rules(plea, names))
    return active, reported


def _rehearse(
    workload: Workload, active: Sequence[BoundRule], snapshot: ClusterSnapshot, phase: Phase, decision: Decision, *, at_source: bool
) -> None:
    """Decide as if every rule were enforced, on a copy, and keep what the rules in DryRun would have done."""
    root = {key: value if key == "status" else clone(value) for key, value in workload.root.items()}
    copy = open_workload(
        workload.kind,
        root,
        snapshot,
        namespace=workload.namespace,
        operation=workload.operation,
        old=workload.old,
        subresource=workload.subresource,
    )
    rehearsal = Decision()
    # Checks look at the edited object, so the validating door, too, edits the copy first.
    hold = EditGuard(copy, at_source=at_source)
    _run(hold, active, snapshot, phase | Phase.MUTATE, rehearsal, exempt=False, remember=False)
    dry = {one.rule.id for one in active if one.mode is Mode.DRY_RUN}
    if Phase.MUTATE in phase:
        decision.would_change = [change for change in rehearsal.changes if change.rule in dry]
    decision.findings.extend(one for one in rehearsal.findings if one.rule in dry)
    decision.failures.extend(one for one in rehearsal.failures if one.rule in dry)


def _judge_anew(
    workload: Workload, sent: Object, bound: Sequence[BoundRule], snapshot: ClusterSnapshot, decision: Decision
) -> None:
    """Refuse an UPDATE that the API takes from nobody where the object made anew would be refused, too."""
    anew = Decision()
    copy = open_workload(workload.kind, as_recreated(sent), snapshot, namespace=workload.namespace)
    _run(EditGuard(copy), bound, snapshot, Phase.REVIEW, anew, exempt=False, remember=False)
    known = {(one.rule, one.finding.reason, one.finding.path) for one in decision.findings if one.severity is Severity.DENY}
    decision.findings.extend(
        one
        for one in anew.findings
        if one.severity is Severity.DENY and (one.rule, one.finding.reason, one.finding.path) not in known
    )


def _run(
    hold: EditGuard,
    bound: Sequence[BoundRule],
    snapshot: ClusterSnapshot,
    phase: Phase,
    decision: Decision,
    *,
    exempt: bool,
    remember: bool,
) -> None:
    workload = hold.workload
    if phase is not Phase.CHECK and not workload.subresource and not _is_mirror(workload):
        draft = PatchBuilder(workload.root)
        _edit(workload, draft, bound, snapshot, decision, hold, remember=remember)
        if exempt and workload.operation != "UPDATE":
            _apply(workload, draft, "exemption", list(exemptions.carry_to_pods(workload)), decision)
        if remember and workload.operation != "UPDATE" and workload.is_template():
            record(draft)
        decision.patch = draft.ops
    if phase is not Phase.MUTATE:
        check_all(workload, bound, snapshot, decision, hold)


def _edit(
    workload: Workload,
    draft: PatchBuilder,
    bound: Sequence[BoundRule],
    snapshot: ClusterSnapshot,
    decision: Decision,
    hold: EditGuard,
    *,
    remember: bool,
) -> None:
    if workload.operation == "UPDATE":
        if workload.is_pod() or workload.old is None:
            return
        mutable = workload.kind.template_mutable and not _is_placed_by_kueue(workload, workload.old)
        anew = mutable and annotation_changed(workload, _TELLING)
        templates = [pods.path for pods in workload.pod_sets] if mutable else ()
        reapply(draft, workload.old, templates, _TELLING if anew else frozenset())
        workload.refresh()
        if not mutable or not (anew or _template_changed(workload)):
            keep_record(draft, workload.old)
            return
        drop_conflicting_defaults(draft, workload.old)
        workload.refresh()
        given_back = len(draft.ops)
        _fold(workload, draft, [one for one in bound if one.rule.on_update], snapshot, decision, hold)
        if remember and workload.is_template():
            merge_record(draft, workload.old, given_back)
        return
    _fold(workload, draft, bound, snapshot, decision, hold)


def _fold(
    workload: Workload,
    draft: PatchBuilder,
    rules: Iterable[BoundRule],
    snapshot: ClusterSnapshot,
    decision: Decision,
    hold: EditGuard,
) -> None:
    for one in rules:
        if one.rule.mutate is no_edits:
            continue
        try:
            edits = list(one.rule.mutate(workload, one.params, snapshot))
        except MalformedError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken rule must not take the door down
            record_failure(decision, one, error)
            continue
        if not edits:
            continue
        if not workload.is_whole:
            edits = [edit for edit in map(workload.edit_in_object, edits) if edit is not None]
        if hold.guards_anything:
            edits, held = hold.filter(draft, edits)
            for edit in held:
                refuse = one.deny_on_git_conflict and not workload.is_child()
                decision.findings.append(judge(one.rule.id, one.mode, hold.withheld(edit, refuse=refuse)))
        _apply(workload, draft, one.rule.id, edits, decision)


def _apply(workload: Workload, draft: PatchBuilder, rule: str, edits: Sequence[Edit], decision: Decision) -> None:
    apply = draft.apply
    notes = [edit.note for edit in edits if apply(edit) and edit.note]
    if notes:
        # Alike templates are changed alike.
        decision.changes.append(Change(rule, tuple(dict.fromkeys(notes))))
    workload.edited(edits)


def _is_placed_by_kueue(workload: Workload, old: Object) -> bool:
    """Whether an UPDATE changes no more of what Kueue counted than where the pods land.

    Kueue starts and stops such workloads by node selectors and tolerations of its flavors. It compares their containers with
    what it counted, and stops for good what differs (v0.15.0 ``pkg/util/equality/podset.go``).
    """
    switch = workload.kind.suspend
    if switch is None:
        return False
    before = open_workload(workload.kind, old, _NO_CLAIMS)
    if not queue_label(before) and (lookup(old, switch) is True) == (lookup(workload.root, switch) is True):
        return False
    trial = PatchBuilder(clone(workload.root))
    reapply(trial, old)
    return same_requests(open_workload(workload.kind, trial.root, _NO_CLAIMS), before)


def _template_changed(workload: Workload) -> bool:
    """Whether the request itself changes a pod template, gpugate's own earlier edits given back, and Kueue's marks."""
    old = open_workload(workload.kind, workload.old or {}, _NO_CLAIMS)
    before = {pods.path: pods.root for pods in old.pod_sets}
    return not all(pods.path in before and _is_as_before(pods.root, before[pods.path]) for pods in workload.pod_sets)


def _is_as_before(template: Object, before: Object) -> bool:
    return template == before or semantically_equal(with_kueue_marks(template, before), before)


_NO_CLAIMS = ClusterSnapshot()
#: What these say is said of the template, whether it says so itself or the object does.
_TELLING: Final[frozenset[str]] = frozenset().union(*(rule.trigger_annotations for rule in RULES))
