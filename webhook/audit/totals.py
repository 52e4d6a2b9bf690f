"""Add up an audit: workloads and accelerators by effect, in total and by rule, team, namespace and policy, and held devices.

A rule in Warn or DryRun is *rehearsed*: its items have no effect yet. A rule in Enforce or Mutate is *in force*: its items are what
re-creating the workload would do. Both are also counted apart, each workload once by its most severe effect, so that the numbers
of a row add up.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpugate.policies.cluster.gpu_usage import DeviceUse
from gpugate.policies.findings import Mode
from gpugate.policies.rules.registry import BY_ID
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect, Item, Used, most_severe
from gpugate.webhook.audit.ownership import OWNER
from gpugate.webhook.kube.types import JsonObject

_REHEARSED: Final = frozenset(mode.value for mode in Mode if mode.is_rehearsed)


@dataclass(slots=True)
class Totals:
    """Totals of a group of workloads; counters are by effect.

    Attributes:
        accelerators: requested accelerators.
        refused_accelerators: those of workloads that are, or would be, refused.
        changed: workloads that are, or would be, changed and not refused.
        effects: workloads by every effect of any rule on them.
        rehearsed: workloads by most severe effect of rules in Warn and DryRun.
        in_force: workloads by most severe effect of rules in Enforce and Mutate.
        refused_rehearsed: accelerators of workloads that enforcing would refuse.
        refused_in_force: accelerators of workloads that rules in force would refuse.
    """

    workloads: int = 0
    accelerators: int = 0
    refused_accelerators: int = 0
    changed: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    rehearsed: Counter[str] = field(default_factory=Counter)
    in_force: Counter[str] = field(default_factory=Counter)
    refused_rehearsed: int = 0
    refused_in_force: int = 0

    def add(self, workload: AuditedWorkload, items: Iterable[Item]) -> None:
        """Count ``workload`` with ``items`` of the group's rules."""
        items = tuple(items)
        effects = {item.effect for item in items}
        rehearsed = most_severe(item for item in items if item.rehearsed)
        in_force = most_severe(item for item in items if not item.rehearsed)
        self.workloads += 1
        self.accelerators += workload.accelerators
        self.refused_accelerators += workload.accelerators if Effect.REFUSE in effects else 0
        self.changed += Effect.CHANGE in effects and Effect.REFUSE not in effects
        self.effects.update(effect.value for effect in effects)
        self.rehearsed.update(() if rehearsed is None else (rehearsed.value,))
        self.in_force.update(() if in_force is None else (in_force.value,))
        self.refused_rehearsed += workload.accelerators if rehearsed is Effect.REFUSE else 0
        self.refused_in_force += workload.accelerators if in_force is Effect.REFUSE else 0

    @property
    def weight(self) -> tuple[int, ...]:
        """Return the sort key: more affected groups have a larger one."""
        rehearsed, in_force = self.rehearsed, self.in_force
        return (rehearsed["refuse"], self.refused_rehearsed, rehearsed["change"], in_force["refuse"], in_force["change"])


def totals_of(workloads: Iterable[AuditedWorkload]) -> Totals:
    """Add up ``workloads``."""
    return totals_by(workloads, lambda _: "").get("", Totals())


def totals_by(workloads: Iterable[AuditedWorkload], key: Callable[[AuditedWorkload], str]) -> dict[str, Totals]:
    """Add up ``workloads`` by the value of ``key``, sorted."""
    totals: defaultdict[str, Totals] = defaultdict(Totals)
    for workload in workloads:
        totals[key(workload)].add(workload, workload.items)
    return dict(sorted(totals.items()))


def totals_by_rule(workloads: Iterable[AuditedWorkload]) -> dict[str, Totals]:
    """Add up ``workloads`` by rule: those with items of the rule, and only these items."""
    totals: defaultdict[str, Totals] = defaultdict(Totals)
    for workload in workloads:
        for rule in {item.rule for item in workload.items}:
            totals[rule].add(workload, (item for item in workload.items if item.rule == rule))
    return dict(sorted(totals.items()))


def totals_by_policy(workloads: Iterable[AuditedWorkload], at: str) -> dict[str, JsonObject]:
    """Return the ``lastAudit`` of the status of each policy that binds a rule, of a full audit ``at`` this time (RFC 3339)."""
    totals: defaultdict[str, Totals] = defaultdict(Totals)
    for workload in workloads:
        for policy in map(_name, workload.bound_by):
            totals[policy].add(workload, (item for item in workload.items if _name(item.policy) == policy))
    return {
        policy: {
            "time": at,
            "workloads": total.workloads,
            "wouldChange": total.changed,
            "wouldRefuse": total.effects["refuse"],
            "exempt": total.effects["exempt"],
        }
        for policy, total in totals.items()
    }


def _name(policy: str) -> str:
    return policy.rpartition("@")[0]


class Figures(NamedTuple):
    """The figures of the audit page.

    Attributes:
        rules: by rule, in registry order; every rule that is bound or has items.
        teams: by team, most affected first; the empty name for workloads without a team.
        exempt: workloads with an active exemption.
    """

    all: Totals
    teams_refused: int
    rules: Mapping[str, Totals]
    teams: Mapping[str, Totals]
    namespaces: Mapping[str, Totals]
    exempt: int
    rehearsing: bool
    forcing: bool


