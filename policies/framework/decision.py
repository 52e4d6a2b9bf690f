"""The input and output of the engine: bound rules, phases and decisions."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Judged, Level, Mode, Severity, judge
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import NO_LEVELS, apply_reasons
from gpugate.policies.framework.rule import Rule, no_edits, no_findings
from gpugate.policies.kube.fields import Object
from gpugate.policies.workloads.workload import Workload

#: The text for an object to which no policy applies.
_NO_POLICY: Final = "none"
#: Rule id of findings and changes about exemptions as such, which no rule makes.
ABOUT_EXEMPTIONS: Final = "exemption"


class Phase(enum.Flag):
    """What the engine does: the mutating webhook edits, the validating webhook checks, a review does both."""

    MUTATE = enum.auto()
    CHECK = enum.auto()
    REVIEW = MUTATE | CHECK


class Warnings(enum.Enum):
    """Of what users are warned (admission warnings, which kubectl prints); each value includes the later ones."""

    ALL = "All"
    FINDINGS = "Findings"
    REFUSALS = "Refusals"
    NONE = "None"

    def includes(self, what: Warnings) -> bool:
        """Return whether users are warned of ``what``: changes (All), findings, or findings that refuse once enforced."""
        order = list(Warnings)
        return order.index(self) <= order.index(what)


class BoundRule(NamedTuple):
    """A rule as a policy binds it for one namespace and object.

    Attributes:
        rule: the rule.
        params: its parameters.
        mode: how it acts.
        policy: the name of the policy that binds it.
        exemptable: whether workloads may be exempt from it.
        deny_on_git_conflict: whether an edit that is withheld for Git is a denial, not a warning.
        deny_on_unknown: whether a check that lacks current facts about the cluster is a denial, not a warning.
        autoscaler: whether an autoscaler may add nodes: ``Present``, ``Absent``, or ``Detect`` by the nodes.
        generation: the generation of that policy.
        needs_end: whether an exemption must have an end.
        longest_days: how many days ahead an exemption may end at most; 0 for any number.
        levels: the levels that the policy states by reason; None drops the finding.
        forecast: the mode that the rule has once it is enforced: what a rule in Warn or DryRun says that it would do.
        warnings: of what users are warned.
    """

    rule: Rule
    params: Params
    mode: Mode
    policy: str = "default"
    exemptable: bool = False
    deny_on_git_conflict: bool = False
    deny_on_unknown: bool = False
    autoscaler: str = "Detect"
    generation: int = 0
    needs_end: bool = False
    longest_days: int = 0
    levels: Mapping[str, Level | None] = NO_LEVELS
    forecast: Mode = Mode.ENFORCE
    warnings: Warnings = Warnings.ALL

    def findings(self, workload: Workload, snapshot: ClusterSnapshot) -> list[Finding]:
        """Return the findings of the rule's check, each with the level that the policy, or its reason, gives it.

        Raises:
            MalformedError: a field of the object has a type or value that the API does not accept.
        """
        rule, params = self.rule, self.params
        findings = list(rule.check(workload, params, snapshot))
        return list(apply_reasons(findings, rule.reasons, params, workload, self.levels)) if findings else findings

    def judge(self, finding: Finding, *, refuse_unknown: bool = False) -> Judged:
        """Return ``finding`` with the severity that the mode gives it; ``refuse_unknown``: deny it if it is unknown."""
        return judge(self.rule.id, self.mode, finding, refuse_unknown=refuse_unknown, forecast=self.forecast)

    @property
    def edits(self) -> bool:
        """Whether the rule edits objects, in a rehearsal or in fact."""
        return not (self.forecast if self.mode.is_rehearsed else self.mode).is_rehearsed


class BoundRules(tuple[BoundRule, ...]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """The rules for an object, in the catalogue's order. Parts of them are kept for the reviews of other objects.

    Attributes:
        policies: the policies that bind or disable rules for it, as ``name@generation``, sorted.
        named: the same as one text.
        controllers: the identities that the policies list as controllers.
        warnings: of what users are warned, by rule; without an entry, of everything.
    """

    policies: tuple[str, ...] = ()
    controllers: frozenset[str] = frozenset()
    named: str = _NO_POLICY
    warnings: Mapping[str, Warnings] = MappingProxyType({})

    @classmethod
    def of(cls, bindings: Iterable[BoundRule], controllers: frozenset[str] = frozenset()) -> BoundRules:
        """Return the rules of ``bindings`` that are not disabled, with the policies of all of them."""
        every = tuple(bindings)
        bound = cls(binding for binding in every if binding.mode is not Mode.DISABLED)
        bound.policies = tuple(sorted({f"{binding.policy}@{binding.generation}" for binding in every}))
        bound.named = ", ".join(bound.policies) or _NO_POLICY
        bound.controllers = controllers
        quiet = {binding.rule.id: binding.warnings for binding in bound if binding.warnings is not Warnings.ALL}
        if bound and len(quiet) == len(bound):
            # What no rule says, such as a report on a misspelt exemption, is as quiet as the loudest rule.
            loudest = min(quiet.values(), key=list(Warnings).index)
            bound.warnings = {ABOUT_EXEMPTIONS: loudest, **quiet}
        else:
            bound.warnings = quiet
        return bound

    @cached_property
    def after_first(self) -> BoundRules:
        """All but the first."""
        return BoundRules(self[1:])

    @cached_property
    def acting(self) -> BoundRules:
        """Those that are not rehearsed."""
        return BoundRules(binding for binding in self if not binding.mode.is_rehearsed)

    @cached_property
    def editing(self) -> tuple[BoundRule, ...]:
        """Those whose rules edit, in a rehearsal or in fact."""
        return tuple(binding for binding in self if binding.rule.mutate is not no_edits and binding.edits)

    @cached_property
    def checking(self) -> tuple[BoundRule, ...]:
        """Those whose rules check."""
        return tuple(binding for binding in self if binding.rule.check is not no_findings)


class Change(NamedTuple):
    """The changes of one rule, each in a few words, and the rule's mode."""

    rule: str
    notes: tuple[str, ...]
    mode: Mode = Mode.ENFORCE


class RuleFailure(NamedTuple):
    """A rule that raised an error on an object: a defect of gpugate, for its log."""

    rule: str
    error: Exception


@dataclass(slots=True)
class Decision:
    """The result of one review.

    Attributes:
        patch: JSON Patch operations (RFC 6902), in order.
        changes: the changes of each rule.
        would_change: the changes that each rule in Warn or DryRun would make.
        findings: all findings, sorted.
        failures: rules that raised an error.
    """

    patch: list[Object] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    would_change: list[Change] = field(default_factory=list)
    findings: list[Judged] = field(default_factory=list)
    failures: list[RuleFailure] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether a finding denies the object."""
        return any(judged.severity is Severity.DENY for judged in self.findings)
