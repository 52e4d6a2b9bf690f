"""Memory limits for containers that state none, cut to what their pod may still come to.

A container's share is what belongs to its accelerators, whatever else is in its pod. Beside what the other containers ask for
that may be more than a node, a quota or a queue has: then the limits are cut, each by the same part, or left out where hardly
anything would be left, since a limit that is too small ends the container, and none does not.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.quantity import GIB, MIB
from gpugate.policies.queueing.headroom import Headroom, is_bounded
from gpugate.policies.scheduling.node_fit import holds, node_request
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.pod_resources import Changes, filled, resolved_resources
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests, add_up, limited_memory_of, stated_overhead
from gpugate.policies.workloads.workload import Workload


class Fitted(NamedTuple):
    """The limits that may be put in.

    Attributes:
        limits: bytes by index of the container; empty where none may be put in.
        why: why they were cut, or why none may be put in; empty where they are what was wanted.
    """

    limits: Mapping[int, int]
    why: str = ""


def fitted(workload: Workload, pods: PodSet, wanted: Mapping[int, int], snapshot: ClusterSnapshot) -> Fitted:
    """The limits that may be put in where ``wanted`` are, and the same requests where a container states none.

    Args:
        workload: the object.
        pods: the pods.
        wanted: bytes by index of the container.
        snapshot: the cluster.

    Raises:
        MalformedError: an amount is no quantity.
    """
    most = _most_on_nodes(workload, pods, wanted, snapshot)
    headroom = Headroom(workload, pods, snapshot, ()) if is_bounded(workload, pods, snapshot) else None
    if most is None and headroom is None:
        return Fitted(wanted)

    def hindrance(limits: Mapping[int, int]) -> str:
        changes = _changes(pods, limits)
        if most is not None and _requested(workload, pods, changes, snapshot) > most.requests:
            return "the other containers of the pod leave less of a node"
        return headroom.violation(changes) if headroom is not None else ""

    def overcommits(limits: Mapping[int, int]) -> str:
        if most is not None and _limited(pods, limits) > most.limits:
            return "the limits of the pod would come to more than a node has"
        return hindrance(limits)

    why = hindrance(wanted)
    found = _cut(pods, wanted, hindrance) if why else wanted
    wide = overcommits(found) if found else ""
    if not wide:
        return Fitted(found, why)
    # There is more memory than the other limits leave, for a while at least: no reason to give far less.
    less = _cut(pods, found, overcommits)
    return Fitted(less if all(2 * size >= found[at] for at, size in less.items()) else {}, why or wide)


class _Most(NamedTuple):
    """The most memory that the requests, and the limits, of one pod may come to on the nodes: bytes."""

    requests: int
    limits: int


def _limited(pods: PodSet, limits: Mapping[int, int]) -> int:
    """What the pod may grow to: its limits, and its requests where a container has none."""
    containers = filled(pods, changes=_changes(pods, limits))
    parts = [(one.container.role, {"memory": one.limits.get("memory") or one.requests.get("memory", 0)}) for one in containers]
    return add_up(parts, overhead=stated_overhead(pods)).get("memory", 0)


def _requested(workload: Workload, pods: PodSet, changes: Changes, snapshot: ClusterSnapshot) -> int:
    return resolved_resources(pods, snapshot, workload.namespace, changes=changes).requests.get("memory", 0)


def _changes(pods: PodSet, limits: Mapping[int, int]) -> Changes:
    return {at: ({"memory": size}, {} if _stated(pods, at) else {"memory": size}) for at, size in limits.items()}


def _stated(pods: PodSet, at: int) -> int:
    return pods.containers[at].amounts.memory_request or 0


def _most_on_nodes(workload: Workload, pods: PodSet, wanted: Mapping[int, int], snapshot: ClusterSnapshot) -> _Most | None:
    """What the smallest node has for one pod that holds it as it is and half of what is wanted, too; None where all hold all."""
    ask, total, chosen = node_request(pods, snapshot, workload.namespace), sum(wanted.values()), node_candidates(pods, snapshot)
    open_to = open_shapes(pods, chosen)
    held = [shape for shape in open_to or chosen.matching if holds(shape, ask)]
    gang = gang_of(workload)
    parts = [shape.memory // _pods_on(shape, ask, gang.size if gang else 1) for shape in held]
    if not held or max(ask.memory, limited_memory_of(pods)) + total <= min(parts):
        return None
    limits = max(limited_memory_of(pods), *(shape.memory for shape in held))
    half = _requested(workload, pods, _changes(pods, {at: size // 2 for at, size in wanted.items()}), snapshot)
    # A node that leaves less is given up: a limit far below the share would end the container there. But not for one that the
    # pods may not tolerate.
    large = [one for one in parts if half <= one] if open_to else []
    return _Most(min(large, default=max(parts) if open_to else min(parts)), limits)


def _pods_on(shape: NodeShape, ask: PodRequests, size: int) -> int:
    """How many pods of a gang of ``size`` a node of ``shape`` holds as they are: it must not need more nodes than that."""
    found = [size, *(shape.devices.get(name, 0) // count for name, count in ask.devices.items())]
    found += [has // asked for has, asked in ((shape.memory, ask.memory), (shape.cpu, ask.cpu)) if asked]
    return max(1, min(found))


def _cut(pods: PodSet, wanted: Mapping[int, int], hindrance: Callable[[Mapping[int, int]], str]) -> Mapping[int, int]:
    """The largest part of ``wanted``, in steps of a GiB of the sum, that nothing hinders; nothing where that is too little."""
    steps = -(-sum(wanted.values()) // GIB)
    found, low, high = dict[int, int](), 0, steps
    while high - low > 1:
        middle = (low + high) // 2
        limits = {at: max(_rounded(size * middle // steps), _stated(pods, at)) for at, size in wanted.items()}
        if hindrance(limits):
            high = middle
        else:
            found, low = limits, middle
    return {} if any(size < min(wanted[at], GIB) for at, size in found.items()) else found


def _rounded(size: int) -> int:
    grain = GIB if size >= GIB else MIB
    return size // grain * grain
