"""`gpugate policies`: print rules with their parameters, the default policy, the rule reference and the CRD."""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import FIXED_ACTIONS
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.crd import gpupolicy_crd
from gpugate.policies.policy.failing_closed import FailingClosed
from gpugate.policies.policy.models import default_policy
from gpugate.policies.policy.profile_reference import (
    Comparison,
    parameters_by_profile,
    profiles_markdown,
    reasons_by_profile,
    rules_by_profile,
)
from gpugate.policies.policy.profiles import DEFAULT, NAMES
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
from gpugate.webhook.cli import options
from gpugate.webhook.files.inputs import load_policies
from gpugate.webhook.files.yaml import dump

_CRD_HEAD: Final = "# Written by `make docs` from the models that parse a GPUPolicy: change it there.\n"
_DEFAULT_HEAD: Final = (
    "# The policy of a cluster without a GPUPolicy. It contains every setting of its profile; your own policy needs only the\n"
    "# profile and the values that it changes. Offline reviews without a policy use the profile recommended in mode Enforce.\n"
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
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="GPUPolicy file for the webhook configuration; may be repeated. Default: the built-in one.",
        ),
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Print the built-in default GPUPolicy as YAML instead.")] = False,
    profile: Annotated[str, typer.Option("--profile", metavar="NAME", help="The profile of --default.")] = DEFAULT,
    profiles: Annotated[
        bool, typer.Option("--profiles", help="Print what each rule does under each profile instead: as text, JSON or Markdown.")
    ] = False,
) -> None:
    """List the rules with their parameters and defaults."""
    if profiles:
        _print_profiles(form)
        return
    with options.usable_inputs():
        options.check_profile(profile)
    if policy and form not in {PolicyFormat.MUTATING, PolicyFormat.VALIDATING}:
        options.fail("--policy needs --format mutating-webhook or validating-webhook")
    formats: dict[PolicyFormat, Callable[[], str]] = {
        PolicyFormat.JSON: lambda: json.dumps(rules_document(), indent=2, ensure_ascii=False) + "\n",
        PolicyFormat.MARKDOWN: reference_markdown,
        PolicyFormat.CRD: crd_yaml,
        PolicyFormat.MUTATING: lambda: webhook_yaml("mutate", policy),
        PolicyFormat.VALIDATING: lambda: webhook_yaml("validate", policy),
    }
    if not default and form is PolicyFormat.TEXT:
        _print_text()
    else:
        typer.echo(default_yaml(profile) if default else formats[form](), nl=False)


def crd_yaml() -> str:
    """Return the CustomResourceDefinition as YAML."""
    return _CRD_HEAD + dump(gpupolicy_crd())


def webhook_yaml(endpoint: str, files: list[Path] | None) -> str:
    """Return a webhook configuration for the policies in ``files``, or the built-in one, as YAML."""
    with options.usable_inputs():
        failing = FailingClosed(PolicySet(load_policies(files) if files else [default_policy(Mode.DRY_RUN)]))
    return configuration(endpoint, failing)


def default_yaml(profile: str = DEFAULT) -> str:
    """Return the default GPUPolicy as YAML, with the settings of ``profile``."""
    return _DEFAULT_HEAD + dump(default_policy_object(Mode.DRY_RUN.value, profile))


def _print_profiles(form: PolicyFormat) -> None:
    """Print the comparison of the profiles."""
    parts = {"rules": rules_by_profile(), "parameters": parameters_by_profile(), "reasons": reasons_by_profile()}
    if form is PolicyFormat.MARKDOWN:
        typer.echo(profiles_markdown(), nl=False)
    elif form is PolicyFormat.JSON:
        document = {
            part: [{"rule": line.rule, "name": line.name, **dict(zip(NAMES, line.outcomes, strict=True))} for line in lines]
            for part, lines in parts.items()
        }
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif form is PolicyFormat.TEXT:
        _print_comparisons(parts)
    else:
        options.fail(f"--profiles has no format {form.value}: use text, json or markdown")


def _print_comparisons(parts: Mapping[str, Sequence[Comparison]]) -> None:
    console = Console(highlight=False)
    heads = {"rules": "may change", "parameters": "parameter", "reasons": "reason"}
    for part, lines in parts.items():
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title=part, title_justify="left")
        for column in ("rule", heads[part], *NAMES):
            table.add_column(column, overflow="fold")
        for line in lines:
            table.add_row(*map(escape, (line.rule, line.name, *line.outcomes)))
        console.print(table)


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
                {
                    "reason": name,
                    "action": reason.action if reason.action in FIXED_ACTIONS else to_camel(reason.action),
                    "outcome": outcome_of(reason),
                    "title": reason.title,
                }
                for name, reason in rule.reasons.items()
            ],
        }
        for rule in RULES
    ]


def _print_text() -> None:
    console = Console(highlight=False)
    rules = [(rule.id, rule.title, parameters(rule)) for rule in RULES]
    for name, title, rows in (*rules, ("every rule", "has these as well", common_parameters())):
        if not console.is_terminal:
            typer.echo(f"{name}: {title}")
            for row in rows:
                typer.echo(f"  {row.name} ({row.type}){f' = {row.written}' if row.written else ''}: {row.description}")
            continue
        console.print(f"\n[bold cyan]{name}[/]  {escape(title)}")
        if rows:
            console.print(_parameter_table(rows))


def _parameter_table(rows: Sequence[Parameter]) -> Table:
    table = Table(box=None, padding=(0, 0, 0, 2), header_style="dim")
    table.add_column("parameter", style="green", no_wrap=True)
    table.add_column("default", style="yellow", max_width=34)
    table.add_column("description")
    for row in rows:
        table.add_row(escape(row.name), escape(row.written or "-"), f"{escape(row.description)} [dim]({escape(row.type)})[/]")
    return table
