"""Exempt workloads from rules: a workload requests an exemption with a reason, and the policy decides on it.

The annotations are ``gpugate.io/exempt`` (rule ids), ``gpugate.io/exempt-reason``, and optionally ``gpugate.io/exempt-until`` (the
end) and ``gpugate.io/exempt-owner`` (a contact). Every exemption is reported, and why it does not hold if so.

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
        """Tell whether the request names ``rule``."""
        return rule in self.rules or "*" in self.rules

    def has_ended(self, now: float | None) -> bool:
        """Tell whether the exemption has ended at the time ``now``; without a time, none has."""
        return now is not None and self.end is not None and now >= self.end


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


def report_of(request: ExemptionRequest, binding: BoundRule, now: float | None = None) -> Finding | None:
    """Return the report on ``request`` for one rule; its reason is ``Exempt`` if the workload is exempt, else why it is not.

    None if the request does not cover the rule. ``now`` is in seconds since 1970; without it no exemption has ended.
    """
    rule = binding.rule.id
    if not request.covers(rule):
        return None
    until = f" until {request.until:.40}" if request.until else ""
    owner = f" (contact: {request.owner:.60})" if request.owner else ""
    message = f"exempt from {rule}{until}: {request.reason.rstrip('.'):.200}{owner}"
    granted = Finding("Exempt", _PLACE, message, f"Remove {EXEMPT} when the reason no longer applies.", Level.WARN)
    return _fault(request, binding, now) or granted


def bound_without_exemption(
    workload: Workload, bound: Iterable[BoundRule], rule: str, now: float | None = None
) -> BoundRule | None:
    """Return the binding of the rule with id ``rule``; None if there is none, or if ``workload`` is exempt from the rule."""
    match = next((binding for binding in bound if binding.rule.id == rule), None)
    report = None if match is None else report_of(requested_exemption(workload), match, now)
    return None if report is not None and report.reason == "Exempt" else match


def _fault(request: ExemptionRequest, binding: BoundRule, now: float | None) -> Finding | None:
    """Return why the exemption does not hold; None if it holds."""
    rule, days = binding.rule.id, binding.longest_days
    latest = end_of_day(now, days) if now is not None and days else None
    if not binding.exemptable:
        remedy = f"Remove {rule} from {EXEMPT}, or list it under exemptions.rules of the policy."
        fault = Finding("ExemptionNotAllowed", _PLACE, f"the policy allows no exemption from {rule}", remedy)
    elif not request.reason:
        remedy = f"Write the reason in the annotation {REASON}."
        fault = Finding("ExemptionWithoutReason", _PLACE, f"the exemption from {rule} gives no reason", remedy)
    elif request.until and request.end is None:
        message = f"the exemption from {rule} ends {request.until!r:.60}, which is not a date"
        remedy = "Write a date (2026-01-31: to the end of that day in UTC) or a time (2026-01-31T18:00:00Z)."
        fault = Finding("ExemptionUnreadable", _UNTIL_PLACE, message, remedy)
    elif binding.needs_end and request.end is None:
        message = f"the policy requires that an exemption from {rule} has an end, and this exemption has none"
        remedy = f"Write the last day in the annotation {UNTIL}, such as 2026-01-31."
        fault = Finding("ExemptionWithoutEnd", _PLACE, message, remedy)
    elif request.has_ended(now):
        remedy = f"Remove {EXEMPT}, or write a later day in {UNTIL} if the reason still applies."
        fault = Finding("ExemptionEnded", _UNTIL_PLACE, f"the exemption from {rule} has ended ({request.until:.40})", remedy)
    elif latest is not None and request.end is not None and request.end > latest:
        message = f"the exemption from {rule} ends {request.until:.40}, but the policy allows an end at most {days} days ahead"
        remedy = f"Write {day_of(latest - 1)} or an earlier day in {UNTIL}, and renew the exemption before it ends."
        fault = Finding("ExemptionTooLong", _UNTIL_PLACE, message, remedy)
    else:
        return None
    return fault._replace(message=f"{fault.message}, so the rule applies", level=Level.WARN)


def unknown_rules(request: ExemptionRequest, known: Collection[str]) -> Iterator[Finding]:
    """Yield a warning for each name in ``request`` that is no rule."""
    for name in sorted(request.rules.difference(known, {"*"})):
        message = f"{EXEMPT} names {name!r:.60}, which is not a rule"
        yield Finding("UnknownRule", _PLACE, message, f"Name one of {', '.join(sorted(known))}.", Level.WARN)


def carry_to_pods(workload: Workload) -> Iterator[Edit]:
    """Yield edits that copy the exemption into the pod templates, so that their pods are exempt, too."""
    if workload.is_pod():
        return
    own = workload.annotations()
    for pods in workload.pod_sets if workload.is_whole else ():
        for key in (EXEMPT, REASON, UNTIL, OWNER):
            if type(own.get(key)) is str and key not in pods.annotations():
                note = f"{key} copied to the pods" if key == EXEMPT else ""
                yield Edit("set", pods.meta("annotations", key), own[key], note)
