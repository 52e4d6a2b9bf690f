"""Format an audit as JSON with stable camelCase field names, for ``gpugate audit -o json`` and ``/audit.json``.

Every field is always present. Amounts are integers: bytes of memory, millicores of CPU, else counts. Times are RFC 3339.
Unknown values are ``null`` for numbers, times and objects, and empty text for texts.
"""

from typing import Any, Final

import orjson

from gpugate.policies.gangs.status import GangState
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Exemption, Item, PolicyLine, ShapeSummary
from gpugate.webhook.audit.ownership import OwnerShare, divisions_of, hours, so_far, time_of, until_end
from gpugate.webhook.audit.usage import document_of_usage
from gpugate.webhook.runtime.times import rfc3339

#: Version of the format: removing a field or changing its meaning needs a new version; adding one does not.
API_VERSION: Final = "gpugate.io/v1alpha1"
_LAYOUT: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
#: Largest integer written, as in the apiserver.
_MOST: Final = (1 << 63) - 1


def as_json(audit: Audit) -> bytes:
    """Format ``audit`` as one indented JSON object with a final line break."""
    return written(document_of(audit))


def written(document: Any) -> bytes:  # noqa: ANN401 - any JSON document
    """Format ``document`` as indented JSON; replace values that JSON cannot express."""
    try:
        return orjson.dumps(document, option=_LAYOUT)
    except orjson.JSONEncodeError:
        # Unpaired surrogates are not UTF-8; replicas times devices may exceed 64 bits.
        return orjson.dumps(_sayable(document), option=_LAYOUT)


def document_of(audit: Audit) -> dict[str, Any]:
    """Return ``audit`` as a JSON object."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Audit",
        "at": audit.at,
        "source": audit.source,
        "policies": [_policy(policy) for policy in audit.policies],
        "workloads": [_workload(workload, time_of(audit)) for workload in audit.workloads],
        "askedFor": [_share(division.what, value, share) for division in divisions_of(audit) for value, share in division.shares],
        "shapes": [_shape(shape) for shape in audit.shapes],
        "gangs": [_gang(gang) for gang in audit.gangs],
        "queues": [queue._asdict() for queue in audit.queues],
        "quotas": [quota._asdict() for quota in audit.quotas],
        "remarks": list(audit.remarks),
        "usage": document_of_usage(audit),
    }


def _policy(policy: PolicyLine) -> dict[str, Any]:
    return {
        "name": policy.name,
        "generation": policy.generation,
        "priority": policy.priority,
        "modes": dict(policy.modes),
        "problem": policy.problem,
    }


def _workload(workload: AuditedWorkload, now: int | None) -> dict[str, Any]:
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
        "exemption": None if workload.exemption is None else _exemption(workload.exemption),
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


def _exemption(exemption: Exemption) -> dict[str, Any]:
    return {
        "rules": list(exemption.rules),
        "reason": exemption.reason,
        "owner": exemption.owner,
        "until": exemption.until,
        "state": exemption.state,
    }


def _shape(shape: ShapeSummary) -> dict[str, Any]:
    return {
        "title": shape.title,
        "device": shape.device,
        "whyStranded": shape.why_stranded,
        "nodes": [
            {
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
            for node in shape.nodes
        ],
    }


def _gang(gang: GangState) -> dict[str, Any]:
    return gang._asdict() | {"since": None if gang.since is None else rfc3339(gang.since) or None}


def _sayable(value: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_sayable(key): _sayable(one) for key, one in value.items()}
    if isinstance(value, int):
        return max(-_MOST, min(value, _MOST))
    return [_sayable(one) for one in value] if isinstance(value, list) else value
