"""Figures of an audit: how many workloads a rule, a team or a namespace has to do with, and how many accelerators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from gpugate.webhook.audit.model import AuditedWorkload, Effect


class Totals(NamedTuple):
    """What some workloads come to; one that is refused and would be changed, too, counts as refused.

    Attributes:
        workloads: how many they are.
        refused: how many are, or would be, refused.
        changed: how many are, or would be, changed, those that are refused left out: nothing comes of their changes.
        warned: how many are warned about.
        unknown: how many cannot be judged by some rule.
        exempt: how many are exempt from some rule.
        accelerators: accelerators that they ask for.
        refused_accelerators: those of the refused ones.
    """

    workloads: int
    refused: int
    changed: int
    warned: int
    unknown: int
    exempt: int
    accelerators: int
    refused_accelerators: int


def sums_of(workloads: Iterable[AuditedWorkload]) -> Totals:
    """What ``workloads`` come to."""
    counts = dict.fromkeys(Effect, 0)
    number = accelerators = refused = changed = 0
    for one in workloads:
        number += 1
        accelerators += one.accelerators
        effects = {item.effect for item in one.items}
        for effect in effects:
            counts[effect] += 1
        if Effect.REFUSE in effects:
            refused += one.accelerators
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


def sums_by(workloads: Iterable[AuditedWorkload], key: Callable[[AuditedWorkload], str]) -> dict[str, Totals]:
    """The same for each value of ``key``, sorted by it."""
    groups: dict[str, list[AuditedWorkload]] = {}
    for one in workloads:
        groups.setdefault(key(one), []).append(one)
    return {name: sums_of(groups[name]) for name in sorted(groups)}


def sums_by_rule(workloads: Iterable[AuditedWorkload]) -> dict[str, Totals]:
    """The same for each rule, of the workloads that it has something to say of and of what it says alone."""
    groups: dict[str, list[AuditedWorkload]] = {}
    for one in workloads:
        for rule in sorted({item.rule for item in one.items}):
            groups.setdefault(rule, []).append(replace(one, items=tuple(item for item in one.items if item.rule == rule)))
    return {name: sums_of(groups[name]) for name in sorted(groups)}
