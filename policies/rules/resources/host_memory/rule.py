"""Accelerator pods state their host memory, and no more of it than a node can hold.

## What it does

Gives a container that asks for accelerators and states no memory a limit and an equal request: the share that belongs to its
accelerators on the smallest node shape it may land on, or the policy's figure where no nodes are known, cut to what the pod's
other containers leave of a node, of the namespace's LimitRanges and ResourceQuotas and of the quota of its Kueue queue. Where
these leave nearly nothing, or the queue's quota covers no memory, none is put in, and a warning says why.

Refuses, with the sums: a container without a memory limit where the policy forbids defaulting or where the limit has not
been put in; a limit that is more than the policy's ratio times the request; a `/dev/shm`, or memory-backed volumes together,
larger than the memory limit that must hold them; and a pod that no node which offers its accelerators could ever hold, added
up as the scheduler adds: memory, CPU, accelerators, other extended resources, ephemeral storage and huge pages, of all
containers, with what the namespace's LimitRanges and the pod's RuntimeClass will put in. What taints would keep off counts as
within reach where its pods will tolerate them by the rule `tolerations`.

## Why

Pods without a memory limit take the memory of their neighbours, and the kernel kills whoever asks next, most often a
training run hours in. A pod too large for every node stays Pending for ever and holds its queue.

## Practice

- Basics guide, "Resource Management": a memory limit stands beside every GPU, with requests below it.
- NUMA guide, "GPU Memory Management": memory limits are stated, so that one pod's growth does not kill others.
- Orchestration guide, "Resource Quotas and Limits": host memory is counted and bounded as GPUs are.

## Example

Before: `nvidia.com/gpu: 1` and no memory, on nodes with 8 GPUs and 1968Gi. After:

```yaml
resources:
  limits:
    nvidia.com/gpu: 1
    memory: 221Gi
  requests:
    memory: 221Gi
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.rule import Bytes, Params, Rule
from gpugate.policies.kube.quantity import GIB, MIB, format_bytes, show_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.cluster_queue import uncovered
from gpugate.policies.queueing.headroom import BOUNDING
from gpugate.policies.rules.resources.host_memory.defaults import Fitted, fitted
from gpugate.policies.rules.resources.host_memory.volumes import check_memory_volumes
from gpugate.policies.scheduling.gpu_share import share_of
from gpugate.policies.scheduling.node_fit import doubt_about, holds, node_request, nodes_unknown, unschedulable_finding
from gpugate.policies.scheduling.node_selection import node_candidates, open_shapes
from gpugate.policies.scheduling.pod_resources import defaults_for, limit_range_bounds, limit_within
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.workload import PodSet, Workload


class HostMemoryParams(Params):
    """Parameters of `host-memory`."""

    default_limits: bool = True
    """Whether a missing memory limit is put in; if not, it is refused."""
    memory_per_accelerator: Bytes = 32 * GIB
    """Memory given per accelerator where no nodes are known."""
    node_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Part of a node's allocatable memory kept back when it is shared out among its accelerators."""
    max_overcommit_ratio: Annotated[float, Field(ge=1)] = 2.0
    """How many times its request a memory limit may be."""
    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether a pod that no known node could hold is refused, or only warned about (nodes that scale up from none)."""


def _devices(pods: PodSet, container: Container) -> int:
    return sum(container.accelerators().values()) or len(pods.gpu_claims.intersection(container.claims()))


def _fair(
    workload: Workload, pods: PodSet, container: Container, params: HostMemoryParams, snapshot: ClusterSnapshot
) -> tuple[int, str]:
    """Bytes that belong to the container's accelerators within the namespace's LimitRanges, and the sum that they come from."""
    fair, source = _share(pods, container, params, snapshot)
    within = limit_within(limit_range_bounds(snapshot, workload.namespace), pods, container, "memory", fair)
    return within, source if within == fair else f"{source}; within the LimitRange of the namespace"


def _share(pods: PodSet, container: Container, params: HostMemoryParams, snapshot: ClusterSnapshot) -> tuple[int, str]:
    shapes = node_candidates(pods, snapshot).for_shares
    total, terms = 0, []
    for name, count in container.accelerators().items():
        share = share_of(shapes, name, params.node_reserve)
        each, source = (share.memory, share.source) if share else (params.memory_per_accelerator, "the policy's figure")
        total += count * each
        terms.append(f"{count} x {show_bytes(each)}, {source}")
    if not terms:
        count, each = len(pods.gpu_claims.intersection(container.claims())), params.memory_per_accelerator
        total, terms = count * each, [f"{count} x {show_bytes(each)}, the policy's figure"]
    return total, "; ".join(terms)


def mutate(workload: Workload, params: HostMemoryParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Put in memory limits, and requests with them, where a container with accelerators states none."""
    found: list[Edit] = []
    for pods in workload.gpu_pod_sets() if params.default_limits else ():
        lacking = "memory" not in pod_level(pods, "limits") and any(one.amounts.memory_limit is None for one in pods.holders())
        if lacking and "memory" not in uncovered(workload, snapshot):
            room, sources = _limits(workload, pods, params, snapshot)
            for at, size in room.limits.items():
                source = f"{sources[at]}; cut, since {room.why}" if room.why else sources[at]
                found += _default(pods.containers[at], size, source)
    return found


