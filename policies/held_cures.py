"""What a rule would put right itself, were the template not somebody else's to state."""

from __future__ import annotations

from gpugate.policies.edits import Draft
from gpugate.policies.facts import Facts
from gpugate.policies.fields import clone, lookup
from gpugate.policies.finding import Finding, Level
from gpugate.policies.hold import Hold
from gpugate.policies.lens import open_workload
from gpugate.policies.rule import Params, Rule
from gpugate.policies.workload import Workload


def softened_where_held(
    findings: list[Finding], workload: Workload, rule: Rule, params: Params, facts: Facts, hold: Hold
) -> list[Finding]:
    """``findings``, where a refusal is a warning if an addition of the ``rule`` that was held back would have cured it.

    In an object that Git keeps, an edit that would show as drift is not made at the template. Nor is the template then
    refused for what it says nothing about: its pods get that when they are made, and the warning says what to commit. What
    it does state, and wrongly, is refused all the same.
    """
    if not workload.is_template() or all(one.level is not Level.DENY for one in findings):
        return findings
    edits = list(rule.mutate(workload, params, facts))
    kept, _ = hold.sift(Draft(workload.root), edits)
    if len(kept) == len(edits):
        return findings
    cured = open_workload(
        workload.kind,
        clone(workload.root),
        facts,
        namespace=workload.namespace,
        operation=workload.operation,
        old=workload.old,
    )
    additions = [edit for edit in edits if edit.op == "append" or (edit.op == "set" and lookup(cured.root, edit.path) is None)]
    draft = Draft(cured.root)
    for edit in additions:
        draft.apply(edit)
    cured.edited(additions)
    left = {(one.reason, one.path) for one in rule.check(cured, params, facts) if one.level is Level.DENY}
    return [one if (one.reason, one.path) in left else one.as_warning() for one in findings]
