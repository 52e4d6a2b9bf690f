"""Edits of the rule `host-memory`."""

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.quantity import MIB, format_bytes, show_bytes
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.cluster_queue import uncovered
from gpugate.policies.rules.resources.host_memory.defaults import Fitted, fitted
from gpugate.policies.rules.resources.host_memory.params import HostMemoryParams
from gpugate.policies.scheduling.gpu_share import share_of
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.scheduling.pod_resources import limit_range_bounds, limit_within
from gpugate.policies.workloads.container import Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.workload import Workload


def fair_share(
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
            room, sources = memory_limits_for(workload, pods, params, snapshot)
            for at, size in room.limits.items():
                source = f"{sources[at]}; cut, since {room.why}" if room.why else sources[at]
                found += _default(pods.containers[at], size, source)
    return found


def memory_limits_for(
    workload: Workload, pods: PodSet, params: HostMemoryParams, snapshot: ClusterSnapshot
) -> tuple[Fitted, dict[int, str]]:
    """The limits that are put in, by index of the container, and the sums that they come from."""
    holders, wanted, sources = pods.holders(), {}, {}
    for at, container in enumerate(pods.containers):
        if container.amounts.memory_limit is None and container in holders:
            fair, sources[at] = fair_share(workload, pods, container, params, snapshot)
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
