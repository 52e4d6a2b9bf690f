"""`gpugate review`: review manifests without a webhook."""

import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpugate.webhook.cli import options
from gpugate.webhook.files import rendering
from gpugate.webhook.files.documents import read_all
from gpugate.webhook.files.inputs import NO_DOCUMENT
from gpugate.webhook.files.rendering import Chart
from gpugate.webhook.review import report
from gpugate.webhook.review.entry import Outcome, ReviewEntry
from gpugate.webhook.review.review import review as review_documents


class ReviewOutput(StrEnum):
    """Output format of a review."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def review(  # noqa: PLR0913 - one parameter per option
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
    policy: options.PolicyFiles = None,
    profile: options.ProfileName = None,
    cluster: options.ClusterFiles = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    namespace: options.Namespace = "",
    output: Annotated[
        ReviewOutput, typer.Option("--output", "-o", help="text for people, json for machines, yaml: rewritten manifests.")
    ] = ReviewOutput.TEXT,
    show_diff: Annotated[bool, typer.Option("--diff/--no-diff", help="Show what changes as a diff.")] = True,
    color: options.ColourOption = options.Colour.AUTO,
) -> None:
    """Show what gpugate would change or refuse in manifests.

    Manifests are files, or the output of your own kustomize or helm.

    Exit code 0: clean or only changed; 1: something is refused; 2: an input is unusable.
    """
    chart = Chart(helm, values or (), sets or (), release_name, namespace) if helm else None
    if (values or sets) and not chart:
        options.fail("--values and --set need --helm")
    if not paths and not kustomize and not chart:
        options.fail("give files or directories, -k DIR or --helm CHART")
    with options.usable_inputs():
        rendered = [*(rendering.kustomize(kustomize) if kustomize else ()), *(rendering.helm(chart) if chart else ())]
        documents = [*read_all(paths or ()), *rendered]
        snapshot, policies = options.review_context(documents, policy, profile, cluster, kubeconfig, context, namespace)
    entries = list(review_documents(documents, policies, snapshot, namespace, now=time.time()))
    _print(entries, output, color, show_diff=show_diff)
    if not entries:
        options.fail(NO_DOCUMENT)
    if any(entry.outcome is Outcome.INVALID for entry in entries):
        raise typer.Exit(options.UNUSABLE)
    if any(entry.outcome is Outcome.REFUSED for entry in entries):
        raise typer.Exit(options.REFUSED)


def _print(entries: Sequence[ReviewEntry], output: ReviewOutput, color: options.Colour, *, show_diff: bool) -> None:
    if output is ReviewOutput.TEXT:
        report.print_text(entries, color.console(), show_diff=show_diff)
    elif output is ReviewOutput.JSON:
        sys.stdout.write(report.as_json(entries))
    else:
        sys.stdout.write(report.as_yaml(entries))
        for line in report.problems(entries):
            typer.echo(line, err=True)
