"""Exempt workloads from rules: a workload requests it with a reason, and the policy allows it or not, and for how long.

The annotations are ``gpugate.io/exempt`` (rule ids), ``gpugate.io/exempt-reason``, and optionally ``gpugate.io/exempt-until`` (the
end) and ``gpugate.io/exempt-owner`` (a contact). Every exemption is reported; one that does not hold is reported with the reason.

The caller passes the time, since nothing here has a clock. How far ahead an exemption may end is measured from that time, not from
the creation of the workload: a service that runs for years may renew its exemption, and its pods, which are created later, get
the same answer as the service.
"""

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
#: Finding reasons of exemptions that do not hold though they have not ended.
REFUSED_REASONS: Final = frozenset(
    {"ExemptionNotAllowed", "ExemptionTooLong", "ExemptionUnreadable", "ExemptionWithoutEnd", "ExemptionWithoutReason"}
)


class ExemptionRequest(NamedTuple):
    """The exemptions that a workload requests.

    Attributes:
        rules: rule ids as written, ``*`` for all.
        reason: the reason; empty if there is none.
        owner: the contact; empty if there is none.
        until: the end as written; empty if there is none.
        end: the same in seconds since 1970; None if there is none, or if it cannot be read.
    """

    rules: frozenset[str]
    reason: str
    owner: str = ""
    until: str = ""
    end: int | None = None

    def covers(self, rule: str) -> bool:
        """Tell whether it names ``rule``."""
        return rule in self.rules or "*" in self.rules

    @property
    def is_readable(self) -> bool:
        """Whether the end can be read, or there is none."""
        return not self.until or self.end is not None

    def has_ended(self, now: float | None) -> bool:
        """Tell whether it has ended at the time ``now``; without a time, none has."""
        return now is not None and self.end is not None and now >= self.end


class Exempted(NamedTuple):
    """The answer to a request to be exempt from one rule.

    Attributes:
        rule: the rule.
        policy: the policy that binds it.
        holds: whether the workload is exempt.
        finding: the report; if the exemption does not hold, its reason says why.
    """

    rule: str
    policy: str
    holds: bool
    finding: Finding


_NO_REQUEST: Final = ExemptionRequest(frozenset(), "")


def requested_exemption(workload: Workload) -> ExemptionRequest:
    """Return the exemptions that ``workload`` requests.

    Raises:
        MalformedError: an annotation is no string.
    """
    written = workload.agreed(EXEMPT)
    if not written:
        return _NO_REQUEST
    rules = frozenset(name.strip() for name in written.split(",") if name.strip())
    reason, owner, until = ((workload.agreed(key) or "").strip() for key in (REASON, OWNER, UNTIL))
    return ExemptionRequest(rules, reason, owner, until, instant_of(until) if until else None)


def exempted(request: ExemptionRequest, bound: Collection[BoundRule], now: float | None = None) -> Iterator[Exempted]:
    """Yield the answer for each rule of ``bound`` that ``request`` covers.

    Args:
        request: the request of a workload.
        bound: the rules that are bound for it.
        now: the time, in seconds since 1970; without it no exemption has ended.
    """
    for binding in bound:
        if request.covers(binding.rule.id):
            finding = _fault(request, binding, now)
            yield Exempted(binding.rule.id, binding.policy, finding is None, finding or _granted(request, binding.rule.id))


def bound_without_exemption(
    workload: Workload, bound: Iterable[BoundRule], rule: str, now: float | None = None
) -> BoundRule | None:
    """Return the binding of the rule with id ``rule``; None if there is none, or if ``workload`` is exempt from the rule."""
    match = next((binding for binding in bound if binding.rule.id == rule), None)
    if match is None or any(answer.holds for answer in exempted(requested_exemption(workload), [match], now)):
        return None
    return match


