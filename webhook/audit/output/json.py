"""Format an audit as JSON with stable camelCase field names, for ``gpugate audit -o json`` and ``/audit.json``.

Every field is always present. Amounts are integers: bytes of memory, millicores of CPU, else counts. Times are RFC 3339.
Unknown values are ``null`` for numbers, times and objects, and empty text for texts.
"""

from typing import Any, Final

import orjson

from gpugate.policies.gangs.status import GangState
from gpugate.webhook.audit.compare import Compared, ComparisonOutcome
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Item, NodeSummary
from gpugate.webhook.audit.ownership import OwnerShare, divisions_of, hours, so_far, time_of, until_end
from gpugate.webhook.audit.totals import DeviceLine, HeldTotals, device_lines, free_in_all, held_by_owner, held_in_all, owner_of
from gpugate.webhook.runtime.times import rfc3339

#: Version of the format: removing a field or changing its meaning needs a new version; adding one does not.
API_VERSION: Final = "gpugate.io/v1alpha1"
_OPTIONS: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
#: Largest integer written, as in the apiserver.
_LARGEST: Final = (1 << 63) - 1


def as_json(audit: Audit) -> bytes:
    """Format ``audit`` as one indented JSON object with a final line break."""
    return dump_json(document_of(audit))


def dump_json(document: Any) -> bytes:  # noqa: ANN401 - any JSON document
    """Format ``document`` as indented JSON; replace values that JSON cannot express."""
    try:
        return orjson.dumps(document, option=_OPTIONS)
    except orjson.JSONEncodeError:
        # Unpaired surrogates are not UTF-8; replicas times devices may exceed 64 bits.
        return orjson.dumps(_valid(document), option=_OPTIONS)


def _valid(value: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_valid(key): _valid(item) for key, item in value.items()}
    if isinstance(value, int):
        return max(-_LARGEST, min(value, _LARGEST))
    return [_valid(item) for item in value] if isinstance(value, (list, tuple)) else value


def document_of(audit: Audit) -> dict[str, Any]:
    """Return ``audit`` as a JSON object."""
    now = time_of(audit)
    return {
        "apiVersion": API_VERSION,
        "kind": "Audit",
        "at": audit.at,
        "source": audit.source,
        "policies": [policy._asdict() | {"modes": dict(policy.modes)} for policy in audit.policies],
        "workloads": [_workload(workload, now) for workload in audit.workloads],
        "askedFor": [_share(division.what, value, share) for division in divisions_of(audit) for value, share in division.shares],
        "shapes": [
            {
                "title": shape.title,
                "device": shape.device,
                "whyStranded": shape.why_stranded,
                "nodes": [_node(node) for node in shape.nodes],
            }
            for shape in audit.shapes
        ],
        "gangs": [_gang(gang) for gang in audit.gangs],
        "queues": [queue._asdict() for queue in audit.queues],
        "quotas": [quota._asdict() for quota in audit.quotas],
        "remarks": list(audit.remarks),
        "usage": _usage(audit),
    }


def _workload(workload: AuditedWorkload, now: int | None) -> dict[str, Any]:
    exemption = workload.exemption
    return {
        "apiVersion": workload.api_version,
        "kind": workload.kind,
        "namespace": workload.namespace,
        "name": workload.name,
        "uid": workload.uid,
        "team": workload.team,
        "queue": workload.queue,
        "pods": workload.pods,
        "devices": dict(workload.devices),
        "inGit": workload.in_git,
        "policies": list(workload.bound_by),
        "outcome": workload.outcome,
        "items": [_item(item) for item in workload.items],
        "exemption": None if exemption is None else exemption._asdict() | {"rules": list(exemption.rules)},
        "belongsTo": dict(workload.belongs),
        "deviceHours": _hours_of(workload, now),
    }


def _hours_of(workload: AuditedWorkload, now: int | None) -> dict[str, Any]:
    since = [run.since for run in workload.runs if run.since is not None]
    past, end = so_far(workload, now), until_end(workload)
    return {
        "since": (rfc3339(min(since)) or None) if since else None,
        "soFar": None if past is None else hours(past),
        "untilEnd": None if end is None else hours(end),
    }


