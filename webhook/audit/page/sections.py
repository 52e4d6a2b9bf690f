"""What the page says of held devices and what is done with them."""

from __future__ import annotations

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
from gpugate.webhook.audit.usage import HeldSums, Line, held_by_owner, lines_of
from gpugate.webhook.runtime.times import moment, rfc3339


class Idle(NamedTuple):
    """The section's content.

    Attributes:
        words: utilisation against allocation, in one sentence.
        windows: the times over which figures are, in words.
        owners: what each team holds, the one with most idle devices first.
        lines: device by device, the idle ones first.
    """

    words: str
    windows: Sequence[str]
    owners: Sequence[tuple[str, HeldSums]]
    lines: Sequence[Line]


def idle_of(audit: Audit) -> Idle:
    """What monitoring told of ``audit``'s devices."""
    windows = audit.fleet.windows if audit.fleet else ()
    return Idle(usage_in_words(audit), [lasting(one) for one in windows], list(held_by_owner(audit).items()), lines_of(audit))


#: Lines of one table; what is more is counted in words.
MOST_LINES: Final = 300
#: Node shapes that are shown, and lines that the tables of all their nodes have together.
MOST_SHAPES: Final = 60
MOST_NODES: Final = 1200
#: An exemption that ends within this time ends soon.
_SOON: Final = timedelta(days=7)
_GANGS_BY_NEED: Final = ("stuck", "starting", "queued", "running", "done")
_EXEMPTIONS_BY_NEED: Final = ("expired", "refused", "soon", "active")


