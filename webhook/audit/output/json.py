"""An audit as JSON: field names that stay as they are, in camelCase, for ``gpugate audit -o json`` and ``/audit.json``.

Every field is always there. Amounts are whole numbers: bytes of memory, millicores of CPU, else counts. Times are RFC 3339. What is
not known is ``null`` where a number, a time or an object is wanted, and empty text where text is.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from gpugate.policies.gangs.status import GangState
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Exemption, Item, PolicyLine, ShapeSummary
from gpugate.webhook.audit.ownership import OwnerShare, divisions_of, hours, so_far, time_of, until_end
from gpugate.webhook.audit.usage import document_of_usage
from gpugate.webhook.runtime.times import rfc3339

#: What of this shape is promised: a field goes or changes its meaning with a new version only; fields may be added.
API_VERSION: Final = "gpugate.io/v1alpha1"
_LAYOUT: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
#: What stands for a number that is larger: the apiserver itself takes no larger one.
_MOST: Final = (1 << 63) - 1


def as_json(audit: Audit) -> bytes:
    """``audit`` as one indented JSON object, with a line break at its end."""
    return written(document_of(audit))


def written(document: Any) -> bytes:  # noqa: ANN401 - any JSON document
    """``document``, indented, with what JSON cannot say put as near to it as can be."""
    try:
        return orjson.dumps(document, option=_LAYOUT)
    except orjson.JSONEncodeError:
        # YAML can name half a character, which UTF-8 cannot say; replicas times devices may be more than 64 bits hold.
        return orjson.dumps(_sayable(document), option=_LAYOUT)


def document_of(audit: Audit) -> dict[str, Any]:
    """``audit`` as the object that is written."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Audit",
        "at": audit.at,
        "source": audit.source,
        "policies": [_policy(one) for one in audit.policies],
        "workloads": [_workload(one, time_of(audit)) for one in audit.workloads],
        "askedFor": [_share(one.what, value, share) for one in divisions_of(audit) for value, share in one.shares],
        "shapes": [_shape(one) for one in audit.shapes],
        "gangs": [_gang(one) for one in audit.gangs],
        "queues": [one._asdict() for one in audit.queues],
        "quotas": [one._asdict() for one in audit.quotas],
        "remarks": list(audit.remarks),
        "usage": document_of_usage(audit),
    }


def _policy(one: PolicyLine) -> dict[str, Any]:
    return {
        "name": one.name,
        "generation": one.generation,
        "priority": one.priority,
        "modes": dict(one.modes),
        "problem": one.problem,
    }


def _workload(one: AuditedWorkload, now: int | None) -> dict[str, Any]:
    return {
        "apiVersion": one.api_version,
        "kind": one.kind,
        "namespace": one.namespace,
        "name": one.name,
        "uid": one.uid,
        "team": one.team,
        "queue": one.queue,
        "pods": one.pods,
        "devices": dict(one.devices),
        "inGit": one.in_git,
        "policies": list(one.bound_by),
        "outcome": one.outcome,
        "items": [_item(item) for item in one.items],
        "exemption": None if one.exemption is None else _exemption(one.exemption),
        "belongsTo": dict(one.belongs),
        "deviceHours": _hours_of(one, now),
    }


def _hours_of(one: AuditedWorkload, now: int | None) -> dict[str, Any]:
    since = [run.since for run in one.runs if run.since is not None]
    past, end = so_far(one, now), until_end(one)
    return {
        "since": (rfc3339(min(since)) or None) if since else None,
        "soFar": None if past is None else hours(past),
        "untilEnd": None if end is None else hours(end),
    }


def _share(what: str, value: str, one: OwnerShare) -> dict[str, Any]:
    return {
        "what": what,
        "value": value,
        "workloads": one.workloads,
        "devices": dict(one.devices),
        "hoursSoFar": hours(one.so_far),
        "withoutStart": one.untold,
        "hoursUntilEnd": hours(one.until_end),
        "withoutEnd": one.endless,
    }


def _item(one: Item) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "policy": one.policy,
        "mode": one.mode.value,
        "effect": one.effect.value,
        "rehearsed": one.rehearsed,
        "reason": one.reason,
        "path": one.path,
        "message": one.message,
        "remedy": one.remedy,
    }


def _exemption(one: Exemption) -> dict[str, Any]:
    return {"rules": list(one.rules), "reason": one.reason, "owner": one.owner, "until": one.until, "state": one.state}


def _shape(one: ShapeSummary) -> dict[str, Any]:
    return {
        "title": one.title,
        "device": one.device,
        "whyStranded": one.why_stranded,
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
            for node in one.nodes
        ],
    }


def _gang(one: GangState) -> dict[str, Any]:
    return one._asdict() | {"since": None if one.since is None else rfc3339(one.since) or None}


def _sayable(value: Any) -> Any:  # noqa: ANN401 - any part of a JSON document
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_sayable(key): _sayable(one) for key, one in value.items()}
    if isinstance(value, int):
        return max(-_MOST, min(value, _MOST))
    return [_sayable(one) for one in value] if isinstance(value, list) else value