def _item(item: Item) -> dict[str, Any]:
    return {
        "rule": item.rule,
        "policy": item.policy,
        "mode": item.mode.value,
        "effect": item.effect.value,
        "rehearsed": item.rehearsed,
        "reason": item.reason,
        "path": item.path,
        "message": item.message,
        "remedy": item.remedy,
    }


def _share(what: str, value: str, share: OwnerShare) -> dict[str, Any]:
    return {
        "what": what,
        "value": value,
        "workloads": share.workloads,
        "devices": dict(share.devices),
        "hoursSoFar": hours(share.so_far),
        "withoutStart": share.without_start,
        "hoursUntilEnd": hours(share.until_end),
        "withoutEnd": share.without_end,
    }


def _node(node: NodeSummary) -> dict[str, Any]:
    return {
        "name": node.name,
        "devices": node.devices,
        "held": node.held,
        "idle": node.idle,
        "stranded": node.stranded,
        "memory": node.memory,
        "requested": node.requested,
        "limited": node.limited,
        "cpu": node.cpu,
        "cpuRequested": node.cpu_requested,
    }


def _gang(gang: GangState) -> dict[str, Any]:
    return gang._asdict() | {"since": None if gang.since is None else rfc3339(gang.since) or None}


def _usage(audit: Audit) -> dict[str, Any] | None:
    if audit.fleet is None:
        return None
    return {
        "at": audit.fleet.at,
        "windows": list(audit.fleet.windows),
        "free": free_in_all(audit),
        "held": _held(held_in_all(audit)),
        "owners": [{"owner": owner, **_held(totals)} for owner, totals in held_by_owner(audit).items()],
        "devices": [_device(line) for line in device_lines(audit)],
    }


def _held(totals: HeldTotals) -> dict[str, Any]:
    return {
        "devices": totals.devices,
        "idle": totals.idle,
        "low": totals.low,
        "unknown": totals.unknown,
        "utilisation": [
            {"seconds": use.seconds, "percent": _rounded(use.percent), "cards": _rounded(use.parts), "work": _rounded(use.work)}
            for use in totals.window_use
        ],
    }


def _device(line: DeviceLine) -> dict[str, Any]:
    device, workload, health = line.device, line.workload, line.device.health
    return {
        "state": line.state,
        "namespace": device.namespace,
        "pod": device.pod,
        "container": device.container,
        "workload": None if workload is None else {"kind": workload.kind, "name": workload.name},
        "owner": "" if workload is None else owner_of(workload),
        "node": device.node,
        "gpu": device.number,
        "uuid": device.uuid,
        "model": device.model,
        "profile": device.profile,
        "slice": device.slice,
        "share": device.share,
        "heldSeconds": device.held,
        "utilisation": _rounded(device.now),
        "spans": [
            {"seconds": span.seconds, "peak": _rounded(span.peak), "average": _rounded(span.average)} for span in device.spans
        ],
        "memory": device.memory,
        "memoryUsed": device.memory_used,
        "memoryPeak": device.memory_peak,
        "powerWatts": _rounded(device.power),
        "temperatureCelsius": _rounded(device.temperature),
        "health": {
            "seconds": health.seconds,
            "singleBitErrors": health.single_bit,
            "doubleBitErrors": health.double_bit,
            "pcieReplays": health.replays,
            "nvlinkErrors": health.link_errors,
            "xid": health.xid,
            "throttledByHeat": health.throttled,
            "nvlinkInUse": health.linked,
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def comparison_document(comparisons: list[Compared]) -> list[dict[str, Any]]:
    """Return the comparison of two policies, without unchanged workloads."""
    return [
        {
            "verdict": comparison.verdict.value,
            "apiVersion": comparison.workload.api_version,
            "kind": comparison.workload.kind,
            "namespace": comparison.workload.namespace,
            "name": comparison.workload.name,
            "team": comparison.workload.team,
            "accelerators": comparison.workload.accelerators,
            "noLonger": [_changed_item(item) for item in comparison.gone],
            "newly": [_changed_item(item) for item in comparison.come],
        }
        for comparison in comparisons
        if comparison.verdict is not ComparisonOutcome.SAME
    ]


def _changed_item(item: Item) -> dict[str, Any]:
    return {key: value for key, value in _item(item).items() if key not in {"mode", "rehearsed"}}
