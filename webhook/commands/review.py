"""`gpugate review`: judge manifests without a webhook."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from gpugate.policies.facts import NO_FACTS, Facts, Known
from gpugate.policies.finding import Mode
from gpugate.policies.policy import KIND, Policy, PolicyError, PolicySet, default_policy, parse_policy
from gpugate.webhook import report
from gpugate.webhook.cluster import ClusterError
from gpugate.webhook.cluster.fetch import fetch
from gpugate.webhook.commands.failing import UNUSABLE, fail
from gpugate.webhook.documents import Document, Unreadable, read_all
from gpugate.webhook.inputs import InputError, facts_of, gives_facts, load_policies, objects_in
from gpugate.webhook.review import Entry, Outcome
from gpugate.webhook.review import review as judge

REFUSED: Final = 1
#: Kinds that a review reads from its own input, as facts for the workloads beside them.
_OWN_FACTS: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})


class Output(StrEnum):
    """How to print a review."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Colour(StrEnum):
    """When to print in colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def review(  # noqa: PLR0913 - one parameter an option
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Files, directories, or - for standard input: YAML or JSON, any number of documents."
        ),
    ],
    *,
    policy: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="GPUPolicy file; may be repeated. Default: the built-in one, enforced."),
    ] = None,
    cluster: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Plain Kubernetes objects (nodes, queues) as facts; may be repeated."),
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(metavar="FILE", help="Take facts and policies from this cluster.")] = None,
    context: Annotated[str | None, typer.Option(help="Take facts and policies from this context's cluster.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of objects that state none.")] = "",
    output: Annotated[
        Output, typer.Option("--output", "-o", help="text for people, json for machines, yaml: rewritten manifests.")
    ] = Output.TEXT,
    show_diff: Annotated[bool, typer.Option("--diff/--no-diff", help="Show what changes as a diff.")] = True,
    color: Annotated[Colour, typer.Option(help="When to print in colour.")] = Colour.AUTO,
) -> None:
    """Show what gpugate would change in manifests and what it would refuse.

    Exit code 0: clean or only changed; 1: something is refused; 2: some input cannot be used.
    """
    try:
        documents = list(read_all(paths))
        facts, policies = _surroundings(documents, policy, cluster, kubeconfig, context)
    except (InputError, ClusterError) as error:
        fail(str(error))
    entries = list(judge(documents, PolicySet(policies), facts, namespace))
    _print(entries, output, color, show_diff=show_diff)
    if any(entry.outcome is Outcome.INVALID for entry in entries) or not entries:
        if not entries:
            typer.echo("gpugate: the input holds no document", err=True)
        raise typer.Exit(UNUSABLE)
    if any(entry.outcome is Outcome.REFUSED for entry in entries):
        raise typer.Exit(REFUSED)


def _surroundings(
    documents: Sequence[Document | Unreadable],
    policy: list[Path] | None,
    cluster: list[Path] | None,
    kubeconfig: Path | None,
    context: str | None,
) -> tuple[Facts, list[Policy]]:
    own = [one.value for one in documents if isinstance(one, Document) and _is_own_fact(one.value)]
    objects: list[dict[str, Any]] = []
    known: dict[str, Known] = {}
    if cluster and (kubeconfig or context):
        message = "give facts either by --cluster or by --kubeconfig and --context, not both"
        raise InputError(message)
    if cluster:
        objects = objects_in(str(path) for path in cluster)
    elif kubeconfig or context:
        objects, known = asyncio.run(fetch(kubeconfig, context))
    facts = facts_of([*objects, *own], known) if objects or own else NO_FACTS
    if policy:
        return facts, load_policies(policy)
    return facts, _policies_among(objects) or [default_policy(Mode.ENFORCE)]


def _is_own_fact(value: object) -> bool:
    return isinstance(value, dict) and value.get("kind") in _OWN_FACTS and gives_facts(value)


def _policies_among(objects: Sequence[dict[str, Any]]) -> list[Policy]:
    found = []
    for one in objects:
        if one.get("kind") == KIND:
            try:
                found.append(parse_policy(one))
            except PolicyError as error:
                message = f"a {KIND} of the cluster does not parse: {error}"
                raise InputError(message) from None
    return found


def _print(entries: Sequence[Entry], output: Output, color: Colour, *, show_diff: bool) -> None:
    if output is Output.TEXT:
        # Left out, rich asks the terminal and the environment; asked for, colour comes whatever these say.
        wanted: dict[Colour, dict[str, Any]] = {
            Colour.ALWAYS: {"force_terminal": True, "color_system": "standard", "no_color": False},
            Colour.NEVER: {"force_terminal": False, "no_color": True},
        }
        console = Console(file=sys.stdout, highlight=False, markup=False, **wanted.get(color, {}))
        report.print_text(entries, console, show_diff=show_diff)
        return
    if output is Output.JSON:
        sys.stdout.write(report.as_json(entries))
        return
    sys.stdout.write(report.as_yaml(entries))
    for line in report.problems(entries):
        typer.echo(line, err=True)
