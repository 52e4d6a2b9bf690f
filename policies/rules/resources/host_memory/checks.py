"""Findings of the rule `host-memory`."""

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.kube.quantity import MIB, format_bytes, show_bytes
from gpugate.policies.queueing.cluster_queue import uncovered
from gpugate.policies.rules.resources.host_memory.mutate import fair_share, memory_limits_for
from gpugate.policies.rules.resources.host_memory.params import HostMemoryParams
from gpugate.policies.rules.resources.host_memory.volumes import check_memory_volumes
from gpugate.policies.scheduling.node_fit import doubt_about, holds, node_request, nodes_unknown, unschedulable_finding
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.pod_resources import defaults_for
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.workload import Workload


def _devices(pods: PodSet, container: Container) -> int:
    return sum(container.accelerators().values()) or len(pods.gpu_claims.intersection(container.claims()))


def check(workload: Workload, params: HostMemoryParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse missing limits, overcommitted ones, too large a /dev/shm, and pods that fit nowhere."""
    for pods in workload.gpu_pod_sets():
        pod_limit = pod_level(pods, "limits").get("memory")
        for container in pods.holders():
            limit, request, _, _ = container.amounts
            if limit is None:
                if pod_limit is None and "memory" not in defaults_for(snapshot, workload.namespace).limits:
                    yield _limit_missing(workload, pods, container, params, snapshot)
            elif request is not None and limit > request * params.max_overcommit_ratio:
                yield _overcommit(container, limit, request, params)
        yield from check_memory_volumes(pods, pod_limit)
        yield from _check_fit(workload, pods, snapshot)


def _limit_missing(
    workload: Workload, pods: PodSet, container: Container, params: HostMemoryParams, snapshot: ClusterSnapshot
) -> Finding:
    fair, source = fair_share(workload, pods, container, params, snapshot)
    count = _devices(pods, container)
    if "memory" in uncovered(workload, snapshot):
        return Finding(
            "QueueDoesNotCover",
            container.place("limits", "memory"),
            f"{container.name} has no memory limit, and none is put in: the quota of queue {queue_label(workload)} covers no"
            " memory, so Kueue would never admit a workload that asks for some",
            "Have memory covered by the ClusterQueue, or memory left out of Kueue's accounting by excludeResourcePrefixes.",
        )
    room = memory_limits_for(workload, pods, params, snapshot)[0] if params.default_limits else None
    if room is not None and not room.limits:
        return Finding(
            "NoRoomForLimit",
            container.place("limits", "memory"),
            f"{container.name} has no memory limit, and none is put in: it would leave the pod too little, or make it"
            f" impossible ({room.why})",
            f"Write resources.limits.memory in {container.name}, and lower what the other containers ask for where need be.",
        )
    return Finding(
        "LimitMissing",
        container.place("limits", "memory"),
        f"{container.name} asks for {count} accelerator{'s' if count != 1 else ''} and has no memory limit:"
        " it could take the whole node's memory",
        f"Write resources.limits.memory: {show_bytes(fair)} ({source}).",
    )


def _overcommit(container: Container, limit: int, request: int, params: HostMemoryParams) -> Finding:
    ratio = f"{limit / request:.2f}".rstrip("0").rstrip(".") if request else "without bound"
    least = -(-int(limit / params.max_overcommit_ratio) // MIB) * MIB
    return Finding(
        "Overcommit",
        container.place("limits", "memory"),
        f"limit {show_bytes(limit)} / request {show_bytes(request)} = {ratio}, above the ratio of"
        f" {params.max_overcommit_ratio:g} that the policy allows",
        f"Write resources.requests.memory: {format_bytes(least)} or more, or lower the limit.",
        measure=int(1000 * limit / request) if request else 1 << 62,
    )


def _check_fit(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    if snapshot.known.get("nodes") is SyncState.PENDING:
        return (nodes_unknown(pods),)
    chosen = node_candidates(pods, snapshot)
    if not chosen.with_resource:
        return ()
    doubt = doubt_about(workload, pods, snapshot)
    if doubt is not None:
        return (doubt,)
    ask = node_request(pods, snapshot, workload.namespace)
    open_to = open_shapes(pods, chosen)
    for shape in open_to:
        if holds(shape, ask):
            return ()
    # Where taints keep the pods off all nodes, what none of these could hold is wrong even so.
    if not open_to and (not chosen.matching or any(holds(shape, ask) for shape in chosen.matching)):
        return ()
    return (unschedulable_finding(pods, snapshot, ask, open_to or chosen.matching),)
