"""What an audit found of each policy's rules: the figures that the status of a GPUPolicy shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gpugate.webhook.audit.records import Audited, Effect
from gpugate.webhook.controller.policy_status import LastAudit


def sums_by_policy(workloads: Iterable[Audited], at: str) -> dict[str, LastAudit]:
    """The figures by policy, of an audit of everything ``at`` this time; without policies that bind nothing for any workload."""
    bound, refused, changed, exempt = (Counter[str]() for _ in range(4))
    for one in workloads:
        bound.update(_name(policy) for policy in one.bound_by)
        effects: dict[str, set[Effect]] = {}
        for item in one.items:
            effects.setdefault(_name(item.policy), set()).add(item.effect)
        for policy, found in effects.items():
            refused[policy] += Effect.REFUSE in found
            # Nothing comes of a change to what is refused.
            changed[policy] += Effect.CHANGE in found and Effect.REFUSE not in found
            exempt[policy] += Effect.EXEMPT in found
    return {policy: LastAudit(at, number, changed[policy], refused[policy], exempt[policy]) for policy, number in bound.items()}


def _name(policy: str) -> str:
    return policy.rpartition("@")[0]
