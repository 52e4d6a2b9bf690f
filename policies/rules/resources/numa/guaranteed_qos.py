"""Parameters of the rule `numa`, and raising pods to Guaranteed: requests to the limits, CPU to whole cores, in all containers.

The kubelet's CPU and Memory Manager align only such pods (Kubernetes documentation, "Control Topology Management Policies").
"""

import re
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, field_validator

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.kueue import ClusterQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import Millicores, Params
from gpugate.policies.kube.cel import MOST, VARIABLE, CelRule, LabelKey, LabelValue
from gpugate.policies.kube.fields import Path, dotted
from gpugate.policies.kube.memo import keep, recall, remembered
from gpugate.policies.kube.quantity import format_millicores, show_amount
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.cluster_queue import bounding_queue, uncovered
from gpugate.policies.queueing.headroom import Headroom, headroom_facts, headroom_key, is_bounded
from gpugate.policies.scheduling.gpu_share import excess, portion_of, share_of
from gpugate.policies.scheduling.node_fit import holds
from gpugate.policies.scheduling.node_selection import NodeCandidates
from gpugate.policies.scheduling.numa import REQUIRES_ALIGNMENT, exclusive_cpus, refusal
from gpugate.policies.scheduling.pods_per_node import fewer_pods
from gpugate.policies.workloads.container import EPHEMERAL, LONGEST_NAME, Container
from gpugate.policies.workloads.metadata import annotation_for
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import add_up, pod_requests, stated_overhead
from gpugate.policies.workloads.workload import Workload

#: Annotation by which an author asks for Guaranteed quality of service, and its value.
ALIGNMENT: Final = "gpugate.io/numa"
ALIGNED: Final = "aligned"
#: The label that guides spread over, as if nodes had it (kubernetes/kubernetes and Node Feature Discovery set no such label).
_STOCK_KEY: Final = "topology.kubernetes.io/NUMANode"


class NodeLabel(Params):
    """A node label."""

    key: LabelKey
    """The label's key."""
    value: LabelValue = "true"
    """The label's value."""


class NumaParams(Params):
    """Parameters of `numa`."""

    validations = (
        CelRule(
            f"!has(self.ncclEnv) || self.ncclEnv.all(name, name.matches('^({VARIABLE})$'))",
            "ncclEnv: a name is no environment variable's (letters, digits and _)",
        ),
    )

    guaranteed: Literal["OnRequest", "Always", "Never"] = "OnRequest"
    """Which pods are raised to Guaranteed quality of service with whole CPUs: those whose annotation asks for it, all, or none."""
    max_raise_ratio: Annotated[float, Field(ge=1)] = 2.0
    """Maximum raised memory request as a multiple of the request; a limit beyond that does not state the need."""
    max_share_ratio: Annotated[float, Field(ge=1)] = 2.0
    """Maximum share of a node that a pod is raised to, as a multiple of the fair share of its accelerators."""
    cpu_per_accelerator: Millicores | None = None
    """CPU per accelerator of a raised container that states none, instead of the nodes' share."""
    share_tolerance: Annotated[float, Field(ge=1)] = 2.0
    """Maximum largest share of CPU of the nodes in reach as a multiple of the smallest; beyond that gpugate adds no CPU."""
    max_cpu_per_accelerator: Millicores = 16000
    """Maximum CPU per accelerator from a node's share."""
    node_reserve: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Part of a node's allocatable CPU that is not divided among its accelerators."""
    aligned_nodes: NodeLabel | None = None
    """The label of nodes whose kubelets are known to align; without it no node affinity is added."""
    no_zone_holds: Literal["Deny", "Warn"] = "Deny"
    """Whether a pod that no kubelet's Topology Manager could ever admit is refused, or only gets a warning."""
    affinity: Literal["Required", "Preferred"] = "Preferred"
    """Whether pods require such nodes or only prefer them; if required, a gang larger than these nodes never starts."""
    topology_key: LabelKey = _STOCK_KEY
    """The node label of one NUMA domain, in clusters with a node object per domain."""
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """`whenUnsatisfiable` of the spread constraint."""
    nccl_topo_file: str | None = None
    """Value of NCCL_TOPO_FILE in containers that hold accelerators."""
    nccl_env: Annotated[dict[str, str], Field(max_length=MOST)] = Field(default_factory=dict)
    """Other environment variables for NCCL in those containers."""

    @field_validator("nccl_env")
    @classmethod
    def _check_names(cls, variables: dict[str, str]) -> dict[str, str]:
        for name in variables:
            if not re.fullmatch(VARIABLE, name):
                message = f"{name!r:.60} is no name of an environment variable (letters, digits and _)"
                raise ValueError(message)
        return variables


