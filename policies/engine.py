"""The engine: folds the rules' edits in order and runs every check on the edited object."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpugate.policies import exemptions
from gpugate.policies.catalogue import BY_ID
from gpugate.policies.edits import Draft, Edit
from gpugate.policies.facts import Facts
from gpugate.policies.fields import MalformedError, Object, clone, lookup, named_path
from gpugate.policies.finding import Finding, Judged, Level, Mode, Severity, aged, judge
from gpugate.policies.hold import Hold
from gpugate.policies.kueue import MULTIKUEUE_ORIGIN, PREBUILT, queue_label
from gpugate.policies.leniency import asks_the_same, is_switch, softened
from gpugate.policies.lens import open_workload
from gpugate.policies.replay import keep_record, record, record_anew, replay
from gpugate.policies.rule import Params, Rule
from gpugate.policies.workload import Workload


class Phase(enum.Flag):
    """What is asked of the engine: the mutating door edits, the validating door checks, a review does both."""

    MUTATE = enum.auto()
    CHECK = enum.auto()
    REVIEW = MUTATE | CHECK


class Bound(NamedTuple):
    """A rule as a policy binds it for one namespace and object.

    Attributes:
        rule: the rule.
        params: its parameters.
        mode: how it acts.
        policy: the name of the policy that binds it.
        exemptable: whether workloads may be exempt from it.
        refuse_held: whether an edit that Git forbids is a refusal, not a warning.
        refuse_unknown: whether what cannot be judged, since facts are missing or out of date, is a refusal, not a warning.
    """

    rule: Rule
    params: Params
    mode: Mode
    policy: str = "default"
    exemptable: bool = False
    refuse_held: bool = False
    refuse_unknown: bool = False


class Change(NamedTuple):
    """What one rule changed, in a few words each."""

    rule: str
    notes: tuple[str, ...]


class Failure(NamedTuple):
    """A rule that broke on an object: an error in gpugate, for its log."""

    rule: str
    error: Exception


@dataclass(slots=True)
class Decision:
    """What comes of one review.

    Attributes:
        patch: JSON Patch operations (RFC 6902), in order.
        changes: what each rule changed.
        would_change: what each rule in DryRun would have changed.
        findings: all findings, sorted.
        failures: rules that broke.
    """

    patch: list[Object] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    would_change: list[Change] = field(default_factory=list)
    findings: list[Judged] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether a finding refuses the object."""
        return any(one.severity is Severity.DENY for one in self.findings)


def decide(
    workload: Workload, bound: Sequence[Bound], facts: Facts, phase: Phase = Phase.REVIEW, *, remember: bool = True
) -> Decision:
    """Decide on ``workload``, editing it in place.

    Args:
        workload: the object under review.
        bound: the rules that apply to it, in the catalogue's order.
        facts: one snapshot of the cluster.
        phase: what is asked.
        remember: whether edits to a template are recorded in the object, as the door does at CREATE.

    Raises:
        MalformedError: the object has a field that the API itself does not accept.
    """
    try:
        return _decide(workload, bound, facts, phase, remember=remember)
    except MalformedError as error:
        if workload.is_whole:
            raise
        raise MalformedError(workload.told_at(error.path), error.problem) from error


def _decide(workload: Workload, bound: Sequence[Bound], facts: Facts, phase: Phase, *, remember: bool) -> Decision:
    decision = Decision()
    if not _concerns(workload):
        return decision
    active, reported = _heed_exemptions(workload, bound)
    enforced = [one for one in active if one.mode is not Mode.DRY_RUN]
    if len(enforced) < len(active):
        _rehearse(workload, active, facts, phase, decision)
    exempt = bool(reported) and any(one.finding.reason == "Exempt" and one.severity is not Severity.DRYRUN for one in reported)
    _run(workload, enforced, facts, phase, decision, exempt=exempt, remember=remember)
    if reported and Phase.CHECK in phase:
        decision.findings.extend(reported)
    if len(decision.findings) > 1:
        decision.findings.sort(key=lambda one: one.sort_key)
    return decision


def _concerns(workload: Workload) -> bool:
    """Whether there is anything to judge.

    Not what is being deleted, nor the mirror of a static pod, nor what must stay as its owner made it, nor an UPDATE that
    leaves spec, labels and annotations alone.
    """
    if workload.metadata().get("deletionTimestamp") is not None or _is_copy(workload):
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
    return workload.kind.mirrors_owner and workload.controller() is not None