def _limits(workload: Workload, pods: PodSet, params: HostMemoryParams, snapshot: ClusterSnapshot) -> tuple[Fitted, dict[int, str]]:
    """The limits that are put in, by index of the container, and the sums that they come from."""
    holders, wanted, sources = pods.holders(), {}, {}
    for at, container in enumerate(pods.containers):
        if container.amounts.memory_limit is None and container in holders:
            fair, sources[at] = _fair(workload, pods, container, params, snapshot)
            request = container.memory("requests")
            if request:
                fair = max(request, min(fair, int(request * params.max_overcommit_ratio) // MIB * MIB))
            wanted[at] = fair
    return fitted(workload, pods, wanted, snapshot), sources


def _default(container: Container, size: int, source: str) -> Iterator[Edit]:
    amount = format_bytes(size)
    group = f"memory {container.name}"
    yield Edit("set", container.place("limits", "memory"), amount, f"memory limit {amount} in {container.name} ({source})", group)
    if not container.memory("requests"):
        yield Edit("set", container.place("requests", "memory"), amount, "", group)


def check(workload: Workload, params: HostMemoryParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """Refuse missing limits, overcommitted ones, too large a /dev/shm, and pods that fit nowhere."""
    found: list[Finding] = []
    for pods in workload.gpu_pod_sets():
        pod_limit = pod_level(pods, "limits").get("memory")
        for container in pods.holders():
            limit, request, _, _ = container.amounts
            if limit is None:
                if pod_limit is None and "memory" not in defaults_for(snapshot, workload.namespace).limits:
                    found.append(_limit_missing(workload, pods, container, params, snapshot))
            elif request is not None and limit > request * params.max_overcommit_ratio:
                found.append(_overcommit(container, limit, request, params))
        found += check_memory_volumes(pods, pod_limit)
        found += _check_fit(workload, pods, params, snapshot)
    return found


def _limit_missing(
    workload: Workload, pods: PodSet, container: Container, params: HostMemoryParams, snapshot: ClusterSnapshot
) -> Finding:
    fair, source = _fair(workload, pods, container, params, snapshot)
    count = _devices(pods, container)
    if "memory" in uncovered(workload, snapshot):
        return Finding(
            "QueueDoesNotCover",
            container.place("limits", "memory"),
            f"{container.name} has no memory limit, and none is put in: the quota of queue {queue_label(workload)} covers no"
            " memory, so Kueue would never admit a workload that asks for some",
            "Have memory covered by the ClusterQueue, or memory left out of Kueue's accounting by excludeResourcePrefixes.",
            Level.WARN,
        )
    room = _limits(workload, pods, params, snapshot)[0] if params.default_limits else None
    if room is not None and not room.limits:
        return Finding(
            "NoRoomForLimit",
            container.place("limits", "memory"),
            f"{container.name} has no memory limit, and none is put in: it would leave the pod too little, or make it"
            f" impossible ({room.why})",
            f"Write resources.limits.memory in {container.name}, and lower what the other containers ask for where need be.",
            Level.WARN,
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


def _check_fit(workload: Workload, pods: PodSet, params: HostMemoryParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
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
    finding = unschedulable_finding(pods, snapshot, ask, open_to or chosen.matching)
    refuse = params.never_fits == "Deny" and not workload.owner_was_reviewed()
    return (finding if refuse else finding._replace(level=Level.WARN),)


RULE = Rule(
    id="host-memory",
    title="Accelerator pods state their host memory, and no more of it than a node can hold",
    since="0.1.0",
    params=HostMemoryParams,
    mutate=mutate,
    check=check,
    needs=BOUNDING | {"deviceclasses", "nodes"},
    documentation=__doc__,
)