def figures_of(audit: Audit) -> Figures:
    """Return the figures of ``audit``."""
    total = totals_of(audit.workloads)
    bound = [pair for policy in audit.policies for pair in policy.modes]
    rules = {rule: Totals() for rule, _ in bound} | totals_by_rule(audit.workloads)
    order = {rule: place for place, rule in enumerate(BY_ID)}
    teams = _most_affected_first(totals_by(audit.workloads, lambda workload: workload.team))
    return Figures(
        all=total,
        teams_refused=sum(1 for team, totals in teams.items() if team and totals.rehearsed["refuse"]),
        rules={rule: rules[rule] for rule in sorted(rules, key=lambda rule: (order.get(rule, len(order)), rule))},
        teams=teams,
        namespaces=_most_affected_first(totals_by(audit.workloads, lambda workload: workload.namespace)),
        exempt=sum(1 for workload in audit.workloads if workload.exemption is not None and workload.exemption.state == "active"),
        rehearsing=bool(total.rehearsed) or any(mode in _REHEARSED for _, mode in bound),
        forcing=bool(total.in_force),
    )


def _most_affected_first(totals: Mapping[str, Totals]) -> dict[str, Totals]:
    return dict(sorted(totals.items(), key=lambda pair: pair[1].weight, reverse=True))


def modes_of(audit: Audit) -> dict[str, list[str]]:
    """Return the modes of each rule, from policies and items, the strictest first."""
    modes: defaultdict[str, set[str]] = defaultdict(set)
    for policy in audit.policies:
        for rule, mode in policy.modes:
            modes[rule].add(mode)
    for workload in audit.workloads:
        for item in workload.items:
            modes[item.rule].add(item.mode.value)
    strictest = [mode.value for mode in Mode]
    return {
        rule: sorted(names, key=lambda name: (strictest.index(name) if name in strictest else len(strictest), name))
        for rule, names in modes.items()
    }


def rehearsed_among(modes: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the modes of rules that are only rehearsed, the strictest first; ``modes`` is from :func:`modes_of`."""
    present = {mode for names in modes.values() for mode in names}
    return [mode.value for mode in Mode if mode.is_rehearsed and mode.value in present]


class DeviceLine(NamedTuple):
    """One device, and the workload whose pod holds it; None if unknown."""

    device: DeviceUse
    state: str
    workload: AuditedWorkload | None


class WindowUse(NamedTuple):
    """Cards (``parts``) with known utilisation in one time window, and how many fully used ones (``work``) equal them."""

    seconds: int
    parts: float
    work: float

    @property
    def percent(self) -> float | None:
        """Return the utilisation over all of them; None if unknown."""
        return 100 * self.work / self.parts if self.parts else None


class HeldTotals(NamedTuple):
    """Totals of held devices: ``low`` ones are too large for their work, ``unknown`` ones have no known utilisation."""

    devices: int
    idle: int
    low: int
    unknown: int
    window_use: tuple[WindowUse, ...]


#: States of devices, those that need attention first.
_STATES: Final = ("idle", "low", "unknown", "busy", "young", "", "stray", "free")


def device_lines(audit: Audit) -> list[DeviceLine]:
    """Return every device: held ones, idle first, then those that no audited workload holds."""
    lines = [DeviceLine(used.device, used.state, workload) for workload in audit.workloads for used in workload.used]
    strays = audit.fleet.strays if audit.fleet else ()
    lines += [DeviceLine(device, "stray" if device.pod else "free", None) for device in strays]
    return sorted(lines, key=_sort_key)


def _sort_key(line: DeviceLine) -> tuple[object, ...]:
    device = line.device
    peak = device.spans[0].peak if device.spans else None
    place = (device.namespace, device.pod, device.node, device.number, device.slice, device.uuid)
    return (_STATES.index(line.state), 100.0 if peak is None else peak, *place)


def _held_totals(used: Sequence[Used], windows: Iterable[int]) -> HeldTotals:
    states = Counter(use.state for use in used)
    window_use = tuple(_use_in([use.device for use in used], seconds) for seconds in windows)
    return HeldTotals(len(used), states["idle"], states["low"], states["unknown"], window_use)


def _use_in(devices: Iterable[DeviceUse], seconds: int) -> WindowUse:
    parts = work = 0.0
    for device in devices:
        span = device.span(seconds)
        if span is not None and span.average is not None:
            parts += device.part
            work += device.part * span.average / 100
    return WindowUse(seconds, round(parts, 6), round(work, 6))


def held_in_all(audit: Audit) -> HeldTotals:
    """Add up all held devices, also those of unknown pods."""
    used = [used for workload in audit.workloads for used in workload.used]
    if audit.fleet is None:
        return _held_totals(used, ())
    return _held_totals([*used, *(Used(device, "") for device in audit.fleet.strays if device.pod)], audit.fleet.windows)


def owner_of(workload: AuditedWorkload) -> str:
    """Return the owner of the workload; its team without one."""
    return dict(workload.belongs).get(OWNER, workload.team)


def held_by_owner(audit: Audit) -> dict[str, HeldTotals]:
    """Add up held devices by owner, most idle first; the empty name for workloads without an owner."""
    groups: defaultdict[str, list[Used]] = defaultdict(list)
    for workload in audit.workloads:
        if workload.used:
            groups[owner_of(workload)] += workload.used
    windows = audit.fleet.windows if audit.fleet else ()
    totals = {owner: _held_totals(used, windows) for owner, used in groups.items()}
    return dict(sorted(totals.items(), key=lambda pair: (-pair[1].idle, -pair[1].low, -pair[1].devices, pair[0])))


def free_in_all(audit: Audit) -> int:
    """Return the number of devices that no pod holds."""
    return sum(1 for device in audit.fleet.strays if not device.pod) if audit.fleet else 0
