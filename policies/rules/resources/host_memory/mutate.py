"""Parameters and edits of the rule `host-memory`: memory limits for containers that state none, cut to what the pod can still get.

A container's share is that of its accelerators, regardless of the other containers. Together with their requests it may be more
than a node, a quota or a queue has: then the limits are cut, each by the same part, or left out if hardly anything would be left,
since a limit that is too small ends the container, and no limit does not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Bytes, Params
from gpugate.policies.gangs.gang import pods_at_once
from gpugate.policies.kube.quantity import GIB, MIB, format_bytes, show_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.cluster_queue import bounding_queue, uncovered
from gpugate.policies.queueing.headroom import Headroom, is_bounded
from gpugate.policies.scheduling.gpu_share import share_of
from gpugate.policies.scheduling.node_fit import holds, node_request
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.pod_resources import Changes, filled, limit_range_bounds, limit_within, resolved_resources
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests, add_up, limited_memory_of, pod_level, stated_overhead
from gpugate.policies.workloads.workload import Workload


class HostMemoryParams(Params):
    """Parameters of `host-memory`."""

    default_limits: bool = True
    """Whether gpugate adds a missing memory limit; if not, it refuses the pod."""
    memory_per_accelerator: Bytes = 32 * GIB
    """Memory per accelerator if no nodes are known."""
    node_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Part of a node's allocatable memory that is not divided among its accelerators."""
    max_overcommit_ratio: Annotated[float, Field(ge=1)] = 2.0
    """Maximum memory limit as a multiple of the request."""
    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether a pod that no known node could hold is refused, or only gets a warning (nodes that scale up from none)."""


class DefaultLimits(NamedTuple):
    """The memory limits that gpugate adds to a pod.

    Attributes:
        limits: bytes by index of the container; empty if none may be added.
        why: why they are cut, or why none may be added; empty if they are whole.
        shares: by index of each container without a limit, the share of its accelerators in bytes, and its calculation.
    """

    limits: Mapping[int, int]
    why: str
    shares: Mapping[int, tuple[int, str]]


def mutate(workload: Workload, params: HostMemoryParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Add memory limits, and requests with them, to containers with accelerators that state none."""
    edits: list[Edit] = []
    for pods in workload.gpu_pod_sets() if params.default_limits else ():
        lacking = "memory" not in pod_level(pods, "limits") and any(
            container.amounts.memory_limit is None for container in pods.holders()
        )
        if lacking and "memory" not in uncovered(workload, snapshot):
            defaults = default_limits(workload, pods, params, snapshot)
            cut = f"; cut because {defaults.why}" if defaults.why else ""
            for at, size in defaults.limits.items():
                edits += _set_limit(pods.containers[at], size, f"{defaults.shares[at][1]}{cut}")
    return edits


def _set_limit(container: Container, size: int, source: str) -> Iterator[Edit]:
    amount = format_bytes(size)
    group = f"memory {container.name}"
    yield Edit("set", container.place("limits", "memory"), amount, f"memory limit {amount} in {container.name} ({source})", group)
    if not container.memory("requests"):
        yield Edit("set", container.place("requests", "memory"), amount, "", group)


