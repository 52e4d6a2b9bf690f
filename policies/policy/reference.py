"""Write the rule reference from the rules' own declarations: a page for people, a list for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic.alias_generators import to_camel

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import ENGINE_REASONS, Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.policy.crd import Schema, spec_schema, written
from gpugate.policies.policy.models import API_VERSION, KIND
from gpugate.policies.rules.registry import RULES

#: What a fixed action does in mode Enforce.
_OUTCOMES: Final = {"Deny": "refused", "Warn": "a warning", "Unknown": "unknown until the facts are there"}

_FACTS: Final = {
    "nodes": "nodes",
    "namespaces": "namespaces",
    "localqueues": "Kueue's LocalQueues",
    "usage": "what monitoring says of devices (audits alone)",
    "resourceclaims": "ResourceClaims",
    "resourceclaimtemplates": "ResourceClaimTemplates",
}
#: Parameters that every rule has, described once.
COMMON: Final = ("mode", "onGitConflict", "onUnknown")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a rule, as a policy writes it.

    Attributes:
        name: its path below ``spec.rules.<rule>``; ``[]`` marks the elements of a list.
        type: its type in words.
        default: its default, as a policy would write it.
        description: its meaning.
    """

    name: str
    type: str
    default: Any
    description: str

    @property
    def written(self) -> str:
        """The default as text; empty if there is none."""
        return written(self.default)


def parameters(rule: Rule) -> tuple[Parameter, ...]:
    """Return the parameters of ``rule`` without the common ones; nested ones follow their parent."""
    fields: Mapping[str, Schema] = spec_schema()["properties"]["rules"]["properties"][rule.id]["properties"]
    own = {name: field for name, field in fields.items() if name not in COMMON}
    return tuple(_flatten(own, "", frozenset()))


def common_parameters() -> tuple[Parameter, ...]:
    """Return the parameters that every rule has."""
    fields: Mapping[str, Schema] = spec_schema()["properties"]["rules"]["properties"][RULES[0].id]["properties"]
    return tuple(_flatten({name: fields[name] for name in COMMON}, "", frozenset()))


def _flatten(fields: Mapping[str, Schema], prefix: str, required: frozenset[str]) -> Iterator[Parameter]:
    for name, field in fields.items():
        kind = _type(field) + (", required" if name in required else "")
        text = " ".join(str(field.get("description", "")).split())
        yield Parameter(prefix + name, kind, field.get("default"), text)
        inner, mark = (field["items"], "[].") if field.get("type") == "array" else (field, ".")
        if "properties" in inner:
            yield from _flatten(inner["properties"], f"{prefix}{name}{mark}", frozenset(inner.get("required", ())))


def _type(field: Schema) -> str:
    """Return the type of ``field`` in words."""
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in field:
        return " or ".join(field["enum"])
    kind: str = field["type"]
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object":
        values = field.get("additionalProperties")
        return f"map to {_type(values)}" if isinstance(values, dict) else "object"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {field[key]}" for key, sign in signs.items() if key in field]
    return " ".join([kind, ", ".join(bounds)]).strip()


def default_policy_object(mode: str) -> dict[str, Any]:
    """Return the policy that holds if there is none, as an object with every default written out."""
    rules = spec_schema()["properties"]["rules"]["properties"]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "default"},
        "spec": {"priority": 0, "mode": mode, "rules": {rule.id: _default_settings(rule, rules, mode) for rule in RULES}},
    }


def _default_settings(rule: Rule, schemas: Mapping[str, Schema], mode: str) -> dict[str, Any]:
    # Written out, so that it stays when a user changes the mode of the policy.
    stated = {} if rule.default_max_mode is Mode.ENFORCE else {"mode": Mode(mode).at_most(rule.default_max_mode).value}
    return stated | _defaults(schemas[rule.id])


def _defaults(schema: Schema) -> dict[str, Any]:
    return {name: field["default"] for name, field in schema["properties"].items() if field.get("default") is not None}


def outcome_of(reason: Reason) -> str:
    """Return what happens to a finding of ``reason`` in mode Enforce."""
    outcome = _OUTCOMES.get(reason.action) or f"`{to_camel(reason.action)}` decides"
    cases = [reason.warns] if reason.warns else []
    cases += ["gpugate has reviewed the pod's owner"] if reason.owner_reviewed_warns else []
    return f"{outcome}; a warning if {', or if '.join(cases)}" if cases else outcome


def reference_markdown() -> str:
    """Return the rule reference in Markdown."""
    lines = [
        "# Rules",
        "",
        "<!-- Written by `make docs` from the rules' own code: change it there. -->",
        "",
        *_table(("Rule", "What it ensures"), [(f"[`{rule.id}`](#{rule.id})", rule.title) for rule in RULES]),
        "",
        f"Rules run in this order. A {KIND} sets their parameters under `spec.rules.<rule>`. Every rule also has:",
        "",
        *_parameter_table(common_parameters()),
        "",
    ]
    for rule in RULES:
        lines += _section(rule)
    lines += ["## Findings of any rule", "", *_reason_table(ENGINE_REASONS), ""]
    return "\n".join(lines)


def _section(rule: Rule) -> list[str]:
    snapshot = ", ".join(sorted(_FACTS.get(name, name) for name in rule.needs))
    updates = "a template that a user changed in an UPDATE, too" if rule.on_update else "objects at CREATE only"
    own = parameters(rule)
    return [
        f"## {rule.id}",
        "",
        f"**{rule.title}.**",
        "",
        f"Since {rule.since}. Reads {snapshot or 'nothing but the object'}. Edits {updates}.",
        "",
        *_unnamed(rule),
        *_documentation(rule),
        "### Parameters",
        "",
        *(_parameter_table(own) if own else ["None of its own."]),
        "",
        *(["### Findings", "", *_reason_table(rule.reasons), ""] if rule.reasons else []),
    ]


def _unnamed(rule: Rule) -> list[str]:
    if rule.default_max_mode is Mode.ENFORCE:
        return []
    held = "off" if rule.default_max_mode is Mode.DISABLED else f"at most in mode {rule.default_max_mode.value}"
    return [f"Where a policy does not name it, it is {held}: {rule.default_mode_reason}", ""]


def _documentation(rule: Rule) -> list[str]:
    """Return the docstring of the rule's module without its first line, with headings one level down."""
    _, _, body = rule.documentation.strip().partition("\n\n")
    fenced = False
    lines = []
    for line in body.splitlines():
        fenced ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return [*lines, ""]


def _parameter_table(params: Sequence[Parameter]) -> list[str]:
    rows = [(f"`{param.name}`", param.type, f"`{param.written}`" if param.written else "", param.description) for param in params]
    return _table(("Parameter", "Type", "Default", "Description"), rows)


def _reason_table(reasons: Mapping[str, Reason]) -> list[str]:
    rows = [(f"`{name}`", outcome_of(reason), reason.title) for name, reason in reasons.items()]
    return _table(("Reason", "In mode Enforce", "What it means"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    return ["| " + " | ".join(row) + " |" for row in (cells[0], ["---"] * len(head), *cells[1:])]
