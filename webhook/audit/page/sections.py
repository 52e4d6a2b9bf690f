"""Prepare the sections of the page: devices, nodes, gangs, exemptions, quotas and policies."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple

from gpugate.policies.gangs.status import GangState
from gpugate.policies.kube.times import lasting
from gpugate.webhook.audit.model import Audit, Exemption, NamespaceQuota, PolicyLine, QueueLine, ShapeSummary
from gpugate.webhook.audit.output.text import usage_in_words
from gpugate.webhook.audit.page.format import lasted
from gpugate.webhook.audit.page.tiles import MOST_TILES, Tile, tiles_of
from gpugate.webhook.audit.usage import HeldTotals, Line, held_by_owner, lines_of
from gpugate.webhook.runtime.times import moment, rfc3339


class Idle(NamedTuple):
    """The section on held devices.

    Attributes:
        words: utilisation against allocation, in one sentence.
        windows: the time windows of the figures, in words.
        owners: the devices of each owner, most idle devices first.
        lines: the devices, idle ones first.
    """

    words: str
    windows: Sequence[str]
    owners: Sequence[tuple[str, HeldTotals]]
    lines: Sequence[Line]


def idle_of(audit: Audit) -> Idle:
    """Return the section on the devices of ``audit``."""
    windows = audit.fleet.windows if audit.fleet else ()
    return Idle(usage_in_words(audit), [lasting(window) for window in windows], list(held_by_owner(audit).items()), lines_of(audit))


#: Most lines of one table; further lines are counted below it.
MOST_LINES: Final = 300
#: Node shapes that are shown, and lines that the tables of all their nodes have together.
MOST_SHAPES: Final = 60
MOST_NODES: Final = 1200
#: An exemption that ends within this time ends soon.
_SOON: Final = timedelta(days=7)
_GANGS_BY_NEED: Final = ("stuck", "starting", "queued", "running", "done")
_EXEMPTIONS_BY_NEED: Final = ("expired", "refused", "soon", "active")


class Stock(NamedTuple):
    """The nodes of one shape, with their requests and limits.

    Attributes:
        shape: the shape.
        tiles: its picture.
        devices: number of accelerators.
        held: held ones.
        idle: idle ones.
        stranded: stranded ones.
        memory: allocatable memory, bytes.
        requested: memory requests.
        limited: memory limits.
        cpu: allocatable CPU, millicores.
        cpu_requested: CPU requests.
        fullest: the node with the highest memory limits, and their percentage of its memory; None without nodes.
    """

    shape: ShapeSummary
    tiles: Sequence[Tile]
    devices: int
    held: int
    idle: int
    stranded: int
    memory: int
    requested: int
    limited: int
    cpu: int
    cpu_requested: int
    fullest: tuple[str, int] | None


def stocks_of(audit: Audit) -> list[Stock]:
    """Return a line for each node shape."""
    stocks: list[Stock] = []
    room = MOST_TILES
    for shape in audit.shapes[:MOST_SHAPES]:
        stocks.append(_stock(shape, room))
        room -= len(shape.nodes) if len(shape.nodes) <= room else 0
    return stocks


def _stock(shape: ShapeSummary, room: int) -> Stock:
    nodes = shape.nodes
    promised = [(round(100 * node.limited / node.memory), node.name) for node in nodes if node.memory > 0]
    worst = min(promised, key=lambda pair: (-pair[0], pair[1]), default=None)
    return Stock(
        shape=shape,
        tiles=tiles_of(shape, room),
        devices=sum(node.devices for node in nodes),
        held=sum(node.held for node in nodes),
        idle=sum(node.idle for node in nodes),
        stranded=sum(node.stranded for node in nodes),
        memory=sum(node.memory for node in nodes),
        requested=sum(node.requested for node in nodes),
        limited=sum(node.limited for node in nodes),
        cpu=sum(node.cpu for node in nodes),
        cpu_requested=sum(node.cpu_requested for node in nodes),
        fullest=(worst[1], worst[0]) if worst else None,
    )


class GangLine(NamedTuple):
    """A gang, the start of its state (RFC 3339; empty if unknown), and how long it had lasted at the audit."""

    gang: GangState
    since: str
    lasted: str


class GangSection(NamedTuple):
    """The gangs.

    Attributes:
        counts: number of gangs by state, states that need attention first.
        wanting: gangs that do not run, stuck ones first, then most accelerators.
        well: gangs that run or are done.
        stuck: number of stuck gangs.
        held_for_nothing: accelerators that stuck gangs hold.
    """

    counts: Sequence[tuple[str, int]]
    wanting: Sequence[GangLine]
    well: Sequence[GangLine]
    stuck: int
    held_for_nothing: int


def gangs_of(audit: Audit) -> GangSection:
    """Return the gangs of ``audit``, those that need attention first."""
    now = moment(audit.at)
    states = [*_GANGS_BY_NEED, *sorted({gang.state for gang in audit.gangs}.difference(_GANGS_BY_NEED))]
    lines = [
        _gang_line(one, now)
        for one in sorted(
            audit.gangs, key=lambda gang: (states.index(gang.state), -gang.held, gang.namespace, gang.name, gang.kind)
        )
    ]
    counts = [(state, sum(1 for gang in audit.gangs if gang.state == state)) for state in states]
    return GangSection(
        counts=[(state, count) for state, count in counts if count],
        wanting=[line for line in lines if line.gang.state not in {"running", "done"}],
        well=[line for line in lines if line.gang.state in {"running", "done"}],
        stuck=sum(1 for gang in audit.gangs if gang.state == "stuck"),
        held_for_nothing=sum(gang.held for gang in audit.gangs if gang.state == "stuck"),
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
    kind: str
    namespace: str
    name: str
    team: str
    left: str


def exemptions_of(audit: Audit) -> list[ExemptionLine]:
    """Return every exemption, those that need attention first."""
    now = moment(audit.at)
    lines: list[ExemptionLine] = []
    for workload in audit.workloads:
        if workload.exemption is not None:
            state, left = _state(workload.exemption, now)
            lines.append(
                ExemptionLine(workload.exemption, state, workload.kind, workload.namespace, workload.name, workload.team, left)
            )
    ranks = {state: rank for rank, state in enumerate(_EXEMPTIONS_BY_NEED)}
    return sorted(
        lines,
        key=lambda line: (ranks.get(line.state, len(ranks)), line.exemption.until or "~", line.namespace, line.name, line.kind),
    )


def _state(exemption: Exemption, now: datetime | None) -> tuple[str, str]:
    end = moment(exemption.until) if exemption.until else None
    if now is None or end is None:
        return exemption.state, ""
    if end <= now:
        return exemption.state, f"{lasted(now - end)} ago"
    soon = exemption.state == "active" and end - now <= _SOON
    return ("soon" if soon else exemption.state), f"in {lasted(end - now)}"


class QueueGroup(NamedTuple):
    """One ClusterQueue and its quotas."""

    queue: str
    cohort: str
    pending: int
    stopped: str
    lines: Sequence[QueueLine]


def queues_of(audit: Audit) -> list[QueueGroup]:
    """Return the quotas by ClusterQueue."""
    ordered = sorted(audit.queues, key=lambda queue: (queue.queue, queue.cohort, queue.flavor, queue.resource))
    groups = [(key, list(lines)) for key, lines in groupby(ordered[:MOST_LINES], key=lambda one: (one.queue, one.cohort))]
    return [
        QueueGroup(
            queue, cohort, max(line.pending for line in lines), next((line.stopped for line in lines if line.stopped), ""), lines
        )
        for (queue, cohort), lines in groups
    ]


class QuotaGroup(NamedTuple):
    """One ResourceQuota and its lines."""

    namespace: str
    name: str
    lines: Sequence[NamespaceQuota]


def quotas_of(audit: Audit) -> list[QuotaGroup]:
    """Return the lines by ResourceQuota."""
    ordered = sorted(audit.quotas)[:MOST_LINES]
    groups = groupby(ordered, key=lambda one: (one.namespace, one.name))
    return [QuotaGroup(namespace, name, list(lines)) for (namespace, name), lines in groups]


class PolicyShown(NamedTuple):
    """A policy and its rules by mode."""

    policy: PolicyLine
    by_mode: Sequence[tuple[str, Sequence[str]]]


def policies_of(audit: Audit) -> list[PolicyShown]:
    """Return the policies by precedence, each with its rules by mode."""
    return [PolicyShown(policy, _by_mode(policy.modes)) for policy in audit.policies[:MOST_LINES]]


def _by_mode(modes: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = {}
    for rule, mode in modes:
        groups.setdefault(mode, []).append(rule)
    known = ("Enforce", "Warn", "DryRun", "Disabled")
    return [
        (mode, groups[mode]) for mode in sorted(groups, key=lambda mode: (known.index(mode) if mode in known else len(known), mode))
    ]
