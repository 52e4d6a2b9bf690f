"""`gpugate fix`: write into manifests what the webhook would change in their objects."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

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
from gpugate.webhook.files.atomic_write import ReplaceError, Replacement, replace_all
from gpugate.webhook.files.documents import STDIN, UnreadableInput, files_of
from gpugate.webhook.files.rewrite.diff import unified_diff
from gpugate.webhook.kube.types import ClusterError
from gpugate.webhook.review import report
from gpugate.webhook.review.entry import ReviewEntry
from gpugate.webhook.review.fix import Fixed, open_files
from gpugate.webhook.review.fix import fix as fixed_files
from gpugate.webhook.review.review import Outcome
from gpugate.webhook.runtime.errors import InputError

REMAINS: Final = 1


def fix(  # noqa: PLR0913 - one parameter an option
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files, directories, or - for standard input, which is fixed to standard output."),
    ],
    *,
    write: Annotated[bool, typer.Option("--write", help="Change the files in place, each whole or not at all.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 where a file should change.")] = False,
    show_diff: Annotated[
        bool | None, typer.Option("--diff/--no-diff", help="Print a unified diff. Default: where no file is written.")
    ] = None,
    policy: PolicyFiles = None,
    cluster: ClusterFiles = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = "",
    color: ColourOption = Colour.AUTO,
) -> None:
    """Write into manifests what the webhook would change in their objects; all else in them stays as it is.

    Without --write nothing is changed: the diff shows what would be. What remains for people is said on standard error.

    Exit code 0: nothing remains; 1: something is refused or cannot be written, or, with --check, a file should change;
    2: some input cannot be used.
    """
    piped = STDIN in paths
    _agree(paths, write=write, check=check)
    try:
        files = _distinct(files_of(paths))
        opened = list(open_files(files, paths))
        objects = [document for one in opened for document in one.objects()]
        snapshot, policies = review_context(objects, policy, cluster, kubeconfig, context, namespace)
    except (InputError, ClusterError) as error:
        fail(str(error))
    results = list(fixed_files(opened, PolicySet(policies), snapshot, namespace, now=time.time()))
    if show_diff or (show_diff is None and not write and (check or not piped)):
        _print_diffs(results, color)
    elif piped and not check:
        _emit(results[0].content)
    if write:
        _write(results)
    _report(results, paths, write=write)
    _end(results, check=check)


def _agree(paths: Sequence[str], *, write: bool, check: bool) -> None:
    if write and check:
        fail("--check changes nothing, --write does: give one of them")
    if STDIN in paths and len(paths) > 1:
        fail("standard input (-) is fixed to standard output: give it alone")
    if STDIN in paths and write:
        fail("standard input (-) cannot be changed in place: leave --write out, and the result is printed")


def _distinct(files: Iterator[str | UnreadableInput]) -> list[str | UnreadableInput]:
    """``files``, each once, by whatever names it goes."""
    found: dict[str, str | UnreadableInput] = {}
    for one in files:
        file = one.file if isinstance(one, UnreadableInput) else one
        found.setdefault(file if file == STDIN else os.path.realpath(file), one)
    return list(found.values())


def _print_diffs(results: Sequence[Fixed], color: Colour) -> None:
    console = Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=True, **color.settings())
    for one in results:
        lines = unified_diff(one.before, one.after, one.file) if one.changes else []
        if console.color_system is None:
            # Bytes: line breaks of the file, whichever these are, for whoever applies the diff.
            _emit("".join(lines).encode())
            continue
        for line in lines:
            console.print(Text(line.rstrip("\r\n"), style=report.line_style(line)))


def _emit(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _write(results: Sequence[Fixed]) -> None:
    changed = [one for one in results if one.changes]
    try:
        replace_all(Replacement(one.file, one.raw, one.content) for one in changed)
    except ReplaceError as error:
        fail(str(error))
    for one in changed:
        typer.echo(f"fixed {one.file}")


def _report(results: Sequence[Fixed], paths: Sequence[str], *, write: bool) -> None:
    told = [entry for one in results for entry in one.entries if one.file in paths or not _is_something_else(entry)]
    for line in report.problems(told):
        typer.echo(line, err=True)
    changed = sum(one.changes for one in results)
    refused = sum(entry.outcome is Outcome.REFUSED for one in results for entry in one.entries)
    unwritten = sum(one.unwritten for one in results)
    parts = [f"{_count(changed, 'file')} {'fixed' if write else 'to fix'}"]
    parts += [f"{_count(refused, 'object')} refused"] if refused else []
    parts += [f"{_count(unwritten, 'object')} not written"] if unwritten else []
    typer.echo(f"{', '.join(parts)} of {_count(len(results), 'file')}", err=True)


def _is_something_else(entry: ReviewEntry) -> bool:
    """Whether a file of a folder holds something that is no Kubernetes object: values of a chart, a workflow of a CI."""
    return entry.outcome is Outcome.SKIPPED and entry.document > 0 and not entry.kind


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _end(results: Sequence[Fixed], *, check: bool) -> None:
    outcomes = {entry.outcome for one in results for entry in one.entries}
    if Outcome.INVALID in outcomes:
        raise typer.Exit(UNUSABLE)
    if not outcomes:
        typer.echo("gpugate: the input holds no document", err=True)
        raise typer.Exit(UNUSABLE)
    if Outcome.REFUSED in outcomes or any(one.unwritten or (check and one.changes) for one in results):
        raise typer.Exit(REMAINS)
