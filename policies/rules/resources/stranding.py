"""Accelerator pods leave enough memory and CPU for the other accelerators of their node.

## What it does

Compares what a pod requests of a node with the fair share of its accelerators there. The figure is

    factor = (requested / allocatable of the node) / (accelerators of the pod / accelerators of the node)

gpugate computes it for memory and for CPU and takes the larger. Of all nodes that the pod may run on and that can hold it, the
node with the smallest factor counts. A pod for all accelerators of a node strands none, nor does a share of a time-sliced
card. A MIG slice counts as the part of its card's compute slices that it has.

Above `warnFactor` a warning says how many accelerators would be stranded: too little memory or CPU is left to give them their
fair share. Above `refuseFactor` the pod is refused.

## Why

One GPU with 60% of the memory of an 8-GPU node leaves memory for three others: four GPUs are paid for and stay unused. The
scheduler does not see this, and a queue's quota still counts these GPUs as available. At twice its share a pod takes the share
of one other accelerator for each of its own, and pods that request less can compensate. At four times it takes the shares of
three others, which is too much to compensate.

## Practice

- Orchestration guide, "Resource Consolidation": pods do not take more of a node than they need, so others fit as well.
- Orchestration guide, "Idle GPU Mitigation": no GPU is idle because its node has no memory or CPU left for it.
- Field guide, step 5: GPUs that are allocated and not used are waste; so are those that no pod can allocate.

## Example

On nodes with 8 GPUs and 2000Gi, a pod with 1 GPU and 1200Gi is refused: 1200Gi is 4.8 times the 250Gi that are a GPU's share.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.quantity import GIB, format_millicores, show_bytes
from gpugate.policies.scheduling.gpu_share import Portion, excess, portion_of
from gpugate.policies.scheduling.node_fit import fitting, node_request
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS, NodeCandidates, node_candidates
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests
from gpugate.policies.workloads.workload import Workload


class StrandingParams(Params):
    """Parameters of `stranding`."""

    in_order = (("warn_factor", "refuse_factor"),)

    warn_factor: Annotated[float, Field(gt=1)] = 2.0
    """How many times the fair share of its accelerators a pod may request without a warning."""
    refuse_factor: Annotated[float, Field(gt=1)] = 4.0
    """How many times that share a pod may request without being refused."""


class _Case(NamedTuple):
    """The resource (``memory`` or ``cpu``) of which a pod takes most on a node: ``factor`` times its accelerators' fair share."""

    factor: float
    resource: str
    shape: NodeShape
    portion: Portion


def _mildest(request: PodRequests, shapes: Sequence[NodeShape]) -> _Case | None:
    """Return the case with the smallest factor; None without shapes, or if the pod strands nothing on one of them."""
    best: _Case | None = None
    for shape in shapes:
        portion = portion_of(shape, request.devices)
        if portion is None:
            return None
        memory, cpu = excess(request.memory, shape.memory, portion), excess(request.cpu, shape.cpu, portion)
        factor = max(memory, cpu)
        if best is None or factor < best.factor:
            best = _Case(factor, "memory" if memory >= cpu else "cpu", shape, portion)
    return best


def _case(pods: PodSet, request: PodRequests, chosen: NodeCandidates) -> _Case | None:
    """Return the mildest case, remembered by the pods' requests: it depends on nothing else."""
    shapes = fitting(pods, chosen, request)
    key = ("stranding", pods.totals, request.memory, request.cpu)
    remembered = chosen.memo.get(key)
    if remembered is None or remembered[0] is not shapes:
        remembered = (shapes, _mildest(request, shapes))
        remember(chosen.memo, key, remembered)
    case: _Case | None = remembered[1]
    return case


def check(workload: Workload, params: StrandingParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Warn about pods that leave other accelerators too little, and refuse the worst."""
    for pods in workload.gpu_pod_sets():
        if snapshot.known.get("nodes") is SyncState.PENDING:
            yield not_synced("NodesUnknown", pods.field("containers"), "the nodes", "whether the pod leaves others enough")
            return
        chosen = node_candidates(pods, snapshot)
        if not chosen.matching:
            continue
        request = node_request(pods, snapshot, workload.namespace)
        case = _case(pods, request, chosen)
        if case is not None and case.factor > params.warn_factor:
            finding = _strands(pods, request, case, params)
            yield finding if case.factor > params.refuse_factor else finding.as_warning()


def _strands(pods: PodSet, request: PodRequests, case: _Case, params: StrandingParams) -> Finding:
    shape, portion, resource = case.shape, case.portion, case.resource
    requested, total = (request.memory, shape.memory) if resource == "memory" else (request.cpu, shape.cpu)
    others = portion.whole - portion.parts
    usable = min(others, (total - requested) * portion.whole // total)
    grain = GIB if resource == "memory" else 1000
    most = int(total * portion.parts / portion.whole * params.warn_factor)
    count = min(-(-requested * portion.whole // (total * portion.unit)), portion.whole // portion.unit)
    return Finding(
        "StrandsAccelerators",
        pods.field("containers"),
        f"the pod requests {portion.number} of {portion.name} and {_shown(resource, requested)} of"
        f" {_shown(resource, total)} {resource} on {shape.title}, {case.factor:.3g} times the fair share of"
        f" {_shown(resource, total * portion.parts // portion.whole)}; the remaining {_shown(resource, total - requested)} are"
        f" enough for {usable} of the {others} other {portion.noun}, so {others - usable} stay unusable; the node holds"
        f" {total // requested} instead of {portion.whole // portion.parts} such pods",
        f"Request at most {_shown(resource, most // grain * grain or most)} of {resource} per pod, or {count} of {portion.name},"
        f" whose fair share covers {_shown(resource, requested)}.",
        measure=int(1000 * case.factor),
    )


def _shown(resource: str, amount: int) -> str:
    return show_bytes(amount) if resource == "memory" else format_millicores(amount)


REASONS: Final[dict[str, Reason]] = {
    "NodesUnknown": Reason("The nodes are not synced yet.", action="Unknown"),
    "StrandsAccelerators": Reason(
        "The pod takes so much memory or CPU that other GPUs of its node stay unusable.",
        facts=("nodes",),
        warns="the factor is not above `refuseFactor`",
        owner_reviewed_warns=True,
    ),
}

RULE = Rule(
    id="stranding",
    title="Accelerator pods leave enough memory and CPU for the other accelerators of their node",
    since="0.1.0",
    params=StrandingParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS,
    documentation=__doc__,
)
