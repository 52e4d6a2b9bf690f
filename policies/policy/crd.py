"""Write the CustomResourceDefinition of GPUPolicy from its models."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from pydantic.json_schema import GenerateJsonSchema

from gpugate.policies.kube.cel import KEY as VALIDATIONS
from gpugate.policies.policy.models import API_VERSION, KIND, PolicySpec
from gpugate.policies.rules.registry import RULES

Schema: TypeAlias = dict[str, Any]

#: Maximum number of namespaces in ``status.failsOpen``.
MOST_LEFT_OPEN: Final = 64
_READY = '.status.conditions[?(@.type=="Ready")]'


def _field(kind: str, description: str, **more: Any) -> Schema:  # noqa: ANN401 - any JSON value
    return {"type": kind, **more, "description": description}


def _condition() -> Schema:
    """Return the schema of a condition, as in the API's own kinds (``k8s.io/apimachinery/pkg/apis/meta/v1`` ``Condition``)."""
    word = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
    label = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    kind = rf"^({label}(\.{label})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    generation = "The metadata.generation that the condition is about."
    return {
        "type": "object",
        "description": "One aspect of the policy's state.",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": _field("string", "When status last changed.", format="date-time"),
            "message": _field("string", "Details for people; may be empty.", maxLength=32768),
            "observedGeneration": _field("integer", generation, format="int64", minimum=0),
            "reason": _field(
                "string", "Why the condition has this status, a CamelCase word.", minLength=1, maxLength=1024, pattern=word
            ),
            "status": _field("string", "Whether the condition holds.", enum=["True", "False", "Unknown"]),
            "type": _field("string", "The condition's name, such as Ready.", maxLength=316, pattern=kind),
        },
    }


def _count(description: str) -> Schema:
    return _field("integer", description, format="int64", minimum=0)


def status_schema() -> Schema:
    """Return the schema of a GPUPolicy's status."""
    last_audit = {
        "type": "object",
        "description": "What the last audit found of the rules that the policy binds.",
        "required": ["exempt", "time", "workloads", "wouldChange", "wouldRefuse"],
        "properties": {
            "exempt": _count("Workloads that are exempt from one of these rules."),
            "time": _field("string", "When the audit ended.", format="date-time"),
            "workloads": _count("Workloads that the policy binds a rule for."),
            "wouldChange": _count("Of them, those that enforcing these rules would change."),
            "wouldRefuse": _count("Of them, those that enforcing these rules would refuse."),
        },
    }
    left_open = {
        "type": "array",
        "description": "Namespaces in which the policy refuses objects of kinds whose webhooks fail open all the same.",
        "maxItems": MOST_LEFT_OPEN,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["namespace"],
        "items": {
            "type": "object",
            "description": "The kinds in one namespace.",
            "required": ["kinds", "namespace"],
            "properties": {
                "kinds": {
                    "type": "array",
                    "description": "The kinds, by their full resource names.",
                    "maxItems": 64,
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "string", "maxLength": 316},
                },
                "namespace": _field("string", "The name of the namespace.", maxLength=63),
            },
        },
    }
    rules = "The rules that the policy binds somewhere, counted by mode, such as 12 Enforce, 3 DryRun."
    return {
        "type": "object",
        "description": "The observed state of the policy, written by gpugate's controller.",
        "properties": {
            "conditions": {
                "type": "array",
                "description": "Ready says whether the policy is in force, and if not, why; Stalled, that a person must act.",
                "maxItems": 8,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": _condition(),
            },
            "failsOpen": left_open,
            "generationInForce": _count("The metadata.generation that reviews apply; absent if none is in force."),
            "lastAudit": last_audit,
            "matchedNamespaces": _count("Namespaces that the policy's namespaceSelector selects."),
            "observedGeneration": _count("The metadata.generation that the controller last read."),
            "rules": _field("string", rules, maxLength=256),
        },
    }


def _column(name: str, kind: str, path: str, description: str, *, wide: bool = False) -> Schema:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": 1} if wide else column


def columns() -> list[Schema]:
    """Return the columns of ``kubectl get gpupolicies``, also those of ``-o wide``."""
    return [
        _column("Mode", "string", ".spec.mode", "Mode of every rule that sets none."),
        _column("Priority", "integer", ".spec.priority", "The policy with the highest priority binds a rule."),
        _column("Ready", "string", f"{_READY}.status", "Whether the policy is in force."),
        _column("Reason", "string", f"{_READY}.reason", "Reason of the Ready condition."),
        _column("Namespaces", "integer", ".status.matchedNamespaces", "Namespaces that it selects."),
        _column("Would-Change", "integer", ".status.lastAudit.wouldChange", "Workloads that enforcing it would change."),
        _column("Would-Refuse", "integer", ".status.lastAudit.wouldRefuse", "Workloads that enforcing it would refuse."),
        _column("Age", "date", ".metadata.creationTimestamp", "Time since the policy was created."),
        _column("Rules", "string", ".status.rules", "Rules that it binds, by mode.", wide=True),
        _column("In-Force", "integer", ".status.generationInForce", "The generation that reviews apply.", wide=True),
        _column("Message", "string", f"{_READY}.message", "Details of the Ready condition.", wide=True),
    ]


GROUP, _, VERSION = API_VERSION.partition("/")
PLURAL: Final = "gpupolicies"

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
#: What ``gpugate.policies.kube.quantity`` reads, without a sign: no parameter may be negative.
_QUANTITY: Final[Schema] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    # At least one digit is not 0: no parameter is an amount of zero.
    "pattern": r"^([0-9]*[1-9][0-9]*(\.[0-9]*)?|0*\.[0-9]*[1-9][0-9]*)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?$",
    "maxLength": 64,
    "minimum": 1,
    _INT_OR_STRING: True,
}

