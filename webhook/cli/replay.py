"""`gpugate replay`: answer recorded reviews again with other policies."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from gpugate.policies.policy.profiles import OFFLINE
from gpugate.webhook.cli import options
from gpugate.webhook.review import replay as replaying
from gpugate.webhook.review import replay_report
from gpugate.webhook.review.replay import AnswerChange


class ReplayOutput(StrEnum):
    """Output format of a replay."""

    TEXT = "text"
    JSON = "json"


def replay(  # noqa: PLR0913 - one parameter per option
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Recordings of gpugate serve --record, their directory, other files of AdmissionReviews, or - for standard input.",
        ),
    ],
    *,
    policy: options.PolicyFiles = None,
    profile: options.ProfileName = None,
    cluster: options.ClusterFiles = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    output: Annotated[ReplayOutput, typer.Option("--output", "-o", help="text for people, json for machines.")] = ReplayOutput.TEXT,
    color: options.ColourOption = options.Colour.AUTO,
) -> None:
    """Answer recorded reviews again with other policies, and show the differences.

    Exit code 0: nothing is newly refused; 1: something is; 2: an input is unusable.
    """
    with options.usable_inputs():
        chosen = profile if policy or kubeconfig or context else profile or OFFLINE
        snapshot, policies = options.review_context((), policy, chosen, cluster, kubeconfig, context)
    replayed = list(replaying.replay(replaying.read(paths), policies, snapshot))
    for line in replay_report.problems(replayed):
        typer.echo(f"gpugate: {line}", err=True)
    if output is ReplayOutput.JSON:
        sys.stdout.write(replay_report.as_json(replayed))
    else:
        replay_report.print_text(replayed, color.console())
    if not replayed:
        options.fail("the input contains no review")
    if any(review.effect is AnswerChange.INVALID for review in replayed):
        raise typer.Exit(options.UNUSABLE)
    if any(review.effect is AnswerChange.REFUSED for review in replayed):
        raise typer.Exit(options.REFUSED)
