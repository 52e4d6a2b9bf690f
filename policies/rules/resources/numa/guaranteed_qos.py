"""Raising pods to Guaranteed quality of service: requests up to the limits, CPU to whole cores, all containers or none.

The kubelet's CPU and Memory Manager align only such pods (Kubernetes documentation, "Control Topology Management Policies").
"""

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import Path, dotted
from gpugate.policies.kube.memo import remember, remembered
from gpugate.policies.kube.quantity import format_millicores
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.cluster_queue import uncovered
from gpugate.policies.queueing.headroom import Headroom, headroom_facts, headroom_key, is_bounded
from gpugate.policies.scheduling.gpu_share import excess, portion_of, share_of
from gpugate.policies.scheduling.numa import exclusive_cpus, refusal
from gpugate.policies.workloads.container import EPHEMERAL, LONGEST_NAME, Container
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodTotals, add_up, pod_requests, stated_overhead
from gpugate.policies.workloads.workload import Workload


class RaiseParams(Protocol):
    """What the policy says of raising pods; amounts in millicores."""

    @property
    def guaranteed(self) -> bool:
        """Whether pods are raised at all."""

    @property
    def max_raise_ratio(self) -> float:
        """How many times itself a memory request may be raised by."""

    @property
    def max_share_ratio(self) -> float:
        """How many times the fair share of its accelerators a pod may be raised to."""

    @property
    def cpu_per_accelerator(self) -> int:
        """CPU given per accelerator where no nodes are known."""

    @property
    def max_cpu_per_accelerator(self) -> int:
        """The most CPU given per accelerator."""

    @property
    def node_reserve(self) -> float:
        """Part of a node's CPU kept back."""


class Target(NamedTuple):
    """The resources of one container as they are, and the CPU and memory that it gets under Guaranteed quality of service."""

    at: int
    role: str
    cpu: int
    memory: int
    cpu_limit: int | None
    cpu_request: int | None
    memory_request: int | None

    @property
    def changes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Limits and requests to write; a request that is not stated is the limit."""
        requests = {}
        if self.cpu_request is not None and self.cpu_request != self.cpu:
            requests["cpu"] = self.cpu
        if self.memory_request is not None and self.memory_request != self.memory:
            requests["memory"] = self.memory
        return {} if self.cpu_limit == self.cpu else {"cpu": self.cpu}, requests

    @property
    def lowers(self) -> bool:
        """Whether a request is above the limit, which the API rejects: gpugate can not know which of the two is meant."""
        return (self.cpu_request or 0) > self.cpu or (self.memory_request or 0) > self.memory

    @property
    def is_met(self) -> bool:
        """Whether nothing is left to raise."""
        return (
            self.cpu_limit == self.cpu
            and (self.cpu_request is None or self.cpu_request == self.cpu)
            and (self.memory_request is None or self.memory_request == self.memory)
        )


def _whole_cores(amount: int) -> int:
    return -(-amount // 1000) * 1000


#: What becomes of containers, by their totals.
Memo: TypeAlias = dict[PodTotals, tuple[Target, ...]]


def _cpu_share(pods: PodSet, container: Container, shapes: Sequence[NodeShape], params: RaiseParams) -> int:
    """Millicores that belong to the container's accelerators; zero where it asks for none."""
    total = len(pods.gpu_claims.intersection(container.claims())) * params.cpu_per_accelerator
    for name, count in container.accelerators().items():
        share = share_of([shape for shape in shapes if name in shape.devices], name, params.node_reserve)
        each = params.cpu_per_accelerator if share is None else max(1000, min(share.cpu, params.max_cpu_per_accelerator))
        total += count * each
    return total


def _targets(pods: PodSet, shapes: Sequence[NodeShape], params: RaiseParams) -> tuple[list[Target], list[str]]:
    """What each container becomes, or else what is missing for it, in words."""
    targets: list[Target] = []
    missing: list[str] = []
    for at, container in enumerate(pods.containers):
        if container.role is EPHEMERAL:
            continue
        memory, memory_request, cpu_limit, cpu_request = container.amounts
        cpu = cpu_limit
        if cpu is None and pods.holds(container):
            cpu = cpu_request or _cpu_share(pods, container, shapes, params)
        if cpu and memory:
            targets.append(Target(at, container.role, _whole_cores(cpu), memory, cpu_limit, cpu_request, memory_request))
        else:
            lacking = " and ".join(name for name, amount in (("cpu", cpu), ("memory", memory)) if not amount)
            missing.append(f"{container.role} {container.name} has no limit for {lacking}")
    return targets, missing


