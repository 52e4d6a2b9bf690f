"""Raising pods to Guaranteed quality of service: requests up to the limits, CPU to whole cores, all containers or none.

The kubelet's CPU and Memory Manager align only such pods (Kubernetes documentation, "Control Topology Management Policies").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from gpugate.policies.container import EPHEMERAL, INIT, LONGEST_NAME, Container
from gpugate.policies.demand import demand_of
from gpugate.policies.edits import Edit
from gpugate.policies.feasibility import remember
from gpugate.policies.fields import Path, dotted
from gpugate.policies.finding import Finding, Level
from gpugate.policies.nodes import Shape
from gpugate.policies.quantity import format_millicores
from gpugate.policies.shares import share_of
from gpugate.policies.totals import Totals
from gpugate.policies.workload import PodSet


class RaiseParams(Protocol):
    """What the policy says of raising pods; amounts in millicores."""

    @property
    def guaranteed(self) -> bool:
        """Whether pods are raised at all."""

    @property
    def max_raise_ratio(self) -> float:
        """How many times itself a memory request may be raised by."""

    @property
    def cpu_per_accelerator(self) -> int:
        """CPU given per accelerator where no nodes are known."""

    @property
    def max_cpu_per_accelerator(self) -> int:
        """The most CPU given per accelerator."""

    @property
    def node_reserve(self) -> float:
        """Part of a node's CPU kept back."""


def _whole_cores(amount: int) -> int:
    return -(-amount // 1000) * 1000


class Target(NamedTuple):
    """What one container's resources are, and what they become under Guaranteed quality of service."""

    at: int
    role: str
    cpu: int
    memory: int
    cpu_limit: int | None
    cpu_request: int | None
    memory_request: int | None

    @property
    def is_met(self) -> bool:
        """Whether nothing is left to raise; a request that is not stated is the limit."""
        return (
            self.cpu_limit == self.cpu
            and (self.cpu_request is None or self.cpu_request == self.cpu)
            and (self.memory_request is None or self.memory_request == self.memory)
        )


#: What becomes of containers, by their totals.
Memo: TypeAlias = dict[Totals, tuple[Target, ...]]


def _cpu_share(pods: PodSet, container: Container, shapes: Sequence[Shape], params: RaiseParams) -> int:
    """Millicores that belong to the container's accelerators; zero where it asks for none."""
    total = len(pods.gpu_claims.intersection(container.claims())) * params.cpu_per_accelerator
    for name, count in container.accelerators().items():
        share = share_of([shape for shape in shapes if name in shape.devices], name, params.node_reserve)
        each = params.cpu_per_accelerator if share is None else max(1000, min(share.cpu, params.max_cpu_per_accelerator))
        total += count * each
    return total


def _targets(pods: PodSet, shapes: Sequence[Shape], params: RaiseParams) -> tuple[list[Target], list[str]]:
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


def _keeps_shapes(pods: PodSet, targets: list[Target], shapes: Sequence[Shape]) -> bool:
    """Whether every shape that can hold the pod as it is could hold it raised, too."""
    demand = demand_of(pods)
    running = [target for target in targets if target.role != INIT]
    memory = max(demand.memory, sum(target.memory for target in running))
    cpu = max(demand.cpu, sum(target.cpu for target in running))
    return all(
        memory <= shape.memory and cpu <= shape.cpu for shape in shapes if demand.memory <= shape.memory and demand.cpu <= shape.cpu
    )


def _overcommitted(targets: list[Target], params: RaiseParams) -> Target | None:
    """A container whose memory request would be raised by more than the policy lets it."""
    for target in targets:
        request = target.memory_request
        if request is not None and target.memory > request * params.max_raise_ratio:
            return target
    return None


def raised(pods: PodSet, shapes: Sequence[Shape], params: RaiseParams, memo: Memo) -> tuple[Target, ...]:
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


def _raisable(pods: PodSet, shapes: Sequence[Shape], params: RaiseParams) -> tuple[Target, ...]:
    targets, missing = _targets(pods, shapes, params)
    if missing or all(target.is_met for target in targets):
        return ()
    if _overcommitted(targets, params) or not _keeps_shapes(pods, targets, shapes):
        return ()
    return tuple(target for target in targets if not target.is_met)


def asks_beyond_quota(targets: Sequence[Target], lacking: frozenset[str]) -> bool:
    """Whether CPU is put in where none was, in a queue whose quota covers none: Kueue would never admit that."""
    return "cpu" in lacking and any(target.cpu_limit is None and target.cpu_request is None for target in targets)


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
    if target.cpu_limit != target.cpu:
        found.append(((*path, "resources", "limits", "cpu"), cpu))
    if target.cpu_request is not None and target.cpu_request != target.cpu:
        found.append(((*path, "resources", "requests", "cpu"), cpu))
    if target.memory_request is not None and target.memory_request != target.memory:
        found.append(((*path, "resources", "requests", "memory"), memory))
    note = f"{name} made Guaranteed: cpu {cpu}, memory {memory}"
    return tuple(Edit("set", place, value, "" if at else note, group) for at, (place, value) in enumerate(found))


def quota_without_cpu(pods: PodSet) -> Finding:
    """The finding for a pod that is not raised because its queue's quota covers no CPU."""
    return Finding(
        "QueueDoesNotCover",
        pods.field("containers"),
        "the pod states no CPU, and none is put in: its queue's quota covers none, so Kueue would never admit a workload that"
        " asks for some; the pod is not Guaranteed and the kubelet aligns nothing",
        "Have cpu covered by the ClusterQueue, or left out of Kueue's accounting by excludeResourcePrefixes.",
        Level.WARN,
    )


def check_guaranteed(pods: PodSet, shapes: Sequence[Shape], params: RaiseParams) -> Iterator[Finding]:
    """Warnings about what keeps the pod from being Guaranteed."""
    if pods.spec.get("resources"):
        yield Finding(
            "PodLevelResources",
            pods.field("resources"),
            "pod-level resources make the kubelet skip NUMA alignment for the pod",
            "State the resources of each container instead of spec.resources.",
            Level.WARN,
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
            Level.WARN,
        )
        return
    if all(target.is_met for target in targets):
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
            Level.WARN,
        )
    elif not _keeps_shapes(pods, targets, shapes):
        yield Finding(
            "RaisedWouldNotFit",
            pods.field("containers"),
            "with requests raised to the limits the pod would no longer fit nodes that can hold it now, so it stays Burstable"
            " and the kubelet aligns nothing",
            "Lower the limits to what the pod really needs, or select the nodes that are large enough.",
            Level.WARN,
        )
