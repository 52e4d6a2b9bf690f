"""Add up an audit: workloads and accelerators by effect, in total and by rule, team, namespace and policy.

A rule in DryRun is *rehearsed*: its items have no effect yet. A rule in Enforce or Warn is *in force*: its items are what
re-creating the workload would do. Both are also counted apart, each workload once by its most severe effect, so that the numbers
of a row add up.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpugate.policies.findings import Mode
from gpugate.policies.rules.registry import BY_ID
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect, Item, most_severe
from gpugate.webhook.kube.types import JsonObject


@dataclass(slots=True)
class Totals:
    """Totals of a group of workloads; counters are by effect.

    Attributes:
        accelerators: requested accelerators.
        refused_accelerators: those of workloads that are, or would be, refused.
        changed: workloads that are, or would be, changed and not refused.
        effects: workloads by every effect of any rule on them.
        rehearsed: workloads by most severe effect of rules in DryRun.
        in_force: workloads by most severe effect of rules in Enforce and Warn.
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
        all: over all workloads.
        teams_refused: number of teams with a workload that enforcing would refuse.
        rules: by rule, in registry order; every rule that is bound or has items.
        teams: by team, most affected first; the empty name for workloads without a team.
        namespaces: by namespace, most affected first.
        exempt: workloads with an active exemption.
        rehearsing: whether any rule is in DryRun.
        forcing: whether any rule in force has items.
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
        rehearsing=bool(total.rehearsed) or any(mode == Mode.DRY_RUN.value for _, mode in bound),
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
