"""What a workload asks for: how many pods and accelerators, since when, and until when it says that it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpugate.policies.kube.fields import Path, lookup, whole_number
from gpugate.policies.workloads.workload import PodSet, Workload
from gpugate.webhook.audit.model import Run
from gpugate.webhook.runtime.times import moment

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
        Run(sum(devices for devices, _ in parts), since, sum(stated for _, stated in parts) if not endless else None, waits=waits)
        for endless, parts in sorted(found.items())
    )


def _start_of(workload: Workload) -> tuple[int | None, bool]:
    """When the pods began, as far as the object tells, and whether it tells that they have not."""
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
    most = whole_number(workload.labels().get(_MOST_SECONDS), _MOST_DIGITS)
    if most:
        yield most


def _span(value: Any) -> int:  # noqa: ANN401 - any JSON value
    """The seconds of a deadline; zero where there is none."""
    return value if type(value) is int and 0 < value < 10**_MOST_DIGITS else 0
