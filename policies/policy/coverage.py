"""How far each policy reaches: the namespaces that it selects, and the rules that it binds in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet, mode_of
from gpugate.policies.policy.models import LabelSelector, Policy
from gpugate.policies.rules.registry import RULES

_EVERYTHING: Final = LabelSelector()


class PolicyCoverage(NamedTuple):
    """How far one policy reaches.

    Attributes:
        namespaces: how many namespaces it selects.
        modes: how many rules it binds for some object in one of them, by mode.
        speaks_for: how many rules it has something to say of.
        shadowed_by: the policies that go before it for rules that it would bind, sorted.
    """

    namespaces: int
    modes: Mapping[Mode, int]
    speaks_for: int
    shadowed_by: tuple[str, ...]

    @property
    def rules(self) -> str:
        """The rules that it binds, by mode, such as ``12 Enforce, 3 DryRun``."""
        return ", ".join(f"{self.modes[mode]} {mode.value}" for mode in Mode if self.modes.get(mode))


def reach_of(policies: PolicySet, namespaces: Mapping[str, Mapping[str, str]]) -> dict[str, PolicyCoverage]:
    """How far each of ``policies`` reaches in ``namespaces``, labels by name; by the name of the policy."""
    ordered = policies.policies
    selectors = [one.spec.match.namespace_selector for one in ordered]
    # Many namespaces are selected by the same policies: they are one case.
    cases = Counter(
        tuple(selector == _EVERYTHING or selector.matches(labels) for selector in selectors) for labels in namespaces.values()
    )
    modes = [{rule.id: mode for rule in RULES if (mode := mode_of(one, rule)) is not None} for one in ordered]
    return {one.name: _reach(at, ordered, modes, cases) for at, one in enumerate(ordered)}


def _reach(
    at: int, ordered: Sequence[Policy], modes: Sequence[Mapping[str, Mode]], cases: Mapping[tuple[bool, ...], int]
) -> PolicyCoverage:
    own, bound, behind = modes[at], set[str](), set[str]()
    for selected in cases:
        if not selected[at]:
            continue
        first = [other for other in range(at) if selected[other] and _covers(ordered[other], ordered[at])]
        for rule in own:
            before = [ordered[other].name for other in first if rule in modes[other]]
            behind.update(before[:1])
            if not before:
                bound.add(rule)
    number = sum(count for selected, count in cases.items() if selected[at])
    return PolicyCoverage(number, Counter(own[rule] for rule in bound), len(own), tuple(sorted(behind)))


def _covers(other: Policy, one: Policy) -> bool:
    """Whether ``other`` selects every object that ``one`` does, as far as their selectors show."""
    return other.spec.match.object_selector in (_EVERYTHING, one.spec.match.object_selector)
