"""Printing a replay: for people, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpugate.webhook.admission.response import sentence, strip_immutable_words
from gpugate.webhook.review.replay import AnswerChange, Replayed
from gpugate.webhook.review.report import shown
from gpugate.webhook.review.review import finding_as_json

_STYLES: Final = {
    AnswerChange.REFUSED: "bold red",
    AnswerChange.FREED: "green",
    AnswerChange.CHANGED: "cyan",
    AnswerChange.UNCHANGED: "yellow",
    AnswerChange.SAME: "dim",
    AnswerChange.SKIPPED: "dim",
    AnswerChange.INVALID: "bold red",
}
_COUNTED: Final = {
    AnswerChange.REFUSED: "newly refused",
    AnswerChange.FREED: "freed",
    AnswerChange.CHANGED: "newly changed",
    AnswerChange.UNCHANGED: "no longer changed",
    AnswerChange.SAME: "the same",
    AnswerChange.SKIPPED: "skipped",
    AnswerChange.INVALID: "unreadable",
}
_WIDTH: Final = max(len(effect.value) for effect in AnswerChange) + 1


def _reasons(one: Replayed) -> tuple[str, ...]:
    """The lines below the title: what made the difference."""
    if one.effect is AnswerChange.REFUSED:
        return tuple(sentence(found) for found in one.denied)
    if one.effect is AnswerChange.FREED:
        return tuple(f"then refused: {reason}" for reason in (one.then.denied if one.then is not None else ()))
    if one.effect is AnswerChange.CHANGED:
        return tuple(f"{change.rule}: {'; '.join(change.notes)}" for change in one.changes if change.rule in one.gained)
    return tuple(f"then changed: {rule}" for rule in one.lost) if one.effect is AnswerChange.UNCHANGED else ()


def print_text(replayed: Sequence[Replayed], console: Console) -> None:
    """Print what differs, alike reviews once, a table of the rules behind it, and a line that counts."""
    groups: dict[tuple[AnswerChange, str, tuple[str, ...]], list[Replayed]] = {}
    for one in replayed:
        if one.effect in {AnswerChange.REFUSED, AnswerChange.FREED, AnswerChange.CHANGED, AnswerChange.UNCHANGED}:
            groups.setdefault((one.effect, one.title, _reasons(one)), []).append(one)
    for effect in _COUNTED:
        for (found, name, reasons), alike in groups.items():
            if found is effect:
                _print_group(effect, name, reasons, alike, console)
    _print_rules(replayed, console)
    counts = Counter(one.effect for one in replayed)
    parts = [f"{counts[effect]} {text}" for effect, text in _COUNTED.items() if counts[effect]]
    total = len(replayed)
    console.print(Text(f"{total} review{'' if total == 1 else 's'}: {', '.join(parts) or 'none'}", style="bold"), soft_wrap=True)


def _print_group(effect: AnswerChange, name: str, reasons: Sequence[str], alike: Sequence[Replayed], console: Console) -> None:
    header = Text()
    header.append(effect.value.ljust(_WIDTH), style=_STYLES[effect])
    header.append(shown(name), style="bold")
    source = alike[0].source
    more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    header.append(shown(f"  {source.file}:{source.place}{more}"), style="dim")
    console.print(header, soft_wrap=True)
    for reason in reasons:
        console.print(Text(f"    {strip_immutable_words(shown(reason))}", style=_STYLES[effect]), soft_wrap=True)


def by_rule(replayed: Sequence[Replayed]) -> dict[str, Counter[AnswerChange]]:
    """For each rule, in how many reviews it made the difference."""
    counts: dict[str, Counter[AnswerChange]] = {}
    for one in replayed:
        rules: set[str] = set()
        if one.effect is AnswerChange.REFUSED:
            rules = {found.rule for found in one.denied}
        elif one.effect is AnswerChange.FREED and one.then is not None:
            rules = {reason.partition("/")[0] for reason in one.then.denied}
        elif one.effect is AnswerChange.CHANGED:
            rules = set(one.gained)
        elif one.effect is AnswerChange.UNCHANGED:
            rules = set(one.lost)
        for rule in rules:
            counts.setdefault(rule, Counter())[one.effect] += 1
    return dict(sorted(counts.items()))


def _print_rules(replayed: Sequence[Replayed], console: Console) -> None:
    rules = by_rule(replayed)
    if not rules:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("rule")
    differing = (AnswerChange.REFUSED, AnswerChange.FREED, AnswerChange.CHANGED, AnswerChange.UNCHANGED)
    for effect in differing:
        table.add_column(_COUNTED[effect], justify="right")
    for rule, counts in rules.items():
        table.add_row(shown(rule), *(str(counts[effect]) for effect in differing))
    console.print()
    console.print(table)
    console.print()


def as_json(replayed: Sequence[Replayed]) -> str:
    """One JSON object: counts, counts by rule, and an entry for each review."""
    counts = Counter(one.effect for one in replayed)
    document = {
        "reviews": len(replayed),
        "counts": {effect.value: counts[effect] for effect in AnswerChange},
        "rules": {
            rule: {effect.value: number for effect, number in sorted(found.items(), key=lambda item: item[0].value)}
            for rule, found in by_rule(replayed).items()
        },
        "entries": [_entry(one) for one in replayed],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


def _entry(one: Replayed) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": one.source.file, "place": one.source.place, "effect": one.effect.value}
    if one.note:
        entry["note"] = one.note
    request = one.request
    if request is None:
        return entry
    entry |= {
        "uid": request.uid,
        "operation": request.operation,
        "apiVersion": request.api_version,
        "kind": request.kind,
        "subresource": request.subresource,
        "namespace": request.namespace,
        "name": request.name,
        "dryRun": request.dry_run,
    }
    if one.then is not None:
        then = one.then
        entry["then"] = {
            "endpoint": then.endpoint,
            "allowed": then.allowed,
            "changed": list(then.changed),
            "denied": list(then.denied),
            "policies": list(then.policies),
        }
    if one.effect not in {AnswerChange.SKIPPED, AnswerChange.INVALID}:
        entry["now"] = {
            "allowed": not one.denied,
            "changed": [change.rule for change in one.changes],
            "denied": [finding_as_json(found) for found in one.denied],
        }
    return entry


def problems(replayed: Sequence[Replayed]) -> Iterator[str]:
    """A line for everything that could not be read: where, and why."""
    for one in replayed:
        if one.effect is AnswerChange.INVALID:
            place = f"{one.source.file}:{one.source.place}" if one.source.place else one.source.file
            yield shown(f"{place}: {one.note}")
