"""Parameters and edits of the rule `host-memory`: memory limits for containers that state none, cut to what the pod can still get.

A container's share is that of its accelerators, regardless of the other containers. Together with their requests it may be more
than a node, a quota or a queue has: then the limits are cut, each by the same part, or left out if hardly anything would be left,
since a limit that is too small ends the container, and no limit does not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Bytes, Params
from gpugate.policies.framework.reasons import Action
from gpugate.policies.kube.quantity import GIB, MIB, format_bytes, show_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.cluster_queue import bounding_queue, uncovered
from gpugate.policies.queueing.headroom import Headroom, is_bounded
from gpugate.policies.scheduling.gpu_share import share_of
from gpugate.policies.scheduling.node_fit import holds, node_request
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.scheduling.pod_resources import Changes, filled, limit_range_bounds, limit_within, resolved_resources
from gpugate.policies.scheduling.pods_per_node import fewer_pods, pods_per_node, shapes_for_shares, shapes_in_reach
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import add_up, limited_memory_of, pod_level, stated_overhead
from gpugate.policies.workloads.workload import Workload


class HostMemoryParams(Params):
    """Parameters of `host-memory`."""

    default_limits: Literal["WhenNodesAgree", "Never"] = "WhenNodesAgree"
    """When gpugate adds a missing memory limit: where the shares of the nodes in reach agree, or never."""
    missing_limit: Action = "Deny"
    """What happens to a container without a memory limit to which gpugate adds none by policy."""
    share_tolerance: Annotated[float, Field(ge=1)] = 2.0
    """Maximum largest share of the nodes in reach as a multiple of the smallest; beyond that they do not agree."""
    memory_per_accelerator: Bytes | None = None
    """Memory per accelerator instead of the nodes' share."""
    node_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Part of a node's allocatable memory that is not divided among its accelerators."""
    max_overcommit_ratio: Annotated[float, Field(ge=1)] = 2.0
    """Maximum memory limit as a multiple of the request."""
    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether a pod that no known node could hold is refused, or only gets a warning (nodes that scale up from none)."""


class Share(NamedTuple):
    """Bytes of memory that belong to the accelerators of a container, with their calculation; zero if unclear, with the reason."""

    size: int
    text: str


class DefaultLimits(NamedTuple):
    """The memory limits that gpugate adds to a pod.

    Attributes:
        limits: bytes by index of the container; empty if none may be added.
        why: why they are cut, or why none may be added; empty if they are whole.
        shares: by index of each container without a limit, the share of its accelerators.
    """

    limits: Mapping[int, int]
    why: str
    shares: Mapping[int, Share]


def mutate(workload: Workload, params: HostMemoryParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Add memory limits, and requests with them, to containers with accelerators that state none."""
    edits: list[Edit] = []
    for pods in workload.gpu_pod_sets() if params.default_limits != "Never" else ():
        lacking = "memory" not in pod_level(pods, "limits") and any(
            container.amounts.memory_limit is None for container in pods.holders()
        )
        if lacking and "memory" not in uncovered(workload, snapshot):
            defaults = default_limits(workload, pods, params, snapshot)
            cut = f"; cut because {defaults.why}" if defaults.why else ""
            for at, size in defaults.limits.items():
                edits += _set_limit(pods.containers[at], size, f"{defaults.shares[at].text}{cut}")
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
    holders, shares, whole = pods.holders(), dict[int, Share](), dict[int, int]()
    for at, container in enumerate(pods.containers):
        if container.amounts.memory_limit is None and container in holders:
            share = shares[at] = _fair_share(workload, pods, container, params, snapshot)
            request, size = container.memory("requests"), share.size
            if size and request:
                size = max(request, min(size, int(request * params.max_overcommit_ratio) // MIB * MIB))
            if size:
                whole[at] = size
    limits, why = _fitted(workload, pods, whole, snapshot) if whole and params.default_limits != "Never" else ({}, "")
    return DefaultLimits(limits, why, shares)


def _fair_share(
    workload: Workload, pods: PodSet, container: Container, params: HostMemoryParams, snapshot: ClusterSnapshot
) -> Share:
    """Return the share of the container's accelerators, within the LimitRanges."""
    total, terms = 0, []
    for name, count in container.accelerators().items() or [("", len(pods.gpu_claims.intersection(container.claims())))]:
        each = _share_of_one(pods, name, params, snapshot)
        if not each.size:
            return each
        total += count * each.size
        times = f"{count} x {show_bytes(each.size)}; " if count != 1 else ""
        terms.append(f"{times}{show_bytes(each.size)} = {each.text}")
    text = "; ".join(terms)
    within = limit_within(limit_range_bounds(snapshot, workload.namespace), pods, container, "memory", total)
    return Share(within, text if within == total else f"{text}; {show_bytes(within)} within the LimitRange of the namespace")


def _share_of_one(pods: PodSet, name: str, params: HostMemoryParams, snapshot: ClusterSnapshot) -> Share:
    """Return the memory for one accelerator: the policy's figure, or the share of the nodes in reach if they agree."""
    if params.memory_per_accelerator is not None:
        return Share(params.memory_per_accelerator, "memoryPerAccelerator of the policy")
    share = share_of(shapes_for_shares(pods, node_candidates(pods, snapshot)), name, params.node_reserve) if name else None
    if share is None:
        return Share(0, "gpugate knows no node with its accelerators")
    if share.most_memory > params.share_tolerance * share.memory:
        sizes = zip((share.memory, share.most_memory), share.titles, strict=True)
        least, most = (f"{show_bytes(size)} ({title})" for size, title in sizes)
        return Share(0, f"the shares of the nodes that it may run on lie too far apart: {least} to {most} per accelerator")
    return Share(share.memory, share.source)


def _fitted(workload: Workload, pods: PodSet, whole: Mapping[int, int], snapshot: ClusterSnapshot) -> tuple[Mapping[int, int], str]:
    """Return the part of the limits ``whole`` that may be added, with equal requests if none are stated, and why it is no more."""
    most = _most_on_nodes(workload, pods, whole, snapshot)
    queue = bounding_queue(workload, snapshot)
    headroom = Headroom(workload, pods, queue, snapshot, ()) if is_bounded(workload, pods, queue, snapshot) else None
    if most is None and headroom is None:
        return whole, ""
    before = node_request(pods, snapshot, workload.namespace)

    def shortage(limits: Mapping[int, int], shapes: Sequence[NodeShape] = most.shapes if most is not None else ()) -> str:
        memory = _requested(workload, pods, _changes(pods, limits), snapshot)
        return fewer_pods(shapes, before, before._replace(memory=memory))

    def obstacle(limits: Mapping[int, int]) -> str:
        return shortage(limits) or (headroom.violation(_changes(pods, limits)) if headroom is not None else "")

    def obstacle_or_overcommit(limits: Mapping[int, int]) -> str:
        if most is not None and _limited(pods, limits) > most.limits:
            return "the limits of the pod would add up to more than a node has"
        return obstacle(limits)

    why = shortage(whole)
    limits = _cut(pods, whole, shortage) if why else whole
    if why and most is not None:
        limits = _unless_far_below(_cut(pods, whole, lambda part: shortage(part, most.roomiest)), limits)
    if limits and (reason := obstacle(limits)):
        limits, why = _cut(pods, limits, obstacle), why or reason
    if limits and (reason := obstacle_or_overcommit(limits)):
        # For a while at least, the node has more memory than the other limits leave.
        limits, why = _unless_far_below(limits, _cut(pods, limits, obstacle_or_overcommit)), why or reason
    return limits, why


def _unless_far_below(limits: Mapping[int, int], part: Mapping[int, int]) -> Mapping[int, int]:
    """Return ``part``; nothing if it is less than half of ``limits`` somewhere: a limit far below the share ends the container."""
    return part if all(2 * size >= limits.get(at, size) for at, size in part.items()) else {}


class _Most(NamedTuple):
    """The shapes that hold the pod, the one with the most memory per pod, and the most bytes that its limits may add up to."""

    shapes: Sequence[NodeShape]
    roomiest: Sequence[NodeShape]
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
    """Return what the nodes in reach that hold the pod have for it; None if none does, or all have room for ``whole``."""
    request = node_request(pods, snapshot, workload.namespace)
    holding = [shape for shape in shapes_in_reach(pods, node_candidates(pods, snapshot)) if holds(shape, request)]
    limited, total = limited_memory_of(pods), sum(whole.values())
    parts = [shape.least_memory // (pods_per_node(shape, request, shape.memory) or 1) for shape in holding]
    if not holding or max(request.memory, limited) + total <= min(parts):
        return None
    return _Most(holding, (holding[parts.index(max(parts))],), max(limited, *(shape.memory for shape in holding)))


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
