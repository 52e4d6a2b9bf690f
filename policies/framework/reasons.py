"""The reasons of a rule's findings: each declared once, with the action that the policy takes on it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.params import Params
from gpugate.policies.workloads.workload import Workload

#: What a policy does about a finding: refuse the object, warn, or drop the finding. The type of parameters that choose it.
Action: TypeAlias = Literal["Deny", "Warn", "Allow"]
#: The same in the order in which some parameters list their values in the CRD, the weakest first.
Reaction: TypeAlias = Literal["Allow", "Warn", "Deny"]

#: Actions that a declaration fixes, and the level that each gives. ``Unknown``: gpugate lacks the facts to decide.
FIXED_ACTIONS: Final[Mapping[str, Level]] = {"Deny": Level.DENY, "Warn": Level.WARN, "Unknown": Level.UNKNOWN}
#: Values of parameters that are weaker than Deny; every other value (``Write``, ``True``) refuses.
_WEAKER: Final[Mapping[object, Level | None]] = {
    "Warn": Level.WARN,
    "Report": Level.WARN,
    False: Level.WARN,
    "Allow": None,
    "Ignore": None,
}


@dataclass(frozen=True, slots=True)
class Reason:
    """The declaration of one reason.

    Attributes:
        title: one plain sentence for the reference.
        action: ``Deny``, ``Warn``, ``Unknown``, or the field of the rule's parameters that holds the action.
        facts: plural resource names of the facts that the finding rests on, besides those that it names itself.
        warns: when a check itself lowers the action to a warning, as the end of "a warning if ..."; empty if it never does.
        owner_reviewed_warns: whether the finding is a warning on a pod whose owner gpugate has reviewed.
    """

    title: str
    action: str = "Deny"
    facts: tuple[str, ...] = ()
    warns: str = ""
    owner_reviewed_warns: bool = False

    def level(self, params: Params) -> Level | None:
        """Return the level that ``params`` give the finding; None if they allow it."""
        fixed = FIXED_ACTIONS.get(self.action)
        return _WEAKER.get(getattr(params, self.action), Level.DENY) if fixed is None else fixed

    def may_be(self, level: Level) -> bool:
        """Return whether a finding can have ``level`` before the engine relaxes it."""
        fixed = FIXED_ACTIONS.get(self.action)
        if level is Level.WARN and (self.warns or self.owner_reviewed_warns):
            return True
        return level is fixed if fixed is not None else level is not Level.UNKNOWN


#: No reason has a level of its own.
NO_LEVELS: Final[Mapping[str, Level | None]] = MappingProxyType({})
#: Reasons that the engine reports for any rule.
ENGINE_REASONS: Final[Mapping[str, Reason]] = {
    "Exempt": Reason("The workload is exempt from the rule.", action="Warn"),
    "ExemptionEnded": Reason("The exemption has ended.", action="Warn"),
    "ExemptionNotAllowed": Reason("The policy allows no exemption from the rule.", action="Warn"),
    "ExemptionTooLong": Reason("The exemption ends later than the policy allows.", action="Warn"),
    "ExemptionUnreadable": Reason("The end of the exemption is not a date.", action="Warn"),
    "ExemptionWithoutEnd": Reason("The policy requires an end, and the exemption has none.", action="Warn"),
    "ExemptionWithoutReason": Reason("The exemption states no reason.", action="Warn"),
    "HeldBack": Reason(
        "gpugate does not make an edit that Git, the owner or Kueue would undo.", warns="`onGitConflict` is not Refuse"
    ),
    "InternalError": Reason("The rule failed because of an error in gpugate."),
    "UnknownRule": Reason("The exemption names a rule that does not exist.", action="Warn"),
}


def levels_of(actions: Mapping[str, str | None]) -> dict[str, Level | None]:
    """Return the level that each of ``actions`` gives the findings of its reason; None drops them."""
    return {reason: _WEAKER.get(action, Level.DENY) for reason, action in actions.items() if action is not None}


def level_under(name: str, reason: Reason, params: Params, levels: Mapping[str, Level | None]) -> Level | None:
    """Return the level of the findings of ``reason``: the one that ``levels`` state, else that of ``params``; None drops them."""
    return levels[name] if name in levels else reason.level(params)


def apply_reasons(
    findings: Iterable[Finding],
    reasons: Mapping[str, Reason],
    params: Params,
    workload: Workload,
    levels: Mapping[str, Level | None],
) -> Iterator[Finding]:
    """Yield ``findings`` with the level and facts of their ``reasons``, without those that the policy allows.

    ``levels`` are those that the policy states by reason; ``params`` give the others.

    A check states a level only where it lowers the declared action.

    Raises:
        KeyError: a finding has an undeclared reason.
    """
    for finding in findings:
        reason = reasons[finding.reason]
        stated = level_under(finding.reason, reason, params, levels)
        if stated is None and finding.level is not Level.UNKNOWN:
            continue
        level = stated if stated is not None and finding.level is Level.DENY else finding.level
        if level is Level.DENY and reason.owner_reviewed_warns and workload.owner_was_reviewed():
            level = Level.WARN
        facts = () if level is Level.UNKNOWN else reason.facts
        yield finding._replace(level=level, rests_on=tuple(dict.fromkeys((*facts, *finding.rests_on))))
