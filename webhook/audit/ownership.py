"""Who asks for what: accelerators and their hours by owner, project and cost centre, as workloads tell them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.kube.fields import MalformedError, Path, lookup
from gpugate.policies.rules.ownership.attribution.keys import DEFAULT_KEYS, AttributionKey, told_by
from gpugate.policies.workloads.kinds import CRON_JOB, JOB, KINDS, POD, RAY_JOB
from gpugate.policies.workloads.workload import PodSet, Workload
from gpugate.webhook.admission.response import cut
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Run
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
    found = {key.what: value for key in keys if (value := _attributed(workload, key, snapshot))}
    if team:
        found.setdefault(OWNER, team)
    return tuple((what, cut(value, _LONGEST)) for what, value in found.items())


def _attributed(workload: Workload, key: AttributionKey, snapshot: ClusterSnapshot) -> str:
    try:
        attributed = told_by(workload, key, snapshot)
    except MalformedError:  # a label that is no text, which no apiserver takes
        return ""
    return "" if attributed is None else attributed.value


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
    without_start: int
    until_end: int
    without_end: int

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
    attributed = {what for one in audit.workloads for what, _ in one.belongs}
    order = [*(what for what in _FIRST if what in attributed or what == OWNER), *sorted(attributed.difference(_FIRST))]
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


#: Kinds whose status tells when their pods began (``status.startTime``); before that they hold nothing.
_TELL_START: Final = frozenset({POD, JOB, RAY_JOB, *(kind for kind in KINDS if kind.group == "kubeflow.org")})
_DEADLINE: Final = "activeDeadlineSeconds"
#: The label by which Kueue ends a workload so long after its admission (v0.15 ``pkg/controller/constants``).
_MOST_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
#: Ten digits are three hundred years.
_MOST_DIGITS: Final = 10


def pods_of(workload: Workload, pods: PodSet) -> int:
    """How many pods there are at most at one time; of a DaemonSet, how many its controller says that there should be."""
    if pods.count is not None:
        return pods.numbers.at_once
    wanted = lookup(workload.root, ("status", "desiredNumberScheduled"))
    return wanted if type(wanted) is int else 0


def devices_of(workload: Workload, number: int) -> tuple[tuple[str, int], ...]:
    """Accelerators of ``number`` such workloads by name, sorted; a claim of dynamic resource allocation counts as one."""
    found: dict[str, int] = {}
    for pods in workload.gpu_pod_sets():
        count = pods_of(workload, pods) * number
        for name, one in pods.accelerators().items():
            found[name] = found.get(name, 0) + one * count
        if pods.gpu_claims:
            found["resource claims"] = found.get("resource claims", 0) + len(pods.gpu_claims) * count
    return tuple(sorted((name, count) for name, count in found.items() if count))


def runs_of(workload: Workload, number: int) -> tuple[Run, ...]:
    """The accelerators of ``number`` such workloads with the time that they are asked for."""
    since, waits = _start_of(workload)
    found: dict[bool, list[tuple[int, int]]] = {}
    for pods in workload.gpu_pod_sets():
        each = (sum(pods.accelerators().values()) + len(pods.gpu_claims)) * number
        devices = each * pods_of(workload, pods)
        if devices:
            stated = _until_end(workload, pods, each, devices)
            found.setdefault(stated is None, []).append((devices, stated or 0))
    return tuple(
        Run(
            sum(devices for devices, _ in parts),
            since,
            sum(stated for _, stated in parts) if not without_end else None,
            waits=waits,
        )
        for without_end, parts in sorted(found.items())
    )


def _start_of(workload: Workload) -> tuple[int | None, bool]:
    """When the pods began, as far as the object tells, and whether it tells that they have not."""
    kind, root = workload.kind, workload.root
    if kind is CRON_JOB:  # its Jobs run, now and then
        return None, False
    if kind.suspend is not None and lookup(root, kind.suspend) is True:
        return None, True
    made = _seconds(workload.metadata().get("creationTimestamp"))
    if kind in _TELL_START:
        begun = _seconds(lookup(root, ("status", "startTime")))
        return (begun, False) if begun is not None else (None, made is not None)
    return max((one for one in (made, _resumed(root)) if one is not None), default=None), False


def _resumed(root: dict[str, Any]) -> int | None:
    """When the object says that it was last suspended no longer."""
    conditions = lookup(root, ("status", "conditions"))
    for one in conditions if type(conditions) is list else ():
        if type(one) is dict and one.get("type") == "Suspended" and one.get("status") == "False":
            return _seconds(one.get("lastTransitionTime"))
    return None


def _seconds(text: object) -> int | None:
    found = moment(text) if isinstance(text, str) else None
    return None if found is None else int(found.timestamp())


def _until_end(workload: Workload, pods: PodSet, each: int, devices: int) -> int | None:
    """Device-seconds from the start to the end that is stated; None where none is."""
    found = [devices * seconds for seconds in _ends_of_all(workload, pods)]
    own = _span(pods.spec.get(_DEADLINE))
    if own:
        # Each pod has its own; those that come one after the other have it in turn.
        total, child, completions = pods.numbers.total, pods.numbers.child, pods.numbers.completions
        in_turn = each * (total // child) * completions if total and child and completions else 0
        found.append(max(devices, in_turn) * own)
    return min(found, default=None)


def _ends_of_all(workload: Workload, pods: PodSet) -> Iterator[int]:
    """The spans after which what holds the pods ends."""
    path = pods.path
    holders: list[Path] = [path[:depth] for depth in range(1, len(path))]
    holders += [(*holder, "runPolicy") for holder in holders]
    for holder in holders:
        seconds = _span(lookup(workload.root, (*holder, _DEADLINE)))
        if seconds:
            yield seconds
    label = workload.labels().get(_MOST_SECONDS)
    if type(label) is str and label.isascii() and label.isdigit() and len(label) <= _MOST_DIGITS and int(label):
        yield int(label)


def _span(value: Any) -> int:  # noqa: ANN401 - any JSON value
    """The seconds of a deadline; zero where there is none."""
    return value if type(value) is int and 0 < value < 10**_MOST_DIGITS else 0
