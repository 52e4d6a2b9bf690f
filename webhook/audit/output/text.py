"""Print an audit for the terminal."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpugate.policies.kube.times import lasting
from gpugate.webhook.audit.compare import Compared, ComparisonOutcome
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect, Item
from gpugate.webhook.audit.ownership import Division, divisions_of, hours
from gpugate.webhook.audit.totals import Totals, totals_by, totals_by_rule, totals_of
from gpugate.webhook.audit.usage import HeldTotals, free_in_all, held_by_owner, held_in_all, lines_of
from gpugate.webhook.review.report import shown

_STYLES: Final = {
    Effect.REFUSE: "red",
    Effect.CHANGE: "cyan",
    Effect.WARN: "yellow",
    Effect.UNKNOWN: "magenta",
    Effect.EXEMPT: "dim",
}
_VERDICTS: Final = {
    ComparisonOutcome.NEWLY_REFUSED: "bold red",
    ComparisonOutcome.REFUSED_OTHERWISE: "red",
    ComparisonOutcome.NEWLY_CHANGED: "cyan",
    ComparisonOutcome.CHANGED_OTHERWISE: "cyan",
    ComparisonOutcome.NO_LONGER_CHANGED: "green",
    ComparisonOutcome.FREED: "bold green",
}
_FIGURES: Final = ("workloads", "refused", "changed", "warned", "exempt", "accelerators")
_HOURS: Final = ("workloads", "accelerators", "hours so far", "to stated end", "no end")


def headline(audit: Audit) -> str:
    """Return the audit in one sentence."""
    sums = totals_of(audit.workloads)
    if not sums.workloads:
        return "No workload requests accelerators."
    refusing = [workload for workload in audit.workloads if workload.outcome == "refuse"]
    teams = len({one.team for one in refusing if one.team})
    by = f" of {_number(teams, 'team')}" if teams else ""
    return (
        f"Enforcing would refuse {sums.refused} of {_number(sums.workloads, 'workload')}{by}"
        f" ({_number(sums.refused_accelerators, 'accelerator')}) and change {sums.changed}; {sums.exempt} exempt."
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_audit(audit: Audit, console: Console, *, findings: bool = True) -> None:
    """Print the audit: totals by rule, team and namespace, then each workload with findings."""
    console.print(Text(headline(audit), style="bold"), soft_wrap=True)
    for policy in audit.policies:
        if policy.problem:
            line = f"GPUPolicy {plain(policy.name)} is not in force as it stands: {plain(policy.problem)}"
            console.print(Text(line, style="red"), soft_wrap=True)
    if audit.workloads:
        _print_sums(console, "rule", totals_by_rule(audit.workloads))
        _print_sums(console, "team", totals_by(audit.workloads, lambda workload: workload.team or NOBODY))
        _print_sums(console, "namespace", totals_by(audit.workloads, lambda workload: workload.namespace))
        for division in divisions_of(audit):
            _print_division(division, console)
    _print_shapes(audit, console)
    _print_gangs(audit, console)
    print_usage(audit, console)
    if findings:
        _print_workloads(audit.workloads, console)
    for remark in audit.remarks:
        console.print(Text(f"not looked at: {plain(remark)}", style="yellow"), soft_wrap=True)


def _print_sums(console: Console, what: str, sums: Mapping[str, Totals]) -> None:
    table = table_of(what, *_FIGURES, numbers=len(_FIGURES))
    for name, one in sums.items():
        figures = (one.workloads, one.refused, one.changed, one.warned, one.exempt, one.accelerators)
        table.add_row(Text(plain(name)), *(str(figure) if figure else "-" for figure in figures))
    if sums:
        console.print()
        console.print(table)


def _print_division(division: Division, console: Console) -> None:
    table = table_of(division.what, *_HOURS, numbers=len(_HOURS))
    for value, one in division.shares:
        past = f"{'>= ' if one.without_start else ''}{hours(one.so_far):.1f}" if one.so_far else "-"
        until = f"{hours(one.until_end):.1f}" if one.until_end else "-"
        figures = (str(one.workloads), str(one.accelerators), past, until, str(one.without_end) if one.without_end else "-")
        table.add_row(Text(plain(value or NOBODY)), *figures)
    console.print()
    console.print(table)


def _print_shapes(audit: Audit, console: Console) -> None:
    if not audit.shapes:
        return
    table = table_of("nodes", "of", "accelerators", "held", "idle", "stranded", numbers=5)
    for shape in audit.shapes:
        figures = [
            sum(figure)
            for figure in zip(*((node.devices, node.held, node.idle, node.stranded) for node in shape.nodes), strict=True)
        ]
        table.add_row(Text(plain(shape.title)), str(len(shape.nodes)), *map(str, figures))
    console.print()
    console.print(table)
    for shape in audit.shapes:
        if shape.why_stranded:
            console.print(Text(f"{plain(shape.title)}: {plain(shape.why_stranded)}", style="yellow"), soft_wrap=True)


def _print_gangs(audit: Audit, console: Console) -> None:
    stuck = [gang for gang in audit.gangs if gang.state == "stuck"]
    for one in stuck:
        place = plain(f"{one.kind} {one.namespace}/{one.name}")
        line = f"stuck: {place}: {one.running} of {one.size} run, {one.held} accelerators held: {plain(one.reason)}"
        console.print(Text(line, style="red"), soft_wrap=True)


def _print_workloads(workloads: Sequence[AuditedWorkload], console: Console) -> None:
    for workload in workloads:
        if not workload.items:
            continue
        console.print()
        head = Text(plain(f"{workload.kind} {workload.namespace}/{workload.name}"), style="bold")
        head.append(
            f"  {_number(workload.accelerators, 'accelerator')}" + (f", team {plain(workload.team)}" if workload.team else ""),
            style="dim",
        )
        console.print(head, soft_wrap=True)
        for item in workload.items:
            console.print(_line(item), soft_wrap=True)


def _line(item: Item) -> Text:
    mode = f" ({item.mode.value})" if item.policy else ""
    text = Text("  ")
    text.append(item.effect.value.ljust(8), style=_STYLES[item.effect])
    place = f" {item.path}:" if item.path else ""
    remedy = f". {item.remedy}" if item.remedy else ""
    text.append(plain(f"{item.rule}{mode}:{place} {item.message}{remedy}"))
    return text


def print_comparison(compared: Sequence[Compared], console: Console) -> None:
    """Print the workloads that differ between two policies."""
    counts = Counter(comparison.verdict for comparison in compared)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in ComparisonOutcome if counts[verdict]]
    console.print(Text(f"{_number(len(compared), 'workload')}: {', '.join(parts) or 'none'}", style="bold"))
    for verdict in ComparisonOutcome:
        for comparison in compared:
            if comparison.verdict is verdict and verdict is not ComparisonOutcome.SAME:
                _print_compared(comparison, console)


def _print_compared(comparison: Compared, console: Console) -> None:
    workload = comparison.workload
    console.print()
    head = Text(f"{comparison.verdict.value}: ", style=_VERDICTS[comparison.verdict])
    head.append(plain(f"{workload.kind} {workload.namespace}/{workload.name}"), style="bold")
    console.print(head, soft_wrap=True)
    for sign, items in (("-", comparison.gone), ("+", comparison.come)):
        _print_items(sign, items, console)


def _print_items(sign: str, items: Iterable[Item], console: Console) -> None:
    for item in items:
        line = Text(f"  {sign} ", style="red" if sign == "-" else "green")
        console.print(line.append_text(_line(item)), soft_wrap=True)


_BREAKS: Final = re.compile("[\t\n\v\f\r\x85\u2028\u2029]")
#: Team or owner of workloads without one.
NOBODY: Final = "(nobody named)"


def plain(text: str) -> str:
    """Return ``text`` on one line without control characters: no name can start a line of the audit."""
    return shown(_BREAKS.sub(" ", text))


def table_of(*columns: str, numbers: int) -> Table:
    """Return a table without lines; its last ``numbers`` columns are right-aligned."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title_justify="left")
    for at, column in enumerate(columns):
        if at >= len(columns) - numbers:
            table.add_column(column, justify="right")
        else:
            table.add_column(column, overflow="fold")
    return table


