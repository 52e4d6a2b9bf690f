"""Where gpugate holds back: what Git states, and what Kueue has accounted for."""

from __future__ import annotations

from typing import Any

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import Object, clone, dotted, lookup
from gpugate.policies.kube.managers import has_kueue_marks, is_gitops_managed
from gpugate.policies.patch import Edit, PatchBuilder
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import Workload


class EditGuard:
    """Decides for one workload which edits may be made.

    - In an object that a GitOps tool keeps, or an operator (a Deployment that an InferenceService owns), nothing is done
      that the tool would show as drift. An atomic list that Git states is left to the pods; a value that Git states becomes
      a warning with the line to commit.
    - On pods, and templates, that a controller made for a workload under Kueue, resources stay as the quota was computed from.

    An object ``at_source`` is what the GitOps tool applies from, not what it applied: marks of the tool in it hold nothing back.
    """

    __slots__ = ("_at_source", "_git", "_kueue", "_may_block", "workload")

    def __init__(self, workload: Workload, *, at_source: bool = False) -> None:
        self.workload = workload
        self._at_source = at_source
        self._git: bool | None = None
        self._kueue: bool | None = None
        self._may_block: bool | None = None

    def _in_git(self) -> bool:
        """Whether somebody else states the object again and again: a GitOps tool, or the operator that owns a template."""
        if self._git is None:
            work = self.workload
            owned = work.controller() is not None
            tracked = not self._at_source and is_gitops_managed(work.root)
            self._git = (work.is_template() and not work.kind.owner_creates_once) if owned else tracked
        return self._git

    def _under_kueue(self) -> bool:
        if self._kueue is None:
            work = self.workload
            # A part's template has the marks that Kueue put into the owner's.
            owned = work.controller() is not None if work.is_pod() else work.is_child()
            self._kueue = owned and any(has_kueue_marks(pods.root) for pods in work.pod_sets)
        return self._kueue

    @property
    def guards_anything(self) -> bool:
        """Whether an edit could be held back at all: nearly no object is anybody else's."""
        if self._may_block is None:
            self._may_block = self._in_git() or self._under_kueue()
        return self._may_block

    def filter(self, draft: PatchBuilder, edits: list[Edit]) -> tuple[list[Edit], list[Edit]]:
        """The edits that may be made, and those held back that somebody must be told of."""
        blocked = [edit for edit in edits if self._blocks(draft, edit)]
        if not blocked:
            return edits, []
        groups = {edit.group for edit in blocked if edit.group}
        kept = [edit for edit in edits if edit not in blocked and (not edit.group or edit.group not in groups)]
        told = [edit for edit in edits if edit not in kept and not self._left_to_pods(edit)]
        return kept, told

    def _left_to_pods(self, edit: Edit) -> bool:
        # A list can be extended on the pods when they are made; resources can't, they are accounted from the template.
        return edit.op == "append" and self.workload.is_template()

    def _blocks(self, draft: PatchBuilder, edit: Edit) -> bool:
        if "resources" in edit.path and self._under_kueue():
            return True
        if not self._in_git() or not draft.drifts(edit):
            return False
        # A bare pod in Git is never the tool's alone: the apiserver extends its lists, too.
        return not (self.workload.is_pod() and edit.op == "append")

    def withheld(self, edit: Edit, *, refuse: bool) -> Finding:
        """The finding for an ``edit`` that was held back, a refusal in Git's own objects where the policy wants it so."""
        if self._under_kueue():
            return _held_for_kueue(self.workload.root, edit)
        who = "Git" if self.workload.controller() is None else "the owner"
        return _held_for_git(self.workload.root, edit, who, refuse=refuse)

    def soften(self, finding: Finding) -> Finding:
        """``finding``, no refusal where the fault lies in the template of an owner that already runs under Kueue."""
        if finding.level is Level.DENY and "resources" in finding.path and self._under_kueue():
            return finding._replace(level=Level.WARN, remedy=f"{finding.remedy} Do so in the template of the owner.")
        return finding


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return "nothing"
    text = value if type(value) is str else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _held_for_kueue(root: Object, edit: Edit) -> Finding:
    place = dotted(edit.path)
    message = f"Kueue computed the quota with {place}: {_shown(lookup(root, edit.path))}, where gpugate would"
    if edit.op == "remove":
        message, remedy = f"{message} remove it", f"Remove {place} in the template of the owner."
    else:
        message, remedy = (
            f"{message} write {_shown(edit.value)}",
            f"Write {place}: {_shown(edit.value)} in the template of the owner.",
        )
    return Finding("HeldBack", edit.path, message, remedy, Level.WARN)


def _held_for_git(root: Object, edit: Edit, who: str, *, refuse: bool) -> Finding:
    present = lookup(root, edit.path)
    place = dotted(edit.path)
    if edit.op == "remove":
        message = f"{who} states {place}, which gpugate would remove"
        remedy = f"Remove {place} in {who}."
    elif edit.op == "append":
        message = f"{who} states the list {place}, which gpugate would extend by {_shown(edit.value)}"
        remedy = f"Add to {place} in {who}: {_shown(edit.value)}."
    else:
        message = f"{who} states {place}: {_shown(present)}, where gpugate would write {_shown(edit.value)}"
        remedy = f"{'Commit' if who == 'Git' else 'In the owner write'} {place}: {_shown(edit.value)}."
    return Finding("HeldBack", edit.path, message, remedy, Level.DENY if refuse else Level.WARN)


def warn_if_fix_withheld(
    findings: list[Finding], workload: Workload, rule: Rule, params: Params, snapshot: ClusterSnapshot, hold: EditGuard
) -> list[Finding]:
    """``findings``, where a refusal is a warning if an addition of the ``rule`` that was held back would have cured it.

    In an object that Git keeps, an edit that would show as drift is not made at the template. Nor is the template then
    refused for what it says nothing about: its pods get that when they are made, and the warning says what to commit. What
    it does state, and wrongly, is refused all the same.
    """
    if not workload.is_template() or all(one.level is not Level.DENY for one in findings):
        return findings
    edits = list(rule.mutate(workload, params, snapshot))
    kept, _ = hold.filter(PatchBuilder(workload.root), edits)
    if len(kept) == len(edits):
        return findings
    cured = open_workload(
        workload.kind,
        clone(workload.root),
        snapshot,
        namespace=workload.namespace,
        operation=workload.operation,
        old=workload.old,
    )
    additions = [edit for edit in edits if edit.op == "append" or (edit.op == "set" and lookup(cured.root, edit.path) is None)]
    draft = PatchBuilder(cured.root)
    for edit in additions:
        draft.apply(edit)
    cured.edited(additions)
    left = {(one.reason, one.path) for one in rule.findings(cured, params, snapshot) if one.level is Level.DENY}
    return [one if (one.reason, one.path) in left else one.as_warning() for one in findings]
