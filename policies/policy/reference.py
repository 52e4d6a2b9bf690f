"""Write the rule reference from the declarations of the rules: a page for users, a list for programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic.alias_generators import to_camel

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import ENGINE_REASONS, Action, Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.policy.binding import profile_settings, strongest_mode
from gpugate.policies.policy.crd import Schema, spec_schema, written
from gpugate.policies.policy.models import API_VERSION, FAIL, KIND
from gpugate.policies.policy.profiles import DEFAULT
from gpugate.policies.rules.registry import RULES

#: What a fixed action does in mode Enforce.
_OUTCOMES: Final = {"Deny": "refused", "Warn": "a warning", "Unknown": "unknown until the facts are there"}

_FACTS: Final = {
    "nodes": "nodes",
    "namespaces": "namespaces",
    "localqueues": "Kueue's LocalQueues",
    "usage": "GPU usage from monitoring (audits only)",
    "resourceclaims": "ResourceClaims",
    "resourceclaimtemplates": "ResourceClaimTemplates",
}
#: Parameters that every rule has, described once.
COMMON: Final = ("actions", "mode", "onGitConflict", "onUnknown")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a rule: its path below ``spec.rules.<rule>`` (``[]`` marks elements of a list), and its type in words."""

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
    own = {name: field for name, field in _fields_of(rule).items() if name not in COMMON}
    return tuple(_flatten(own, "", frozenset()))


def common_parameters() -> tuple[Parameter, ...]:
    """Return the parameters that every rule has."""
    fields = _fields_of(RULES[0])
    actions = dict(fields["actions"])
    # The fields of this one are the reasons, which each rule has its own of.
    kind, text = f"map from reason to {' or '.join(get_args(Action))}", actions["description"]
    rest = {name: fields[name] for name in COMMON if name != "actions"}
    return (Parameter("actions", kind, None, text), *_flatten(rest, "", frozenset()))


def _fields_of(rule: Rule) -> Mapping[str, Schema]:
    fields: Mapping[str, Schema] = spec_schema()["properties"]["rules"]["properties"][rule.id]["properties"]
    return fields


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
    bounds = ", ".join(f"{sign} {field[key]}" for key, sign in signs.items() if key in field)
    return f"{kind} {bounds}".strip()


def default_policy_object(mode: str, profile: str = DEFAULT) -> dict[str, Any]:
    """Return the policy that holds if there is none, as an object with every setting of ``profile`` written out."""
    rules: dict[str, Any] = {}
    for rule in RULES:
        settings = profile_settings(profile, rule.id).model_dump(mode="json", by_alias=True, exclude_none=True)
        rules[rule.id] = {name: value for name, value in settings.items() if name != "actions" or value}
        strongest = strongest_mode(profile, rule)
        if strongest is not Mode.ENFORCE:
            # Written out, so that it stays when a user changes the mode of the policy.
            rules[rule.id] = {"mode": Mode(mode).at_most(strongest).value, **rules[rule.id]}
    spec = {"priority": 0, "profile": profile, "mode": mode, "failurePolicy": FAIL, "rules": rules}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "default"}, "spec": spec}


def outcome_of(reason: Reason) -> str:
    """Return what happens to a finding of ``reason`` in mode Enforce."""
    outcome = _OUTCOMES.get(reason.action) or f"`{to_camel(reason.action)}` decides"
    cases = [reason.warns] if reason.warns else []
    cases += ["gpugate has reviewed the pod's owner"] if reason.owner_reviewed_warns else []
    return f"{outcome}; a warning if {', or if '.join(cases)}" if cases else outcome


def reference_markdown() -> str:
    """Return the rule reference in Markdown."""
    blocks = [
        "# Rules",
        "<!-- Written by `make docs` from the rules' own code: change it there. -->",
        table(("Rule", "What it ensures"), [(f"[`{rule.id}`](#{rule.id})", rule.title) for rule in RULES]),
        f"Rules run in this order. A {KIND} sets their parameters under `spec.rules.<rule>`. Every rule also has:",
        _parameter_table(common_parameters()),
        *(block for rule in RULES for block in _section(rule)),
        "## Findings of any rule",
        _reason_table(ENGINE_REASONS),
    ]
    return "\n\n".join(blocks) + "\n"


def _section(rule: Rule) -> Iterator[str]:
    facts = ", ".join(sorted(_FACTS.get(name, name) for name in rule.needs))
    updates = "a template that a user changed in an UPDATE, too" if rule.on_update else "objects at CREATE only"
    yield f"## {rule.id}"
    yield f"**{rule.title}.**"
    yield f"Since {rule.since}. Reads {facts or 'nothing but the object'}. Edits {updates}."
    if rule.default_max_mode is not Mode.ENFORCE:
        strongest = "off" if rule.default_max_mode is Mode.DISABLED else f"at most in mode {rule.default_max_mode.value}"
        yield f"Where a policy does not name it, it is {strongest}: {rule.default_mode_reason}"
    yield _documentation(rule)
    yield "### Parameters"
    yield _parameter_table(parameters(rule)) or "None of its own."
    if rule.reasons:
        yield "### Findings"
        yield _reason_table(rule.reasons)


def _documentation(rule: Rule) -> str:
    """Return the docstring of the rule's module without its first line, with headings one level down."""
    _, _, body = rule.documentation.strip().partition("\n\n")
    fenced = False
    lines = []
    for line in body.splitlines():
        fenced ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return "\n".join(lines)


def _parameter_table(params: Sequence[Parameter]) -> str:
    rows = [(f"`{param.name}`", param.type, f"`{param.written}`" if param.written else "", param.description) for param in params]
    return table(("Parameter", "Type", "Default", "Description"), rows)


def _reason_table(reasons: Mapping[str, Reason]) -> str:
    rows = [(f"`{name}`", outcome_of(reason), reason.title) for name, reason in reasons.items()]
    return table(("Reason", "In mode Enforce", "What it means"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; an empty text without rows."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (cells[0], ["---"] * len(head), *cells[1:])) if rows else ""
