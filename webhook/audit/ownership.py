"""Count requested accelerators and their hours, in total and by owner, project and cost centre."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.kube.fields import MalformedError, Path, lookup, whole_number
from gpugate.policies.rules.ownership.attribution import DEFAULT_KEYS, AttributionKey, attribution_of
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload
from gpugate.webhook.admission.response import cut
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Run
from gpugate.webhook.runtime.times import moment

OWNER: Final = "owner"
_FIRST: Final = tuple(one.what for one in DEFAULT_KEYS)
_RULE: Final = "attribution"
#: Longest value. Characters.
_LONGEST: Final = 253


def belongs_to(workload: Workload, bound: Iterable[BoundRule], snapshot: ClusterSnapshot, team: str) -> tuple[tuple[str, str], ...]:
    """Return owner, project and so on of the workload, by the attribution keys in force or the built-in ones.

    Without an owner, the owner is the ``team``.
    """
    params = next((one.params for one in bound if one.rule.id == _RULE), None)
    keys: Sequence[AttributionKey] = DEFAULT_KEYS if params is None else getattr(params, "keys", DEFAULT_KEYS)
    result = {key.what: value for key in keys if (value := _attributed(workload, key, snapshot))}
    if team:
        result.setdefault(OWNER, team)
    return tuple((what, cut(value, _LONGEST)) for what, value in result.items())


def _attributed(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> str:
    try:
        attributed = attribution_of(workload, key, snapshot)
    except MalformedError:  # a label that is no text, which no apiserver takes
        return ""
    return "" if attributed is None else attributed.value


class OwnerShare(NamedTuple):
    """Requests of a group of workloads.

    Attributes:
        workloads: number of workloads.
        devices: requested accelerators by name.
        so_far: device-seconds since the start of workloads with a known start.
        without_start: workloads without a known start.
        until_end: device-seconds from start to end of workloads with a stated end.
        without_end: workloads without a stated end.
    """

    workloads: int
    devices: Mapping[str, int]
    so_far: int
    without_start: int
    until_end: int
    without_end: int

    @property
    def accelerators(self) -> int:
        """Return the number of accelerators of all names."""
        return sum(self.devices.values())


class Division(NamedTuple):
    """Requests grouped by one attribution key.

    Attributes:
        what: the key: ``owner``.
        shares: the share of each value, most accelerators first; the value is empty for workloads without one.
    """

    what: str
    shares: Sequence[tuple[str, OwnerShare]]


def so_far(workload: AuditedWorkload, now: int | None) -> int | None:
    """Return the device-seconds since the start of the workload; None if the start is unknown."""
    result = 0
    for run in workload.runs:
        if run.waits:
            continue
        if run.since is None or now is None:
            return None
        result += run.devices * max(0, now - run.since)
    return result


def until_end(workload: AuditedWorkload) -> int | None:
    """Return the device-seconds from start to end; None without a stated end."""
    spans = [run.until_end for run in workload.runs]
    return None if None in spans else sum(span or 0 for span in spans)


def hours(seconds: int) -> float:
    """Convert ``seconds`` to hours, rounded to hundredths."""
    return round(seconds / 3600, 2)


def time_of(audit: Audit) -> int | None:
    """Return the time of the audit in seconds since 1970; None if it is invalid."""
    at = moment(audit.at)
    return None if at is None else int(at.timestamp())


def divisions_of(audit: Audit) -> list[Division]:
    """Return the requests by owner, and by every other key that a workload has."""
    attributed = {what for workload in audit.workloads for what, _ in workload.belongs}
    order = [*(what for what in _FIRST if what in attributed or what == OWNER), *sorted(attributed.difference(_FIRST))]
    now = time_of(audit)
    return [Division(what, _shares(audit.workloads, what, now)) for what in order] if audit.workloads else []


def _shares(workloads: Iterable[AuditedWorkload], what: str, now: int | None) -> list[tuple[str, OwnerShare]]:
    groups: dict[str, list[AuditedWorkload]] = {}
    for workload in workloads:
        groups.setdefault(dict(workload.belongs).get(what, ""), []).append(workload)
    result = [(value, _share(ones, now)) for value, ones in groups.items()]
    return sorted(result, key=lambda pair: (-pair[1].accelerators, pair[0] == "", pair[0]))


def _share(workloads: Sequence[AuditedWorkload], now: int | None) -> OwnerShare:
    devices: Counter[str] = Counter()
    for workload in workloads:
        devices.update(dict(workload.devices))
    past = [so_far(workload, now) for workload in workloads]
    ends = [until_end(workload) for workload in workloads]
    return OwnerShare(
        len(workloads),
        dict(sorted(devices.items())),
        sum(one or 0 for one in past),
        past.count(None),
        sum(end or 0 for end in ends),
        ends.count(None),
    )


_DEADLINE: Final = "activeDeadlineSeconds"
#: Label with the seconds after admission at which Kueue stops a workload (v0.15 ``pkg/controller/constants``).
_MOST_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
#: Ten digits are three hundred years.
_MOST_DIGITS: Final = 10


def pods_of(workload: Workload, pods: PodSet) -> int:
    """Return the largest number of concurrent pods; for a DaemonSet the number that its controller wants."""
    if pods.count is not None:
        return pods.numbers.at_once
    wanted = lookup(workload.root, ("status", "desiredNumberScheduled"))
    return wanted if type(wanted) is int else 0


def devices_of(workload: Workload, number: int) -> tuple[tuple[str, int], ...]:
    """Return the accelerators of ``number`` such workloads by name, sorted; a resource claim counts as one."""
    devices: dict[str, int] = {}
    for pods in workload.gpu_pod_sets():
        count = pods_of(workload, pods) * number
        for name, one in pods.accelerators().items():
            devices[name] = devices.get(name, 0) + one * count
        if pods.gpu_claims:
            devices["resource claims"] = devices.get("resource claims", 0) + len(pods.gpu_claims) * count
    return tuple(sorted((name, count) for name, count in devices.items() if count))


def runs_of(workload: Workload, number: int) -> tuple[Run, ...]:
    """Return the accelerators of ``number`` such workloads with the time they are requested for."""
    since, waits = _start_of(workload)
    groups: dict[bool, list[tuple[int, int]]] = {}
    for pods in workload.gpu_pod_sets():
        each = (sum(pods.accelerators().values()) + len(pods.gpu_claims)) * number
        devices = each * pods_of(workload, pods)
        if devices:
            stated = _until_end(workload, pods, each, devices)
            groups.setdefault(stated is None, []).append((devices, stated or 0))
    return tuple(
        Run(
            sum(devices for devices, _ in parts),
            since,
            sum(stated for _, stated in parts) if not without_end else None,
            waits=waits,
        )
        for without_end, parts in sorted(groups.items())
    )


def _start_of(workload: Workload) -> tuple[int | None, bool]:
    """Return the start of the pods, and whether the object shows that they have not started."""
    kind, root = workload.kind, workload.root
    if kind.scheduled:  # its Jobs run, now and then
        return None, False
    if kind.suspend is not None and lookup(root, kind.suspend) is True:
        return None, True
    made = _seconds(workload.metadata().get("creationTimestamp"))
    if kind.reports_start:
        begun = _seconds(lookup(root, ("status", "startTime")))
        return (begun, False) if begun is not None else (None, made is not None)
    return max((one for one in (made, _resumed(root)) if one is not None), default=None), False


def _resumed(root: dict[str, Any]) -> int | None:
    """Return the time of the last resume after a suspension."""
    conditions = lookup(root, ("status", "conditions"))
    for condition in conditions if type(conditions) is list else ():
        if type(condition) is dict and condition.get("type") == "Suspended" and condition.get("status") == "False":
            return _seconds(condition.get("lastTransitionTime"))
    return None


def _seconds(text: object) -> int | None:
    result = moment(text) if isinstance(text, str) else None
    return None if result is None else int(result.timestamp())


def _until_end(workload: Workload, pods: PodSet, each: int, devices: int) -> int | None:
    """Return device-seconds from start to the stated end; None without one."""
    result = [devices * seconds for seconds in _ends_of_all(workload, pods)]
    own = _span(pods.spec.get(_DEADLINE))
    if own:
        # Each pod has its own deadline; consecutive pods have theirs one after another.
        total, child, completions = pods.numbers.total, pods.numbers.child, pods.numbers.completions
        in_turn = each * (total // child) * completions if total and child and completions else 0
        result.append(max(devices, in_turn) * own)
    return min(result, default=None)


def _ends_of_all(workload: Workload, pods: PodSet) -> Iterator[int]:
    """Yield the deadlines of all parents of the pods."""
    path = pods.path
    holders: list[Path] = [path[:depth] for depth in range(1, len(path))]
    holders += [(*holder, "runPolicy") for holder in holders]
    for holder in holders:
        seconds = _span(lookup(workload.root, (*holder, _DEADLINE)))
        if seconds:
            yield seconds
    most = whole_number(workload.labels().get(_MOST_SECONDS), _MOST_DIGITS)
    if most:
        yield most


def _span(value: Any) -> int:  # noqa: ANN401 - any JSON value
    """Return the seconds of a deadline; 0 without one."""
    return value if type(value) is int and 0 < value < 10**_MOST_DIGITS else 0
