"""`gpugate policies`: print rules with their parameters, the default policy, the rule reference and the CRD."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from types import ModuleType
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpugate.policies.engine import checks as checking
from gpugate.policies.engine import edit_guard as hold
from gpugate.policies.engine import exemptions
from gpugate.policies.findings import Finding, Level, Mode, not_synced
from gpugate.policies.framework.rule import Rule
from gpugate.policies.policy.crd import gpupolicy_crd
from gpugate.policies.policy.reference import (
    Parameter,
    common_parameters,
    default_policy_object,
    parameters,
    reference_markdown,
)
from gpugate.policies.rules.registry import RULES
from gpugate.webhook.admission.configuration import configuration
from gpugate.webhook.files import yaml_out

_OUTCOMES: Final = {
    frozenset({Level.DENY}): "refused",
    frozenset({Level.WARN}): "a warning",
    frozenset({Level.UNKNOWN}): "unknown until the facts are there",
    frozenset({Level.DENY, Level.WARN}): "refused, or a warning where the policy or the case says so",
}
#: What makes findings, by the name that rules call it by; the first argument is the reason.
_MAKERS: Final = frozenset({Finding.__name__, not_synced.__name__})
_CRD_HEAD: Final = "# Written by `make docs` from the models that parse a GPUPolicy: change it there.\n"
_DEFAULT_HEAD: Final = (
    "# What holds where no GPUPolicy is there: in a cluster in DryRun, offline in Enforce. Every default is written out;\n"
    "# a policy of your own needs only what it changes.\n"
)


class PolicyFormat(StrEnum):
    """What to print, and in which format."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    CRD = "crd"
    MUTATING = "mutating-webhook"
    VALIDATING = "validating-webhook"


def policies(
    *,
    form: Annotated[
        PolicyFormat,
        typer.Option("--format", help="The rules as text, JSON or Markdown; the CRD of GPUPolicy; a webhook configuration."),
    ] = PolicyFormat.TEXT,
    default: Annotated[bool, typer.Option("--default", help="Print the built-in default GPUPolicy as YAML instead.")] = False,
) -> None:
    """List the rules with their parameters and defaults."""
    if default:
        typer.echo(default_yaml(), nl=False)
    elif form is PolicyFormat.JSON:
        typer.echo(json.dumps(rules_document(), indent=2, ensure_ascii=False))
    elif form is PolicyFormat.MARKDOWN:
        typer.echo(reference(), nl=False)
    elif form is PolicyFormat.CRD:
        typer.echo(crd_yaml(), nl=False)
    elif form is PolicyFormat.MUTATING:
        typer.echo(configuration("mutate"), nl=False)
    elif form is PolicyFormat.VALIDATING:
        typer.echo(configuration("validate"), nl=False)
    else:
        _print_text()


def crd_yaml() -> str:
    """Return the CustomResourceDefinition as YAML."""
    return _CRD_HEAD + yaml_out.dump(gpupolicy_crd())


def default_yaml() -> str:
    """Return the default GPUPolicy as YAML."""
    return _DEFAULT_HEAD + yaml_out.dump(default_policy_object(Mode.DRY_RUN.value))


def reference() -> str:
    """Return the rule reference as Markdown."""
    shared = [*_reasons(hold), *_reasons(exemptions), *_reasons(checking)]
    result = {rule.id: _reasons(_module(rule)) for rule in RULES}
    return reference_markdown({**result, "": sorted(shared)})


def rules_document() -> list[dict[str, Any]]:
    """Return the rules as JSON data."""
    return [
        {
            "id": rule.id,
            "title": rule.title,
            "since": rule.since,
            "needs": sorted(rule.needs),
            "onUpdate": rule.on_update,
            "parameters": [
                {"name": parameter.name, "type": parameter.type, "default": parameter.default, "description": parameter.description}
                for parameter in (*parameters(rule), *common_parameters())
            ],
            "reasons": [{"reason": reason, "outcome": outcome} for reason, outcome in _reasons(_module(rule))],
        }
        for rule in RULES
    ]


def _module(rule: Rule) -> ModuleType:
    return sys.modules[rule.check.__module__]


def _reasons(module: ModuleType) -> list[tuple[str, str]]:
    """The reasons that ``module`` gives, read from its source: each with what becomes of it."""
    result: dict[str, set[Level]] = {}
    for call in _calls(module):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _MAKERS:
            for reason in _strings(call.args[0]):
                result.setdefault(reason, set()).update(_levels(call))
    return sorted((reason, _OUTCOMES.get(frozenset(levels), "depends on the policy")) for reason, levels in result.items())


def _calls(module: ModuleType) -> Iterator[ast.AST]:
    """Every node of the module's source, and of the functions it imports that make findings, with those that these call."""
    yield from ast.walk(ast.parse(inspect.getsource(module)))
    seen: set[str] = set()
    waiting = [one for _, one in sorted(inspect.getmembers(module, inspect.isfunction)) if one.__module__ != module.__name__]
    while waiting:
        function = waiting.pop()
        name = f"{function.__module__}.{function.__qualname__}"
        if name in seen or Finding.__name__ not in inspect.get_annotations(function).get("return", ""):
            continue
        seen.add(name)
        nodes = list(ast.walk(ast.parse(inspect.getsource(function))))
        yield from nodes
        named = {node.id for node in nodes if isinstance(node, ast.Name)}
        source_module = sys.modules[function.__module__]
        waiting += [one for key, one in inspect.getmembers(source_module, inspect.isfunction) if key in named]


def _strings(node: ast.expr) -> Iterator[str]:
    return (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _levels(call: ast.Call) -> set[Level]:
    """The levels that the call may give its finding; none where it takes them from a variable."""
    if isinstance(call.func, ast.Name) and call.func.id == not_synced.__name__:
        return {Level.UNKNOWN}
    at = Finding._fields.index("level")
    given = (
        call.args[at] if len(call.args) > at else next((keyword.value for keyword in call.keywords if keyword.arg == "level"), None)
    )
    if given is None:
        return {Level.DENY}
    return {Level[one.attr] for one in ast.walk(given) if isinstance(one, ast.Attribute) and one.attr in Level.__members__}


def _print_text() -> None:
    console = Console(highlight=False)
    rules = [(rule.id, rule.title, parameters(rule)) for rule in RULES]
    for name, title, value in (*rules, ("every rule", "has these, too", common_parameters())):
        if not console.is_terminal:
            typer.echo(f"{name}: {title}")
            for one in value:
                typer.echo(f"  {one.name} ({one.type}){f' = {one.written}' if one.written else ''}: {one.description}")
            continue
        console.print(f"\n[bold cyan]{name}[/]  {escape(title)}")
        if value:
            console.print(_parameter_table(value))


def _parameter_table(found: Sequence[Parameter]) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 2), header_style="dim")
    table.add_column("parameter", style="green", no_wrap=True)
    table.add_column("default", style="yellow", max_width=34)
    table.add_column("what it is")
    for one in found:
        table.add_row(escape(one.name), escape(one.written or "-"), f"{escape(one.description)} [dim]({escape(one.type)})[/]")
    return table
