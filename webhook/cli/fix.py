"""`gpugate fix`: write the changes of the webhook into manifests."""

import difflib
import os
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from gpugate.webhook.cli import options
from gpugate.webhook.files.atomic_write import FileReplacement, replace_all
from gpugate.webhook.files.documents import STDIN, SUFFIXES, UnreadableInput, files_of
from gpugate.webhook.files.inputs import NO_DOCUMENT
from gpugate.webhook.files.within import links_out_of
from gpugate.webhook.review import report
from gpugate.webhook.review.entry import Outcome, ReviewEntry
from gpugate.webhook.review.fix import Fixed, open_files
from gpugate.webhook.review.fix import fix as fixed_files

#: Links shown by name.
_SHOWN: Final = 3
_NO_END: Final = "\n\\ No newline at end of file\n"


def fix(  # noqa: PLR0913 - one parameter per option
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
    policy: options.PolicyFiles = None,
    profile: options.ProfileName = None,
    cluster: options.ClusterFiles = None,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    namespace: options.Namespace = "",
    color: options.ColourOption = options.Colour.AUTO,
) -> None:
    """Write the changes of the webhook into manifests; everything else in them stays as it is.

    Without --write no file changes: the diff shows the changes. Remaining problems go to standard error.

    Exit code 0: nothing remains; 1: something is refused or cannot be written, or, with --check, a file should change;
    2: an input is unusable.
    """
    piped = STDIN in paths
    _check_options(paths, write=write, check=check)
    with options.usable_inputs():
        files, roots = _files(paths, write=write)
        opened = list(open_files(files, paths, roots))
        objects = [document for file in opened for document in file.objects()]
        snapshot, policies = options.review_context(objects, policy, profile, cluster, kubeconfig, context, namespace)
    results = list(fixed_files(opened, policies, snapshot, namespace, now=time.time()))
    if show_diff or (show_diff is None and not write and (check or not piped)):
        _print_diffs(results, color)
    elif piped and not check:
        _emit(results[0].content)
    if write:
        _write(results, roots)
    _report_links(paths)
    _report(results, paths, write=write)
    _end(results, check=check)


def _check_options(paths: Sequence[str], *, write: bool, check: bool) -> None:
    if write and check:
        options.fail("--check and --write exclude each other: give one of them")
    if STDIN in paths and len(paths) > 1:
        options.fail("standard input (-) must be the only input, since its result goes to standard output: give it alone")
    if STDIN in paths and write:
        options.fail("standard input (-) cannot be changed in place: omit --write to print the result")


def _files(paths: Sequence[str], *, write: bool) -> tuple[list[str | UnreadableInput], dict[str, Path]]:
    """Return the files without duplicates by real path, and the real paths of the folders in which they were found.

    Files that the user named come first: a link that leads out of a folder is followed only if it is named.
    """
    result: dict[str, str | UnreadableInput] = {}
    roots: dict[str, Path] = {}
    folders = _folders(paths)
    for path in (*(path for path in paths if path not in folders), *folders):
        root = os.path.realpath(path) if path in folders else None
        for file in files_of([path]):
            name = file.file if isinstance(file, UnreadableInput) else file
            real = name if name == STDIN else os.path.realpath(name)
            if root is not None and not Path(real).is_relative_to(root):
                continue
            if write and isinstance(file, str) and _mode(real) and not stat.S_ISREG(_mode(real)):
                file = UnreadableInput(name, 0, "is no regular file, so it cannot be changed in place")  # noqa: PLW2901
            if real not in result and root is not None:
                roots[name] = Path(root)
            result.setdefault(real, file)
    return list(result.values()), roots


def _folders(paths: Sequence[str]) -> list[str]:
    return [path for path in dict.fromkeys(paths) if path != STDIN and stat.S_ISDIR(_mode(path))]


def _mode(path: str) -> int:
    """Return the mode of a file or folder; 0 if it cannot be looked at, since reading it then says why."""
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


def _report_links(paths: Sequence[str]) -> None:
    for folder in _folders(paths):
        links = links_out_of(folder, SUFFIXES)
        if links:
            shown = ", ".join(links[:_SHOWN]) + (f" and {len(links) - _SHOWN} more" if len(links) > _SHOWN else "")
            lead = "links that lead out of it are" if len(links) > 1 else "link that leads out of it is"
            typer.echo(f"{folder}: {len(links)} {lead} left alone: {shown}", err=True)


def _print_diffs(results: Sequence[Fixed], color: options.Colour) -> None:
    console = color.console(soft_wrap=True)
    for result in results:
        lines = unified_diff(result.before, result.after, result.file) if result.changes else []
        if console.color_system is None:
            # Write bytes, to keep the line breaks of the file.
            _emit("".join(lines).encode())
            continue
        for line in lines:
            console.print(Text(line.rstrip("\r\n"), style=report.line_style(line)))


def _emit(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _write(results: Sequence[Fixed], roots: Mapping[str, Path]) -> None:
    changed = [result for result in results if result.changes]
    with options.usable_inputs():
        replace_all(FileReplacement(result.file, result.raw, result.content, roots.get(result.file)) for result in changed)
    for result in changed:
        typer.echo(f"fixed {result.file}")


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
    """Return whether a document of a folder is not a Kubernetes object: chart values, CI workflows."""
    return entry.outcome is Outcome.SKIPPED and entry.document > 0 and not entry.kind


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _end(results: Sequence[Fixed], *, check: bool) -> None:
    outcomes = {entry.outcome for result in results for entry in result.entries}
    if Outcome.INVALID in outcomes:
        raise typer.Exit(options.UNUSABLE)
    if not outcomes:
        options.fail(NO_DOCUMENT)
    if Outcome.REFUSED in outcomes or any(result.unwritten or (check and result.changes) for result in results):
        raise typer.Exit(options.REFUSED)


def unified_diff(before: str, after: str, file: str) -> list[str]:
    """Return the lines of a unified diff that `patch` and `git apply` accept, each with its line break."""
    name = "stdin" if file == STDIN else file
    lines = difflib.unified_diff(_lines(before), _lines(after), name, name)
    return [line if line.endswith("\n") else line + _NO_END for line in lines]


def _lines(text: str) -> list[str]:
    # Diff tools split at this line break only.
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]
