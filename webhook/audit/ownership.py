"""Count requested accelerators and their hours, in total and by owner, project and cost centre."""

from collections import Counter, defaultdict
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
_DEFAULT_ORDER: Final = tuple(key.what for key in DEFAULT_KEYS)
_RULE: Final = "attribution"
#: Longest value. Characters.
_MAX_LENGTH: Final = 253


def belongs_to(workload: Workload, bound: Iterable[BoundRule], snapshot: ClusterSnapshot, team: str) -> tuple[tuple[str, str], ...]:
    """Return owner, project and so on of the workload, by the attribution keys in force or the built-in ones.

    Without an owner, the owner is the ``team``.
    """
    params = next((rule.params for rule in bound if rule.rule.id == _RULE), None)
    keys: Sequence[AttributionKey] = DEFAULT_KEYS if params is None else getattr(params, "keys", DEFAULT_KEYS)
    result = {key.what: value for key in keys if (value := _attributed(workload, key, snapshot))}
    if team:
        result.setdefault(OWNER, team)
    return tuple((what, cut(value, _MAX_LENGTH)) for what, value in result.items())


def _attributed(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> str:
    try:
        attributed = attribution_of(workload, key, snapshot)
    except MalformedError:  # a label that is not a string, which an apiserver rejects
        return ""
    return "" if attributed is None else attributed.value


class OwnerShare(NamedTuple):
    """Requests of a group of workloads; ``so_far`` and ``until_end`` are device-seconds, of workloads with a known start or end."""

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
    """Requests grouped by one attribution key, most accelerators first; the empty value is for workloads without one."""

    what: str
    shares: Sequence[tuple[str, OwnerShare]]


def so_far(workload: AuditedWorkload, now: int | None) -> int | None:
    """Return the device-seconds since the start of the workload; None if the start is unknown."""
    spans = [
        None if run.since is None or now is None else run.devices * max(0, now - run.since)
        for run in workload.runs
        if not run.waits
    ]
    return None if None in spans else sum(span or 0 for span in spans)


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
    order = [what for what in _DEFAULT_ORDER if what in attributed or what == OWNER]
    order += sorted(attributed.difference(_DEFAULT_ORDER))
    now = time_of(audit)
    return [Division(what, _shares(audit.workloads, what, now)) for what in order] if audit.workloads else []


def _shares(workloads: Iterable[AuditedWorkload], what: str, now: int | None) -> list[tuple[str, OwnerShare]]:
    groups: defaultdict[str, list[AuditedWorkload]] = defaultdict(list)
    for workload in workloads:
        groups[dict(workload.belongs).get(what, "")].append(workload)
    shares = [(value, _share(group, now)) for value, group in groups.items()]
    return sorted(shares, key=lambda pair: (-pair[1].accelerators, pair[0] == "", pair[0]))


def _share(workloads: Sequence[AuditedWorkload], now: int | None) -> OwnerShare:
    devices: Counter[str] = Counter()
    for workload in workloads:
        devices.update(dict(workload.devices))
    past = [so_far(workload, now) for workload in workloads]
    ends = [until_end(workload) for workload in workloads]
    return OwnerShare(
        len(workloads),
        dict(sorted(devices.items())),
        sum(span or 0 for span in past),
        past.count(None),
        sum(span or 0 for span in ends),
        ends.count(None),
    )


_DEADLINE: Final = "activeDeadlineSeconds"
#: Label with the seconds after admission at which Kueue stops a workload (v0.15 ``pkg/controller/constants``).
_MAX_SECONDS_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
#: Ten digits are three hundred years.
_MAX_DIGITS: Final = 10


def pods_of(workload: Workload, pods: PodSet) -> int:
    """Return the largest number of concurrent pods; for a DaemonSet its ``desiredNumberScheduled``."""
    if pods.count is not None:
        return pods.numbers.at_once
    desired = lookup(workload.root, ("status", "desiredNumberScheduled"))
    return desired if type(desired) is int else 0


def devices_of(workload: Workload, number: int) -> tuple[tuple[str, int], ...]:
    """Return the accelerators of ``number`` such workloads by name, sorted; a resource claim counts as one."""
    devices: Counter[str] = Counter()
    for pods in workload.gpu_pod_sets():
        count = pods_of(workload, pods) * number
        for name, each in (*pods.accelerators().items(), ("resource claims", len(pods.gpu_claims))):
            devices[name] += each * count
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
        Run(sum(devices for devices, _ in parts), since, None if without_end else sum(end for _, end in parts), waits=waits)
        for without_end, parts in sorted(groups.items())
    )


def _start_of(workload: Workload) -> tuple[int | None, bool]:
    """Return the start of the pods, and whether the object shows that they have not started."""
    kind, root = workload.kind, workload.root
    if kind.scheduled:  # its Jobs run at their times
        return None, False
    if kind.suspend is not None and lookup(root, kind.suspend) is True:
        return None, True
    created = _seconds(workload.metadata().get("creationTimestamp"))
    if kind.reports_start:
        started = _seconds(lookup(root, ("status", "startTime")))
        return started, started is None and created is not None
    return max((time for time in (created, _resumed(root)) if time is not None), default=None), False


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
    ends = [devices * seconds for seconds in _deadlines(workload, pods)]
    own = _span(pods.spec.get(_DEADLINE))
    if own:
        # Each pod has its own deadline; consecutive pods have theirs one after another.
        total, child, completions = pods.numbers.total, pods.numbers.child, pods.numbers.completions
        in_turn = each * (total // child) * completions if total and child and completions else 0
        ends.append(max(devices, in_turn) * own)
    return min(ends, default=None)


def _deadlines(workload: Workload, pods: PodSet) -> Iterator[int]:
    """Yield the deadlines of all parents of the pods, in seconds."""
    path = pods.path
    parents: list[Path] = [path[:depth] for depth in range(1, len(path))]
    parents += [(*parent, "runPolicy") for parent in parents]
    for parent in parents:
        seconds = _span(lookup(workload.root, (*parent, _DEADLINE)))
        if seconds:
            yield seconds
    maximum = whole_number(workload.labels().get(_MAX_SECONDS_LABEL), _MAX_DIGITS)
    if maximum:
        yield maximum


def _span(value: Any) -> int:  # noqa: ANN401 - any JSON value
    """Return the seconds of a deadline; 0 without one."""
    return value if type(value) is int and 0 < value < 10**_MAX_DIGITS else 0