def _heed_exemptions(workload: Workload, bound: Sequence[Bound]) -> tuple[list[Bound], list[Judged]]:
    plea = exemptions.plea_of(workload)
    if not plea.rules:
        return list(bound), []
    active: list[Bound] = []
    reported: list[Judged] = []
    for one in bound:
        exempt, finding = exemptions.answer(plea, one.rule.id, allowed=one.exemptable)
        if finding is not None:
            reported.append(judge(one.rule.id, one.mode, finding))
        if not exempt:
            active.append(one)
    names = {*BY_ID, *(one.rule.id for one in bound)}
    reported.extend(judge("exemption", Mode.WARN, finding) for finding in exemptions.unknown_rules(plea, names))
    return active, reported


def _rehearse(workload: Workload, active: Sequence[Bound], facts: Facts, phase: Phase, decision: Decision) -> None:
    """Decide as if every rule were enforced, on a copy, and keep what the rules in DryRun would have done."""
    root = {key: value if key == "status" else clone(value) for key, value in workload.root.items()}
    copy = open_workload(
        workload.kind,
        root,
        facts,
        namespace=workload.namespace,
        operation=workload.operation,
        old=workload.old,
        subresource=workload.subresource,
    )
    rehearsal = Decision()
    # Checks look at the edited object, so the validating door, too, edits the copy first.
    _run(copy, active, facts, phase | Phase.MUTATE, rehearsal, exempt=False, remember=False)
    dry = {one.rule.id for one in active if one.mode is Mode.DRY_RUN}
    if Phase.MUTATE in phase:
        decision.would_change = [change for change in rehearsal.changes if change.rule in dry]
    decision.findings.extend(one for one in rehearsal.findings if one.rule in dry)
    decision.failures.extend(one for one in rehearsal.failures if one.rule in dry)


def _run(
    workload: Workload,
    bound: Sequence[Bound],
    facts: Facts,
    phase: Phase,
    decision: Decision,
    *,
    exempt: bool,
    remember: bool,
) -> None:
    hold = Hold(workload)
    if phase is not Phase.CHECK and not workload.subresource and not _is_mirror(workload):
        draft = Draft(workload.root)
        _edit(workload, draft, bound, facts, decision, hold, remember=remember)
        if exempt and workload.operation != "UPDATE":
            _apply(workload, draft, "exemption", list(exemptions.carry_to_pods(workload)), decision)
        if remember and workload.operation != "UPDATE" and workload.is_template():
            record(draft)
        decision.patch = draft.ops
    if phase is not Phase.MUTATE:
        _check(workload, bound, facts, decision, hold)


def _edit(
    workload: Workload,
    draft: Draft,
    bound: Sequence[Bound],
    facts: Facts,
    decision: Decision,
    hold: Hold,
    *,
    remember: bool,
) -> None:
    if workload.operation == "UPDATE":
        if workload.is_pod() or workload.old is None:
            return
        mutable = workload.kind.template_mutable and not _is_placed_by_kueue(workload, workload.old)
        replay(draft, workload.old, [pods.path for pods in workload.pod_sets] if mutable else ())
        workload.refresh()
        if not mutable or not _template_changed(workload):
            keep_record(draft, workload.old)
            return
        given_back = len(draft.ops)
        _fold(workload, draft, [one for one in bound if one.rule.on_update], facts, decision, hold)
        if remember and workload.is_template():
            record_anew(draft, workload.old, given_back)
        return
    _fold(workload, draft, bound, facts, decision, hold)


def _fold(workload: Workload, draft: Draft, rules: Iterable[Bound], facts: Facts, decision: Decision, hold: Hold) -> None:
    for one in rules:
        try:
            edits = list(one.rule.mutate(workload, one.params, facts))
        except MalformedError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken rule must not take the door down
            _broke(decision, one, error)
            continue
        if not edits:
            continue
        if not workload.is_whole:
            edits = [edit for edit in map(workload.written, edits) if edit is not None]
        if hold.may_block:
            edits, held = hold.sift(draft, edits)
            for edit in held:
                refuse = one.refuse_held and not workload.is_part()
                decision.findings.append(judge(one.rule.id, one.mode, hold.held_back(edit, refuse=refuse)))
        _apply(workload, draft, one.rule.id, edits, decision)


