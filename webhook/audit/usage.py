"""Figures of held devices: in all, by owner, and device by device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpugate.policies.cluster.gpu_usage import DeviceUse
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Used
from gpugate.webhook.audit.ownership import OWNER


class Line(NamedTuple):
    """One device, and the workload whose pod holds it; None where none is known to."""

    device: DeviceUse
    state: str
    workload: AuditedWorkload | None


class Worth(NamedTuple):
    """What some devices did over one time.

    Attributes:
        seconds: that time.
        parts: cards that those are of which it is known, a MIG slice as the part that it is.
        work: cards that would have done the same, each fully used.
    """

    seconds: int
    parts: float
    work: float

    @property
    def percent(self) -> float | None:
        """The utilisation of all of them; None where none is known."""
        return 100 * self.work / self.parts if self.parts else None


class HeldSums(NamedTuple):
    """What some held devices come to.

    Attributes:
        devices: how many they are.
        idle: how many were idle.
        low: how many were too large for their work.
        unknown: of how many no utilisation is known.
        worths: what they did, by time, the shortest first.
    """

    devices: int
    idle: int
    low: int
    unknown: int
    worths: tuple[Worth, ...]


def lines_of(audit: Audit) -> list[Line]:
    """Every device that monitoring told of, held ones with the idle first, then those that no known workload holds."""
    lines = [Line(used.device, used.state, one) for one in audit.workloads for used in one.used]
    strays = audit.fleet.strays if audit.fleet else ()
    lines += [Line(one, "stray" if one.pod else "free", None) for one in strays]
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


def sums_of_held(used: Sequence[Used], windows: Iterable[int]) -> HeldSums:
    """What ``used`` come to."""
    return HeldSums(
        len(used),
        sum(1 for one in used if one.state == "idle"),
        sum(1 for one in used if one.state == "low"),
        sum(1 for one in used if one.state == "unknown"),
        tuple(_worth([one.device for one in used], seconds) for seconds in windows),
    )


def _worth(devices: Iterable[DeviceUse], seconds: int) -> Worth:
    parts = work = 0.0
    for one in devices:
        span = one.span(seconds)
        if span is not None and span.average is not None:
            parts += one.part
            work += one.part * span.average / 100
    return Worth(seconds, round(parts, 6), round(work, 6))


def held_in_all(audit: Audit) -> HeldSums:
    """What all held devices come to, those of pods that are not known among them."""
    used = [used for one in audit.workloads for used in one.used]
    windows: tuple[int, ...] = ()
    if audit.fleet is not None:
        used += [Used(one, "") for one in audit.fleet.strays if one.pod]
        windows = audit.fleet.windows
    return sums_of_held(used, windows)


def owner_of(workload: AuditedWorkload) -> str:
    """Who the workload belongs to, as the sums of what is asked for have it; its team where nobody tells."""
    return dict(workload.belongs).get(OWNER, workload.team)


def held_by_owner(audit: Audit) -> dict[str, HeldSums]:
    """The same for each owner, the one with most idle devices first; the empty name for workloads of nobody."""
    groups: dict[str, list[Used]] = {}
    for one in audit.workloads:
        if one.used:
            groups.setdefault(owner_of(one), []).extend(one.used)
    windows = audit.fleet.windows if audit.fleet else ()
    sums = {owner: sums_of_held(used, windows) for owner, used in groups.items()}
    return dict(sorted(sums.items(), key=lambda pair: (-pair[1].idle, -pair[1].low, -pair[1].devices, pair[0])))


def free_in_all(audit: Audit) -> int:
    """Devices that no pod holds."""
    return sum(1 for one in audit.fleet.strays if not one.pod) if audit.fleet else 0


def document_of_usage(audit: Audit) -> dict[str, Any] | None:
    """What monitoring told, for machines."""
    if audit.fleet is None:
        return None
    return {
        "at": audit.fleet.at,
        "windows": list(audit.fleet.windows),
        "free": free_in_all(audit),
        "held": _sums(held_in_all(audit)),
        "owners": [{"owner": owner, **_sums(sums)} for owner, sums in held_by_owner(audit).items()],
        "devices": [_line(one) for one in lines_of(audit)],
    }


def _sums(sums: HeldSums) -> dict[str, Any]:
    return {
        "devices": sums.devices,
        "idle": sums.idle,
        "low": sums.low,
        "unknown": sums.unknown,
        "utilisation": [
            {"seconds": one.seconds, "percent": _rounded(one.percent), "cards": _rounded(one.parts), "work": _rounded(one.work)}
            for one in sums.worths
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
