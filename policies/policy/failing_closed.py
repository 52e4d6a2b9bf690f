"""Find the namespaces and kinds for which the validating webhooks fail closed: those in which a policy refuses objects.

The unit is a kind in a namespace. It fails closed if a rule in force there is in Enforce, may refuse objects of the kind that
request an accelerator, and its policy's ``failurePolicy`` is Fail. Object selectors do not count: users control the labels of
objects.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from gpugate.policies.findings import Level, Mode
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.framework.reasons import level_under
from gpugate.policies.framework.rule import no_edits
from gpugate.policies.policy.binding import PolicySet, bind_rule
from gpugate.policies.policy.models import FAIL, LabelSelector
from gpugate.policies.policy.namespace_regions import Clause, Division, NamespaceSelectors, Region
from gpugate.policies.rules.registry import RULES
from gpugate.policies.workloads.kinds import KINDS, WorkloadKind

_EVERYTHING: Final = LabelSelector()
#: Namespaces whose objects the webhooks do not get: they must come up without gpugate.
UNREVIEWED_NAMESPACES: Final = ("gpugate-system", "kube-system")
#: Maximum number of regions of a kind. Each is a webhook of its own, and all of them must fit into one object.
MOST_REGIONS: Final = 8


class LeftOpen(NamedTuple):
    """Kinds in a namespace whose objects a policy may refuse, and whose webhooks fail open."""

    namespace: str
    kinds: tuple[str, ...]


class FailingClosed:
    """The namespaces and kinds for which policies refuse objects, and the regions that express them.

    Attributes:
        policies: the policies.
    """

    __slots__ = ("_clauses", "_divisions", "_selectors", "policies")

    def __init__(self, policies: PolicySet) -> None:
        self.policies = policies
        self._selectors = NamespaceSelectors([policy.spec.match.namespace_selector for policy in policies.policies])
        found: dict[WorkloadKind, set[Clause]] = {kind: set() for kind in KINDS}
        for bound, clause in _enforced(policies):
            for kind in KINDS:
                if bound.rule.refuses(kind, bound.params):
                    found[kind].add(clause)
        self._clauses = {kind: tuple(_widest(clauses)) for kind, clauses in found.items()}
        self._divisions = {clauses: self._selectors.divide(clauses, MOST_REGIONS) for clauses in {*self._clauses.values()}}

    @property
    def is_exact(self) -> bool:
        """Whether no kind fails open in a namespace in which a policy may refuse its objects."""
        return all(division.exact for division in self._divisions.values())

    def regions(self, kind: WorkloadKind) -> tuple[Region, ...]:
        """Return regions that contain every namespace once; ``inside`` says whether the webhooks for ``kind`` fail closed there."""
        return self._divisions[self._clauses[kind]].regions

    def left_open(self, namespaces: Mapping[str, Mapping[str, str]]) -> dict[str, list[LeftOpen]]:
        """Return what policies enforce in ``namespaces`` (labels by name) and the regions leave open, by the name of the policy."""
        inexact = {kind: self._divisions[clauses] for kind, clauses in self._clauses.items() if not self._divisions[clauses].exact}
        result: dict[str, list[LeftOpen]] = {}
        for namespace, labels in sorted(namespaces.items()) if inexact else ():
            if namespace not in UNREVIEWED_NAMESPACES:
                for policy, kinds in self._left_open_in(labels, inexact).items():
                    result.setdefault(policy, []).append(LeftOpen(namespace, tuple(sorted(kinds))))
        return result

    def _left_open_in(self, labels: Mapping[str, str], inexact: Mapping[WorkloadKind, Division]) -> dict[str, list[str]]:
        selected, result = self._selectors.selecting(labels), dict[str, list[str]]()
        for kind, division in inexact.items():
            if any(region.inside and region.contains(labels) for region in division.regions):
                continue
            for at in sorted({clause.selector for clause in self._clauses[kind] if clause.holds(selected)}):
                result.setdefault(self.policies.policies[at].name, []).append(kind.full_resource)
        return result


def may_refuse(bound: BoundRule) -> bool:
    """Tell whether a finding of the rule may refuse an object; errors in gpugate do not count."""
    rule = bound.rule
    if bound.mode is not Mode.ENFORCE:
        return False
    levels = {level_under(name, reason, bound.params, bound.levels) for name, reason in rule.reasons.items()}
    # A check that lacks facts reports its findings as unknown.
    unknown = bound.deny_on_unknown and (Level.UNKNOWN in levels or bool(rule.reasons and rule.needs))
    return Level.DENY in levels or unknown or (bound.deny_on_git_conflict and rule.mutate is not no_edits)


def _enforced(policies: PolicySet) -> Iterator[tuple[BoundRule, Clause]]:
    """Yield the rules that each policy enforces, with the namespaces: those in which no policy before it binds the rule."""
    ordered = policies.policies
    objects = [policy.spec.match.object_selector for policy in ordered]
    # The policies before each that select every object that it selects, as far as the selectors show.
    covering = [
        sum(1 << other for other in range(at) if objects[other] in (_EVERYTHING, selector)) for at, selector in enumerate(objects)
    ]
    for rule in RULES:
        bindings = [bind_rule(rule, (policy,)) for policy in ordered]
        binds = sum(1 << at for at, bound in enumerate(bindings) if bound is not None)
        for at, bound in enumerate(bindings):
            if bound is not None and ordered[at].spec.failure_policy == FAIL and may_refuse(bound):
                yield bound, Clause(at, covering[at] & binds)


def _widest(clauses: Collection[Clause]) -> Iterator[Clause]:
    """Yield ``clauses`` without those whose namespaces are all in another of the same policy."""
    for clause in sorted(clauses):
        others = (other for other in clauses if other.selector == clause.selector and other != clause)
        if not any(other.unless & clause.unless == other.unless for other in others):
            yield clause