def _raised_demand(pods: PodSet, targets: list[Target]) -> tuple[int, int]:
    """Bytes and millicores that the raised pod would ask for, its init containers one by one, at least what it asks for now."""
    demand = pod_requests(pods)
    parts = [(target.role, {"memory": target.memory, "cpu": target.cpu}) for target in targets]
    raised_to = add_up(parts, overhead=stated_overhead(pods))
    return max(demand.memory, raised_to["memory"]), max(demand.cpu, raised_to["cpu"])


def _keeps_shapes(pods: PodSet, targets: list[Target], shapes: Sequence[NodeShape]) -> bool:
    """Whether every shape that can hold the pod as it is could hold it raised, too, in its zones as well."""
    demand, (memory, cpu) = pod_requests(pods), _raised_demand(pods, targets)
    cpus = {target.at: target.cpu for target in targets}
    before = exclusive_cpus(pods)
    return all(
        memory <= shape.memory and cpu <= shape.cpu and (not refusal(pods, shape, cpus) or bool(refusal(pods, shape, before)))
        for shape in shapes
        if demand.memory <= shape.memory and demand.cpu <= shape.cpu
    )


def _strands(pods: PodSet, targets: list[Target], shapes: Sequence[NodeShape], params: RaiseParams) -> bool:
    """Whether the raised pod would take more of every node than the policy lets it, and more than it takes as it is."""
    demand, (memory, cpu) = pod_requests(pods), _raised_demand(pods, targets)
    before = after = float("inf")
    for shape in shapes:
        portion = portion_of(shape, demand.devices)
        if portion is None:
            return False
        if memory <= shape.memory and cpu <= shape.cpu:
            after = min(after, max(excess(memory, shape.memory, portion), excess(cpu, shape.cpu, portion)))
            before = min(before, max(excess(demand.memory, shape.memory, portion), excess(demand.cpu, shape.cpu, portion)))
    return params.max_share_ratio < after < float("inf") and before < after


def _overcommitted(targets: list[Target], params: RaiseParams) -> Target | None:
    """A container whose memory request would be raised by more than the policy lets it."""
    for target in targets:
        request = target.memory_request
        if request is not None and target.memory > request * params.max_raise_ratio:
            return target
    return None


def raised(pods: PodSet, shapes: Sequence[NodeShape], params: RaiseParams, memo: Memo) -> tuple[Target, ...]:
    """The containers that are raised, and to what."""
    spec = pods.spec
    if pods.totals.is_guaranteed or not params.guaranteed or spec.get("resources"):
        return ()
    if pods.gpu_claims or "overhead" in spec:
        # These weigh in, too: not to be told from the totals alone.
        return _raisable(pods, shapes, params)
    found = memo.get(pods.totals)
    if found is None:
        found = _raisable(pods, shapes, params)
        remember(memo, pods.totals, found)
    return found


def _is_left(targets: Sequence[Target]) -> bool:
    """Whether the containers stay as they are: nothing is left to raise, or the API is to say what is wrong with them."""
    return all(target.is_met for target in targets) or any(target.lowers for target in targets)


def _raisable(pods: PodSet, shapes: Sequence[NodeShape], params: RaiseParams) -> tuple[Target, ...]:
    targets, missing = _targets(pods, shapes, params)
    if missing or _is_left(targets):
        return ()
    if _overcommitted(targets, params) or not _keeps_shapes(pods, targets, shapes) or _strands(pods, targets, shapes, params):
        return ()
    return tuple(target for target in targets if not target.is_met)


def raise_to(pods: PodSet, targets: Sequence[Target]) -> list[Edit]:
    """The edits that make the containers what they are to become."""
    found: list[Edit] = []
    for target in targets:
        container = pods.containers[target.at]
        # As the limit is written: the apiserver keeps 64G as it is, and what is recorded must be what it keeps.
        make = _raise_container if len(container.name) <= LONGEST_NAME else _raise_container.__wrapped__
        found += make(target, container.raw("limits", "memory"), container.name, container.path, pods.path)
    return found


@lru_cache(maxsize=256, typed=True)
def _raise_container(target: Target, memory: object, name: str, path: Path, pods: Path) -> tuple[Edit, ...]:
    """The edits that raise one container; those of one team's workloads are much alike."""
    cpu, group = format_millicores(target.cpu), f"guaranteed {dotted(pods)}"
    found: list[tuple[Path, object]] = []
    limits, requests = target.changes
    found += [((*path, "resources", "limits", name), cpu) for name in limits]
    found += [((*path, "resources", "requests", name), cpu if name == "cpu" else memory) for name in requests]
    note = f"{name} made Guaranteed: cpu {cpu}, memory {memory}"
    return tuple(Edit("set", place, value, "" if at else note, group) for at, (place, value) in enumerate(found))


