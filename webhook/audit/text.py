"""An audit for people at a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from gpugate.webhook.audit.comparing import Compared, Verdict
from gpugate.webhook.audit.records import Audit, Audited, Effect, Item
from gpugate.webhook.audit.sums import Sums, sums_by, sums_by_rule, sums_of
from gpugate.webhook.audit.tables import NOBODY as _NOBODY
from gpugate.webhook.audit.tables import plain as _plain
from gpugate.webhook.audit.tables import table_of as _table
from gpugate.webhook.audit.usage_text import print_usage

_STYLES: Final = {
    Effect.REFUSE: "red",
    Effect.CHANGE: "cyan",
    Effect.WARN: "yellow",
    Effect.UNKNOWN: "magenta",
    Effect.EXEMPT: "dim",
}
_VERDICTS: Final = {
    Verdict.NEWLY_REFUSED: "bold red",
    Verdict.REFUSED_OTHERWISE: "red",
    Verdict.NEWLY_CHANGED: "cyan",
    Verdict.CHANGED_OTHERWISE: "cyan",
    Verdict.NO_LONGER_CHANGED: "green",
    Verdict.FREED: "bold green",
}
_FIGURES: Final = ("workloads", "refused", "changed", "warned", "exempt", "accelerators")


def headline(audit: Audit) -> str:
    """The audit in one sentence."""
    sums = sums_of(audit.workloads)
    if not sums.workloads:
        return "No workload asks for accelerators."
    refusing = [one for one in audit.workloads if one.outcome == "refuse"]
    teams = len({one.team for one in refusing if one.team})
    by = f" of {_number(teams, 'team')}" if teams else ""
    return (
        f"Enforcing would refuse {sums.refused} of {_number(sums.workloads, 'workload')}{by}"
        f" ({_number(sums.refused_accelerators, 'accelerator')}) and change {sums.changed}; {sums.exempt} exempt."
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_audit(audit: Audit, console: Console, *, findings: bool = True) -> None:
    """Print the audit: sums by rule, team and namespace, then each workload that a rule has something to say of."""
    console.print(Text(headline(audit), style="bold"), soft_wrap=True)
    for policy in audit.policies:
        if policy.problem:
            line = f"GPUPolicy {_plain(policy.name)} is not in force as it stands: {_plain(policy.problem)}"
            console.print(Text(line, style="red"), soft_wrap=True)
    if audit.workloads:
        _print_sums(console, "rule", sums_by_rule(audit.workloads))
        _print_sums(console, "team", sums_by(audit.workloads, lambda one: one.team or _NOBODY))
        _print_sums(console, "namespace", sums_by(audit.workloads, lambda one: one.namespace))
    _print_shapes(audit, console)
    _print_gangs(audit, console)
    print_usage(audit, console)
    if findings:
        _print_workloads(audit.workloads, console)
    for remark in audit.remarks:
        console.print(Text(f"not looked at: {_plain(remark)}", style="yellow"), soft_wrap=True)


def _print_sums(console: Console, what: str, sums: Mapping[str, Sums]) -> None:
    table = _table(what, *_FIGURES, numbers=len(_FIGURES))
    for name, one in sums.items():
        figures = (one.workloads, one.refused, one.changed, one.warned, one.exempt, one.accelerators)
        table.add_row(Text(_plain(name)), *(str(figure) if figure else "-" for figure in figures))
    if sums:
        console.print()
        console.print(table)


def _print_shapes(audit: Audit, console: Console) -> None:
    if not audit.shapes:
        return
    table = _table("nodes", "of", "accelerators", "held", "idle", "stranded", numbers=5)
    for shape in audit.shapes:
        figures = [
            sum(figure)
            for figure in zip(*((node.devices, node.held, node.idle, node.stranded) for node in shape.nodes), strict=True)
        ]
        table.add_row(Text(_plain(shape.title)), str(len(shape.nodes)), *map(str, figures))
    console.print()
    console.print(table)
    for shape in audit.shapes:
        if shape.why_stranded:
            console.print(Text(f"{_plain(shape.title)}: {_plain(shape.why_stranded)}", style="yellow"), soft_wrap=True)


def _print_gangs(audit: Audit, console: Console) -> None:
    stuck = [one for one in audit.gangs if one.state == "stuck"]
    for one in stuck:
        place = _plain(f"{one.kind} {one.namespace}/{one.name}")
        line = f"stuck: {place}: {one.running} of {one.size} run, {one.held} accelerators held: {_plain(one.reason)}"
        console.print(Text(line, style="red"), soft_wrap=True)


def _print_workloads(workloads: Sequence[Audited], console: Console) -> None:
    for one in workloads:
        if not one.items:
            continue
        console.print()
        head = Text(_plain(f"{one.kind} {one.namespace}/{one.name}"), style="bold")
        head.append(
            f"  {_number(one.accelerators, 'accelerator')}" + (f", team {_plain(one.team)}" if one.team else ""), style="dim"
        )
        console.print(head, soft_wrap=True)
        for item in one.items:
            console.print(_line(item), soft_wrap=True)


def _line(item: Item) -> Text:
    mode = f" ({item.mode.value})" if item.policy else ""
    text = Text("  ")
    text.append(item.effect.value.ljust(8), style=_STYLES[item.effect])
    place = f" {item.path}:" if item.path else ""
    remedy = f". {item.remedy}" if item.remedy else ""
    text.append(_plain(f"{item.rule}{mode}:{place} {item.message}{remedy}"))
    return text


def print_comparison(compared: Sequence[Compared], console: Console) -> None:
    """Print which workloads another policy would treat otherwise."""
    counts = Counter(one.verdict for one in compared)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
    console.print(Text(f"{_number(len(compared), 'workload')}: {', '.join(parts) or 'none'}", style="bold"))
    for verdict in Verdict:
        for one in compared:
            if one.verdict is verdict and verdict is not Verdict.SAME:
                _print_compared(one, console)


def _print_compared(one: Compared, console: Console) -> None:
    workload = one.workload
    console.print()
    head = Text(f"{one.verdict.value}: ", style=_VERDICTS[one.verdict])
    head.append(_plain(f"{workload.kind} {workload.namespace}/{workload.name}"), style="bold")
    console.print(head, soft_wrap=True)
    for sign, items in (("-", one.gone), ("+", one.come)):
        _print_items(sign, items, console)


def _print_items(sign: str, items: Iterable[Item], console: Console) -> None:
    for item in items:
        line = Text(f"  {sign} ", style="red" if sign == "-" else "green")
        console.print(line.append_text(_line(item)), soft_wrap=True)
