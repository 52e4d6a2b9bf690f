"""Print a review as text, JSON, or rewritten manifests."""

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import orjson
from rich.console import Console
from rich.text import Text

from gpugate.policies.findings import Mode, Severity
from gpugate.webhook.admission.response import sentence, strip_immutable_words
from gpugate.webhook.files.yaml import dump
from gpugate.webhook.review.entry import Outcome, ReviewEntry

_OUTCOME_STYLES: Final = {
    Outcome.CLEAN: "green",
    Outcome.CHANGED: "cyan",
    Outcome.REFUSED: "bold red",
    Outcome.SKIPPED: "dim",
    Outcome.INVALID: "bold red",
}
_SEVERITY_STYLES: Final = {Severity.DENY: "red", Severity.WARN: "yellow", Severity.DRYRUN: "blue", Severity.UNKNOWN: "magenta"}
_CONTEXT: Final = 2
#: Control characters of a manifest, which could affect a terminal.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def diff(entry: ReviewEntry) -> Iterator[str]:
    """Yield the lines of a unified diff from the object as read to the object as rewritten."""
    before, after = dump(entry.before).splitlines(), dump(entry.after).splitlines()
    # Skip the two file lines: the header names the object.
    yield from islice(difflib.unified_diff(before, after, lineterm="", n=_CONTEXT), 2, None)


def shown(text: str) -> str:
    """Replace control characters in ``text`` that could affect a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def line_style(line: str) -> str:
    """Return the colour of a line of a diff."""
    if line.startswith("@@"):
        return "dim"
    return {"+": "green", "-": "red"}.get(line[:1], "")


def print_text(entries: Sequence[ReviewEntry], console: Console, *, show_diff: bool = True) -> None:
    """Print every entry as text, and a line with the counts."""
    for entry in entries:
        if entry.outcome is Outcome.SKIPPED and not entry.note:
            continue
        _print_entry(entry, console, show_diff=show_diff)
    counts = Counter(entry.outcome for entry in entries)
    parts = [f"{counts[outcome]} {outcome.value}" for outcome in Outcome if counts[outcome]]
    total, warned = len(entries), sum(_is_warned(entry) for entry in entries)
    warnings = f"; {warned} of them with warnings" if warned else ""
    console.print(Text(f"{total} object{'' if total == 1 else 's'}: {', '.join(parts) or 'none'}{warnings}", style="bold"))


def _is_warned(entry: ReviewEntry) -> bool:
    """Return whether the object passes with a warning."""
    passes = entry.outcome not in {Outcome.REFUSED, Outcome.INVALID}
    return passes and any(finding.severity is Severity.WARN for finding in entry.findings)


def _print_entry(entry: ReviewEntry, console: Console, *, show_diff: bool) -> None:
    header = Text()
    header.append(entry.outcome.value.ljust(8), style=_OUTCOME_STYLES[entry.outcome])
    header.append(shown(entry.title), style="bold")
    header.append(shown(f"  {entry.file}") + (f" (document {entry.document})" if entry.document > 1 else ""), style="dim")
    console.print(header, soft_wrap=True)
    if entry.note:
        console.print(Text(f"    {shown(entry.note)}", style="yellow"), soft_wrap=True)
    for change in entry.changes if entry.outcome is Outcome.CHANGED else ():
        console.print(Text(f"    {change.rule}: {shown('; '.join(change.notes))}", style="cyan"), soft_wrap=True)
    for change in entry.would_change:
        would = shown("; ".join(change.notes))
        mode = "dry run" if change.mode is Mode.DRY_RUN else change.mode.value.lower()
        console.print(Text(f"    {change.rule} ({mode}) would: {would}", style="blue"), soft_wrap=True)
    for finding in entry.findings if entry.outcome is not Outcome.INVALID else ():
        text = Text("    ")
        text.append(finding.severity.value.ljust(8), style=_SEVERITY_STYLES[finding.severity])
        text.append(strip_immutable_words(shown(sentence(finding))))
        console.print(text, soft_wrap=True)
    if show_diff and entry.patch:
        for line in diff(entry):
            console.print(Text(f"      {line}", style=line_style(line)), soft_wrap=True)


def as_json(entries: Sequence[ReviewEntry]) -> str:
    """Format the entries as one JSON list."""
    return orjson.dumps([entry.as_json() for entry in entries], option=orjson.OPT_INDENT_2).decode() + "\n"


def as_yaml(entries: Sequence[ReviewEntry]) -> str:
    """Return the rewritten manifests; refused objects and objects that gpugate does not review are unchanged."""
    return "---\n".join(dump(entry.after) for entry in entries if entry.outcome is not Outcome.INVALID or entry.before is not None)


def problems(entries: Sequence[ReviewEntry]) -> Iterator[str]:
    """Yield a line for each note and finding, beside the rewritten manifests."""
    for entry in entries:
        place = f"{entry.file}: {entry.title}"
        if entry.note:
            yield shown(f"{place}: {entry.note}")
        if entry.outcome is Outcome.INVALID:
            # The finding repeats the note.
            continue
        for finding in entry.findings:
            yield shown(f"{place}: {finding.severity.value}: {strip_immutable_words(sentence(finding))}")
