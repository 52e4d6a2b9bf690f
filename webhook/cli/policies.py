"""`gpugate policies`: print rules with their parameters, the default policy, the rule reference and the CRD."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import FIXED_ACTIONS, Reason
from gpugate.policies.policy.crd import gpupolicy_crd
from gpugate.policies.policy.reference import (
    Parameter,
    common_parameters,
    default_policy_object,
    outcome_of,
    parameters,
    reference_markdown,
)
from gpugate.policies.rules.registry import RULES
from gpugate.webhook.admission.configuration import configuration
from gpugate.webhook.files.yaml import dump

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
    return _CRD_HEAD + dump(gpupolicy_crd())


def default_yaml() -> str:
    """Return the default GPUPolicy as YAML."""
    return _DEFAULT_HEAD + dump(default_policy_object(Mode.DRY_RUN.value))


def reference() -> str:
    """Return the rule reference as Markdown."""
    return reference_markdown()


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
            "reasons": [
                {"reason": name, "action": _action(reason), "outcome": outcome_of(reason), "title": reason.title}
                for name, reason in rule.reasons.items()
            ],
        }
        for rule in RULES
    ]


def _action(reason: Reason) -> str:
    """Return the action of ``reason``, or the parameter that holds it as a policy writes it."""
    return reason.action if reason.action in FIXED_ACTIONS else to_camel(reason.action)


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
