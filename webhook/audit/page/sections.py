"""Prepare the sections of the page: devices, nodes, gangs, exemptions, quotas and policies."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple

from gpugate.policies.findings import Mode
from gpugate.policies.gangs.status import GangState
from gpugate.policies.kube.times import lasting
from gpugate.webhook.audit.model import (
    Audit,
    AuditedWorkload,
    Exemption,
    NodeSummary,
    PolicyLine,
    QueueLine,
    QuotaSummary,
    ShapeSummary,
)
from gpugate.webhook.audit.output.text import usage_in_words
from gpugate.webhook.audit.page.format import lasted
from gpugate.webhook.audit.page.tiles import MOST_TILES, Tile, tiles_of
from gpugate.webhook.audit.totals import DeviceLine, HeldTotals, device_lines, held_by_owner
from gpugate.webhook.runtime.times import moment, rfc3339


class Idle(NamedTuple):
    """The section on held devices: owners with most idle devices first, and all devices, idle ones first."""

    words: str
    windows: Sequence[str]
    owners: Sequence[tuple[str, HeldTotals]]
    lines: Sequence[DeviceLine]


def idle_of(audit: Audit) -> Idle:
    """Return the section on the devices of ``audit``."""
    windows = audit.fleet.windows if audit.fleet else ()
    return Idle(
        usage_in_words(audit), [lasting(window) for window in windows], list(held_by_owner(audit).items()), device_lines(audit)
    )


#: Most lines of one table; further lines are counted below it.
MOST_LINES: Final = 300
#: Node shapes that are shown, and lines that the tables of all their nodes have together.
MOST_SHAPES: Final = 60
MOST_NODES: Final = 1200
#: An exemption that ends within this time ends soon.
_SOON: Final = timedelta(days=7)
_GANG_STATES: Final = ("stuck", "starting", "queued", "running", "done")
_EXEMPTION_STATES: Final = ("expired", "refused", "soon", "active")


class Stock(NamedTuple):
    """The nodes of one shape with their sums, and the node with the highest memory limits in percent of its memory."""

    shape: ShapeSummary
    tiles: Sequence[Tile]
    total: NodeSummary
    fullest: tuple[str, int] | None


def stocks_of(audit: Audit) -> list[Stock]:
    """Return a line for each node shape."""
    stocks: list[Stock] = []
    tiles_left = MOST_TILES
    for shape in audit.shapes[:MOST_SHAPES]:
        limits = [(-round(100 * node.limited / node.memory), node.name) for node in shape.nodes if node.memory > 0]
        percent, name = min(limits, default=(0, ""))
        stocks.append(Stock(shape, tiles_of(shape, tiles_left), shape.total, (name, -percent) if limits else None))
        tiles_left -= len(shape.nodes) if len(shape.nodes) <= tiles_left else 0
    return stocks


class GangLine(NamedTuple):
    """A gang, the start of its state (RFC 3339; empty if unknown), and how long it had lasted at the audit."""

    gang: GangState
    since: str
    lasted: str


class GangSection(NamedTuple):
    """The gangs: those that do not run, stuck ones first, and those that run or are done."""

    counts: Sequence[tuple[str, int]]
    unfinished: Sequence[GangLine]
    others: Sequence[GangLine]
    stuck: int
    held_by_stuck: int


def gangs_of(audit: Audit) -> GangSection:
    """Return the gangs of ``audit``, those that need attention first."""
    now = moment(audit.at)
    states = [*_GANG_STATES, *sorted({gang.state for gang in audit.gangs}.difference(_GANG_STATES))]
    gangs = sorted(audit.gangs, key=lambda gang: (states.index(gang.state), -gang.held, gang.namespace, gang.name, gang.kind))
    lines = [_gang_line(gang, now) for gang in gangs]
    counts = Counter(gang.state for gang in gangs)
    return GangSection(
        counts=list(counts.items()),
        unfinished=[line for line in lines if line.gang.state not in {"running", "done"}],
        others=[line for line in lines if line.gang.state in {"running", "done"}],
        stuck=counts["stuck"],
        held_by_stuck=sum(gang.held for gang in gangs if gang.state == "stuck"),
    )


def _gang_line(gang: GangState, now: datetime | None) -> GangLine:
    since = "" if gang.since is None else rfc3339(gang.since)
    if not since or gang.since is None or now is None:
        return GangLine(gang, since, "")
    return GangLine(gang, since, lasted(now - datetime.fromtimestamp(int(gang.since), UTC)))


class ExemptionLine(NamedTuple):
    """An exemption, its state (``soon`` if it ends within a week), its workload, and the time left."""

    exemption: Exemption
    state: str
    workload: AuditedWorkload
    left: str


def exemptions_of(audit: Audit) -> list[ExemptionLine]:
    """Return every exemption, those that need attention first."""
    now = moment(audit.at)
    lines = [_exemption_line(workload.exemption, workload, now) for workload in audit.workloads if workload.exemption is not None]
    ranks = {state: rank for rank, state in enumerate(_EXEMPTION_STATES)}

    def sort_key(line: ExemptionLine) -> tuple[object, ...]:
        workload = line.workload
        end = line.exemption.until or "~"
        return (ranks.get(line.state, len(ranks)), end, workload.namespace, workload.name, workload.kind)

    return sorted(lines, key=sort_key)


def _exemption_line(exemption: Exemption, workload: AuditedWorkload, now: datetime | None) -> ExemptionLine:
    end = moment(exemption.until) if exemption.until else None
    if now is None or end is None:
        return ExemptionLine(exemption, exemption.state, workload, "")
    if end <= now:
        return ExemptionLine(exemption, exemption.state, workload, f"{lasted(now - end)} ago")
    soon = exemption.state == "active" and end - now <= _SOON
    return ExemptionLine(exemption, "soon" if soon else exemption.state, workload, f"in {lasted(end - now)}")


def queues_of(audit: Audit) -> list[list[QueueLine]]:
    """Return the quotas by ClusterQueue."""
    ordered = sorted(audit.queues, key=lambda line: (line.queue, line.cohort, line.flavor, line.resource))
    return [list(lines) for _, lines in groupby(ordered[:MOST_LINES], key=lambda line: (line.queue, line.cohort))]


def quotas_of(audit: Audit) -> list[list[QuotaSummary]]:
    """Return the lines by ResourceQuota."""
    ordered = sorted(audit.quotas)[:MOST_LINES]
    return [list(lines) for _, lines in groupby(ordered, key=lambda line: (line.namespace, line.name))]


def rules_by_mode(policy: PolicyLine) -> list[tuple[str, list[str]]]:
    """Return the rules of a policy by mode, the strictest mode first."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for rule, mode in policy.modes:
        groups[mode].append(rule)
    known = tuple(mode.value for mode in Mode)
    return sorted(groups.items(), key=lambda pair: (known.index(pair[0]) if pair[0] in known else len(known), pair[0]))
