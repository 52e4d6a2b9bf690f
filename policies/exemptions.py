"""Exemptions: a workload asks to be left alone by a rule, with a reason, and the policy says whether it may."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from gpugate.policies.edits import Edit
from gpugate.policies.finding import Finding, Level
from gpugate.policies.workload import Workload

EXEMPT: Final = "gpugate.io/exempt"
REASON: Final = "gpugate.io/exempt-reason"
_PLACE: Final = ("metadata", "annotations", EXEMPT)


class Plea(NamedTuple):
    """What a workload asks to be exempt from.

    Attributes:
        rules: rule ids as written, ``*`` for all.
        reason: why, empty where it gives none.
    """

    rules: frozenset[str]
    reason: str

    def covers(self, rule: str) -> bool:
        """Whether it asks to be exempt from ``rule``."""
        return rule in self.rules or "*" in self.rules


NO_PLEA: Final = Plea(frozenset(), "")


def plea_of(workload: Workload) -> Plea:
    """The exemptions that ``workload`` asks for.

    Raises:
        MalformedError: the annotation is no string.
    """
    written = workload.agreed(EXEMPT)
    if not written:
        return NO_PLEA
    rules = frozenset(name.strip() for name in written.split(",") if name.strip())
    return Plea(rules, (workload.agreed(REASON) or "").strip())


def answer(plea: Plea, rule: str, *, allowed: bool) -> tuple[bool, Finding | None]:
    """Whether ``rule`` leaves the workload alone, and what is reported of it."""
    if not plea.covers(rule):
        return False, None
    if not allowed:
        return False, Finding(
            "ExemptionNotAllowed",
            _PLACE,
            f"the policy allows no exemption from {rule}: the rule applies",
            f"Remove {rule} from {EXEMPT}, or have it listed under exemptions.rules of the policy.",
            Level.WARN,
        )
    if not plea.reason:
        return False, Finding(
            "ExemptionWithoutReason",
            _PLACE,
            f"the exemption from {rule} gives no reason: the rule applies",
            f"Write the reason in the annotation {REASON}.",
            Level.WARN,
        )
    return True, Finding(
        "Exempt",
        _PLACE,
        f"exempt from {rule}: {plea.reason.rstrip('.'):.200}",
        f"Remove {EXEMPT} when the reason has gone.",
        Level.WARN,
    )


def unknown_rules(plea: Plea, known: Collection[str]) -> Iterator[Finding]:
    """A warning for each name in ``plea`` that is no rule."""
    for name in sorted(plea.rules.difference(known, {"*"})):
        yield Finding(
            "UnknownRule",
            _PLACE,
            f"{EXEMPT} names {name!r:.60}, which is no rule",
            f"Name one of {', '.join(sorted(known))}.",
            Level.WARN,
        )


def carry_to_pods(workload: Workload) -> Iterator[Edit]:
    """Edits that copy the exemption onto the pod templates, so that the pods made from them are exempt, too."""
    if workload.is_pod():
        return
    own = workload.annotations()
    for pods in workload.pod_sets if workload.is_whole else ():
        for key in (EXEMPT, REASON):
            if type(own.get(key)) is str and key not in pods.annotations():
                yield Edit("set", pods.meta("annotations", key), own[key], f"{key} carried to the pods" if key == EXEMPT else "")
