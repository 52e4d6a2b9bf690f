"""Decide on an object: apply the edits of all rules in order, then run every check on the edited object.

Also sums up what an admitted object requests, for as long as no watch shows the object.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.in_flight import Admitted
from gpugate.policies.cluster.records.pod_groups import group_key
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.engine import exemptions, owners
from gpugate.policies.engine.checks import check_all, record_failure
from gpugate.policies.engine.edit_guard import EditGuard
from gpugate.policies.engine.mutation_record import drop_conflicting_defaults, keep_record, merge_record, reapply, record
from gpugate.policies.findings import Finding, Judged, Mode, Severity, judge
from gpugate.policies.framework.decision import ABOUT_EXEMPTIONS, BoundRule, BoundRules, Change, Decision, Phase
from gpugate.policies.kube.fields import MalformedError, Object, Path, clone
from gpugate.policies.kube.names import MIRROR, MULTIKUEUE_ORIGIN
from gpugate.policies.patch import Edit, PatchBuilder
from gpugate.policies.queueing.cluster_queue import has_made_workload
from gpugate.policies.rules.gangs.gang import parallel_jobs_are_gangs
from gpugate.policies.rules.queueing import queue
from gpugate.policies.rules.registry import BY_ID, RULES
from gpugate.policies.rules.security import object_size
from gpugate.policies.workloads.device_access import is_operator_validator
from gpugate.policies.workloads.metadata import prebuilt_workload_name, queue_label
from gpugate.policies.workloads.open import open_copy, open_workload, read_pods
from gpugate.policies.workloads.requests import pod_requests
from gpugate.policies.workloads.transition import Transition
from gpugate.policies.workloads.workload import Workload

#: Annotations that drive rules: if an UPDATE changes one, at the object or in a template, the rules edit the templates again.
_TRIGGERS: Final[frozenset[str]] = frozenset().union(*(rule.trigger_annotations for rule in RULES))
#: The limits where no policy binds the rule: they bound the work, and refuse nothing.
_DEFAULT_LIMITS: Final = BoundRule(object_size.RULE, object_size.RULE.params(), Mode.DRY_RUN, policy="")


def decide(  # noqa: PLR0913 - one argument a property of the review
    workload: Workload,
    bound: Sequence[BoundRule],
    snapshot: ClusterSnapshot,
    phase: Phase = Phase.REVIEW,
    *,
    remember: bool = True,
    at_source: bool = False,
    now: float | None = None,
    user: str | None = None,
) -> Decision:
    """Decide on ``workload``, editing it in place.

    Args:
        workload: the object under review.
        bound: the rules that apply to it, in the catalogue's order.
        snapshot: one snapshot of the cluster.
        phase: whether to edit, to check or both.
        remember: whether to record edits of a template in the object, as the mutating webhook does.
        at_source: whether the object is the manifest that a GitOps tool applies from: no edit is withheld then.
        now: the time, in seconds since 1970, at which exemptions may have ended; without it, none has.
        user: the name of the requesting user; without it, every owner is believed.

    Raises:
        MalformedError: the object has a field that the API itself does not accept.
    """
    rules = bound if isinstance(bound, BoundRules) else BoundRules(bound)
    try:
        if user is not None:
            workload.owner_doubt = owners.doubt_about_owner(workload, user, rules.controllers, snapshot)
        return _decide(workload, rules, _Context(snapshot, remember, at_source, now), phase)
    except MalformedError as error:
        if workload.is_whole:
            raise
        raise MalformedError(workload.reported_path(error.path), error.problem) from error


class _Context(NamedTuple):
    """The arguments of :func:`decide` that all runs of one review share."""

    snapshot: ClusterSnapshot
    remember: bool
    at_source: bool
    now: float | None


def _decide(workload: Workload, bound: BoundRules, context: _Context, phase: Phase) -> Decision:
    if not _is_reviewed(workload):
        return Decision()
    edits, checks = Phase.MUTATE in phase, Phase.CHECK in phase
    if workload.owner_doubt is not None and workload.kind.is_revision_of_owner and workload.controller() is not None:
        # Its owner, if true, has been reviewed, and would create it again if it were edited.
        bound, edits = BoundRules(binding for binding in bound if binding.rule is queue.RULE), False
    active, reported = _apply_exemptions(workload, bound, context.now)
    # The rule is the first of the registry.
    limits = bound[0] if bound and bound[0].rule is object_size.RULE else _DEFAULT_LIMITS
    may_refuse = bool(active) and active[0] is limits
    if may_refuse:
        active = active.after_first
    over = object_size.over_limits(workload, limits, edited=checks and not edits)
    before = None if workload.transition is None else _open_before(workload, workload.transition, limits, context)
    if over or (before is not None and object_size.over_limits(before, limits, edited=True)):
        return _over_limits(workload, before, limits, over, reported, may_refuse=may_refuse) if checks else Decision()
    read_pods(workload, context.snapshot)
    exempt = _exempt_modes(reported, bound)
    has_rehearsals = len(active.acting) < len(active) or any(mode.is_rehearsed for mode in exempt)
    rehearsed = _rehearse(workload, active, context, exempt, edits=edits, checks=checks) if has_rehearsals else None
    is_exempt = any(not mode.is_rehearsed for mode in exempt)
    decision = _run(workload, active.acting, context, edits=edits, checks=checks, exempt=is_exempt)
    if rehearsed is not None:
        decision.would_change = rehearsed.changes if edits else []
        decision.findings += rehearsed.findings
        decision.failures += rehearsed.failures
    if checks:
        decision.findings += reported
    if len(decision.findings) > 1:
        decision.findings.sort(key=lambda judged: judged.sort_key)
    return decision


def _run(
    workload: Workload,
    bound: BoundRules,
    context: _Context,
    *,
    edits: bool,
    checks: bool,
    exempt: bool,
    is_copy: bool = False,
) -> Decision:
    """Run ``bound`` over ``workload``; a copy is always edited, since checks need the edited object."""
    # The API rejects changes of immutable fields, and tools with `force` then delete and recreate the object.
    transition = workload.transition if edits else None
    submitted = clone(workload.root) if transition is not None and transition.immutable_changed else None
    decision = _Run(workload, bound, context, exempt=exempt).decide(edits=edits or is_copy, checks=checks)
    if workload.owner_doubt is not None and checks:
        decision.findings += owners.unconfirmed(workload, bound, context.snapshot, decision)
    if transition is not None and submitted is not None and transition.immutable_changed:
        _add_denials_of_recreation(decision, workload, submitted, bound, context)
    return decision


def _exempt_modes(reported: Sequence[Judged], bound: Sequence[BoundRule]) -> set[Mode]:
    """Return the modes of the rules that the workload is exempt from."""
    if not reported:
        return set()
    exempt = {judged.rule for judged in reported if judged.finding.reason == "Exempt"}
    return {binding.mode for binding in bound if binding.rule.id in exempt}


def _open_before(workload: Workload, transition: Transition, limits: BoundRule, context: _Context) -> Workload | None:
    """Open the old object of an UPDATE, which may be over limits though the new one is not; None if it is malformed."""
    most = object_size.most_pod_sets(limits.params)
    try:
        transition.opened = open_workload(
            workload.kind,
            transition.old,
            context.snapshot,
            namespace=workload.namespace,
            most_unread=most,
            owner_doubt=workload.owner_doubt,
        )
    except MalformedError:
        return None
    return transition.opened


def _over_limits(
    workload: Workload,
    before: Workload | None,
    limits: BoundRule,
    over: Sequence[Finding],
    reported: Sequence[Judged],
    *,
    may_refuse: bool,
) -> Decision:
    """Return the decision on an object that is not judged, since it is, or was, over the limits of the rule `object-size`.

    It refuses an UPDATE only if it goes over a limit or further over one. Other checks compare templates field by field, so none
    runs here.
    """
    were = [] if before is None else object_size.over_limits(before, limits, edited=False)
    counts = {finding.reason: finding.measure for finding in were}
    lenient = not may_refuse or (workload.is_template() and workload.is_child())
    findings = [
        finding.as_warning() if lenient or finding.measure <= counts.get(finding.reason, 0) else finding for finding in over
    ] or [object_size.before_update(finding) for finding in were]
    judged = [*map(limits.judge, findings), *reported]
    return Decision(findings=sorted(judged, key=lambda judged: judged.sort_key))


def _is_reviewed(workload: Workload) -> bool:
    """Tell whether the object is reviewed.

    Not so: an object under deletion, a copy that must equal its original (the mirror of a static pod, the ReplicaSet of a
    Deployment), a validator pod of the GPU operator, and an UPDATE that changes no spec, label or annotation.
    """
    if workload.is_pod():
        is_copy = MIRROR in workload.annotations()
    else:
        is_owned = workload.kind.is_revision_of_owner and workload.controller() is not None
        is_copy = is_owned and workload.owner_doubt is None
    if is_copy or workload.metadata().get("deletionTimestamp") is not None or is_operator_validator(workload):
        return False
    return workload.transition is None or not workload.transition.metadata_only


def _is_compared_by_kueue(workload: Workload) -> bool:
    """Tell whether Kueue compares the object with one in another cluster (MultiKueue) or with a prebuilt Workload.

    Kueue stops such an object if it is edited. It is still checked: a label that any user may set turns no rule off.
    """
    return MULTIKUEUE_ORIGIN in workload.labels() or prebuilt_workload_name(workload) is not None


def _apply_exemptions(workload: Workload, bound: BoundRules, now: float | None) -> tuple[BoundRules, list[Judged]]:
    """Return the rules that the workload is not exempt from, and the findings about its exemptions."""
    request = exemptions.requested_exemption(workload)
    if not request.rules:
        return bound, []
    reports = [(binding, exemptions.report_of(request, binding, now)) for binding in bound]
    active = BoundRules(binding for binding, report in reports if report is None or report.reason != "Exempt")
    reported = [binding.judge(report) for binding, report in reports if report is not None]
    names = {*BY_ID, *(binding.rule.id for binding in bound)}
    is_silent = all(binding.mode is Mode.DRY_RUN for binding in bound)
    mode = Mode.DRY_RUN if is_silent else Mode.WARN
    reported.extend(judge(ABOUT_EXEMPTIONS, mode, finding) for finding in exemptions.unknown_rules(request, names))
    return active, reported


def _rehearse(
    workload: Workload, active: BoundRules, context: _Context, exempt: Collection[Mode], *, edits: bool, checks: bool
) -> Decision:
    """Return what the rules in Warn and DryRun would do if every policy were enforced, tried on a copy.

    Checks need the edited object, so the copy is edited for the validating webhook, too.
    """
    copy = open_copy(workload, context.snapshot)
    silent = context._replace(remember=False)
    decision = _run(copy, active, silent, edits=edits, checks=checks, exempt=bool(exempt), is_copy=True)
    rehearsed = {binding.rule.id for binding in active if binding.mode.is_rehearsed}
    carried: list[Change] = []
    if all(mode.is_rehearsed for mode in exempt):
        told = Mode.WARN if Mode.WARN in exempt else Mode.DRY_RUN
        carried = [change._replace(mode=told) for change in decision.changes if change.rule == ABOUT_EXEMPTIONS]
    return Decision(
        changes=[*(change for change in decision.changes if change.rule in rehearsed), *carried],
        findings=[judged for judged in decision.findings if judged.rule in rehearsed],
        failures=[failure for failure in decision.failures if failure.rule in rehearsed],
    )


def _add_denials_of_recreation(
    decision: Decision, workload: Workload, submitted: Object, bound: BoundRules, context: _Context
) -> None:
    """Add the denials that a new object would get in place of the live one, which a tool would have deleted by then."""
    root = {key: value for key, value in submitted.items() if key != "status"}
    copy = open_workload(workload.kind, root, context.snapshot, namespace=workload.namespace, owner_doubt=workload.owner_doubt)
    recreated = _Run(copy, bound, context._replace(remember=False, at_source=False)).decide(edits=True, checks=True)
    known = {_identity(judged) for judged in decision.findings}
    decision.findings += [
        judged
        for judged in recreated.findings
        if (judged.would_refuse or judged.severity is Severity.DENY) and _identity(judged) not in known
    ]


def _identity(judged: Judged) -> tuple[Severity, str, str, Path]:
    return judged.severity, judged.rule, judged.finding.reason, judged.finding.path


class _UpdateEdits(NamedTuple):
    """How an UPDATE edits templates: whether rules edit, and the pod specs and annotations that get no recorded edit again."""

    run_rules: bool = False
    left: Collection[Path] = ()
    triggers: Collection[str] = ()


def _edits_on_update(workload: Workload, transition: Transition) -> _UpdateEdits:
    """Return the row of the table in :mod:`gpugate.policies.workloads.transition` that applies."""
    intended = transition.with_recorded_edits() if workload.kind.template_mutable else None
    if intended is None or intended.placed_by_kueue:
        return _UpdateEdits()
    if transition.annotations_changed(_TRIGGERS):
        return _UpdateEdits(run_rules=True, left=[pods.path for pods in workload.pod_sets], triggers=_TRIGGERS)
    pod_sets = intended.after.pod_sets
    if not any(map(intended.template_changed, pod_sets)):
        return _UpdateEdits()
    return _UpdateEdits(run_rules=True, left=[pods.path for pods in pod_sets if intended.rule_inputs_changed(pods)])


class _Run:
    """One run of rules over one object: the edits, then the checks."""

    __slots__ = ("_bound", "_context", "_decision", "_draft", "_exempt", "_guard", "_workload")

    def __init__(self, workload: Workload, bound: BoundRules, context: _Context, *, exempt: bool = False) -> None:
        self._workload = workload
        self._bound = bound
        self._context = context
        self._exempt = exempt
        self._guard = EditGuard(workload, at_source=context.at_source)
        self._draft = PatchBuilder(workload.root)
        self._decision = Decision(patch=self._draft.ops)
        if not workload.is_pod() and parallel_jobs_are_gangs(bound):
            workload.parallel_jobs_are_gangs = True
            if workload.transition is not None:
                workload.transition.before.parallel_jobs_are_gangs = True

    def decide(self, *, edits: bool, checks: bool) -> Decision:
        workload, twin = self._workload, None
        if _is_compared_by_kueue(workload):
            twin = self._edited_twin() if checks else None
        elif edits and not workload.subresource:
            if workload.operation == "UPDATE":
                self._edit_update()
            else:
                self._edit_new()
        if checks:
            check_all(workload, self._bound, self._context.snapshot, self._decision, self._guard, twin=twin)
        return self._decision

    def _edited_twin(self) -> Workload | None:
        """Return an edited copy of an object whose Workload exists; None for one that only claims so, and gets no leniency."""
        if not has_made_workload(self._workload, self._context.snapshot):
            return None
        copy = open_copy(self._workload, self._context.snapshot)
        _Run(copy, self._bound, self._context)._edit(self._bound.editing)  # noqa: SLF001 - a run of the same class
        return copy

    def _edit_new(self) -> None:
        self._edit(self._bound.editing)
        if self._exempt:
            self._apply(ABOUT_EXEMPTIONS, Mode.ENFORCE, list(exemptions.carry_to_pods(self._workload)))
        if self._context.remember:
            record(self._draft)

    def _edit_update(self) -> None:
        workload, draft, transition = self._workload, self._draft, self._workload.transition
        if workload.is_pod() or transition is None:
            return
        edits = _edits_on_update(workload, transition)
        reapply(draft, transition, edits.left, edits.triggers)
        workload.refresh()
        if not edits.run_rules:
            keep_record(draft, transition)
            return
        drop_conflicting_defaults(draft, transition)
        workload.refresh()
        reapplied = len(draft.ops)
        self._edit(binding for binding in self._bound.editing if binding.rule.on_update)
        if self._context.remember:
            merge_record(draft, transition, reapplied)

    def _edit(self, bound: Iterable[BoundRule]) -> None:
        workload, guard, snapshot = self._workload, self._guard, self._context.snapshot
        for binding in bound:
            rule = binding.rule
            try:
                edits = list(rule.mutate(workload, binding.params, snapshot))
            except MalformedError:
                raise
            except Exception as error:  # noqa: BLE001 - one broken rule must not stop the webhook
                record_failure(self._decision, binding, error)
                continue
            if not edits:
                continue
            if not workload.is_whole:
                edits = [edit for edit in map(workload.edit_in_object, edits) if edit is not None]
            if guard.guards_anything:
                edits, withheld = guard.filter(self._draft, edits)
                refuse = binding.deny_on_git_conflict and not workload.is_child()
                self._decision.findings += [binding.judge(guard.withheld(edit, refuse=refuse)) for edit in withheld]
            self._apply(rule.id, binding.mode, edits)

    def _apply(self, rule: str, mode: Mode, edits: Sequence[Edit]) -> None:
        apply = self._draft.apply
        notes = [edit.note for edit in edits if apply(edit) and edit.note]
        if notes:
            # Equal templates get equal edits: each note once.
            self._decision.changes.append(Change(rule, tuple(notes) if len(notes) == 1 else tuple(dict.fromkeys(notes)), mode))
        self._workload.edited(edits)


def in_flight_entry(workload: Workload) -> Admitted | None:
    """Return what ``workload`` requests, which was just admitted.

    None for a kind that creates no pods now (a CronJob), and for an object of a controller: its owner was counted.

    Raises:
        MalformedError: an amount is no quantity.
    """
    if workload.kind.scheduled or workload.controller() is not None:
        return None
    total, requests = 0, {"cpu": 0, "memory": 0}
    for pods in workload.pod_sets:
        count = pods.count or 0
        if not count:
            continue
        demand = pod_requests(pods)
        total += count
        for name, amount in {"cpu": demand.cpu, "memory": demand.memory, **demand.devices}.items():
            requests[name] = requests.get(name, 0) + amount * count
    if not total:
        return None
    group = group_key(workload.labels(), workload.annotations(), workload.pod_sets[0].spec) if workload.is_pod() else None
    queue = queue_label(workload) or ""
    return Admitted(workload.kind.kind, workload.namespace, workload.name, total, queue, group, requests)
