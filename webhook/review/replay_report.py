"""Print a replay as text or JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpugate.webhook.admission.response import sentence, strip_immutable_words
from gpugate.webhook.review.entry import finding_as_json
from gpugate.webhook.review.replay import AnswerChange, Replayed
from gpugate.webhook.review.report import shown

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
_DIFFERING: Final = (AnswerChange.REFUSED, AnswerChange.FREED, AnswerChange.CHANGED, AnswerChange.UNCHANGED)
_WIDTH: Final = max(len(effect.value) for effect in AnswerChange) + 1


def _reasons(review: Replayed) -> tuple[str, ...]:
    """Return the reasons for the difference, one per line below the title."""
    if review.effect is AnswerChange.REFUSED:
        return tuple(sentence(denial) for denial in review.denied)
    if review.effect is AnswerChange.FREED:
        return tuple(f"then refused: {reason}" for reason in (review.recorded.denied if review.recorded is not None else ()))
    if review.effect is AnswerChange.CHANGED:
        return tuple(f"{change.rule}: {'; '.join(change.notes)}" for change in review.changes if change.rule in review.gained)
    return tuple(f"then changed: {rule}" for rule in review.lost) if review.effect is AnswerChange.UNCHANGED else ()


def print_text(replayed: Sequence[Replayed], console: Console) -> None:
    """Print the answers that differ, in groups of equal ones, a table of the rules that decided them, and the counts."""
    groups: dict[tuple[AnswerChange, str, tuple[str, ...]], list[Replayed]] = {}
    for review in replayed:
        if review.effect in _DIFFERING:
            groups.setdefault((review.effect, review.title, _reasons(review)), []).append(review)
    for effect in _COUNTED:
        for (group_effect, name, reasons), group in groups.items():
            if group_effect is effect:
                _print_group(effect, name, reasons, group, console)
    _print_rules(replayed, console)
    counts = Counter(review.effect for review in replayed)
    parts = [f"{counts[effect]} {text}" for effect, text in _COUNTED.items() if counts[effect]]
    total = len(replayed)
    console.print(Text(f"{total} review{'' if total == 1 else 's'}: {', '.join(parts) or 'none'}", style="bold"), soft_wrap=True)


def _print_group(effect: AnswerChange, name: str, reasons: Sequence[str], group: Sequence[Replayed], console: Console) -> None:
    header = Text()
    header.append(effect.value.ljust(_WIDTH), style=_STYLES[effect])
    header.append(shown(name), style="bold")
    source = group[0].source
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    header.append(shown(f"  {source.file}:{source.place}{more}"), style="dim")
    console.print(header, soft_wrap=True)
    for reason in reasons:
        console.print(Text(f"    {strip_immutable_words(shown(reason))}", style=_STYLES[effect]), soft_wrap=True)


def by_rule(replayed: Sequence[Replayed]) -> dict[str, Counter[AnswerChange]]:
    """Count the reviews in which each rule made the difference."""
    counts: dict[str, Counter[AnswerChange]] = {}
    for review in replayed:
        rules = {
            AnswerChange.REFUSED: [denial.rule for denial in review.denied],
            AnswerChange.FREED: [reason.partition("/")[0] for reason in review.recorded.denied] if review.recorded else [],
            AnswerChange.CHANGED: review.gained,
            AnswerChange.UNCHANGED: review.lost,
        }
        for rule in set(rules.get(review.effect, ())):
            counts.setdefault(rule, Counter())[review.effect] += 1
    return dict(sorted(counts.items()))


def _print_rules(replayed: Sequence[Replayed], console: Console) -> None:
    rules = by_rule(replayed)
    if not rules:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("rule")
    for effect in _DIFFERING:
        table.add_column(_COUNTED[effect], justify="right")
    for rule, counts in rules.items():
        table.add_row(shown(rule), *(str(counts[effect]) for effect in _DIFFERING))
    console.print()
    console.print(table)
    console.print()


def as_json(replayed: Sequence[Replayed]) -> str:
    """Format a replay as one JSON object: counts, counts by rule, and an entry for each review."""
    counts = Counter(review.effect for review in replayed)
    document = {
        "reviews": len(replayed),
        "counts": {effect.value: counts[effect] for effect in AnswerChange},
        "rules": {
            rule: {effect.value: number for effect, number in sorted(value.items(), key=lambda item: item[0].value)}
            for rule, value in by_rule(replayed).items()
        },
        "entries": [_entry(review) for review in replayed],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"


def _entry(review: Replayed) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": review.source.file, "place": review.source.place, "effect": review.effect.value}
    if review.note:
        entry["note"] = review.note
    request = review.request
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
    if review.recorded is not None:
        recorded = review.recorded
        entry["then"] = {
            "endpoint": recorded.endpoint,
            "allowed": recorded.allowed,
            "changed": list(recorded.changed),
            "denied": list(recorded.denied),
            "policies": list(recorded.policies),
        }
    if review.effect not in {AnswerChange.SKIPPED, AnswerChange.INVALID}:
        entry["now"] = {
            "allowed": not review.denied,
            "changed": [change.rule for change in review.changes],
            "denied": [finding_as_json(denial) for denial in review.denied],
        }
    return entry


def problems(replayed: Sequence[Replayed]) -> Iterator[str]:
    """Yield a line for each unreadable review: place and reason."""
    for review in replayed:
        if review.effect is AnswerChange.INVALID:
            place = f"{review.source.file}:{review.source.place}" if review.source.place else review.source.file
            yield shown(f"{place}: {review.note}")