def usage_in_words(audit: Audit) -> str:
    """Return utilisation against allocation over all devices, in one sentence."""
    sums = held_in_all(audit)
    free = free_in_all(audit)
    held = f"{sums.devices} GPU{'' if sums.devices == 1 else 's'} held"
    used = ", ".join(f"{one.percent:.0f} % over {lasting(one.seconds)}" for one in sums.window_use if one.percent is not None)
    work = next((f", the work of {one.work:.1f}" for one in reversed(sums.window_use) if one.percent is not None), "")
    parts = [f"used {used}{work}" if used else "", _count(sums), f"{free} free" if free else ""]
    return f"{held}: {'; '.join(part for part in parts if part) or 'nothing is known of their use'}."


def _count(sums: HeldTotals) -> str:
    words = ((sums.idle, "idle"), (sums.low, "too large for their work"), (sums.unknown, "of unknown use"))
    return ", ".join(f"{count} {word}" for count, word in words if count)


def print_usage(audit: Audit, console: Console) -> None:
    """Print the figures of Prometheus: totals, totals by owner, and devices to check."""
    if audit.fleet is None:
        return
    console.print()
    console.print(Text(usage_in_words(audit), style="bold"), soft_wrap=True)
    owners = held_by_owner(audit)
    if owners:
        windows = [f"used {lasting(seconds)}" for seconds in audit.fleet.windows]
        table = table_of("held by owner", "GPUs", "idle", "too large", *windows, numbers=3 + len(windows))
        for owner, sums in owners.items():
            percents = ["-" if one.percent is None else f"{one.percent:.0f} %" for one in sums.window_use]
            counts = [str(count) if count else "-" for count in (sums.devices, sums.idle, sums.low)]
            table.add_row(Text(plain(owner or NOBODY)), *counts, *percents)
        console.print(table)
    for line in lines_of(audit):
        if line.device.health.signs:
            held = f", held by {line.device.namespace}/{line.device.pod}" if line.device.pod else ""
            text = (
                f"look at {line.device.place}: {', '.join(line.device.health.signs)} in {lasting(line.device.health.seconds)}{held}"
            )
            console.print(Text(plain(text), style="yellow"), soft_wrap=True)
