"""What keeps a pod from being raised though nodes would hold it: the bounds of its namespace and of its Kueue queue."""

from __future__ import annotations

from collections.abc import Sequence

from gpugate.policies.facts import Facts
from gpugate.policies.finding import Finding, Level
from gpugate.policies.guaranteed import Target
from gpugate.policies.kueue import uncovered
from gpugate.policies.nodes import Shape
from gpugate.policies.room_memo import obstacle_to
from gpugate.policies.workload import PodSet, Workload


def not_raised(
    workload: Workload, pods: PodSet, targets: Sequence[Target], shapes: Sequence[Shape], facts: Facts
) -> tuple[Finding, ...]:
    """Why a pod that nodes would hold raised, too, is not raised nevertheless; nothing where it is.

    Args:
        workload: the object.
        pods: the pods.
        targets: what its containers would be raised to.
        shapes: the nodes that it may land on.
        facts: the cluster.

    Raises:
        MalformedError: an amount is no quantity.
    """
    # Kueue would never admit a workload with CPU put in where its quota covers none.
    if any(one.cpu_limit is None and one.cpu_request is None for one in targets) and "cpu" in uncovered(workload, facts):
        return (_quota_without_cpu(pods),)
    found = obstacle_to(workload, pods, targets, shapes, facts)
    return (_beyond_bounds(pods, found),) if found else ()


def _beyond_bounds(pods: PodSet, obstacle: str) -> Finding:
    """The finding for a pod that is not raised because of a bound of its namespace or queue; ``obstacle``: which."""
    return Finding(
        "RaisedBeyondBounds",
        pods.field("containers"),
        "with requests raised to the limits and CPU to whole cores the pod could not be made or admitted any more"
        f" ({obstacle}), so it stays as it is and the kubelet aligns nothing",
        "Write requests and limits that are equal, with whole CPUs, within that bound.",
        Level.WARN,
    )


def _quota_without_cpu(pods: PodSet) -> Finding:
    """The finding for a pod that is not raised because its queue's quota covers no CPU."""
    return Finding(
        "QueueDoesNotCover",
        pods.field("containers"),
        "the pod states no CPU, and none is put in: its queue's quota covers none, so Kueue would never admit a workload that"
        " asks for some; the pod is not Guaranteed and the kubelet aligns nothing",
        "Have cpu covered by the ClusterQueue, or left out of Kueue's accounting by excludeResourcePrefixes.",
        Level.WARN,
    )