def check_guaranteed(pods: PodSet, shapes: Sequence[NodeShape], params: RaiseParams) -> Iterator[Finding]:
    """Warnings about what keeps the pod from being Guaranteed."""
    if pods.spec.get("resources"):
        yield Finding(
            "PodLevelResources",
            pods.field("resources"),
            "pod-level resources make the kubelet skip NUMA alignment for the pod",
            "State the resources of each container instead of spec.resources.",
        )
        return
    if not params.guaranteed:
        return
    targets, missing = _targets(pods, shapes, params)
    if missing:
        yield Finding(
            "NotGuaranteed",
            pods.field("containers"),
            f"the pod is not Guaranteed and the kubelet aligns nothing: {'; '.join(missing)}",
            "Write limits for cpu (whole cores) and memory in every container.",
        )
        return
    if _is_left(targets):
        return
    wide = _overcommitted(targets, params)
    if wide is not None:
        container = pods.containers[wide.at]
        yield Finding(
            "RaisedTooFar",
            container.place("requests", "memory"),
            f"the memory limit of {container.name} is more than {params.max_raise_ratio:g} times its request: the request is not"
            " raised to it, and the kubelet aligns nothing",
            "Write the memory that the container needs as both request and limit.",
        )
    elif not _keeps_shapes(pods, targets, shapes):
        yield Finding(
            "RaisedWouldNotFit",
            pods.field("containers"),
            "with requests raised to the limits the pod would no longer fit nodes that can hold it now, so it stays Burstable"
            " and the kubelet aligns nothing",
            "Lower the limits to what the pod really needs, or select the nodes that are large enough.",
        )
    elif _strands(pods, targets, shapes, params):
        yield Finding(
            "RaisedWouldStrand",
            pods.field("containers"),
            f"with requests raised to the limits the pod would take more than {params.max_share_ratio:g} times what belongs to its"
            " accelerators and leave others of the node unusable, so it stays Burstable and the kubelet aligns nothing",
            "Lower the limits to what the pod really needs, or write the requests that it needs yourself.",
        )


def not_raised(
    workload: Workload, pods: PodSet, targets: Sequence[Target], shapes: Sequence[NodeShape], snapshot: ClusterSnapshot
) -> tuple[Finding, ...]:
    """Why a pod that nodes would hold raised, too, is not raised nevertheless; nothing where it is.

    Args:
        workload: the object.
        pods: the pods.
        targets: what its containers would be raised to.
        shapes: the nodes that it may land on.
        snapshot: the cluster.

    Raises:
        MalformedError: an amount is no quantity.
    """
    # Kueue would never admit a workload with CPU put in where its quota covers none.
    if any(one.cpu_limit is None and one.cpu_request is None for one in targets) and "cpu" in uncovered(workload, snapshot):
        return (_quota_without_cpu(pods),)
    violation = _violation(workload, pods, targets, shapes, snapshot) if is_bounded(workload, pods, snapshot) else ""
    return (_beyond_bounds(pods, violation),) if violation else ()


def _key(
    workload: Workload, pods: PodSet, targets: Sequence[Target], _shapes: Sequence[NodeShape], snapshot: ClusterSnapshot
) -> Hashable | None:
    key = headroom_key(workload, pods, snapshot)
    return None if key is None else (key, tuple(targets))


@remembered(by=_key, on=lambda workload, _pods, _targets, shapes, snapshot: (shapes, *headroom_facts(workload, snapshot)))
def _violation(
    workload: Workload, pods: PodSet, targets: Sequence[Target], shapes: Sequence[NodeShape], snapshot: ClusterSnapshot
) -> str:
    """Return the first bound that the pods violate once their containers are raised to ``targets``; empty for none."""
    return Headroom(workload, pods, snapshot, shapes).violation({target.at: target.changes for target in targets})


def _beyond_bounds(pods: PodSet, obstacle: str) -> Finding:
    """The finding for a pod that is not raised because of a bound of its namespace or queue; ``obstacle``: which."""
    return Finding(
        "RaisedBeyondBounds",
        pods.field("containers"),
        "with requests raised to the limits and CPU to whole cores the pod could not be made or admitted any more"
        f" ({obstacle}), so it stays as it is and the kubelet aligns nothing",
        "Write requests and limits that are equal, with whole CPUs, within that bound.",
    )


def _quota_without_cpu(pods: PodSet) -> Finding:
    """The finding for a pod that is not raised because its queue's quota covers no CPU."""
    return Finding(
        "QueueDoesNotCover",
        pods.field("containers"),
        "the pod states no CPU, and none is put in: its queue's quota covers none, so Kueue would never admit a workload that"
        " asks for some; the pod is not Guaranteed and the kubelet aligns nothing",
        "Have cpu covered by the ClusterQueue, or left out of Kueue's accounting by excludeResourcePrefixes.",
    )
