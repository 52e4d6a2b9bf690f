"""Withhold edits of fields that Git or an owner states, and of resources that Kueue has counted."""

from typing import Any

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.kube.fields import Object, dotted, lookup
from gpugate.policies.kube.managers import has_kueue_marks, is_gitops_managed
from gpugate.policies.patch import Edit, PatchBuilder
from gpugate.policies.workloads.open import open_copy
from gpugate.policies.workloads.workload import Workload


class EditGuard:
    """Decides for one workload which edits may be made.

    - In an object that a GitOps tool or an operator controls (a Deployment that an InferenceService owns), no edit is made that
      the tool would show as drift. Pods get elements of an atomic list when they are created; for a value that Git states, a
      warning says what to commit.
    - In pods and templates that a controller made for a workload under Kueue, resources stay as Kueue counted them.

    Args:
        workload: the workload.
        at_source: whether it is the manifest that a GitOps tool applies from: marks of the tool then withhold nothing.
    """

    __slots__ = ("_at_source", "_git", "_kueue", "_may_block", "workload")

    def __init__(self, workload: Workload, *, at_source: bool = False) -> None:
        self.workload = workload
        self._at_source = at_source
        self._git: bool | None = None
        self._kueue: bool | None = None
        self._may_block: bool | None = None

    def _in_git(self) -> bool:
        """Tell whether a GitOps tool, or the operator that owns a template, applies the object again and again."""
        if self._git is None:
            work = self.workload
            owned = work.controller() is not None
            tracked = not self._at_source and is_gitops_managed(work.root)
            self._git = (work.is_template() and not work.kind.owner_creates_once) if owned else tracked
        return self._git

    def _under_kueue(self) -> bool:
        if self._kueue is None:
            work = self.workload
            # A child's template has the marks that Kueue put into the template of its owner.
            owned = work.controller() is not None if work.is_pod() else work.is_child()
            self._kueue = owned and any(has_kueue_marks(pods.root) for pods in work.pod_sets)
        return self._kueue

    @property
    def guards_anything(self) -> bool:
        """Whether an edit could be withheld at all; not so for nearly all objects."""
        if self._may_block is None:
            self._may_block = self._in_git() or self._under_kueue()
        return self._may_block

    def filter(self, draft: PatchBuilder, edits: list[Edit]) -> tuple[list[Edit], list[Edit]]:
        """Return the edits that may be made, and the withheld ones that must be reported."""
        blocked = [edit for edit in edits if self._blocks(draft, edit)]
        if not blocked:
            return edits, []
        groups = {edit.group for edit in blocked if edit.group}
        kept = [edit for edit in edits if edit not in blocked and (not edit.group or edit.group not in groups)]
        reported = [edit for edit in edits if edit not in kept and not self._left_to_pods(edit)]
        return kept, reported

    def _left_to_pods(self, edit: Edit) -> bool:
        # A list can be extended on the pods when they are created. Resources cannot: they are counted from the template.
        return edit.op == "append" and self.workload.is_template()

    def _blocks(self, draft: PatchBuilder, edit: Edit) -> bool:
        if "resources" in edit.path and self._under_kueue():
            return True
        if not self._in_git() or not draft.drifts(edit):
            return False
        # The apiserver extends the lists of a bare pod in Git, too.
        return not (self.workload.is_pod() and edit.op == "append")

    def withheld(self, edit: Edit, *, refuse: bool) -> Finding:
        """Return the finding for a withheld ``edit``; ``refuse``: it denies an object that Git controls."""
        if self._under_kueue():
            return _withheld_for_kueue(self.workload.root, edit)
        who = "Git" if self.workload.controller() is None else "the owner"
        return _withheld_for_git(self.workload.root, edit, who, refuse=refuse)

    def soften(self, finding: Finding) -> Finding:
        """Return ``finding``, a warning if the fault is in the template of an owner that already runs under Kueue."""
        if finding.level is Level.DENY and "resources" in finding.path and self._under_kueue():
            return finding._replace(level=Level.WARN, remedy=f"{finding.remedy} Do so in the template of the owner.")
        return finding


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return "nothing"
    text = value if type(value) is str else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _withheld_for_kueue(root: Object, edit: Edit) -> Finding:
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


def _withheld_for_git(root: Object, edit: Edit, who: str, *, refuse: bool) -> Finding:
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
    findings: list[Finding], workload: Workload, binding: BoundRule, snapshot: ClusterSnapshot, guard: EditGuard
) -> list[Finding]:
    """Return ``findings``; a denial is a warning if an addition by the same rule would have fixed it but was withheld.

    A template in Git is not denied for a field that it leaves out: its pods get the field when they are created, and the warning
    says what to commit. A wrong value that it states is denied all the same.
    """
    if not workload.is_template() or all(finding.level is not Level.DENY for finding in findings):
        return findings
    rule, params = binding.rule, binding.params
    edits = list(rule.mutate(workload, params, snapshot))
    kept, _ = guard.filter(PatchBuilder(workload.root), edits)
    if len(kept) == len(edits):
        return findings
    fixed = open_copy(workload, snapshot)
    additions = [edit for edit in edits if edit.op == "append" or (edit.op == "set" and lookup(fixed.root, edit.path) is None)]
    draft = PatchBuilder(fixed.root)
    for edit in additions:
        draft.apply(edit)
    fixed.edited(additions)
    denying = {Level.DENY, Level.UNKNOWN} if binding.deny_on_unknown else {Level.DENY}
    left = {(finding.reason, finding.path) for finding in rule.findings(fixed, params, snapshot) if finding.level in denying}
    return [finding if (finding.reason, finding.path) in left else finding.as_warning() for finding in findings]