class Target(NamedTuple):
    """The resources of one container, and the CPU and memory that make it Guaranteed."""

    at: int
    role: str
    cpu: int
    memory: int
    cpu_limit: int | None
    cpu_request: int | None
    memory_request: int | None

    @property
    def changes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Limits and requests to write; a missing request equals the limit."""
        requests = {}
        if self.cpu_request is not None and self.cpu_request != self.cpu:
            requests["cpu"] = self.cpu
        if self.memory_request is not None and self.memory_request != self.memory:
            requests["memory"] = self.memory
        return {} if self.cpu_limit == self.cpu else {"cpu": self.cpu}, requests

    @property
    def lowers(self) -> bool:
        """Whether a request is above the limit, which the API rejects: either of the two may be meant."""
        return (self.cpu_request or 0) > self.cpu or (self.memory_request or 0) > self.memory

    @property
    def is_met(self) -> bool:
        """Whether nothing is left to raise."""
        return self.changes == ({}, {})


def is_asked(workload: Workload, pods: PodSet, params: NumaParams) -> bool:
    """Return whether the policy, or the author by annotation, asks for pods of Guaranteed quality of service."""
    if params.guaranteed == "OnRequest":
        return annotation_for(workload, pods, ALIGNMENT) == ALIGNED
    return params.guaranteed == "Always"


def _cpu_share(pods: PodSet, container: Container, shapes: Sequence[NodeShape], params: NumaParams) -> int:
    """Return the share of the container's accelerators in millicores; zero if it requests none, or the nodes do not agree."""
    counts = container.accelerators()
    if params.cpu_per_accelerator is not None:
        return params.cpu_per_accelerator * (sum(counts.values()) + len(pods.gpu_claims.intersection(container.claims())))
    total = 0
    for name, count in counts.items():
        share = share_of([shape for shape in shapes if name in shape.devices], name, params.node_reserve)
        if share is None:
            return 0
        least, most = (max(1000, min(cpu, params.max_cpu_per_accelerator)) for cpu in (share.cpu, share.most_cpu))
        if most > params.share_tolerance * least:
            return 0
        total += count * least
    return total


