"""Exemptions: a workload asks to be left alone by a rule, with a reason, and the policy says whether it may, and for how long.

The annotations are ``gpugate.io/exempt`` (rule ids), ``gpugate.io/exempt-reason``, and where it applies ``gpugate.io/exempt-until``
(when it ends) and ``gpugate.io/exempt-owner`` (who answers for it). Every exemption is reported, and so is every one that does
not hold, with why.

Whether one has ended is asked with the time of the question, which the caller brings: nothing here has a clock. How far ahead it
may end is measured from that time, too, and not from the making of the workload: a service that runs for years may renew its
exemption again and again, and its pods, made later, get the same answer as itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.kube.times import day_of, end_of_day, instant_of
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.workload import Workload

EXEMPT: Final = "gpugate.io/exempt"
REASON: Final = "gpugate.io/exempt-reason"
UNTIL: Final = "gpugate.io/exempt-until"
OWNER: Final = "gpugate.io/exempt-owner"
_PLACE: Final = ("metadata", "annotations", EXEMPT)
_UNTIL_PLACE: Final = ("metadata", "annotations", UNTIL)
#: Reasons for which an exemption does not hold, though it has not ended.
REFUSED_REASONS: Final = frozenset(
    {"ExemptionNotAllowed", "ExemptionTooLong", "ExemptionUnreadable", "ExemptionWithoutEnd", "ExemptionWithoutReason"}
)


class ExemptionRequest(NamedTuple):
    """What a workload asks to be exempt from.

    Attributes:
        rules: rule ids as written, ``*`` for all.
        reason: why, empty where it gives none.
        owner: who answers for it, empty where nobody is named.
        until: when it ends, as written; empty where it has no end.
        end: the same in seconds since 1970; None where it has no end, or cannot be read.
    """

    rules: frozenset[str]
    reason: str
    owner: str = ""
    until: str = ""
    end: int | None = None

    def covers(self, rule: str) -> bool:
        """Whether it asks to be exempt from ``rule``."""
        return rule in self.rules or "*" in self.rules

    @property
    def is_readable(self) -> bool:
        """Whether it is known when it ends."""
        return not self.until or self.end is not None

    def has_ended(self, now: float | None) -> bool:
        """Whether it has ended at the time ``now``; without a time nothing has."""
        return now is not None and self.end is not None and now >= self.end


class Exempted(NamedTuple):
    """How one rule stands to a workload that asks to be exempt from it.

    Attributes:
        rule: the rule.
        policy: the policy that binds it.
        holds: whether the rule leaves the workload alone.
        finding: what is reported of it; its reason says why the exemption does not hold.
    """

    rule: str
    policy: str
    holds: bool
    finding: Finding


NO_PLEA: Final = ExemptionRequest(frozenset(), "")


def requested_exemption(workload: Workload) -> ExemptionRequest:
    """The exemptions that ``workload`` asks for.

    Raises:
        MalformedError: an annotation is no string.
    """
    written = workload.agreed(EXEMPT)
    if not written:
        return NO_PLEA
    rules = frozenset(name.strip() for name in written.split(",") if name.strip())
    reason, owner, until = ((workload.agreed(key) or "").strip() for key in (REASON, OWNER, UNTIL))
    return ExemptionRequest(rules, reason, owner, until, instant_of(until) if until else None)


def exempted(plea: ExemptionRequest, bound: Collection[BoundRule], now: float | None = None) -> Iterator[Exempted]:
    """How each rule of ``bound`` that ``plea`` covers stands to it.

    Args:
        plea: what a workload asks for.
        bound: the rules that are bound for it.
        now: the time of the question, seconds since 1970; without it no end is judged.
    """
    for one in bound:
        if plea.covers(one.rule.id):
            finding = _fault(plea, one, now)
            yield Exempted(one.rule.id, one.policy, finding is None, finding or _granted(plea, one.rule.id))


def bound_without_exemption(
    workload: Workload, bound: Iterable[BoundRule], rule: str, now: float | None = None
) -> BoundRule | None:
    """The rule with id ``rule`` as it is bound for ``workload``; None where it is not, or the workload is exempt from it."""
    found = next((one for one in bound if one.rule.id == rule), None)
    if found is None or any(one.holds for one in exempted(requested_exemption(workload), [found], now)):
        return None
    return found


def _granted(plea: ExemptionRequest, rule: str) -> Finding:
    until = f" until {plea.until:.40}" if plea.until else ""
    owner = f" ({plea.owner:.60} answers for it)" if plea.owner else ""
    message = f"exempt from {rule}{until}: {plea.reason.rstrip('.'):.200}{owner}"
    return Finding("Exempt", _PLACE, message, f"Remove {EXEMPT} when the reason has gone.", Level.WARN)


def _fault(plea: ExemptionRequest, one: BoundRule, now: float | None) -> Finding | None:
    """Why the exemption does not hold; None where it does."""
    rule = one.rule.id
    if not one.exemptable:
        return Finding(
            "ExemptionNotAllowed",
            _PLACE,
            f"the policy allows no exemption from {rule}: the rule applies",
            f"Remove {rule} from {EXEMPT}, or have it listed under exemptions.rules of the policy.",
            Level.WARN,
        )
    if not plea.reason:
        return Finding(
            "ExemptionWithoutReason",
            _PLACE,
            f"the exemption from {rule} gives no reason: the rule applies",
            f"Write the reason in the annotation {REASON}.",
            Level.WARN,
        )
    return _fault_of_end(plea, one, now)


def _fault_of_end(plea: ExemptionRequest, one: BoundRule, now: float | None) -> Finding | None:
    rule = one.rule.id
    if not plea.is_readable:
        return Finding(
            "ExemptionUnreadable",
            _UNTIL_PLACE,
            f"the exemption from {rule} ends {plea.until!r:.60}, which is no date: the rule applies",
            "Write a date (2026-01-31: to the end of that day in UTC) or a time (2026-01-31T18:00:00Z).",
            Level.WARN,
        )
    if one.needs_end and plea.end is None:
        return Finding(
            "ExemptionWithoutEnd",
            _PLACE,
            f"the policy allows exemptions from {rule} with an end alone, and this one has none: the rule applies",
            f"Write the last day in the annotation {UNTIL}, such as 2026-01-31.",
            Level.WARN,
        )
    if plea.has_ended(now):
        return Finding(
            "ExemptionEnded",
            _UNTIL_PLACE,
            f"the exemption from {rule} has ended ({plea.until:.40}): the rule applies",
            f"Remove {EXEMPT}, or give it a new end in {UNTIL} if the reason still stands.",
            Level.WARN,
        )
    return _too_long(plea, one, now)


def _too_long(plea: ExemptionRequest, one: BoundRule, now: float | None) -> Finding | None:
    if now is None or not one.longest_days or plea.end is None:
        return None
    latest = end_of_day(now, one.longest_days)
    if plea.end <= latest:
        return None
    return Finding(
        "ExemptionTooLong",
        _UNTIL_PLACE,
        f"the exemption from {one.rule.id} ends {plea.until:.40}, more than {one.longest_days} days ahead, which is the most"
        " that the policy allows: the rule applies",
        f"Write {day_of(latest - 1)} or an earlier day in {UNTIL}, and renew it when it is due.",
        Level.WARN,
    )


def unknown_rules(plea: ExemptionRequest, known: Collection[str]) -> Iterator[Finding]:
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
        for key in (EXEMPT, REASON, UNTIL, OWNER):
            if type(own.get(key)) is str and key not in pods.annotations():
                yield Edit("set", pods.meta("annotations", key), own[key], f"{key} carried to the pods" if key == EXEMPT else "")
