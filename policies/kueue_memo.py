"""Workloads that were found to fit their queue, remembered: the next that asks the same need not be added up again."""

from __future__ import annotations

from typing import Any, Final

from gpugate.policies.facts import Facts
from gpugate.policies.feasibility import remember
from gpugate.policies.kueue_demand import numbers_of
from gpugate.policies.records.queues import ClusterQueue
from gpugate.policies.resources import memo_key
from gpugate.policies.workload import Workload

#: What of a pod spec, beside the containers, decides on its flavors and on what Kueue counts.
_DECIDING: Final = ("nodeSelector", "affinity", "tolerations", "overhead", "resources", "runtimeClassName")
_FITTING: Final = "fitting"


def key_of_asked(workload: Workload, queue: ClusterQueue) -> Any | None:  # noqa: ANN401 - any hashable
    """A key that only workloads have which ask the same of ``queue``; None where the workload is better added up."""
    if len(workload.pod_sets) != 1:
        return None
    pods = workload.pod_sets[0]
    deciding = memo_key([spec for key in _DECIDING if (spec := (key, pods.spec.get(key)))[1] is not None])
    if deciding is None:
        return None
    # Pods whose containers state the same have the very same totals.
    return (
        queue.name,
        workload.namespace,
        workload.kind.group,
        workload.kind.kind,
        *numbers_of(workload, pods),
        pods.totals,
        deciding,
    )


def _fitting(facts: Facts) -> dict[Any, Any]:
    """What was found to fit as long as quota, reservations, and what pods come to by default are as they are."""
    rests_on = (facts.flavors, facts.limit_ranges, facts.runtime_classes, facts.kueue)
    found = facts.cohort_tree.memo.get(_FITTING)
    if found is None or any(mine is not theirs for mine, theirs in zip(found[0], rests_on, strict=True)):
        found = (rests_on, {})
        facts.cohort_tree.memo[_FITTING] = found
    entries: dict[Any, Any] = found[1]
    return entries


def is_known_to_fit(key: Any, facts: Facts) -> bool:  # noqa: ANN401 - a key of :func:`key_of_asked`
    """Whether a workload of this ``key`` was found to fit, ever and now, nothing in flight counted."""
    return key is not None and key in _fitting(facts)


def fits(key: Any, facts: Facts) -> None:  # noqa: ANN401 - a key of :func:`key_of_asked`
    """Remember that a workload of this ``key`` fits, ever and now, nothing in flight counted."""
    if key is not None:
        remember(_fitting(facts), key, None)