def _apply(workload: Workload, draft: Draft, rule: str, edits: Sequence[Edit], decision: Decision) -> None:
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
    trial = Draft(clone(workload.root))
    replay(trial, old)
    return asks_the_same(open_workload(workload.kind, trial.root, _NO_CLAIMS), before)


def _template_changed(workload: Workload) -> bool:
    """Whether the request itself changes a pod template, gpugate's own earlier edits given back."""
    old = open_workload(workload.kind, workload.old or {}, _NO_CLAIMS)
    before = {pods.path: pods.root for pods in old.pod_sets}
    return any(pods.root != before.get(pods.path) for pods in workload.pod_sets)


_NO_CLAIMS = Facts()


def _check(workload: Workload, bound: Sequence[Bound], facts: Facts, decision: Decision, hold: Hold) -> None:
    _foresee(workload, bound, facts)
    for one in bound:
        try:
            findings = list(one.rule.check(workload, one.params, facts))
            if findings:
                if facts.stale:
                    findings = [aged(finding, facts.stale) for finding in findings]
                findings = softened(_only_worse(workload, one, bound, facts, findings), workload, facts)
        except MalformedError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken rule must not take the door down
            _broke(decision, one, error)
            continue
        if findings and not workload.is_whole:
            findings = [finding._replace(path=workload.told_at(finding.path)) for finding in findings]
        if findings:
            unknown = one.refuse_unknown
            decision.findings.extend(
                [judge(one.rule.id, one.mode, hold.soften(finding), refuse_unknown=unknown) for finding in findings]
            )


_TOLERATE_ALL: Final[tuple[Object, ...]] = ({"operator": "Exists"},)


def _foresee(workload: Workload, bound: Sequence[Bound], facts: Facts) -> None:
    """Note on a template what its pods will tolerate when they are made, though it must not say so itself."""
    if workload.is_pod():
        return
    for pods in workload.pod_sets if not workload.is_whole else ():
        # What these pods tolerate is written elsewhere.
        pods.foreseen = _TOLERATE_ALL if not pods.is_whole else ()
    for one in bound:
        if not one.rule.at_pods:
            continue
        try:
            edits = list(one.rule.mutate(workload, one.params, facts))
        except MalformedError:
            raise
        except Exception:  # noqa: BLE001, S112 - told of where the rule's own edits are folded
            continue
        for pods in workload.pod_sets if edits else ():
            place = pods.field("tolerations")
            pods.foreseen = (*pods.foreseen, *(edit.value for edit in edits if edit.path == place))


def _only_worse(workload: Workload, one: Bound, bound: Sequence[Bound], facts: Facts, findings: list[Finding]) -> list[Finding]:
    """On UPDATE, what was as bad before is a warning now: nobody's status writes or scaling stop for an old sin."""
    if workload.operation != "UPDATE" or workload.old is None or all(found.level is not Level.DENY for found in findings):
        return findings
    before = open_workload(workload.kind, workload.old, facts, namespace=workload.namespace)
    if is_switch(workload, before):
        return [found._replace(level=Level.WARN) if found.level is Level.DENY else found for found in findings]
    _foresee(before, bound, facts)
    known: dict[tuple[str, object], int] = {}
    for found in one.rule.check(before, one.params, facts):
        if found.level is Level.DENY:
            key = (found.reason, named_path(workload.old, found.path))
            known[key] = max(found.measure, known.get(key, 0))
    return [
        found._replace(level=Level.WARN)
        if found.level is Level.DENY and found.measure <= known.get((found.reason, named_path(workload.root, found.path)), -1)
        else found
        for found in findings
    ]


def _broke(decision: Decision, one: Bound, error: Exception) -> None:
    decision.failures.append(Failure(one.rule.id, error))
    if any(found.rule == one.rule.id and found.finding.reason == "InternalError" for found in decision.findings):
        return
    finding = Finding(
        "InternalError",
        (),
        f"the rule {one.rule.id} failed on this object ({type(error).__name__}): an error in gpugate, not in the object",
        "Report it with the object, and set the rule's mode to Warn to go on meanwhile.",
    )
    decision.findings.append(judge(one.rule.id, one.mode, finding))
