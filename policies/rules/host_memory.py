"""Accelerator pods state their host memory, and no more of it than a node can hold.

## What it does

Gives a container that asks for accelerators and states no memory a limit and an equal request: the share that belongs to its
accelerators on the smallest node shape it may land on, or the policy's figure where no nodes are known. Not in a Kueue queue
whose quota covers no memory: Kueue would never admit the workload then, so a warning says what to change.

Refuses, with the sums: a container without a memory limit where the policy forbids defaulting or where the limit has not
been put in; a limit that is more than the policy's ratio times the request; a `/dev/shm` larger than the memory limit that
must hold it; and a pod that no node which offers its accelerators could ever hold, added up as the scheduler adds.

## Why

Pods without a memory limit take the memory of their neighbours, and the kernel kills whoever asks next, most often a
training run hours in. A pod too large for every node stays Pending for ever and holds its queue.

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

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from gpugate.policies.container import EPHEMERAL, Container
from gpugate.policies.demand import Demand, cpu_sum, demand_of, memory_sum
from gpugate.policies.edits import Edit
from gpugate.policies.facts import Facts, Known
from gpugate.policies.feasibility import Selection, open_shapes, selection
from gpugate.policies.finding import Finding, Level
from gpugate.policies.kinds import kind_of
from gpugate.policies.kueue import queue_label, uncovered
from gpugate.policies.nodes import Shape
from gpugate.policies.quantity import GIB, MIB, format_bytes, format_millicores, show_bytes
from gpugate.policies.rule import Bytes, Params, Rule
from gpugate.policies.shares import share_of
from gpugate.policies.shm import DIRECTORY, SharedMemory, pod_memory_limit, shared_memory_of
from gpugate.policies.workload import PodSet, Workload

_SHOWN_SHAPES = 4


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


def _fair(pods: PodSet, container: Container, params: HostMemoryParams, facts: Facts) -> tuple[int, str]:
    """Bytes that belong to the container's accelerators, and the sum that they come from."""
    shapes = selection(pods, facts).sharing
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


def mutate(workload: Workload, params: HostMemoryParams, facts: Facts) -> Iterable[Edit]:
    """Put in memory limits, and requests with them, where a container with accelerators states none."""
    found: list[Edit] = []
    for pods in workload.asking() if params.default_limits and "memory" not in uncovered(workload, facts) else ():
        bare = [one for one in pods.holders() if one.amounts.memory_limit is None]
        if not bare or pod_memory_limit(pods) is not None:
            continue
        for container in bare:
            fair, source = _fair(pods, container, params, facts)
            found += _default(container, fair, source, params)
    return found


