"""Who asks for what: accelerators and their hours by owner, project and cost centre, as workloads tell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.rules.ownership.attribution import DEFAULT_KEYS, AttributionKey, told_by
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.admission.response import cut
from gpugate.webhook.audit.model import Audit, AuditedWorkload
from gpugate.webhook.runtime.times import moment

OWNER: Final = "owner"
_FIRST: Final = tuple(one.what for one in DEFAULT_KEYS)
_RULE: Final = "attribution"
#: What a value may have at the most. Characters.
_LONGEST: Final = 253


def belongs_to(workload: Workload, bound: Iterable[BoundRule], snapshot: ClusterSnapshot, team: str) -> tuple[tuple[str, str], ...]:
    """Who the workload belongs to, by the keys that are in force for it, or else by the built-in ones.

    Where nobody tells the owner, it is the ``team``.
    """
    params = next((one.params for one in bound if one.rule.id == _RULE), None)
    keys: Sequence[AttributionKey] = DEFAULT_KEYS if params is None else getattr(params, "keys", DEFAULT_KEYS)
    found = {key.what: value for key in keys if (value := _told(workload, key, snapshot))}
    if team:
        found.setdefault(OWNER, team)
    return tuple((what, cut(value, _LONGEST)) for what, value in found.items())


def _told(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> str:
    try:
        told = told_by(workload, key, snapshot)
    except MalformedError:  # a label that is no text, which no apiserver takes
        return ""
    return "" if told is None else told.value


class OwnerShare(NamedTuple):
    """What some workloads ask for.

    Attributes:
        workloads: how many they are.
        devices: accelerators that they ask for, by name.
        so_far: device-seconds since those began that tell when they did.
        untold: how many do not tell when they began.
        until_end: device-seconds from start to end of those that state when they end.
        endless: how many state no end.
    """

    workloads: int
    devices: Mapping[str, int]
    so_far: int
    untold: int
    until_end: int
    endless: int

    @property
    def accelerators(self) -> int:
        """Accelerators of all names together."""
        return sum(self.devices.values())


class Division(NamedTuple):
    """What is asked for, divided by one thing that workloads tell.

    Attributes:
        what: what it is divided by: ``owner``.
        shares: the share of each value, empty where nobody tells it; those with most accelerators first.
    """

    what: str
    shares: Sequence[tuple[str, OwnerShare]]


def so_far(one: AuditedWorkload, now: int | None) -> int | None:
    """Device-seconds that the workload has been asking for; None where it does not tell since when."""
    found = 0
    for run in one.runs:
        if run.waits:
            continue
        if run.since is None or now is None:
            return None
        found += run.devices * max(0, now - run.since)
    return found


def until_end(one: AuditedWorkload) -> int | None:
    """Device-seconds from its start to its end; None where it states no end."""
    spans = [run.until_end for run in one.runs]
    return None if None in spans else sum(span or 0 for span in spans)


def hours(seconds: int) -> float:
    """``seconds`` in hours, to hundredths."""
    return round(seconds / 3600, 2)


def time_of(audit: Audit) -> int | None:
    """The time of the audit in seconds since 1970; None where it is none."""
    at = moment(audit.at)
    return None if at is None else int(at.timestamp())


def divisions_of(audit: Audit) -> list[Division]:
    """What is asked for by owner, and by all else that some workload tells."""
    told = {what for one in audit.workloads for what, _ in one.belongs}
    order = [*(what for what in _FIRST if what in told or what == OWNER), *sorted(told.difference(_FIRST))]
    now = time_of(audit)
    return [Division(what, _shares(audit.workloads, what, now)) for what in order] if audit.workloads else []


def _shares(workloads: Iterable[AuditedWorkload], what: str, now: int | None) -> list[tuple[str, OwnerShare]]:
    groups: dict[str, list[AuditedWorkload]] = {}
    for one in workloads:
        groups.setdefault(dict(one.belongs).get(what, ""), []).append(one)
    found = [(value, _share(ones, now)) for value, ones in groups.items()]
    return sorted(found, key=lambda pair: (-pair[1].accelerators, pair[0] == "", pair[0]))


def _share(workloads: Sequence[AuditedWorkload], now: int | None) -> OwnerShare:
    devices: Counter[str] = Counter()
    for one in workloads:
        devices.update(dict(one.devices))
    past = [so_far(one, now) for one in workloads]
    ends = [until_end(one) for one in workloads]
    return OwnerShare(
        len(workloads),
        dict(sorted(devices.items())),
        sum(one or 0 for one in past),
        past.count(None),
        sum(one or 0 for one in ends),
        ends.count(None),
    )
