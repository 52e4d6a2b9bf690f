"""Findings of the rule `host-memory`.

A memory-backed emptyDir is a tmpfs whose pages count against the memory limit of the container that writes them. It is as large as
the least of the node's allocatable memory, the pod's memory limit (if every container has one) and ``sizeLimit``
(``pkg/volume/emptydir/empty_dir.go`` ``calculateEmptyDirMemorySize``, 1.36).
"""

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.kube.quantity import MIB, format_bytes, show_bytes
from gpugate.policies.queueing.cluster_queue import uncovered
from gpugate.policies.rules.resources.host_memory.mutate import DefaultLimits, HostMemoryParams, default_limits
from gpugate.policies.scheduling.node_fit import doubt_about, fitting, holds, node_request, nodes_unknown, unschedulable_finding
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.pod_resources import defaults_for
from gpugate.policies.workloads.container import EPHEMERAL, SHM_DIRECTORY, Container, SharedMemory, is_memory_volume
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: HostMemoryParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse missing limits, overcommitted ones, a /dev/shm above its limit, and pods that no node could hold."""
    for pods in workload.gpu_pod_sets():
        pod_limit = pod_level(pods, "limits").get("memory")
        defaults: DefaultLimits | None = None
        for container in pods.holders():
            limit, request, _, _ = container.amounts
            if limit is None:
                if pod_limit is not None or "memory" in defaults_for(snapshot, workload.namespace).limits:
                    continue
                if "memory" in uncovered(workload, snapshot):
                    yield _queue_does_not_cover(workload, container)
                else:
                    defaults = defaults or default_limits(workload, pods, params, snapshot)
                    yield _limit_missing(pods, container, defaults, params)
            elif request is not None and limit > request * params.max_overcommit_ratio:
                yield _overcommit(container, limit, request, params)
        yield from _check_memory_volumes(pods, pod_limit)
        yield from _check_fit(workload, pods, snapshot)


def _queue_does_not_cover(workload: Workload, container: Container) -> Finding:
    return Finding(
        "QueueDoesNotCover",
        container.place("limits", "memory"),
        f"{container.name} has no memory limit and gpugate adds none, because the quota of queue {queue_label(workload)} covers no"
        " memory and Kueue would never admit a workload that requests it",
        "Add memory to the quota of the ClusterQueue, or exclude it from Kueue's accounting with excludeResourcePrefixes.",
    )


def _limit_missing(pods: PodSet, container: Container, defaults: DefaultLimits, params: HostMemoryParams) -> Finding:
    place, at = container.place("limits", "memory"), pods.containers.index(container)
    share, line = defaults.shares[at], f"Write resources.limits.memory in {container.name}"
    if params.default_limits != "Never":
        if not share.size:
            return Finding(
                "ShareUnclear",
                place,
                f"{container.name} has no memory limit, so it could use all memory of the node; gpugate adds none, because"
                f" {share.text}",
                f"{line}: the memory that it needs.",
            )
        if at not in defaults.limits:
            return Finding(
                "NoRoomForLimit",
                place,
                f"{container.name} has no memory limit and gpugate adds none, because it would leave the pod too little memory,"
                f" get it rejected, or let fewer pods run ({defaults.why})",
                f"{line}, and lower the requests of the other containers if necessary.",
            )
    written = f"Write resources.limits.memory: {show_bytes(share.size)} ({share.text})."
    count = sum(container.accelerators().values()) or len(pods.gpu_claims.intersection(container.claims()))
    return Finding(
        "LimitMissing",
        place,
        f"{container.name} requests {count} accelerator{'s' if count != 1 else ''} and has no memory limit, so it could use all"
        " memory of the node",
        written if share.size else f"{line}: the memory that it needs.",
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
    request = node_request(pods, snapshot, workload.namespace)
    if fitting(pods, chosen, request):
        return ()
    # If taints keep the pods off all nodes, a pod that none of these could hold is refused even so.
    shapes = open_shapes(pods, chosen) or chosen.matching
    if not shapes or any(holds(shape, request) for shape in shapes):
        return ()
    return (unschedulable_finding(pods, snapshot, request, shapes),)


def _check_memory_volumes(pods: PodSet, pod_limit: int | None) -> list[Finding]:
    """Return the findings about memory-backed volumes; ``pod_limit``: the pod-level memory limit in bytes, if any."""
    findings: list[Finding] = []
    several = sum(map(is_memory_volume, pods.volumes())) if "volumes" in pods.spec else 0
    for container in pods.containers:
        if container.role is EPHEMERAL or "volumeMounts" not in container.spec:
            continue
        mounted = pods.shared_memory(container)
        at_shm = mounted is not None and mounted.is_memory
        if mounted is not None and at_shm:
            findings += _check_shared_memory(container, mounted, pod_limit)
        if several > at_shm:
            findings += _check_volumes(pods, container, pod_limit)
    return findings


def _limit_of(container: Container, pod_limit: int | None) -> int | None:
    limit = container.amounts.memory_limit
    return pod_limit if limit is None else limit


def _check_shared_memory(container: Container, mounted: SharedMemory, pod_limit: int | None) -> Iterator[Finding]:
    size, limit = mounted.size_limit, _limit_of(container, pod_limit)
    if size is not None and limit is not None and size > limit:
        yield Finding(
            "SharedMemoryExceedsLimit",
            (*mounted.place, "emptyDir", "sizeLimit"),
            f"{SHM_DIRECTORY} counts against the memory limit of {container.name} and is larger:"
            f" {show_bytes(size)} > {show_bytes(limit)}",
            f"Write sizeLimit: {format_bytes(limit // 2 // MIB * MIB or limit)}, or raise the memory limit to"
            f" {show_bytes(size * 2)}.",
            measure=size - limit,
        )


def _check_volumes(pods: PodSet, container: Container, pod_limit: int | None) -> Iterator[Finding]:
    limit = _limit_of(container, pod_limit)
    shared = pods.shared_memory(container)
    at_shm = None if shared is None else shared.mount.get("name")
    volumes = pods.memory_volumes(container)
    sizes = {name: volume.size_limit for name, volume in volumes.items()}
    if limit is None:
        for name, volume in volumes.items():
            if sizes[name] is None and name != at_shm and not pods.holds(container):
                yield Finding(
                    "MemoryVolumeUnbounded",
                    (*volume.place, "emptyDir"),
                    f"the memory-backed volume {name} has no sizeLimit and {container.name}, which may write it, has no memory"
                    " limit, so it may grow to all of the node's allocatable memory",
                    "Write a sizeLimit for the volume and a memory limit for the container.",
                )
        return
    sized = {name: size for name, size in sizes.items() if size}
    total = sum(sized.values())
    if total > limit and any(name != at_shm for name in sized):
        terms = " + ".join(f"{show_bytes(size)} ({name})" for name, size in sized.items())
        yield Finding(
            "MemoryVolumesExceedLimit",
            pods.field("volumes"),
            f"the memory-backed volumes of {container.name} count against its memory limit and are larger:"
            f" {terms}{f' = {show_bytes(total)}' if len(sized) > 1 else ''} > {show_bytes(limit)}",
            f"Lower their sizeLimits to {show_bytes(limit // 2 // MIB * MIB or limit)} together, or raise the memory limit to"
            f" {show_bytes(total * 2)}.",
            measure=total - limit,
        )
