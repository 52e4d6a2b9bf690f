"""Find the namespaces that each policy selects, and the rules that it binds in them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet, mode_of
from gpugate.policies.policy.models import LabelSelector, Policy
from gpugate.policies.rules.registry import RULES

_EVERYTHING: Final = LabelSelector()


class PolicyCoverage(NamedTuple):
    """The namespaces and rules of one policy.

    Attributes:
        namespaces: how many namespaces it selects.
        modes: how many rules it binds for some object in one of them, by mode.
        speaks_for: how many rules it has a mode for.
        shadowed_by: names of the policies that take precedence for rules that it has a mode for, sorted.
    """

    namespaces: int
    modes: Mapping[Mode, int]
    speaks_for: int
    shadowed_by: tuple[str, ...]

    @property
    def rules(self) -> str:
        """How many rules it binds, by mode: ``12 Enforce, 3 DryRun``."""
        return ", ".join(f"{self.modes[mode]} {mode.value}" for mode in Mode if self.modes.get(mode))


def reach_of(policies: PolicySet, namespaces: Mapping[str, Mapping[str, str]]) -> dict[str, PolicyCoverage]:
    """Return the coverage of each of ``policies`` by its name; ``namespaces`` has labels by name."""
    ordered = policies.policies
    selectors = [policy.spec.match.namespace_selector for policy in ordered]
    # Namespaces that the same policies select are one case.
    cases = Counter(
        tuple(selector == _EVERYTHING or selector.matches(labels) for selector in selectors) for labels in namespaces.values()
    )
    modes = [{rule.id: mode for rule in RULES if (mode := mode_of(policy, rule)) is not None} for policy in ordered]
    return {policy.name: _coverage(at, ordered, modes, cases) for at, policy in enumerate(ordered)}


def _coverage(
    at: int, ordered: Sequence[Policy], modes: Sequence[Mapping[str, Mode]], cases: Mapping[tuple[bool, ...], int]
) -> PolicyCoverage:
    own, bound, shadowed_by = modes[at], set[str](), set[str]()
    for selected in cases:
        if not selected[at]:
            continue
        first = [other for other in range(at) if selected[other] and _covers(ordered[other], ordered[at])]
        for rule in own:
            before = [ordered[other].name for other in first if rule in modes[other]]
            shadowed_by.update(before[:1])
            if not before:
                bound.add(rule)
    number = sum(count for selected, count in cases.items() if selected[at])
    return PolicyCoverage(number, Counter(own[rule] for rule in bound), len(own), tuple(sorted(shadowed_by)))


def _covers(other: Policy, policy: Policy) -> bool:
    """Tell whether ``other`` selects every object that ``policy`` does, as far as the selectors show."""
    return other.spec.match.object_selector in (_EVERYTHING, policy.spec.match.object_selector)
