"""What is left of a bound that all pods of a workload share, where it has several sorts of them: master and workers.

What one sort is given must leave room for what the others are as they are, and for their being given as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpugate.policies.cluster.records.kueue import ClusterQueue, ResourceGroup
from gpugate.policies.cluster.records.namespaces import ResourceQuota
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.queueing.flavor_fit import fit_of
from gpugate.policies.queueing.resource_quota import in_scope, usage_of_pod
from gpugate.policies.queueing.workload_demand import PodSetDemand, counted_requests, number_of_pods, pod_counts
from gpugate.policies.scheduling.pod_resources import resolved_resources
from gpugate.policies.workloads.workload import PodSet, Workload


class OtherPodSets(NamedTuple):
    """The other pods of the same workload.

    Attributes:
        taken: what they come to together as they are: bytes, millicores or counts, by the names of the bound.
        number: how many of them ask for accelerators, and so may be given something, too.
    """

    taken: Mapping[str, int]
    number: int

    def share(self, name: str, most: int, each: int, number: int) -> int:
        """What each of ``number`` pods may come to of ``name``: now it is ``each``, and all pods together may have ``most``."""
        if not self.number and not self.taken.get(name):
            return most // number
        left = most - each * number - self.taken.get(name, 0)
        return each + max(0, left) // (number + self.number)


def others_in_quota(quota: ResourceQuota, workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> OtherPodSets:
    """What the other pods take of ``quota``.

    Raises:
        MalformedError: an amount is no quantity.
    """
    taken: dict[str, int] = {}
    number = 0
    for other in workload.pod_sets if len(workload.pod_sets) > 1 else ():
        count = number_of_pods(workload, other)[0] if other is not pods and other.count else 0
        if (
            not count
            or in_scope(quota, other, resolved_resources(other, snapshot, workload.namespace, with_overhead=False), snapshot)
            is False
        ):
            continue
        number += count if other.requests_gpu() else 0
        for name, amount in usage_of_pod(resolved_resources(other, snapshot, workload.namespace)).items():
            taken[name] = taken.get(name, 0) + amount * count
    return OtherPodSets(taken, number)


def others_in_queue(
    workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, queue: ClusterQueue, group: ResourceGroup, flavor: str
) -> OtherPodSets:
    """What Kueue counts for the other pods, of those that may be given ``flavor`` of ``group`` as well.

    Raises:
        MalformedError: an amount is no quantity.
    """
    taken: dict[str, int] = {}
    number = 0
    for other in workload.pod_sets if len(workload.pod_sets) > 1 else ():
        count, fewest = pod_counts(workload, other) if other is not pods else (0, 0)
        if not count:
            continue
        each = counted_requests(workload, other, snapshot)
        fit = fit_of(workload, PodSetDemand(other, count, fewest, each), queue, group, snapshot)
        if fit is not None and any(offer.flavor == flavor and offer.mismatch for offer in fit.offers):
            continue
        number += count if other.requests_gpu() else 0
        for name, amount in each.items():
            taken[name] = taken.get(name, 0) + amount * count
    return OtherPodSets(taken, number)
