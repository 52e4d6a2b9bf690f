"""What the engine is asked, and what it decides."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpugate.policies.findings import Judged, Mode, Severity
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import Object

#: What an answer names where no policy has a say.
_NO_POLICY: Final = "none"


class Phase(enum.Flag):
    """What is asked of the engine: the mutating door edits, the validating door checks, a review does both."""

    MUTATE = enum.auto()
    CHECK = enum.auto()
    REVIEW = MUTATE | CHECK


class BoundRule(NamedTuple):
    """A rule as a policy binds it for one namespace and object.

    Attributes:
        rule: the rule.
        params: its parameters.
        mode: how it acts.
        policy: the name of the policy that binds it.
        exemptable: whether workloads may be exempt from it.
        deny_on_git_conflict: whether an edit that Git forbids is a refusal, not a warning.
        deny_on_unknown: whether what cannot be judged, since facts are missing or out of date, is a refusal, not a warning.
        generation: the generation of that policy.
        needs_end: whether an exemption must say when it ends.
        longest_days: how many days ahead an exemption may end at the most; 0 for any number.
    """

    rule: Rule
    params: Params
    mode: Mode
    policy: str = "default"
    exemptable: bool = False
    deny_on_git_conflict: bool = False
    deny_on_unknown: bool = False
    generation: int = 0
    needs_end: bool = False
    longest_days: int = 0


class BoundRules(tuple[BoundRule, ...]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """The rules for an object, in the catalogue's order.

    Attributes:
        policies: the policies that bind them, or that disable others, as ``name@generation``, sorted.
        named: the same as one text.
    """

    policies: tuple[str, ...] = ()
    named: str = _NO_POLICY

    @classmethod
    def of(cls, chosen: Iterable[BoundRule]) -> BoundRules:
        """The rules of ``chosen`` that are not disabled, and the policies of all of them."""
        every = tuple(chosen)
        made = cls(one for one in every if one.mode is not Mode.DISABLED)
        made.policies = tuple(sorted({f"{one.policy}@{one.generation}" for one in every}))
        made.named = ", ".join(made.policies) or _NO_POLICY
        return made


class Change(NamedTuple):
    """What one rule changed, in a few words each."""

    rule: str
    notes: tuple[str, ...]


class RuleFailure(NamedTuple):
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
    failures: list[RuleFailure] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether a finding refuses the object."""
        return any(one.severity is Severity.DENY for one in self.findings)
