"""`gpugate review`: review manifests without a webhook."""

import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.cli.context import (
    ClusterFiles,
    Colour,
    ColourOption,
    Context,
    Kubeconfig,
    Namespace,
    PolicyFiles,
    review_context,
)
from gpugate.webhook.cli.options import UNUSABLE, fail
from gpugate.webhook.files import rendering
from gpugate.webhook.files.documents import Document, UnreadableInput, read_all
from gpugate.webhook.files.rendering import Chart
from gpugate.webhook.kube.errors import ClusterError
from gpugate.webhook.review import report
from gpugate.webhook.review.entry import Outcome, ReviewEntry
from gpugate.webhook.review.review import review as judge
from gpugate.webhook.runtime.errors import InputError

REFUSED: Final = 1


class ReviewOutput(StrEnum):
    """Output format of a review."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def review(  # noqa: PLR0913 - one parameter an option
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH...]", help="Files, directories, or - for standard input: YAML or JSON, any number of documents."
        ),
    ] = None,
    *,
    kustomize: Annotated[
        Path | None,
        typer.Option("--kustomize", "-k", metavar="DIR", help="Review the output of kustomize (or kubectl kustomize) for DIR."),
    ] = None,
    helm: Annotated[str | None, typer.Option(metavar="CHART", help="Review the output of helm template for CHART.")] = None,
    values: Annotated[
        list[Path] | None, typer.Option("--values", "-f", metavar="FILE", help="Values file for --helm; may be repeated.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A value for --helm; may be repeated.")
    ] = None,
    release_name: Annotated[str, typer.Option(metavar="NAME", help="Name of the release for --helm.")] = "release-name",
    policy: PolicyFiles = None,
    cluster: ClusterFiles = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = "",
    output: Annotated[
        ReviewOutput, typer.Option("--output", "-o", help="text for people, json for machines, yaml: rewritten manifests.")
    ] = ReviewOutput.TEXT,
    show_diff: Annotated[bool, typer.Option("--diff/--no-diff", help="Show what changes as a diff.")] = True,
    color: ColourOption = Colour.AUTO,
) -> None:
    """Show what gpugate would change or refuse in manifests.

    Manifests are files, or the output of your own kustomize or helm.

    Exit code 0: clean or only changed; 1: something is refused; 2: an input is unusable.
    """
    chart = Chart(helm, values or (), sets or (), release_name, namespace) if helm else None
    if (values or sets) and not chart:
        fail("--values and --set need --helm")
    if not paths and not kustomize and not chart:
        fail("name files or directories, or use -k DIR or --helm CHART")
    try:
        documents = [*read_all(paths or ()), *_rendered(kustomize, chart)]
        snapshot, policies = review_context(documents, policy, cluster, kubeconfig, context, namespace)
    except (InputError, ClusterError) as error:
        fail(str(error))
    entries = list(judge(documents, PolicySet(policies), snapshot, namespace, now=time.time()))
    _print(entries, output, color, show_diff=show_diff)
    if any(entry.outcome is Outcome.INVALID for entry in entries) or not entries:
        if not entries:
            typer.echo("gpugate: the input contains no document", err=True)
        raise typer.Exit(UNUSABLE)
    if any(entry.outcome is Outcome.REFUSED for entry in entries):
        raise typer.Exit(REFUSED)


def _rendered(folder: Path | None, chart: Chart | None) -> Iterator[Document | UnreadableInput]:
    if folder is not None:
        yield from rendering.kustomize(folder)
    if chart is not None:
        yield from rendering.helm(chart)


def _print(entries: Sequence[ReviewEntry], output: ReviewOutput, color: Colour, *, show_diff: bool) -> None:
    if output is ReviewOutput.TEXT:
        console = Console(file=sys.stdout, highlight=False, markup=False, **color.settings())
        report.print_text(entries, console, show_diff=show_diff)
        return
    if output is ReviewOutput.JSON:
        sys.stdout.write(report.as_json(entries))
        return
    sys.stdout.write(report.as_yaml(entries))
    for line in report.problems(entries):
        typer.echo(line, err=True)
