"""Workloads that were found to fit their queue, remembered: the next that asks the same need not be added up again."""

from __future__ import annotations

from typing import Any, Final

from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.memo import keep, recall
from gpugate.policies.queueing.headroom_alike import pod_fingerprint
from gpugate.policies.queueing.workload_demand import pod_counts
from gpugate.policies.workloads.workload import Workload

_FITTING: Final = "fitting"


def key_of_asked(workload: Workload, queue: ClusterQueue) -> Any | None:  # noqa: ANN401 - any hashable
    """A key that only workloads have which ask the same of ``queue``; None where the workload is better added up."""
    if len(workload.pod_sets) != 1:
        return None
    pods = workload.pod_sets[0]
    alike = pod_fingerprint(workload, pods)
    return None if alike is None else (queue.name, *pod_counts(workload, pods), alike)


def is_known_to_fit(key: Any, snapshot: ClusterSnapshot) -> bool:  # noqa: ANN401 - a key of :func:`key_of_asked`
    """Whether a workload of this ``key`` was found to fit, ever and now, nothing in flight counted."""
    return recall(snapshot.cohort_tree.memo, _FITTING, key, *_rests_on(snapshot)) is not None


def fits(key: Any, snapshot: ClusterSnapshot) -> None:  # noqa: ANN401 - a key of :func:`key_of_asked`
    """Remember that a workload of this ``key`` fits, ever and now, nothing in flight counted."""
    keep(snapshot.cohort_tree.memo, _FITTING, key, True, *_rests_on(snapshot))  # noqa: FBT003 - all that is to be known


def _rests_on(snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Beside quotas and reservations, which are the tree's: what pods come to by default, and what flavors take."""
    return snapshot.flavors, snapshot.limit_ranges, snapshot.runtime_classes, snapshot.kueue