def _default(container: Container, fair: int, source: str, params: HostMemoryParams) -> Iterator[Edit]:
    request = container.memory("requests")
    if request:
        fair = max(request, min(fair, int(request * params.max_overcommit_ratio) // MIB * MIB))
    amount = format_bytes(fair)
    group = f"memory {container.name}"
    yield Edit("set", container.place("limits", "memory"), amount, f"memory limit {amount} in {container.name} ({source})", group)
    if not request:
        yield Edit("set", container.place("requests", "memory"), amount, "", group)


def check(workload: Workload, params: HostMemoryParams, facts: Facts) -> Iterable[Finding]:
    """Refuse missing limits, overcommitted ones, too large a /dev/shm, and pods that fit nowhere."""
    found: list[Finding] = []
    for pods in workload.asking():
        pod_limit = pod_memory_limit(pods)
        for container in pods.holders():
            limit, request, _, _ = container.amounts
            if limit is None:
                if pod_limit is None:
                    found.append(_limit_missing(workload, pods, container, params, facts))
            elif request is not None and limit > request * params.max_overcommit_ratio:
                found.append(_overcommit(container, limit, request, params))
        for container in pods.containers:
            mounted = None if container.role is EPHEMERAL else shared_memory_of(pods, container)
            if mounted is not None and mounted.is_memory:
                found += _check_shared_memory(container, mounted, pod_limit)
        found += _check_fit(workload, pods, params, facts)
    return found


def _judged_before(workload: Workload) -> bool:
    """Whether the pod comes from a template that was judged itself: nodes may have gone since, and its controller waits."""
    owner = workload.controller() if workload.is_pod() else None
    return owner is not None and kind_of(str(owner.get("apiVersion")), str(owner.get("kind"))) is not None


def _limit_missing(workload: Workload, pods: PodSet, container: Container, params: HostMemoryParams, facts: Facts) -> Finding:
    fair, source = _fair(pods, container, params, facts)
    count = _devices(pods, container)
    if "memory" in uncovered(workload, facts):
        return Finding(
            "QueueDoesNotCover",
            container.place("limits", "memory"),
            f"{container.name} has no memory limit, and none is put in: the quota of queue {queue_label(workload)} covers no"
            " memory, so Kueue would never admit a workload that asks for some",
            "Have memory covered by the ClusterQueue, or memory left out of Kueue's accounting by excludeResourcePrefixes.",
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


def _check_shared_memory(container: Container, mounted: SharedMemory, pod_limit: int | None) -> Iterable[Finding]:
    size, limit = mounted.size_limit, container.amounts.memory_limit
    limit = pod_limit if limit is None else limit
    if size is None or limit is None or size <= limit:
        return ()
    finding = Finding(
        "SharedMemoryExceedsLimit",
        (*mounted.place, "emptyDir", "sizeLimit"),
        f"{DIRECTORY} of {show_bytes(size)} is larger than the memory limit of {show_bytes(limit)} in {container.name},"
        f" against which its pages count: {show_bytes(size)} > {show_bytes(limit)}",
        f"Write sizeLimit: {format_bytes(limit // 2 // MIB * MIB or limit)}, or raise the memory limit to {show_bytes(size * 2)}.",
        measure=size - limit,
    )
    return (finding,)


def _check_fit(workload: Workload, pods: PodSet, params: HostMemoryParams, facts: Facts) -> Iterable[Finding]:
    if facts.known.get("nodes") is Known.PENDING:
        return (_nodes_unknown(pods),)
    chosen = selection(pods, facts)
    if not chosen.offering:
        return ()
    demand = demand_of(pods)
    open_to = open_shapes(pods, chosen)
    for shape in open_to:
        if _holds(shape, demand):
            return ()
    if not open_to:
        return (_no_node_selected(pods, demand, chosen),)
    finding = _never_fits(pods, demand, open_to)
    refuse = params.never_fits == "Deny" and not _judged_before(workload)
    return (finding if refuse else finding._replace(level=Level.WARN),)


def _nodes_unknown(pods: PodSet) -> Finding:
    return Finding(
        "NodesUnknown",
        pods.field("containers"),
        "the nodes are not synced yet, so it is not known whether any could hold the pod",
        "Try again in a few seconds.",
        Level.UNKNOWN,
    )


def _no_node_selected(pods: PodSet, demand: Demand, chosen: Selection) -> Finding:
    names = " and ".join(sorted(demand.devices))
    what = "its tolerations let it onto none" if chosen.reachable else "its nodeSelector and affinity match none"
    return Finding(
        "NoNodeSelected",
        pods.field("tolerations" if chosen.reachable else "nodeSelector"),
        f"of {sum(len(shape.nodes) for shape in chosen.offering)} nodes that offer {names}, {what}",
        "Tolerate the taint of the nodes meant." if chosen.reachable else "Correct the selector to labels that the nodes carry.",
        Level.WARN,
    )


def _never_fits(pods: PodSet, demand: Demand, open_to: Sequence[Shape]) -> Finding:
    names = " and ".join(sorted(demand.devices))
    sums = "; ".join(_sums(pods, demand, open_to)[:_SHOWN_SHAPES])
    return Finding(
        "NeverFits",
        pods.field("containers"),
        f"no node that offers {names} could ever hold the pod: {sums}",
        _fit_remedy(demand, open_to),
        measure=demand.memory + demand.cpu + sum(demand.devices.values()),
    )


def _holds(shape: Shape, demand: Demand) -> bool:
    return (
        demand.memory <= shape.memory
        and demand.cpu <= shape.cpu
        and all(count <= shape.devices[name] for name, count in demand.devices.items())
    )


def _sums(pods: PodSet, demand: Demand, shapes: Sequence[Shape]) -> list[str]:
    nodes: dict[str, int] = {}
    texts: dict[str, str] = {}
    for shape in shapes:
        text = ", ".join(_lacks(pods, demand, shape))
        key = f"{shape.title} {text}"
        nodes[key] = nodes.get(key, 0) + len(shape.nodes)
        texts[key] = f"{shape.title} ({nodes[key]} node{'s' if nodes[key] > 1 else ''}): {text}"
    return list(texts.values())


def _lacks(pods: PodSet, demand: Demand, shape: Shape) -> list[str]:
    short = []
    if demand.memory > shape.memory:
        short.append(f"memory {memory_sum(pods)} > {show_bytes(shape.memory)} allocatable")
    if demand.cpu > shape.cpu:
        short.append(f"cpu {cpu_sum(pods)} > {format_millicores(shape.cpu)} allocatable")
    short += [
        f"{name} {count} > {shape.devices[name]} allocatable"
        for name, count in sorted(demand.devices.items())
        if count > shape.devices[name]
    ]
    return short


def _fit_remedy(demand: Demand, shapes: Sequence[Shape]) -> str:
    memory = max(shape.memory for shape in shapes)
    cpu = max(shape.cpu for shape in shapes)
    ask = []
    if demand.memory > memory:
        ask.append(f"at most {show_bytes(memory // GIB * GIB)} of memory")
    if demand.cpu > cpu:
        ask.append(f"at most {format_millicores(cpu)} CPU")
    for name, count in sorted(demand.devices.items()):
        most = max(shape.devices.get(name, 0) for shape in shapes)
        if count > most:
            ask.append(f"at most {most} of {name}, and spread the work over several pods")
    return f"Ask for {' and '.join(ask) or 'what one of these nodes has'} per pod."


RULE = Rule(
    id="host-memory",
    title="Accelerator pods state their host memory, and no more of it than a node can hold",
    since="0.1.0",
    params=HostMemoryParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"clusterqueues", "localqueues", "nodes"}),
    documentation=__doc__,
)