class Stock(NamedTuple):
    """The nodes of one shape, and what has been promised of them.

    Attributes:
        shape: the shape.
        tiles: its picture.
        devices: accelerators in all.
        held: held ones.
        idle: idle ones.
        stranded: stranded ones.
        memory: allocatable memory, bytes.
        requested: requested memory.
        limited: memory that pods may grow to.
        cpu: allocatable CPU, millicores.
        cpu_requested: requested CPU.
        fullest: the node whose limits promise most of its memory, and how many hundredths; None without nodes.
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
    """A line for each node shape."""
    found: list[Stock] = []
    room = MOST_TILES
    for shape in audit.shapes[:MOST_SHAPES]:
        found.append(_stock(shape, room))
        room -= len(shape.nodes) if len(shape.nodes) <= room else 0
    return found


def _stock(shape: ShapeSummary, room: int) -> Stock:
    nodes = shape.nodes
    promised = [(round(100 * one.limited / one.memory), one.name) for one in nodes if one.memory > 0]
    worst = min(promised, key=lambda pair: (-pair[0], pair[1]), default=None)
    return Stock(
        shape=shape,
        tiles=tiles_of(shape, room),
        devices=sum(one.devices for one in nodes),
        held=sum(one.held for one in nodes),
        idle=sum(one.idle for one in nodes),
        stranded=sum(one.stranded for one in nodes),
        memory=sum(one.memory for one in nodes),
        requested=sum(one.requested for one in nodes),
        limited=sum(one.limited for one in nodes),
        cpu=sum(one.cpu for one in nodes),
        cpu_requested=sum(one.cpu_requested for one in nodes),
        fullest=(worst[1], worst[0]) if worst else None,
    )


class GangLine(NamedTuple):
    """A gang, since when it is as it is (RFC 3339; empty where not known), and how long that had been at the audit."""

    gang: GangState
    since: str
    lasted: str


class GangSection(NamedTuple):
    """The gangs.

    Attributes:
        counts: how many there are in each state, the states that need somebody first.
        wanting: those that are not as they should be, the stuck ones first, those that hold most accelerators before others.
        well: those that run or are done.
        stuck: how many are stuck.
        held_for_nothing: accelerators that members of those hold.
    """

    counts: Sequence[tuple[str, int]]
    wanting: Sequence[GangLine]
    well: Sequence[GangLine]
    stuck: int
    held_for_nothing: int


def gangs_of(audit: Audit) -> GangSection:
    """The gangs of ``audit``, sorted for somebody who looks after them."""
    now = moment(audit.at)
    states = [*_GANGS_BY_NEED, *sorted({one.state for one in audit.gangs}.difference(_GANGS_BY_NEED))]
    lines = [
        _gang_line(one, now)
        for one in sorted(audit.gangs, key=lambda one: (states.index(one.state), -one.held, one.namespace, one.name, one.kind))
    ]
    counts = [(state, sum(1 for one in audit.gangs if one.state == state)) for state in states]
    return GangSection(
        counts=[(state, count) for state, count in counts if count],
        wanting=[one for one in lines if one.gang.state not in {"running", "done"}],
        well=[one for one in lines if one.gang.state in {"running", "done"}],
        stuck=sum(1 for one in audit.gangs if one.state == "stuck"),
        held_for_nothing=sum(one.held for one in audit.gangs if one.state == "stuck"),
    )


def _gang_line(gang: GangState, now: datetime | None) -> GangLine:
    since = "" if gang.since is None else rfc3339(gang.since)
    if not since or gang.since is None or now is None:
        return GangLine(gang, since, "")
    return GangLine(gang, since, lasted(now - datetime.fromtimestamp(int(gang.since), UTC)))


class ExemptionLine(NamedTuple):
    """An exemption, its state (``soon`` where it ends within a week), whose it is, and what is left of it."""

    exemption: Exemption
    state: str
    kind: str
    namespace: str
    name: str
    team: str
    left: str


def exemptions_of(audit: Audit) -> list[ExemptionLine]:
    """Every exemption, those that somebody must look at first."""
    now = moment(audit.at)
    lines: list[ExemptionLine] = []
    for one in audit.workloads:
        if one.exemption is not None:
            state, left = _state(one.exemption, now)
            lines.append(ExemptionLine(one.exemption, state, one.kind, one.namespace, one.name, one.team, left))
    ranks = {state: rank for rank, state in enumerate(_EXEMPTIONS_BY_NEED)}
    return sorted(
        lines, key=lambda one: (ranks.get(one.state, len(ranks)), one.exemption.until or "~", one.namespace, one.name, one.kind)
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
    """Quotas by ClusterQueue."""
    ordered = sorted(audit.queues, key=lambda one: (one.queue, one.cohort, one.flavor, one.resource))
    groups = [(key, list(lines)) for key, lines in groupby(ordered[:MOST_LINES], key=lambda one: (one.queue, one.cohort))]
    return [
        QueueGroup(queue, cohort, max(one.pending for one in lines), next((one.stopped for one in lines if one.stopped), ""), lines)
        for (queue, cohort), lines in groups
    ]


class QuotaGroup(NamedTuple):
    """One ResourceQuota and its lines."""

    namespace: str
    name: str
    lines: Sequence[NamespaceQuota]


def quotas_of(audit: Audit) -> list[QuotaGroup]:
    """Lines by ResourceQuota."""
    ordered = sorted(audit.quotas)[:MOST_LINES]
    groups = groupby(ordered, key=lambda one: (one.namespace, one.name))
    return [QuotaGroup(namespace, name, list(lines)) for (namespace, name), lines in groups]


class PolicyShown(NamedTuple):
    """A policy, and its rules by mode."""

    policy: PolicyLine
    by_mode: Sequence[tuple[str, Sequence[str]]]


def policies_of(audit: Audit) -> list[PolicyShown]:
    """The policies as they win, each with its rules gathered by mode."""
    return [PolicyShown(one, _by_mode(one.modes)) for one in audit.policies[:MOST_LINES]]


def _by_mode(modes: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for rule, mode in modes:
        found.setdefault(mode, []).append(rule)
    known = ("Enforce", "Warn", "DryRun", "Disabled")
    return [
        (mode, found[mode]) for mode in sorted(found, key=lambda mode: (known.index(mode) if mode in known else len(known), mode))
    ]
