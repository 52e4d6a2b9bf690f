"""The sums of an audit: what enforcing would do, in all and by rule, team and namespace.

A rule in DryRun is *rehearsed*: nothing has come of what it says. A rule in Enforce or Warn is *in force*: what it says of a
workload is what would happen, were the workload made today. Both are counted apart. A workload counts once in each group of
columns, by the gravest that the group's rules say of it, so that a row's numbers can be added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.rules.registry import BY_ID
from gpugate.webhook.audit.model import Audit, AuditedWorkload, Effect, Item

_RANK: Final = {effect: rank for rank, effect in enumerate(Effect)}


def gravest(items: Iterable[Item]) -> Effect | None:
    """The gravest effect among ``items``; None where there is none."""
    return min((one.effect for one in items), key=_RANK.__getitem__, default=None)


def outcome_of(workload: AuditedWorkload) -> str:
    """The gravest that any rule says of ``workload``; ``clean`` for nothing."""
    found = gravest(workload.items)
    return "clean" if found is None else found.value


@dataclass(slots=True)
class Tally:
    """What the rules say of a group of workloads.

    Attributes:
        workloads: how many there are in the group.
        rehearsed: how many of them by the gravest that rules in DryRun say, by effect's value.
        in_force: the same by rules in Enforce and Warn.
        devices: accelerators of the workloads that enforcing would refuse: what is at stake.
        refused_in_force: accelerators of those that rules in force would refuse.
    """

    workloads: int = 0
    rehearsed: Counter[str] = field(default_factory=Counter)
    in_force: Counter[str] = field(default_factory=Counter)
    devices: int = 0
    refused_in_force: int = 0

    def add(self, workload: AuditedWorkload, items: Iterable[Item]) -> None:
        """Count ``workload``, of which the group's rules say ``items``."""
        self.workloads += 1
        items = tuple(items)
        rehearsed = gravest(one for one in items if one.rehearsed)
        in_force = gravest(one for one in items if not one.rehearsed)
        if rehearsed is not None:
            self.rehearsed[rehearsed.value] += 1
        if in_force is not None:
            self.in_force[in_force.value] += 1
        self.devices += workload.accelerators if rehearsed is Effect.REFUSE else 0
        self.refused_in_force += workload.accelerators if in_force is Effect.REFUSE else 0

    @property
    def weight(self) -> tuple[int, int, int, int, int]:
        """By which groups are sorted: where most is at stake comes first."""
        one, other = self.rehearsed, self.in_force
        return (one["refuse"], self.devices, one["change"], other["refuse"], other["change"])


@dataclass(frozen=True, slots=True)
class Figures:
    """The sums of one audit.

    Attributes:
        all: over every workload.
        teams_refused: how many teams have a workload that enforcing would refuse; those of no team count as none.
        rules: by rule, in the catalogue's order; every rule that a policy binds or that says something.
        teams: by team, the most at stake first; the empty name for workloads of nobody.
        namespaces: by namespace, likewise.
        exempt: workloads with an exemption in force.
        rehearsing: whether any rule is in DryRun.
        forcing: whether any rule in force says anything.
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
    """The sums of ``audit``."""
    total = Tally()
    refused_teams: set[str] = set()
    for one in audit.workloads:
        total.add(one, one.items)
        if one.team and gravest(item for item in one.items if item.rehearsed) is Effect.REFUSE:
            refused_teams.add(one.team)
    dry_run = Mode.DRY_RUN.value
    return Figures(
        all=total,
        teams_refused=len(refused_teams),
        rules=_by_rule(audit),
        teams=_grouped(audit.workloads, lambda one: one.team),
        namespaces=_grouped(audit.workloads, lambda one: one.namespace),
        exempt=sum(1 for one in audit.workloads if one.exemption is not None and one.exemption.state == "active"),
        rehearsing=bool(total.rehearsed) or any(mode == dry_run for policy in audit.policies for _, mode in policy.modes),
        forcing=bool(total.in_force),
    )


def modes_of(audit: Audit) -> dict[str, list[str]]:
    """In which modes each rule is, by the policies and by what was found, the strictest first."""
    found: dict[str, set[str]] = {}
    for policy in audit.policies:
        for rule, mode in policy.modes:
            found.setdefault(rule, set()).add(mode)
    for workload in audit.workloads:
        for item in workload.items:
            found.setdefault(item.rule, set()).add(item.mode.value)
    strictest = [one.value for one in Mode]
    return {
        rule: sorted(modes, key=lambda mode: (strictest.index(mode) if mode in strictest else 99, mode))
        for rule, modes in found.items()
    }


def _by_rule(audit: Audit) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {rule: Tally() for policy in audit.policies for rule, _ in policy.modes}
    for workload in audit.workloads:
        said: dict[str, list[Item]] = {}
        for item in workload.items:
            said.setdefault(item.rule, []).append(item)
        for rule, items in said.items():
            tallies.setdefault(rule, Tally()).add(workload, items)
    order = {rule: place for place, rule in enumerate(BY_ID)}
    return {rule: tallies[rule] for rule in sorted(tallies, key=lambda rule: (order.get(rule, len(order)), rule))}


def _grouped(workloads: Iterable[AuditedWorkload], by: Callable[[AuditedWorkload], str]) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for one in workloads:
        tallies.setdefault(by(one), Tally()).add(one, one.items)
    return dict(sorted(tallies.items(), key=lambda named: (tuple(-one for one in named[1].weight), named[0])))