#: Keys that are copied, left out and translated; any other is an error.
_KEPT: Final = frozenset(
    {"description", "enum", "maxItems", "maxLength", "maxProperties", "minItems", "minLength", "pattern", "type", VALIDATIONS}
)
_DROPPED: Final = frozenset({"$defs", "default", "title"})
_CHANGED: Final = frozenset(
    {"additionalProperties", "anyOf", "exclusiveMaximum", "exclusiveMinimum", "items", "maximum", "minimum", "properties"}
) | {"required", "uniqueItems", _INT_OR_STRING}


class _WithWrittenDefaults(GenerateJsonSchema):
    """Writes defaults as users write them: ``32Gi``, not its bytes."""

    def default_schema(self, schema: Any) -> Schema:  # noqa: ANN401 - one of pydantic's core schemas
        """Return the schema of a field with a default."""
        result: Schema = super().default_schema(schema)
        inner = schema
        while isinstance(inner := inner.get("schema"), dict):
            serialization = inner.get("serialization") or {}
            if serialization.get("type") == "function-plain" and result.get("default") is not None:
                result["default"] = serialization["function"](result["default"])
                break
        return result


@cache
def _spec_text() -> str:
    schema = PolicySpec.model_json_schema(by_alias=True, schema_generator=_WithWrittenDefaults)
    resolved = _resolved(schema, schema.get("$defs", {}))
    resolved["properties"]["exemptions"]["properties"]["rules"]["items"]["enum"] = ["*", *sorted(rule.id for rule in RULES)]
    return json.dumps(resolved)


def spec_schema() -> Schema:
    """Return the JSON schema of a GPUPolicy's spec, every reference resolved, with defaults as users write them."""
    schema: Schema = json.loads(_spec_text())
    return schema


def _resolved(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Return ``node`` with its references resolved, and ``X or null`` as ``X``."""
    node = dict(node)
    while True:
        if "$ref" in node:
            base = definitions[node.pop("$ref").rpartition("/")[2]]
        elif (alternative := _alternative(node)) is not None:
            base = alternative
            del node["anyOf"]
        else:
            break
        node = {**base, **node}
    if "properties" in node:
        node["properties"] = {name: _resolved(child, definitions) for name, child in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            node[key] = _resolved(node[key], definitions)
    return node


def _alternative(node: Schema) -> Schema | None:
    """Return X of ``X or null``; None for any other node."""
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    return options[0] if len(options) == 1 else None


def written(value: object) -> str:
    """Return a default as users write it in YAML; empty if there is none."""
    if value is None or value == [] or isinstance(value, dict):
        return ""
    if isinstance(value, list):
        # The first field of an element is its name; `gpugate policies --default` writes all fields.
        return ", ".join(str(next(iter(item.values()), "")) if isinstance(item, dict) else str(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value)


def _structural(node: Schema) -> Schema:
    """Return ``node``, a resolved schema, as a structural schema of the API server.

    Raises:
        ValueError: it has a keyword that is not translated yet.
    """
    unknown = set(node) - _KEPT - _DROPPED - _CHANGED
    if not node.get(_INT_OR_STRING):
        unknown |= {"anyOf"}.intersection(node)
    if unknown:
        message = f"no structural schema for {', '.join(sorted(unknown))} in {node.get('title', node)!s:.200}"
        raise ValueError(message)
    schema = {key: value for key, value in node.items() if key in _KEPT}
    if "description" in schema:
        text, default = " ".join(schema["description"].replace("``", "`").split()), written(node.get("default"))
        schema["description"] = f"{text} Default: {default}." if default else text
    return schema | (_QUANTITY if node.get(_INT_OR_STRING) else _bounds(node)) | _children(node)


def _bounds(node: Schema) -> Schema:
    """Return numeric bounds as OpenAPI 3.0 has them, with a flag for an exclusive bound."""
    bounds: Schema = {}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in node:
            bounds |= {bound: node[exclusive], exclusive: True}
        elif bound in node:
            bounds[bound] = node[bound]
    return bounds


def _children(node: Schema) -> Schema:
    """Return the schemas of the fields, elements or values of ``node``."""
    schemas: Schema = {}
    if "properties" in node:
        schemas["properties"] = {name: _structural(child) for name, child in node["properties"].items()}
        if node.get("required"):
            schemas["required"] = list(node["required"])
        if "matchLabels" in node["properties"]:  # a label selector has one owner, as in the API's own kinds
            schemas["x-kubernetes-map-type"] = "atomic"
    if isinstance(node.get("additionalProperties"), dict):
        schemas["additionalProperties"] = _structural(node["additionalProperties"])
    if "items" in node:
        schemas |= {"items": _structural(node["items"]), "x-kubernetes-list-type": "set" if node.get("uniqueItems") else "atomic"}
    return schemas


def gpupolicy_crd() -> Schema:
    """Return the CustomResourceDefinition of GPUPolicy, ready to apply."""
    schema = {
        "type": "object",
        "description": "A GPUPolicy says which rules hold for GPU workloads, how strictly, and with which parameters.",
        "properties": {
            "apiVersion": {"type": "string", "description": "The version of the schema of this object."},
            "kind": {"type": "string", "description": "The kind of this object."},
            "metadata": {"type": "object"},
            "spec": _structural(spec_schema()),
            "status": status_schema(),
        },
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns(),
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}", "labels": {"app.kubernetes.io/name": "gpugate"}},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower(), "shortNames": ["gpol"]},
            "conversion": {"strategy": "None"},
            "versions": [version],
        },
    }
