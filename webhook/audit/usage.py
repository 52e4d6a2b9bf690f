"""Add up held devices: in total, by owner, and device by device."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpugate.policies.cluster.gpu_usage import DeviceUse, Place, Usage
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Used
from gpugate.webhook.audit.owners import PodName
from gpugate.webhook.audit.ownership import OWNER
from gpugate.webhook.prometheus.readings import Readings


class Line(NamedTuple):
    """One device, and the workload whose pod holds it; None if unknown."""

    device: DeviceUse
    state: str
    workload: AuditedWorkload | None


class WindowUse(NamedTuple):
    """Use of some devices over one time window.

    Attributes:
        seconds: the window.
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
        devices: number of devices.
        idle: idle ones.
        low: devices too large for their work.
        unknown: devices without known utilisation.
        window_use: use by time window, the shortest first.
    """

    devices: int
    idle: int
    low: int
    unknown: int
    window_use: tuple[WindowUse, ...]


def lines_of(audit: Audit) -> list[Line]:
    """Return every device: held ones, idle first, then those that no audited workload holds."""
    lines = [Line(used.device, used.state, workload) for workload in audit.workloads for used in workload.used]
    strays = audit.fleet.strays if audit.fleet else ()
    lines += [Line(device, "stray" if device.pod else "free", None) for device in strays]
    return sorted(lines, key=_by_need)


_NEED = ("idle", "low", "unknown", "busy", "young", "", "stray", "free")


def _by_need(line: Line) -> tuple[object, ...]:
    one = line.device
    peak = one.spans[0].peak if one.spans else None
    return (
        _NEED.index(line.state),
        100.0 if peak is None else peak,
        one.namespace,
        one.pod,
        one.node,
        one.number,
        one.slice,
        one.uuid,
    )


def held_totals(used: Sequence[Used], windows: Iterable[int]) -> HeldTotals:
    """Add up ``used``."""
    return HeldTotals(
        len(used),
        sum(1 for device_use in used if device_use.state == "idle"),
        sum(1 for device_use in used if device_use.state == "low"),
        sum(1 for device_use in used if device_use.state == "unknown"),
        tuple(_worth([device_use.device for device_use in used], seconds) for seconds in windows),
    )


def _worth(devices: Iterable[DeviceUse], seconds: int) -> WindowUse:
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
    windows: tuple[int, ...] = ()
    if audit.fleet is not None:
        used += [Used(device, "") for device in audit.fleet.strays if device.pod]
        windows = audit.fleet.windows
    return held_totals(used, windows)


def owner_of(workload: AuditedWorkload) -> str:
    """Return the owner of the workload; its team without one."""
    return dict(workload.belongs).get(OWNER, workload.team)


def held_by_owner(audit: Audit) -> dict[str, HeldTotals]:
    """Add up held devices by owner, most idle first; the empty name for workloads without an owner."""
    groups: dict[str, list[Used]] = {}
    for workload in audit.workloads:
        if workload.used:
            groups.setdefault(owner_of(workload), []).extend(workload.used)
    windows = audit.fleet.windows if audit.fleet else ()
    sums = {owner: held_totals(used, windows) for owner, used in groups.items()}
    return dict(sorted(sums.items(), key=lambda pair: (-pair[1].idle, -pair[1].low, -pair[1].devices, pair[0])))


def free_in_all(audit: Audit) -> int:
    """Return the number of devices that no pod holds."""
    return sum(1 for device in audit.fleet.strays if not device.pod) if audit.fleet else 0


def document_of_usage(audit: Audit) -> dict[str, Any] | None:
    """Return the figures of Prometheus for JSON."""
    if audit.fleet is None:
        return None
    return {
        "at": audit.fleet.at,
        "windows": list(audit.fleet.windows),
        "free": free_in_all(audit),
        "held": _sums(held_in_all(audit)),
        "owners": [{"owner": owner, **_sums(sums)} for owner, sums in held_by_owner(audit).items()],
        "devices": [_line(line) for line in lines_of(audit)],
    }


def _sums(sums: HeldTotals) -> dict[str, Any]:
    return {
        "devices": sums.devices,
        "idle": sums.idle,
        "low": sums.low,
        "unknown": sums.unknown,
        "utilisation": [
            {"seconds": one.seconds, "percent": _rounded(one.percent), "cards": _rounded(one.parts), "work": _rounded(one.work)}
            for one in sums.window_use
        ],
    }


def _line(line: Line) -> dict[str, Any]:
    one, workload = line.device, line.workload
    return {
        "state": line.state,
        "namespace": one.namespace,
        "pod": one.pod,
        "container": one.container,
        "workload": None if workload is None else {"kind": workload.kind, "name": workload.name},
        "owner": "" if workload is None else owner_of(workload),
        "node": one.node,
        "gpu": one.number,
        "uuid": one.uuid,
        "model": one.model,
        "profile": one.profile,
        "slice": one.slice,
        "share": one.share,
        "heldSeconds": one.held,
        "utilisation": _rounded(one.now),
        "spans": [{"seconds": span.seconds, "peak": _rounded(span.peak), "average": _rounded(span.average)} for span in one.spans],
        "memory": one.memory,
        "memoryUsed": one.memory_used,
        "memoryPeak": one.memory_peak,
        "powerWatts": _rounded(one.power),
        "temperatureCelsius": _rounded(one.temperature),
        "health": {
            "seconds": one.health.seconds,
            "singleBitErrors": one.health.single_bit,
            "doubleBitErrors": one.health.double_bit,
            "pcieReplays": one.health.replays,
            "nvlinkErrors": one.health.link_errors,
            "xid": one.health.xid,
            "throttledByHeat": one.health.throttled,
            "nvlinkInUse": one.health.linked,
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def usage_of(readings: Readings, owners_of_pods: dict[PodName, Place]) -> Usage:
    """Return the devices of each workload by ``readings``."""
    groups: dict[Place, list[DeviceUse]] = {}
    for device in readings.devices:
        place = owners_of_pods.get((device.namespace, device.pod)) if device.pod else None
        if place is not None:
            groups.setdefault(place, []).append(device)
    return Usage({place: tuple(devices) for place, devices in groups.items()})
