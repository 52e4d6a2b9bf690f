"""Add up an audit: workloads and accelerators by effect, in total and by rule, team, namespace and policy.

A rule in DryRun is *rehearsed*: its items have no effect yet. A rule in Enforce or Warn is *in force*: its items are what
re-creating the workload would do. Both are counted apart. A workload counts once in each group of columns, by its most severe
effect there, so that the numbers of a row add up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from gpugate.policies.findings import Mode
from gpugate.policies.rules.registry import BY_ID
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect, Item
from gpugate.webhook.kube.types import JsonObject


class Totals(NamedTuple):
    """Totals of a group of workloads; a refused workload that would also be changed counts as refused.

    Attributes:
        workloads: number of workloads.
        refused: workloads that are, or would be, refused.
        changed: workloads that are, or would be, changed and not refused.
        warned: workloads with a warning.
        unknown: workloads that some rule cannot evaluate.
        exempt: workloads exempt from some rule.
        accelerators: requested accelerators.
        refused_accelerators: requested accelerators of refused workloads.
    """

    workloads: int
    refused: int
    changed: int
    warned: int
    unknown: int
    exempt: int
    accelerators: int
    refused_accelerators: int


def totals_of(workloads: Iterable[AuditedWorkload]) -> Totals:
    """Add up ``workloads``."""
    counts = dict.fromkeys(Effect, 0)
    number = accelerators = refused = changed = 0
    for workload in workloads:
        number += 1
        accelerators += workload.accelerators
        effects = {item.effect for item in workload.items}
        for effect in effects:
            counts[effect] += 1
        if Effect.REFUSE in effects:
            refused += workload.accelerators
        elif Effect.CHANGE in effects:
            changed += 1
    return Totals(
        number,
        counts[Effect.REFUSE],
        changed,
        counts[Effect.WARN],
        counts[Effect.UNKNOWN],
        counts[Effect.EXEMPT],
        accelerators,
        refused,
    )


def totals_by(workloads: Iterable[AuditedWorkload], key: Callable[[AuditedWorkload], str]) -> dict[str, Totals]:
    """Add up ``workloads`` by the value of ``key``, sorted."""
    groups: dict[str, list[AuditedWorkload]] = {}
    for workload in workloads:
        groups.setdefault(key(workload), []).append(workload)
    return {name: totals_of(groups[name]) for name in sorted(groups)}


def totals_by_rule(workloads: Iterable[AuditedWorkload]) -> dict[str, Totals]:
    """Add up ``workloads`` by rule: those with items of the rule, and only these items."""
    groups: dict[str, list[AuditedWorkload]] = {}
    for workload in workloads:
        for rule in sorted({item.rule for item in workload.items}):
            groups.setdefault(rule, []).append(replace(workload, items=tuple(item for item in workload.items if item.rule == rule)))
    return {name: totals_of(groups[name]) for name in sorted(groups)}


_RANK: Final = {effect: rank for rank, effect in enumerate(Effect)}


def gravest(items: Iterable[Item]) -> Effect | None:
    """Return the most severe effect among ``items``; None without items."""
    return min((item.effect for item in items), key=_RANK.__getitem__, default=None)


def outcome_of(workload: AuditedWorkload) -> str:
    """Return the most severe effect of any rule on ``workload``; ``clean`` for none."""
    outcome = gravest(workload.items)
    return "clean" if outcome is None else outcome.value


@dataclass(slots=True)
class Tally:
    """Effects of the rules on a group of workloads.

    Attributes:
        workloads: number of workloads in the group.
        rehearsed: workloads by most severe effect of rules in DryRun.
        in_force: workloads by most severe effect of rules in Enforce and Warn.
        devices: accelerators of workloads that enforcing would refuse.
        refused_in_force: accelerators of workloads that rules in force would refuse.
    """

    workloads: int = 0
    rehearsed: Counter[str] = field(default_factory=Counter)
    in_force: Counter[str] = field(default_factory=Counter)
    devices: int = 0
    refused_in_force: int = 0

    def add(self, workload: AuditedWorkload, items: Iterable[Item]) -> None:
        """Count ``workload`` with ``items`` of the group's rules."""
        self.workloads += 1
        items = tuple(items)
        rehearsed = gravest(item for item in items if item.rehearsed)
        in_force = gravest(item for item in items if not item.rehearsed)
        if rehearsed is not None:
            self.rehearsed[rehearsed.value] += 1
        if in_force is not None:
            self.in_force[in_force.value] += 1
        self.devices += workload.accelerators if rehearsed is Effect.REFUSE else 0
        self.refused_in_force += workload.accelerators if in_force is Effect.REFUSE else 0

    @property
    def weight(self) -> tuple[int, int, int, int, int]:
        """Return the sort key: most affected groups first."""
        one, other = self.rehearsed, self.in_force
        return (one["refuse"], self.devices, one["change"], other["refuse"], other["change"])


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one audit.

    Attributes:
        all: over all workloads.
        teams_refused: number of teams with a workload that enforcing would refuse.
        rules: by rule, in registry order; every rule that is bound or has items.
        teams: by team, most affected first; the empty name for workloads without a team.
        namespaces: by namespace, most affected first.
        exempt: workloads with an active exemption.
        rehearsing: whether any rule is in DryRun.
        forcing: whether any rule in force has items.
    """

    all: Tally
    teams_refused: int
    rules: Mapping[str, Tally]
    teams: Mapping[str, Tally]
    namespaces: Mapping[str, Tally]
    exempt: int
    rehearsing: bool
    forcing: bool


def figures_of(audit: Audit) -> Figures:
    """Return the figures of ``audit``."""
    total = Tally()
    refused_teams: set[str] = set()
    for workload in audit.workloads:
        total.add(workload, workload.items)
        if workload.team and gravest(item for item in workload.items if item.rehearsed) is Effect.REFUSE:
            refused_teams.add(workload.team)
    dry_run = Mode.DRY_RUN.value
    return Figures(
        all=total,
        teams_refused=len(refused_teams),
        rules=_by_rule(audit),
        teams=_grouped(audit.workloads, lambda workload: workload.team),
        namespaces=_grouped(audit.workloads, lambda workload: workload.namespace),
        exempt=sum(1 for workload in audit.workloads if workload.exemption is not None and workload.exemption.state == "active"),
        rehearsing=bool(total.rehearsed) or any(mode == dry_run for policy in audit.policies for _, mode in policy.modes),
        forcing=bool(total.in_force),
    )


def modes_of(audit: Audit) -> dict[str, list[str]]:
    """Return the modes of each rule, from policies and items, the strictest first."""
    result: dict[str, set[str]] = {}
    for policy in audit.policies:
        for rule, mode in policy.modes:
            result.setdefault(rule, set()).add(mode)
    for workload in audit.workloads:
        for item in workload.items:
            result.setdefault(item.rule, set()).add(item.mode.value)
    strictest = [one.value for one in Mode]
    return {
        rule: sorted(modes, key=lambda mode: (strictest.index(mode) if mode in strictest else 99, mode))
        for rule, modes in result.items()
    }


def _by_rule(audit: Audit) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {rule: Tally() for policy in audit.policies for rule, _ in policy.modes}
    for workload in audit.workloads:
        by_rule: dict[str, list[Item]] = {}
        for item in workload.items:
            by_rule.setdefault(item.rule, []).append(item)
        for rule, items in by_rule.items():
            tallies.setdefault(rule, Tally()).add(workload, items)
    order = {rule: place for place, rule in enumerate(BY_ID)}
    return {rule: tallies[rule] for rule in sorted(tallies, key=lambda rule: (order.get(rule, len(order)), rule))}


def _grouped(workloads: Iterable[AuditedWorkload], by: Callable[[AuditedWorkload], str]) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for workload in workloads:
        tallies.setdefault(by(workload), Tally()).add(workload, workload.items)
    return dict(sorted(tallies.items(), key=lambda named: (tuple(-one for one in named[1].weight), named[0])))


class LastAudit(NamedTuple):
    """The last audit of the rules that one policy binds.

    Attributes:
        time: its time, RFC 3339.
        workloads: workloads that it binds a rule for.
        would_change: those of them that enforcing it would change.
        would_refuse: those of them that enforcing it would refuse.
        exempt: those of them that are exempt from one of its rules.
    """

    time: str
    workloads: int
    would_change: int
    would_refuse: int
    exempt: int

    def as_json(self) -> JsonObject:
        """Return the ``lastAudit`` field of a status."""
        return {
            "time": self.time,
            "workloads": self.workloads,
            "wouldChange": self.would_change,
            "wouldRefuse": self.would_refuse,
            "exempt": self.exempt,
        }


def totals_by_policy(workloads: Iterable[AuditedWorkload], at: str) -> dict[str, LastAudit]:
    """Return the totals by policy of a full audit ``at`` this time, for policies that bind a rule."""
    bound, refused, changed, exempt = (Counter[str]() for _ in range(4))
    for workload in workloads:
        bound.update(_name(policy) for policy in workload.bound_by)
        effects: dict[str, set[Effect]] = {}
        for item in workload.items:
            effects.setdefault(_name(item.policy), set()).add(item.effect)
        for policy, value in effects.items():
            refused[policy] += Effect.REFUSE in value
            # A refused workload is not changed.
            changed[policy] += Effect.CHANGE in value and Effect.REFUSE not in value
            exempt[policy] += Effect.EXEMPT in value
    return {policy: LastAudit(at, number, changed[policy], refused[policy], exempt[policy]) for policy, number in bound.items()}


def _name(policy: str) -> str:
    return policy.rpartition("@")[0]