def _targets(pods: PodSet, shapes: Sequence[NodeShape], params: NumaParams | None) -> tuple[list[Target], list[str]]:
    """Return the target of each container, and the limits that containers lack, in words; CPU has no default without ``params``."""
    targets: list[Target] = []
    missing: list[str] = []
    for at, container in enumerate(pods.containers):
        if container.role is EPHEMERAL:
            continue
        memory, memory_request, cpu_limit, cpu_request = container.amounts
        cpu = cpu_limit
        if cpu is None and params is not None and pods.holds(container):
            cpu = cpu_request or _cpu_share(pods, container, shapes, params)
        if cpu and memory:
            whole_cores = -(-cpu // 1000) * 1000
            targets.append(Target(at, container.role, whole_cores, memory, cpu_limit, cpu_request, memory_request))
        else:
            lacking = " and ".join(name for name, amount in (("cpu", cpu), ("memory", memory)) if not amount)
            missing.append(f"{container.role} {container.name} has no limit for {lacking}")
    return targets, missing


def _raised_demand(pods: PodSet, targets: list[Target]) -> tuple[int, int]:
    """Return the memory in bytes and the CPU in millicores that the raised pod requests, at least its requests now."""
    demand = pod_requests(pods)
    parts = [(target.role, {"memory": target.memory, "cpu": target.cpu}) for target in targets]
    total = add_up(parts, overhead=stated_overhead(pods))
    return max(demand.memory, total["memory"]), max(demand.cpu, total["cpu"])


def _shortage(pods: PodSet, targets: list[Target], shapes: Sequence[NodeShape]) -> str:
    """Return which of ``shapes`` holds fewer raised pods, or whose NUMA zones hold none; empty if all hold as many as now."""
    demand, (memory, cpu) = pod_requests(pods), _raised_demand(pods, targets)
    fewer = fewer_pods(shapes, demand, demand._replace(memory=memory, cpu=cpu))
    if fewer:
        return fewer
    cpus, before = {target.at: target.cpu for target in targets}, exclusive_cpus(pods)
    holding = (shape for shape in shapes if holds(shape, demand))
    refusals = (refusal(pods, shape, cpus) for shape in holding if not refusal(pods, shape, before))
    return next(filter(None, refusals), "")


def _strands(pods: PodSet, targets: list[Target], shapes: Sequence[NodeShape], params: NumaParams) -> bool:
    """Return whether the raised pod takes more of every node than the policy allows, and more than the pod takes now."""
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


def raised(
    workload: Workload, pods: PodSet, chosen: NodeCandidates, shapes: Sequence[NodeShape], params: NumaParams
) -> tuple[Target, ...]:
    """Return the containers to raise in pods that may land on ``shapes``, some of the candidates ``chosen``."""
    if pods.totals.is_guaranteed or pods.spec.get("resources") or not is_asked(workload, pods, params):
        return ()
    # The totals do not contain claims and overhead.
    key = None if pods.gpu_claims or "overhead" in pods.spec else pods.totals
    to_raise: tuple[Target, ...] | None = recall(chosen.memo, "raised", key, shapes, params)
    if to_raise is None:
        targets, missing = _targets(pods, shapes, params)
        # The API server rejects a request above its limit with its own message.
        stays = any(target.lowers for target in targets) or _obstacle(pods, targets, missing, shapes, params) is not None
        to_raise = () if stays else tuple(target for target in targets if not target.is_met)
        keep(chosen.memo, "raised", key, to_raise, shapes, params)
    return to_raise


def raise_to(pods: PodSet, targets: Sequence[Target]) -> list[Edit]:
    """Return the edits that raise the containers."""
    edits: list[Edit] = []
    for target in targets:
        container = pods.containers[target.at]
        # The memory as the limit is written: the API server keeps 64G as it is, and the record must be what it keeps.
        make = _raise_container if len(container.name) <= LONGEST_NAME else _raise_container.__wrapped__
        edits += make(target, container.raw("limits", "memory"), container.name, container.path, pods.path)
    return edits


@lru_cache(maxsize=256, typed=True)
def _raise_container(target: Target, memory: object, name: str, path: Path, pods: Path) -> tuple[Edit, ...]:
    """Return the edits that raise one container; those of one team's workloads are much alike."""
    cpu, group = format_millicores(target.cpu), f"guaranteed {dotted(pods)}"
    limits, requests = target.changes
    values: list[tuple[Path, object]] = [((*path, "resources", "limits", name), cpu) for name in limits]
    values += [((*path, "resources", "requests", name), cpu if name == "cpu" else memory) for name in requests]
    note = f"{name} made Guaranteed: cpu {cpu}, memory {memory}"
    return tuple(Edit("set", place, value, "" if at else note, group) for at, (place, value) in enumerate(values))


def check_guaranteed(workload: Workload, pods: PodSet, shapes: Sequence[NodeShape], params: NumaParams) -> Finding | None:
    """Return the finding about what keeps the pod from being Guaranteed; None if nothing does."""
    if pods.spec.get("resources"):
        return Finding(
            "PodLevelResources",
            pods.field("resources"),
            "pod-level resources make the kubelet skip NUMA alignment for the pod",
            "Write the resources of each container instead of spec.resources.",
        )
    if params.guaranteed == "Never":
        return None
    if is_asked(workload, pods, params):
        return _obstacle(pods, *_targets(pods, shapes, params), shapes, params)
    if not any(shape.topology is not None and shape.topology.policy in REQUIRES_ALIGNMENT for shape in shapes):
        # Nobody asked for alignment, and no node is known to do it.
        return None
    targets, missing = _targets(pods, shapes, None)
    below = [f"{pods.containers[target.at].name} {_difference(target)}" for target in targets if not target.is_met]
    if any(target.lowers for target in targets) or not (below or missing):
        return None
    return Finding(
        "NotGuaranteed",
        pods.field("containers"),
        f"the pod is not Guaranteed with whole CPUs, so the kubelet aligns nothing: {'; '.join((*missing, *below))}",
        f"Write limits for cpu (whole cores) and memory in every container, and equal requests; or the annotation {ALIGNMENT}:"
        f" {ALIGNED}, by which gpugate does.",
    )


def _difference(target: Target) -> str:
    """Return what of the container is below its target, in words."""
    texts = []
    if target.cpu_limit is not None and target.cpu_limit % 1000:
        texts.append(f"is limited to {format_millicores(target.cpu_limit)} cpu")
    for name, request, limit in (
        ("cpu", target.cpu_request, target.cpu_limit),
        ("memory", target.memory_request, target.memory),
    ):
        if request is not None and limit is not None and request != limit:
            texts.append(f"requests {show_amount(name, request)} of {show_amount(name, limit)} {name}")
    return " and ".join(texts)


def _obstacle(
    pods: PodSet, targets: list[Target], missing: list[str], shapes: Sequence[NodeShape], params: NumaParams
) -> Finding | None:
    """Return the finding about what keeps the containers from being raised; None if nothing does, or none is to be raised."""
    if missing:
        return Finding(
            "NotGuaranteed",
            pods.field("containers"),
            f"the pod is not Guaranteed, so the kubelet aligns nothing: {'; '.join(missing)}",
            "Write limits for cpu (whole cores) and memory in every container.",
        )
    if all(target.is_met for target in targets) or any(target.lowers for target in targets):
        return None
    for target in targets:
        if target.memory_request is not None and target.memory > target.memory_request * params.max_raise_ratio:
            container = pods.containers[target.at]
            return Finding(
                "RaisedTooFar",
                container.place("requests", "memory"),
                f"the memory limit of {container.name} is more than {params.max_raise_ratio:g} times its request, so gpugate does"
                " not raise the request to it and the kubelet aligns nothing",
                "Write the memory that the container needs as both request and limit.",
            )
    shortage = _shortage(pods, targets, shapes)
    if shortage:
        return Finding(
            "RaisedWouldNotFit",
            pods.field("containers"),
            "gpugate does not raise the requests to the limits and CPU to whole cores, because fewer pods would fit their nodes"
            f" ({shortage}), so the kubelet aligns nothing",
            "Lower the limits to what the pod really needs, or select the nodes that are large enough.",
        )
    if _strands(pods, targets, shapes, params):
        return Finding(
            "RaisedWouldStrand",
            pods.field("containers"),
            f"with requests raised to the limits the pod would take more than {params.max_share_ratio:g} times the fair share of"
            " its accelerators and leave others of the node unusable, so it stays Burstable and the kubelet aligns nothing",
            "Lower the limits to what the pod really needs, or write the requests that it needs yourself.",
        )
    return None


def check_bounds(
    workload: Workload, pods: PodSet, targets: Sequence[Target], shapes: Sequence[NodeShape], snapshot: ClusterSnapshot
) -> Finding | None:
    """Return the finding about a bound of the namespace or queue that keeps ``targets`` from being raised; None if none does.

    Raises:
        MalformedError: an amount is no quantity.
    """
    # Kueue would never admit a workload with added CPU if its quota covers none.
    adds_cpu = any(target.cpu_limit is None and target.cpu_request is None for target in targets)
    if adds_cpu and "cpu" in uncovered(workload, snapshot):
        return Finding(
            "QueueDoesNotCover",
            pods.field("containers"),
            "the pod requests no CPU; gpugate adds none, because the quota of its queue covers no CPU and Kueue would never admit a"
            " workload that requests CPU; the pod is not Guaranteed, so the kubelet aligns nothing",
            "Add cpu to the quota of the ClusterQueue, or exclude it from Kueue's accounting with excludeResourcePrefixes.",
        )
    queue = bounding_queue(workload, snapshot)
    violation = _violation(workload, pods, targets, shapes, queue, snapshot) if is_bounded(workload, pods, queue, snapshot) else ""
    if not violation:
        return None
    return Finding(
        "RaisedBeyondBounds",
        pods.field("containers"),
        "gpugate does not raise the requests to the limits and CPU to whole cores, because the pod would be rejected or never"
        f" admitted ({violation}), so the kubelet aligns nothing",
        "Write equal requests and limits, with whole CPUs, within that bound.",
    )


def _key(
    workload: Workload,
    pods: PodSet,
    targets: Sequence[Target],
    _shapes: Sequence[NodeShape],
    _queue: ClusterQueue | None,
    snapshot: ClusterSnapshot,
) -> Hashable | None:
    key = headroom_key(workload, pods, snapshot)
    return None if key is None else (key, tuple(targets))


@remembered(
    by=_key, on=lambda workload, _pods, _targets, shapes, queue, snapshot: (shapes, *headroom_facts(workload, queue, snapshot))
)
def _violation(
    workload: Workload,
    pods: PodSet,
    targets: Sequence[Target],
    shapes: Sequence[NodeShape],
    queue: ClusterQueue | None,
    snapshot: ClusterSnapshot,
) -> str:
    """Return the first bound that the raised pods violate, in words; empty if none."""
    return Headroom(workload, pods, queue, snapshot, shapes).violation({target.at: target.changes for target in targets})
