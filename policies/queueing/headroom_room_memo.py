"""What stands in the way of raising pods, or that nothing does, remembered: the next pods that ask the same need no sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.memo import keep, recall
from gpugate.policies.queueing.headroom_alike import pod_fingerprint
from gpugate.policies.queueing.headroom_room import (
    bounding_queue,
    first_violation,
    headroom_for,
    is_bounded_without_queue,
    number_together,
)
from gpugate.policies.queueing.workload_demand import pod_counts
from gpugate.policies.workloads.workload import PodSet, Workload


class Target(NamedTuple):
    """What one container's resources are, and what they become under Guaranteed quality of service."""

    at: int
    role: str
    cpu: int
    memory: int
    cpu_limit: int | None
    cpu_request: int | None
    memory_request: int | None

    @property
    def changes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Limits and requests to be written; a request that is not stated is the limit."""
        requests = {}
        if self.cpu_request is not None and self.cpu_request != self.cpu:
            requests["cpu"] = self.cpu
        if self.memory_request is not None and self.memory_request != self.memory:
            requests["memory"] = self.memory
        return {} if self.cpu_limit == self.cpu else {"cpu": self.cpu}, requests

    @property
    def lowers(self) -> bool:
        """Whether a request is above the limit: the API says so to whoever wrote them, and knows no more which one is meant."""
        return (self.cpu_request or 0) > self.cpu or (self.memory_request or 0) > self.memory

    @property
    def is_met(self) -> bool:
        """Whether nothing is left to raise."""
        return (
            self.cpu_limit == self.cpu
            and (self.cpu_request is None or self.cpu_request == self.cpu)
            and (self.memory_request is None or self.memory_request == self.memory)
        )


_OBSTACLES: Final = "obstacles"


def first_violation_of(
    workload: Workload, pods: PodSet, targets: Sequence[Target], shapes: Sequence[NodeShape], snapshot: ClusterSnapshot
) -> str:
    """What stands in the way of making containers what ``targets`` say, with the sums; empty where nothing does.

    Raises:
        MalformedError: an amount is no quantity.
    """
    queue = bounding_queue(workload, snapshot)
    if queue is None and not is_bounded_without_queue(workload, pods, snapshot):
        return ""
    space = workload.namespace
    quotas = snapshot.quotas.get(space, ())
    key = None
    # What is in flight bounds pods alone, and never stays the same for long; other sorts of pods take a part of each bound.
    if len(workload.pod_sets) == 1 and not (quotas and workload.is_pod() and snapshot.in_flight.namespace(space)):
        alike = pod_fingerprint(workload, pods)
        any_admitted = queue is not None and pod_counts(workload, pods)[0] > 0
        key = alike and (alike, tuple(targets), number_together(workload, pods), any_admitted)
    rests_on = (
        shapes,
        queue,
        # What a queue alone could ever have depends on no other.
        snapshot.cohort_tree if queue and queue.cohort else None,
        snapshot.flavors if queue else None,
        snapshot.kueue,
        snapshot.runtime_classes,
        snapshot.priorities,
        snapshot.sync_state("priorityclasses"),
        *snapshot.limit_ranges.get(space, ()),
        *quotas,
    )
    found: str | None = recall(snapshot.memo, _OBSTACLES, key, *rests_on)
    if found is None:
        changes = {target.at: target.changes for target in targets}
        found = first_violation(headroom_for(workload, pods, snapshot, shapes), workload, pods, snapshot, changes)
        keep(snapshot.memo, _OBSTACLES, key, found, *rests_on)
    return found
