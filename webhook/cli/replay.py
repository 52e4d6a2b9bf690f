"""`gpugate replay`: answer recorded reviews again, by another policy."""

import sys
from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import Console

from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.cli.context import ClusterFiles, Colour, ColourOption, Context, Kubeconfig, PolicyFiles, review_context
from gpugate.webhook.cli.options import UNUSABLE, fail
from gpugate.webhook.kube.errors import ClusterError
from gpugate.webhook.review import replay as replaying
from gpugate.webhook.review import replay_report
from gpugate.webhook.review.replay import AnswerChange
from gpugate.webhook.runtime.errors import InputError

REFUSED: Final = 1


class ReplayOutput(StrEnum):
    """Output format of a replay."""

    TEXT = "text"
    JSON = "json"


def replay(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Recordings of gpugate serve --record, their directory, other files of AdmissionReviews, or - for standard input.",
        ),
    ],
    *,
    policy: PolicyFiles = None,
    cluster: ClusterFiles = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[ReplayOutput, typer.Option("--output", "-o", help="text for people, json for machines.")] = ReplayOutput.TEXT,
    color: ColourOption = Colour.AUTO,
) -> None:
    """Answer recorded reviews again by another policy, and show the differences.

    Exit code 0: nothing is newly refused; 1: something is; 2: an input is unusable.
    """
    try:
        snapshot, policies = review_context((), policy, cluster, kubeconfig, context)
    except (InputError, ClusterError) as error:
        fail(str(error))
    replayed = list(replaying.replay(replaying.read(paths), PolicySet(policies), snapshot))
    for line in replay_report.problems(replayed):
        typer.echo(f"gpugate: {line}", err=True)
    if output is ReplayOutput.JSON:
        sys.stdout.write(replay_report.as_json(replayed))
    else:
        replay_report.print_text(replayed, Console(file=sys.stdout, highlight=False, markup=False, **color.settings()))
    if not replayed:
        fail("the input contains no review")
    if any(review.effect is AnswerChange.INVALID for review in replayed):
        raise typer.Exit(UNUSABLE)
    if any(review.effect is AnswerChange.REFUSED for review in replayed):
        raise typer.Exit(REFUSED)