def default_limits(workload: Workload, pods: PodSet, params: HostMemoryParams, snapshot: ClusterSnapshot) -> DefaultLimits:
    """Return the memory limits that gpugate adds to the pod: none if the policy forbids it.

    Raises:
        MalformedError: an amount is no quantity.
    """
    holders, shares, whole = pods.holders(), {}, {}
    for at, container in enumerate(pods.containers):
        if container.amounts.memory_limit is None and container in holders:
            shares[at] = _fair_share(workload, pods, container, params, snapshot)
            request, size = container.memory("requests"), shares[at][0]
            if request:
                size = max(request, min(size, int(request * params.max_overcommit_ratio) // MIB * MIB))
            whole[at] = size
    limits, why = _fitted(workload, pods, whole, snapshot) if params.default_limits else ({}, "")
    return DefaultLimits(limits, why, shares)


def _fair_share(
    workload: Workload, pods: PodSet, container: Container, params: HostMemoryParams, snapshot: ClusterSnapshot
) -> tuple[int, str]:
    """Return the bytes that are the share of the container's accelerators within the LimitRanges, and the calculation."""
    shapes = node_candidates(pods, snapshot).for_shares
    by_policy = params.memory_per_accelerator, "memoryPerAccelerator of the policy"
    total, terms = 0, []
    for name, count in container.accelerators().items() or [("", len(pods.gpu_claims.intersection(container.claims())))]:
        share = share_of(shapes, name, params.node_reserve) if name else None
        each, source = (share.memory, share.source) if share else by_policy
        total += count * each
        times = f"{count} x {show_bytes(each)}; " if count != 1 else ""
        terms.append(f"{times}{show_bytes(each)} = {source}")
    text = "; ".join(terms)
    within = limit_within(limit_range_bounds(snapshot, workload.namespace), pods, container, "memory", total)
    return within, text if within == total else f"{text}; {show_bytes(within)} within the LimitRange of the namespace"


def _fitted(workload: Workload, pods: PodSet, whole: Mapping[int, int], snapshot: ClusterSnapshot) -> tuple[Mapping[int, int], str]:
    """Return the part of the limits ``whole`` that may be added, with equal requests if none are stated, and why it is no more."""
    most = _most_on_nodes(workload, pods, whole, snapshot)
    queue = bounding_queue(workload, snapshot)
    headroom = Headroom(workload, pods, queue, snapshot, ()) if is_bounded(workload, pods, queue, snapshot) else None
    if most is None and headroom is None:
        return whole, ""

    def obstacle(limits: Mapping[int, int]) -> str:
        changes = _changes(pods, limits)
        if most is not None and _requested(workload, pods, changes, snapshot) > most.requests:
            return "the other containers of the pod leave less memory of a node"
        return headroom.violation(changes) if headroom is not None else ""

    def obstacle_or_overcommit(limits: Mapping[int, int]) -> str:
        if most is not None and _limited(pods, limits) > most.limits:
            return "the limits of the pod would add up to more than a node has"
        return obstacle(limits)

    why = obstacle(whole)
    limits = _cut(pods, whole, obstacle) if why else whole
    overcommit = obstacle_or_overcommit(limits) if limits else ""
    if not overcommit:
        return limits, why
    # For a while at least, the node has more memory than the other limits leave: do not give far less.
    less = _cut(pods, limits, obstacle_or_overcommit)
    return less if all(2 * size >= limits[at] for at, size in less.items()) else {}, why or overcommit


class _Most(NamedTuple):
    """The most memory in bytes that the requests, and the limits, of one pod may add up to on the nodes."""

    requests: int
    limits: int


def _limited(pods: PodSet, limits: Mapping[int, int]) -> int:
    """Return the bytes that the pod may grow to: its limits, and its requests where a container has none."""
    parts = [
        (resolved.container.role, {"memory": resolved.limits.get("memory") or resolved.requests.get("memory", 0)})
        for resolved in filled(pods, changes=_changes(pods, limits))
    ]
    return add_up(parts, overhead=stated_overhead(pods)).get("memory", 0)


def _requested(workload: Workload, pods: PodSet, changes: Changes, snapshot: ClusterSnapshot) -> int:
    return resolved_resources(pods, snapshot, workload.namespace, changes=changes).requests.get("memory", 0)


def _changes(pods: PodSet, limits: Mapping[int, int]) -> Changes:
    return {at: ({"memory": size}, {} if _stated(pods, at) else {"memory": size}) for at, size in limits.items()}


def _stated(pods: PodSet, at: int) -> int:
    return pods.containers[at].amounts.memory_request or 0


def _most_on_nodes(workload: Workload, pods: PodSet, whole: Mapping[int, int], snapshot: ClusterSnapshot) -> _Most | None:
    """Return what the smallest node that holds the pod with half of ``whole`` has for it; None if all nodes hold it whole."""
    request, total, chosen = node_request(pods, snapshot, workload.namespace), sum(whole.values()), node_candidates(pods, snapshot)
    open_to = open_shapes(pods, chosen)
    holding = [shape for shape in open_to or chosen.matching if holds(shape, request)]
    gang = pods_at_once(workload)
    parts = [shape.memory // _pods_on(shape, request, gang.size if gang else 1) for shape in holding]
    if not holding or max(request.memory, limited_memory_of(pods)) + total <= min(parts):
        return None
    limits = max(limited_memory_of(pods), *(shape.memory for shape in holding))
    half = _requested(workload, pods, _changes(pods, {at: size // 2 for at, size in whole.items()}), snapshot)
    # Nodes that leave less are ignored, unless taints keep the pods off all nodes: a limit far below the share ends the container.
    large = [part for part in parts if half <= part] if open_to else []
    return _Most(min(large, default=max(parts) if open_to else min(parts)), limits)


def _pods_on(shape: NodeShape, request: PodRequests, size: int) -> int:
    """Return how many pods of a gang of ``size`` a node holds as they are: the gang must not need more nodes than that."""
    counts = [size, *(shape.devices.get(name, 0) // count for name, count in request.devices.items())]
    counts += [has // amount for has, amount in ((shape.memory, request.memory), (shape.cpu, request.cpu)) if amount]
    return max(1, min(counts))


def _cut(pods: PodSet, whole: Mapping[int, int], obstacle: Callable[[Mapping[int, int]], str]) -> Mapping[int, int]:
    """Return the largest part of ``whole``, in steps of a GiB of the sum, without an obstacle; empty if that is too little."""
    steps = -(-sum(whole.values()) // GIB)
    largest, low, high = dict[int, int](), 0, steps
    while high - low > 1:
        middle = (low + high) // 2
        limits = {at: max(_rounded(size * middle // steps), _stated(pods, at)) for at, size in whole.items()}
        if obstacle(limits):
            high = middle
        else:
            largest, low = limits, middle
    return {} if any(size < min(whole[at], GIB) for at, size in largest.items()) else largest


def _rounded(size: int) -> int:
    grain = GIB if size >= GIB else MIB
    return size // grain * grain
