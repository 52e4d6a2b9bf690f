"""What a GPUPolicy's status holds, and what ``kubectl get gpupolicies`` shows."""

from __future__ import annotations

from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

_READY = '.status.conditions[?(@.type=="Ready")]'


def _condition() -> Schema:
    """One condition, as the API's own kinds have it (``k8s.io/apimachinery/pkg/apis/meta/v1`` ``Condition``)."""
    text: Schema = {"type": "string"}
    return {
        "type": "object",
        "description": "One aspect of the policy's state.",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time", "description": "When status last changed."},
            "message": {"type": "string", "maxLength": 32768, "description": "Details for people; may be empty."},
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "minimum": 0,
                "description": "The metadata.generation that the condition is about.",
            },
            "reason": {
                **text,
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                "description": "Why the condition has this status, a CamelCase word.",
            },
            "status": {**text, "enum": ["True", "False", "Unknown"], "description": "Whether the condition holds."},
            "type": {
                **text,
                "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                "description": "The condition's name, such as Ready.",
            },
        },
    }


def _count(description: str) -> Schema:
    return {"type": "integer", "format": "int64", "minimum": 0, "description": description}


def _last_audit() -> Schema:
    return {
        "type": "object",
        "description": "What the last audit found of the rules that the policy binds.",
        "required": ["exempt", "time", "workloads", "wouldChange", "wouldRefuse"],
        "properties": {
            "exempt": _count("Workloads that are exempt from one of these rules."),
            "time": {"type": "string", "format": "date-time", "description": "When the audit ended."},
            "workloads": _count("Workloads that the policy binds a rule for."),
            "wouldChange": _count("Of them, those that enforcing these rules would change."),
            "wouldRefuse": _count("Of them, those that enforcing these rules would refuse."),
        },
    }


def status_schema() -> Schema:
    """The schema of a GPUPolicy's status."""
    return {
        "type": "object",
        "description": "The observed state of the policy, written by gpugate's controller.",
        "properties": {
            "conditions": {
                "type": "array",
                "description": "Ready says whether the policy is in force, and if not, why; Stalled that it needs somebody's hand.",
                "maxItems": 8,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": _condition(),
            },
            "generationInForce": _count("The metadata.generation that reviews are judged by; none where none is in force."),
            "lastAudit": _last_audit(),
            "matchedNamespaces": _count("Namespaces that the policy's namespaceSelector selects."),
            "observedGeneration": _count("The metadata.generation that was last looked at."),
            "rules": {
                "type": "string",
                "maxLength": 256,
                "description": "The rules that the policy binds somewhere, counted by mode, such as 12 Enforce, 3 DryRun.",
            },
        },
    }


def _column(name: str, kind: str, path: str, description: str, *, wide: bool = False) -> Schema:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


def columns() -> list[Schema]:
    """The columns of ``kubectl get gpupolicies``, and with ``-o wide``."""
    return [
        _column("Mode", "string", ".spec.mode", "Mode of every rule that states none."),
        _column("Priority", "integer", ".spec.priority", "The policy with the highest priority binds a rule."),
        _column("Ready", "string", f"{_READY}.status", "Whether the policy is in force."),
        _column("Reason", "string", f"{_READY}.reason", "Why it is, or is not."),
        _column("Namespaces", "integer", ".status.matchedNamespaces", "Namespaces that it selects."),
        _column("Would-Change", "integer", ".status.lastAudit.wouldChange", "Workloads that enforcing it would change."),
        _column("Would-Refuse", "integer", ".status.lastAudit.wouldRefuse", "Workloads that enforcing it would refuse."),
        _column("Age", "date", ".metadata.creationTimestamp", "Time since the policy was made."),
        _column("Rules", "string", ".status.rules", "Rules that it binds, by mode.", wide=True),
        _column("In-Force", "integer", ".status.generationInForce", "The generation that reviews are judged by.", wide=True),
        _column("Message", "string", f"{_READY}.message", "What there is to say of it.", wide=True),
    ]
