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
from gpugate.webhook.audit.totals import (
    HeldTotals,
    Totals,
    device_lines,
    free_in_all,
    held_by_owner,
    held_in_all,
    totals_by,
    totals_by_rule,
    totals_of,
)
from gpugate.webhook.review.report import shown

_STYLES: Final = {
    Effect.REFUSE: "red",
    Effect.CHANGE: "cyan",
    Effect.WARN: "yellow",
    Effect.UNKNOWN: "magenta",
    Effect.EXEMPT: "dim",
}
_OUTCOME_STYLES: Final = {
    ComparisonOutcome.NEWLY_REFUSED: "bold red",
    ComparisonOutcome.NEWLY_CHANGED: "cyan",
    ComparisonOutcome.CHANGED_OTHERWISE: "cyan",
    ComparisonOutcome.REFUSED_OTHERWISE: "red",
    ComparisonOutcome.NO_LONGER_CHANGED: "green",
    ComparisonOutcome.FREED: "bold green",
}
#: Team or owner of workloads without one.
_NONE: Final = "(none)"
_BREAKS: Final = re.compile("[\t\n\v\f\r\x85\u2028\u2029]")


def headline(audit: Audit) -> str:
    """Return the audit in one sentence."""
    totals = totals_of(audit.workloads)
    if not totals.workloads:
        return "No workload requests accelerators."
    teams = len({workload.team for workload in audit.workloads if workload.team and workload.outcome == "refuse"})
    by = f" of {_number(teams, 'team')}" if teams else ""
    return (
        f"Enforcing would refuse {totals.effects['refuse']} of {_number(totals.workloads, 'workload')}{by}"
        f" ({_number(totals.refused_accelerators, 'accelerator')})"
        f" and change {totals.changed}; {totals.effects['exempt']} exempt."
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_audit(audit: Audit, console: Console, *, findings: bool = True) -> None:
    """Print the audit: totals by rule, team and namespace, then each workload with findings."""
    _print_line(console, headline(audit), "bold")
    for policy in audit.policies:
        if policy.problem:
            _print_line(console, f"GPUPolicy {policy.name} is not fully in force: {policy.problem}", "red")
    if audit.workloads:
        _print_totals(console, "rule", totals_by_rule(audit.workloads))
        _print_totals(console, "team", totals_by(audit.workloads, lambda workload: workload.team or _NONE))
        _print_totals(console, "namespace", totals_by(audit.workloads, lambda workload: workload.namespace))
        for division in divisions_of(audit):
            _print_division(division, console)
    _print_shapes(audit, console)
    for gang in audit.gangs:
        if gang.state == "stuck":
            place = f"{gang.kind} {gang.namespace}/{gang.name}"
            line = f"stuck: {place}: {gang.running} of {gang.size} run, {gang.held} accelerators held: {gang.reason}"
            _print_line(console, line, "red")
    print_usage(audit, console)
    if findings:
        _print_workloads(audit.workloads, console)
    for remark in audit.remarks:
        _print_line(console, f"remark: {remark}", "yellow")


def _print_line(console: Console, text: str, style: str) -> None:
    console.print(Text(plain(text), style=style), soft_wrap=True)


def _print_table(console: Console, columns: Sequence[str], rows: Iterable[tuple[str, Iterable[object]]]) -> None:
    """Print a table without lines; all columns but the first are right-aligned."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title_justify="left")
    table.add_column(columns[0], overflow="fold")
    for column in columns[1:]:
        table.add_column(column, justify="right")
    for name, cells in rows:
        table.add_row(Text(plain(name)), *map(str, cells))
    console.print(table)


def _print_totals(console: Console, what: str, totals: Mapping[str, Totals]) -> None:
    rows = []
    for name, total in totals.items():
        effects = total.effects
        figures = (total.workloads, effects["refuse"], total.changed, effects["warn"], effects["exempt"], total.accelerators)
        rows.append((name, [figure or "-" for figure in figures]))
    if rows:
        console.print()
        _print_table(console, (what, "workloads", "refused", "changed", "warned", "exempt", "accelerators"), rows)


def _print_division(division: Division, console: Console) -> None:
    rows = []
    for value, share in division.shares:
        past = f"{'>= ' if share.without_start else ''}{hours(share.so_far):.1f}" if share.so_far else "-"
        until = f"{hours(share.until_end):.1f}" if share.until_end else "-"
        rows.append((value or _NONE, (share.workloads, share.accelerators, past, until, share.without_end or "-")))
    console.print()
    _print_table(console, (division.what, "workloads", "accelerators", "hours so far", "to stated end", "no end"), rows)


def _print_shapes(audit: Audit, console: Console) -> None:
    if not audit.shapes:
        return
    rows = []
    for shape in audit.shapes:
        total = shape.total
        rows.append((shape.title, (len(shape.nodes), total.devices, total.held, total.idle, total.stranded)))
    console.print()
    _print_table(console, ("nodes", "of", "accelerators", "held", "idle", "stranded"), rows)
    for shape in audit.shapes:
        if shape.why_stranded:
            _print_line(console, f"{shape.title}: {shape.why_stranded}", "yellow")


def _print_workloads(workloads: Sequence[AuditedWorkload], console: Console) -> None:
    for workload in workloads:
        if not workload.items:
            continue
        console.print()
        head = Text(plain(f"{workload.kind} {workload.namespace}/{workload.name}"), style="bold")
        team = f", team {plain(workload.team)}" if workload.team else ""
        head.append(f"  {_number(workload.accelerators, 'accelerator')}{team}", style="dim")
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
    parts = [f"{counts[outcome]} {outcome.value}" for outcome in ComparisonOutcome if counts[outcome]]
    console.print(Text(f"{_number(len(compared), 'workload')}: {', '.join(parts) or 'none'}", style="bold"))
    for outcome in _OUTCOME_STYLES:
        for comparison in compared:
            if comparison.verdict is outcome:
                _print_compared(comparison, console)


def _print_compared(comparison: Compared, console: Console) -> None:
    workload = comparison.workload
    console.print()
    head = Text(f"{comparison.verdict.value}: ", style=_OUTCOME_STYLES[comparison.verdict])
    head.append(plain(f"{workload.kind} {workload.namespace}/{workload.name}"), style="bold")
    console.print(head, soft_wrap=True)
    for sign, style, items in (("-", "red", comparison.gone), ("+", "green", comparison.come)):
        for item in items:
            console.print(Text(f"  {sign} ", style=style).append_text(_line(item)), soft_wrap=True)


def plain(text: str) -> str:
    """Return ``text`` on one line without control characters: no name can start a line of the audit."""
    return shown(_BREAKS.sub(" ", text))


def usage_in_words(audit: Audit) -> str:
    """Return utilisation against allocation over all devices, in one sentence."""
    totals = held_in_all(audit)
    free = free_in_all(audit)
    known = [use for use in totals.window_use if use.percent is not None]
    used = ", ".join(f"{use.percent:.0f} % over {lasting(use.seconds)}" for use in known)
    work = f"used {used}, equal to {known[-1].work:.1f} fully used GPUs" if known else ""
    parts = [work, _states(totals), f"{free} free" if free else ""]
    return f"{_number(totals.devices, 'GPU')} held: {'; '.join(part for part in parts if part) or 'utilisation unknown'}."


def _states(totals: HeldTotals) -> str:
    words = ((totals.idle, "idle"), (totals.low, "too large for their work"), (totals.unknown, "with unknown utilisation"))
    return ", ".join(f"{count} {word}" for count, word in words if count)


def print_usage(audit: Audit, console: Console) -> None:
    """Print the figures of Prometheus: totals, totals by owner, and devices to check."""
    if audit.fleet is None:
        return
    console.print()
    _print_line(console, usage_in_words(audit), "bold")
    rows = []
    for owner, totals in held_by_owner(audit).items():
        percents = ("-" if use.percent is None else f"{use.percent:.0f} %" for use in totals.window_use)
        rows.append((owner or _NONE, (totals.devices or "-", totals.idle or "-", totals.low or "-", *percents)))
    if rows:
        windows = (f"used {lasting(seconds)}" for seconds in audit.fleet.windows)
        _print_table(console, ("held by owner", "GPUs", "idle", "too large", *windows), rows)
    for line in device_lines(audit):
        device, health = line.device, line.device.health
        if health.signs:
            held = f", held by {device.namespace}/{device.pod}" if device.pod else ""
            _print_line(console, f"check {device.place}: {', '.join(health.signs)} in {lasting(health.seconds)}{held}", "yellow")
