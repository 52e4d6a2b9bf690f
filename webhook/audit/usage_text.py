"""Held devices for people at a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from gpugate.policies.durations import lasting
from gpugate.webhook.audit.records import Audit
from gpugate.webhook.audit.tables import NOBODY, plain, table_of
from gpugate.webhook.audit.usage import HeldSums, free_in_all, held_by_owner, held_in_all, lines_of


def usage_in_words(audit: Audit) -> str:
    """Utilisation against allocation over all devices, in one sentence."""
    sums = held_in_all(audit)
    free = free_in_all(audit)
    held = f"{sums.devices} GPU{'' if sums.devices == 1 else 's'} held"
    used = ", ".join(f"{one.percent:.0f} % over {lasting(one.seconds)}" for one in sums.worths if one.percent is not None)
    work = next((f", the work of {one.work:.1f}" for one in reversed(sums.worths) if one.percent is not None), "")
    parts = [f"used {used}{work}" if used else "", _count(sums), f"{free} free" if free else ""]
    return f"{held}: {'; '.join(part for part in parts if part) or 'nothing is known of their use'}."


def _count(sums: HeldSums) -> str:
    words = ((sums.idle, "idle"), (sums.low, "too large for their work"), (sums.unknown, "of unknown use"))
    return ", ".join(f"{count} {word}" for count, word in words if count)


def print_usage(audit: Audit, console: Console) -> None:
    """Print what monitoring told, where it was asked: the sum of all, sums by owner, and what needs a look."""
    if audit.fleet is None:
        return
    console.print()
    console.print(Text(usage_in_words(audit), style="bold"), soft_wrap=True)
    owners = held_by_owner(audit)
    if owners:
        windows = [f"used {lasting(seconds)}" for seconds in audit.fleet.windows]
        table = table_of("held by owner", "GPUs", "idle", "too large", *windows, numbers=3 + len(windows))
        for owner, sums in owners.items():
            percents = ["-" if one.percent is None else f"{one.percent:.0f} %" for one in sums.worths]
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
