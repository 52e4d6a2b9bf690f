"""Add up held devices: in total, by owner, and device by device."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.gpu_usage import DeviceUse, Place, Usage
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Used
from gpugate.webhook.audit.owners import PodName
from gpugate.webhook.audit.ownership import OWNER
from gpugate.webhook.prometheus.readings import Readings


class DeviceLine(NamedTuple):
    """One device, and the workload whose pod holds it; None if unknown."""

    device: DeviceUse
    state: str
    workload: AuditedWorkload | None


class WindowUse(NamedTuple):
    """Use of some devices over one time window.

    Attributes:
        parts: cards with known utilisation; a MIG slice counts as its part of a card.
        work: fully used cards that would do the same work.
    """

    seconds: int
    parts: float
    work: float

    @property
    def percent(self) -> float | None:
        """Return the utilisation over all of them; None if unknown."""
        return 100 * self.work / self.parts if self.parts else None


class HeldTotals(NamedTuple):
    """Totals of held devices.

    Attributes:
        low: devices too large for their work.
        unknown: devices without known utilisation.
        window_use: use by time window, the shortest first.
    """

    devices: int
    idle: int
    low: int
    unknown: int
    window_use: tuple[WindowUse, ...]


#: States of devices, those that need attention first.
_STATES: Final = ("idle", "low", "unknown", "busy", "young", "", "stray", "free")


def device_lines(audit: Audit) -> list[DeviceLine]:
    """Return every device: held ones, idle first, then those that no audited workload holds."""
    lines = [DeviceLine(used.device, used.state, workload) for workload in audit.workloads for used in workload.used]
    strays = audit.fleet.strays if audit.fleet else ()
    lines += [DeviceLine(device, "stray" if device.pod else "free", None) for device in strays]
    return sorted(lines, key=_sort_key)


def _sort_key(line: DeviceLine) -> tuple[object, ...]:
    device = line.device
    peak = device.spans[0].peak if device.spans else None
    place = (device.namespace, device.pod, device.node, device.number, device.slice, device.uuid)
    return (_STATES.index(line.state), 100.0 if peak is None else peak, *place)


def _held_totals(used: Sequence[Used], windows: Iterable[int]) -> HeldTotals:
    states = Counter(use.state for use in used)
    window_use = tuple(_use_in([use.device for use in used], seconds) for seconds in windows)
    return HeldTotals(len(used), states["idle"], states["low"], states["unknown"], window_use)


def _use_in(devices: Iterable[DeviceUse], seconds: int) -> WindowUse:
    parts = work = 0.0
    for device in devices:
        span = device.span(seconds)
        if span is not None and span.average is not None:
            parts += device.part
            work += device.part * span.average / 100
    return WindowUse(seconds, round(parts, 6), round(work, 6))


def held_in_all(audit: Audit) -> HeldTotals:
    """Add up all held devices, also those of unknown pods."""
    used = [used for workload in audit.workloads for used in workload.used]
    if audit.fleet is None:
        return _held_totals(used, ())
    return _held_totals([*used, *(Used(device, "") for device in audit.fleet.strays if device.pod)], audit.fleet.windows)


def owner_of(workload: AuditedWorkload) -> str:
    """Return the owner of the workload; its team without one."""
    return dict(workload.belongs).get(OWNER, workload.team)


def held_by_owner(audit: Audit) -> dict[str, HeldTotals]:
    """Add up held devices by owner, most idle first; the empty name for workloads without an owner."""
    groups: defaultdict[str, list[Used]] = defaultdict(list)
    for workload in audit.workloads:
        if workload.used:
            groups[owner_of(workload)] += workload.used
    windows = audit.fleet.windows if audit.fleet else ()
    totals = {owner: _held_totals(used, windows) for owner, used in groups.items()}
    return dict(sorted(totals.items(), key=lambda pair: (-pair[1].idle, -pair[1].low, -pair[1].devices, pair[0])))


def free_in_all(audit: Audit) -> int:
    """Return the number of devices that no pod holds."""
    return sum(1 for device in audit.fleet.strays if not device.pod) if audit.fleet else 0


def usage_of(readings: Readings, owners_of_pods: dict[PodName, Place]) -> Usage:
    """Return the devices of each workload by ``readings``."""
    groups: defaultdict[Place, list[DeviceUse]] = defaultdict(list)
    for device in readings.devices:
        place = owners_of_pods.get((device.namespace, device.pod)) if device.pod else None
        if place is not None:
            groups[place].append(device)
    return Usage({place: tuple(devices) for place, devices in groups.items()})
