"""`gpugate fix`: write the webhook's changes into manifests."""

import difflib
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
from gpugate.webhook.files.atomic_write import Replacement, replace_all
from gpugate.webhook.files.documents import STDIN, UnreadableInput, files_of
from gpugate.webhook.kube.errors import ClusterError
from gpugate.webhook.review import report
from gpugate.webhook.review.entry import Outcome, ReviewEntry
from gpugate.webhook.review.fix import Fixed, open_files
from gpugate.webhook.review.fix import fix as fixed_files
from gpugate.webhook.runtime.errors import InputError

REMAINS: Final = 1


def fix(  # noqa: PLR0913 - one parameter an option
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files, directories, or - for standard input, which is fixed to standard output."),
    ],
    *,
    write: Annotated[bool, typer.Option("--write", help="Change the files in place, atomically.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit code 1 if a file should change.")] = False,
    show_diff: Annotated[
        bool | None, typer.Option("--diff/--no-diff", help="Print a unified diff. Default: if no file is written.")
    ] = None,
    policy: PolicyFiles = None,
    cluster: ClusterFiles = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = "",
    color: ColourOption = Colour.AUTO,
) -> None:
    """Write the changes of the webhook into manifests; everything else in them stays as it is.

    Without --write no file changes: the diff shows the changes. Remaining problems go to standard error.

    Exit code 0: nothing remains; 1: something is refused or cannot be written, or, with --check, a file should change;
    2: an input is unusable.
    """
    piped = STDIN in paths
    _check_options(paths, write=write, check=check)
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


def _check_options(paths: Sequence[str], *, write: bool, check: bool) -> None:
    if write and check:
        fail("--check and --write exclude each other: give one of them")
    if STDIN in paths and len(paths) > 1:
        fail("standard input (-) must be the only input, since its result goes to standard output: give it alone")
    if STDIN in paths and write:
        fail("standard input (-) cannot be changed in place: omit --write to print the result")


def _distinct(files: Iterator[str | UnreadableInput]) -> list[str | UnreadableInput]:
    """Return ``files`` without duplicates by real path."""
    result: dict[str, str | UnreadableInput] = {}
    for one in files:
        file = one.file if isinstance(one, UnreadableInput) else one
        result.setdefault(file if file == STDIN else os.path.realpath(file), one)
    return list(result.values())


def _print_diffs(results: Sequence[Fixed], color: Colour) -> None:
    console = Console(file=sys.stdout, highlight=False, markup=False, soft_wrap=True, **color.settings())
    for result in results:
        lines = unified_diff(result.before, result.after, result.file) if result.changes else []
        if console.color_system is None:
            # Bytes, to keep the line breaks of the file.
            _emit("".join(lines).encode())
            continue
        for line in lines:
            console.print(Text(line.rstrip("\r\n"), style=report.line_style(line)))


def _emit(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _write(results: Sequence[Fixed]) -> None:
    changed = [result for result in results if result.changes]
    try:
        replace_all(Replacement(one.file, one.raw, one.content) for one in changed)
    except InputError as error:
        fail(str(error))
    for one in changed:
        typer.echo(f"fixed {one.file}")


def _report(results: Sequence[Fixed], paths: Sequence[str], *, write: bool) -> None:
    entries = [entry for result in results for entry in result.entries if result.file in paths or not _is_no_manifest(entry)]
    for line in report.problems(entries):
        typer.echo(line, err=True)
    changed = sum(result.changes for result in results)
    refused = sum(entry.outcome is Outcome.REFUSED for result in results for entry in result.entries)
    unwritten = sum(result.unwritten for result in results)
    parts = [f"{_count(changed, 'file')} {'fixed' if write else 'to fix'}"]
    parts += [f"{_count(refused, 'object')} refused"] if refused else []
    parts += [f"{_count(unwritten, 'object')} not written"] if unwritten else []
    typer.echo(f"{', '.join(parts)} of {_count(len(results), 'file')}", err=True)


def _is_no_manifest(entry: ReviewEntry) -> bool:
    """Return whether a file of a folder holds something else than Kubernetes objects: chart values, CI workflows."""
    return entry.outcome is Outcome.SKIPPED and entry.document > 0 and not entry.kind


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _end(results: Sequence[Fixed], *, check: bool) -> None:
    outcomes = {entry.outcome for result in results for entry in result.entries}
    if Outcome.INVALID in outcomes:
        raise typer.Exit(UNUSABLE)
    if not outcomes:
        typer.echo("gpugate: the input contains no document", err=True)
        raise typer.Exit(UNUSABLE)
    if Outcome.REFUSED in outcomes or any(result.unwritten or (check and result.changes) for result in results):
        raise typer.Exit(REMAINS)


_NO_END: Final = "\n\\ No newline at end of file\n"


def unified_diff(before: str, after: str, file: str) -> list[str]:
    """Return the lines of a unified diff that `patch` and `git apply` accept, each with its line break."""
    lines = difflib.unified_diff(_lines(before), _lines(after), _name(file), _name(file))
    return [line if line.endswith("\n") else line + _NO_END for line in lines]


def _lines(text: str) -> list[str]:
    # Diff tools only know this line break.
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]


def _name(file: str) -> str:
    return "stdin" if file == "-" else file