def _granted(request: ExemptionRequest, rule: str) -> Finding:
    until = f" until {request.until:.40}" if request.until else ""
    owner = f" ({request.owner:.60} answers for it)" if request.owner else ""
    message = f"exempt from {rule}{until}: {request.reason.rstrip('.'):.200}{owner}"
    return Finding("Exempt", _PLACE, message, f"Remove {EXEMPT} when the reason has gone.", Level.WARN)


def _fault(request: ExemptionRequest, binding: BoundRule, now: float | None) -> Finding | None:
    """Return why the exemption does not hold; None if it holds."""
    rule = binding.rule.id
    if not binding.exemptable:
        return Finding(
            "ExemptionNotAllowed",
            _PLACE,
            f"the policy allows no exemption from {rule}: the rule applies",
            f"Remove {rule} from {EXEMPT}, or have it listed under exemptions.rules of the policy.",
            Level.WARN,
        )
    if not request.reason:
        return Finding(
            "ExemptionWithoutReason",
            _PLACE,
            f"the exemption from {rule} gives no reason: the rule applies",
            f"Write the reason in the annotation {REASON}.",
            Level.WARN,
        )
    return _fault_of_end(request, binding, now)


def _fault_of_end(request: ExemptionRequest, binding: BoundRule, now: float | None) -> Finding | None:
    rule = binding.rule.id
    if not request.is_readable:
        return Finding(
            "ExemptionUnreadable",
            _UNTIL_PLACE,
            f"the exemption from {rule} ends {request.until!r:.60}, which is no date: the rule applies",
            "Write a date (2026-01-31: to the end of that day in UTC) or a time (2026-01-31T18:00:00Z).",
            Level.WARN,
        )
    if binding.needs_end and request.end is None:
        return Finding(
            "ExemptionWithoutEnd",
            _PLACE,
            f"the policy allows exemptions from {rule} with an end alone, and this one has none: the rule applies",
            f"Write the last day in the annotation {UNTIL}, such as 2026-01-31.",
            Level.WARN,
        )
    if request.has_ended(now):
        return Finding(
            "ExemptionEnded",
            _UNTIL_PLACE,
            f"the exemption from {rule} has ended ({request.until:.40}): the rule applies",
            f"Remove {EXEMPT}, or give it a new end in {UNTIL} if the reason still stands.",
            Level.WARN,
        )
    return _too_long(request, binding, now)


def _too_long(request: ExemptionRequest, binding: BoundRule, now: float | None) -> Finding | None:
    if now is None or not binding.longest_days or request.end is None:
        return None
    latest = end_of_day(now, binding.longest_days)
    if request.end <= latest:
        return None
    return Finding(
        "ExemptionTooLong",
        _UNTIL_PLACE,
        f"the exemption from {binding.rule.id} ends {request.until:.40}, more than {binding.longest_days} days ahead,"
        " which is the most that the policy allows: the rule applies",
        f"Write {day_of(latest - 1)} or an earlier day in {UNTIL}, and renew it when it is due.",
        Level.WARN,
    )


def unknown_rules(request: ExemptionRequest, known: Collection[str]) -> Iterator[Finding]:
    """Yield a warning for each name in ``request`` that is no rule."""
    for name in sorted(request.rules.difference(known, {"*"})):
        yield Finding(
            "UnknownRule",
            _PLACE,
            f"{EXEMPT} names {name!r:.60}, which is no rule",
            f"Name one of {', '.join(sorted(known))}.",
            Level.WARN,
        )


def carry_to_pods(workload: Workload) -> Iterator[Edit]:
    """Yield edits that copy the exemption into the pod templates, so that their pods are exempt, too."""
    if workload.is_pod():
        return
    own = workload.annotations()
    for pods in workload.pod_sets if workload.is_whole else ():
        for key in (EXEMPT, REASON, UNTIL, OWNER):
            if type(own.get(key)) is str and key not in pods.annotations():
                yield Edit("set", pods.meta("annotations", key), own[key], f"{key} carried to the pods" if key == EXEMPT else "")
