"""Withhold edits of fields that Git or an owner states, and of resources that Kueue has counted."""

from typing import Any

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.kube.fields import dotted, lookup
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

    def __init__(self, workload: Workload, *, at_source: bool = False) -> None:
        self.workload = workload
        self._at_source = at_source
        self._guards: bool | None = None
        #: Whether a GitOps tool, or the operator that owns a template, applies the object again and again.
        self._in_git = False
        self._under_kueue = False

    @property
    def guards_anything(self) -> bool:
        """Whether an edit could be withheld at all; not so for nearly all objects. Computed at the first use."""
        if self._guards is None:
            workload = self.workload
            if workload.controller() is None:
                self._in_git = not self._at_source and is_gitops_managed(workload.root)
            else:
                self._in_git = workload.is_template() and not workload.kind.owner_creates_once
                # A child's template has the marks that Kueue put into the template of its owner.
                owned = workload.is_pod() or workload.is_child()
                self._under_kueue = owned and any(has_kueue_marks(pods.root) for pods in workload.pod_sets)
            self._guards = self._in_git or self._under_kueue
        return self._guards

    def filter(self, draft: PatchBuilder, edits: list[Edit]) -> tuple[list[Edit], list[Edit]]:
        """Return the edits that may be made, and the withheld ones that must be reported."""
        blocked = [edit for edit in edits if self._blocks(draft, edit)]
        if not blocked:
            return edits, []
        groups = {edit.group for edit in blocked if edit.group}
        allowed = [edit for edit in edits if edit not in blocked and (not edit.group or edit.group not in groups)]
        # A list can be extended on the pods when they are created. Resources cannot: they are counted from the template.
        left_to_pods = {"append"} if self.workload.is_template() else set()
        return allowed, [edit for edit in edits if edit not in allowed and edit.op not in left_to_pods]

    def _blocks(self, draft: PatchBuilder, edit: Edit) -> bool:
        if "resources" in edit.path and self._under_kueue:
            return True
        # The apiserver extends the lists of a bare pod in Git, too.
        return self._in_git and draft.drifts(edit) and not (self.workload.is_pod() and edit.op == "append")

    def withheld(self, edit: Edit, *, refuse: bool) -> Finding:
        """Return the finding for a withheld ``edit``; ``refuse``: it denies an object that Git controls."""
        place, value = dotted(edit.path), _shown(edit.value)
        present = lookup(self.workload.root, edit.path)
        who = "Git" if self.workload.controller() is None else "the owner"
        if self._under_kueue:
            message = f"Kueue computed the quota with {place}: {_shown(present)}, so gpugate does not"
            message = f"{message} remove it" if edit.op == "remove" else f"{message} write {value}"
            remedy = f"Remove {place}" if edit.op == "remove" else f"Write {place}: {value}"
            return Finding("HeldBack", edit.path, message, f"{remedy} in the template of the owner.", Level.WARN)
        if edit.op == "remove":
            message, remedy = f"{who} sets {place}, so gpugate does not remove it", f"Remove {place} in {who}."
        elif edit.op == "append":
            message = f"{who} sets the list {place}, so gpugate does not append {value}"
            remedy = f"Append to {place} in {who}: {value}."
        else:
            stated = f"{who} leaves {place} out" if present is None else f"{who} sets {place}: {_shown(present)}"
            message = f"{stated}, so gpugate does not write {value}"
            remedy = f"Commit {place}: {value}." if who == "Git" else f"Write {place}: {value} in {who}."
        return Finding("HeldBack", edit.path, message, remedy, Level.DENY if refuse else Level.WARN)

    def soften(self, finding: Finding) -> Finding:
        """Return ``finding``, a warning if the fault is in the template of an owner that already runs under Kueue."""
        if self.guards_anything and finding.level is Level.DENY and "resources" in finding.path and self._under_kueue:
            return finding._replace(level=Level.WARN, remedy=f"{finding.remedy} Change it in the template of the owner.")
        return finding


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def warn_if_fix_withheld(
    findings: list[Finding], workload: Workload, binding: BoundRule, snapshot: ClusterSnapshot, guard: EditGuard
) -> list[Finding]:
    """Return ``findings``; a denial is a warning if an addition by the same rule would have fixed it but was withheld.

    A template in Git is not denied for a field that it leaves out: its pods get the field when they are created, and the warning
    says what to commit. A wrong value that it states is denied all the same.
    """
    if not workload.is_template():
        return findings
    edits = list(binding.rule.mutate(workload, binding.params, snapshot))
    if len(guard.filter(PatchBuilder(workload.root), edits)[0]) == len(edits):
        return findings
    fixed = open_copy(workload, snapshot)
    additions = [edit for edit in edits if edit.op == "append" or (edit.op == "set" and lookup(fixed.root, edit.path) is None)]
    draft = PatchBuilder(fixed.root)
    for edit in additions:
        draft.apply(edit)
    fixed.edited(additions)
    return warn_if_mended(findings, fixed, binding, snapshot)


def warn_if_mended(findings: list[Finding], fixed: Workload, binding: BoundRule, snapshot: ClusterSnapshot) -> list[Finding]:
    """Return ``findings``; a denial that the rule does not raise for ``fixed``, the object with edits, is a warning."""
    denying = {Level.DENY, Level.UNKNOWN} if binding.deny_on_unknown else {Level.DENY}
    left = {(finding.reason, finding.path) for finding in binding.findings(fixed, snapshot) if finding.level in denying}
    return [finding if (finding.reason, finding.path) in left else finding.as_warning() for finding in findings]
