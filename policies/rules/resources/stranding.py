"""Accelerator pods take no more of a node than leaves its other accelerators usable.

## What it does

Compares what a pod asks of a node with what belongs to its accelerators there. The figure is

    factor = (asked / allocatable of the node) / (accelerators of the pod / accelerators of the node)

for memory and for CPU, the larger of the two; of all nodes that the pod may land on and that can hold it, the one where the
figure is smallest counts. A pod for all accelerators of a node strands none, nor does a share of a time-sliced card. A MIG
slice counts as much as it has of its card's compute slices.

Above `warnFactor` a warning says how many accelerators would be stranded: those that can't be used any more by pods that ask
for their fair share of what is left. Above `refuseFactor` the pod is refused.

## Why

One GPU with 60% of the memory of an 8-GPU node leaves memory for three others: four GPUs are paid for and used by nobody. The
scheduler does not see this, and a queue's quota of GPUs still counts them as there. At twice its share a pod takes that of
another accelerator for each of its own, which happens where pods of other kinds ask for less; at four times it takes three,
which no usual mix of pods makes up for.

## Practice

- Orchestration guide, "Resource Consolidation": pods do not take more of a node than they need, so that others fit beside
  them.
- Orchestration guide, "Idle GPU Mitigation": no GPU is idle since its node has no memory or CPU left for it.
- Field guide, step 5: GPUs that are allocated and not used are waste; those that nobody can allocate are, too.

## Example

On nodes with 8 GPUs and 2000Gi, a pod with 1 GPU and 1200Gi is refused: 1200Gi is 4.8 times the 250Gi that belong to a GPU.
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
    """How many times the fair share of its accelerators a pod may ask for without a warning."""
    refuse_factor: Annotated[float, Field(gt=1)] = 4.0
    """Above how many times their fair share it is refused."""


class _Case(NamedTuple):
    """What a pod takes of one node.

    Attributes:
        factor: how many times its accelerators' fair share, of what it takes most of.
        resource: ``memory`` or ``cpu``.
        shape: the node.
        portion: what part of the node's accelerators it asks for.
    """

    factor: float
    resource: str
    shape: NodeShape
    portion: Portion


def _mildest(ask: PodRequests, shapes: Sequence[NodeShape]) -> _Case | None:
    """The case where the pod strands least; None where it may strand none at all, or there are no shapes."""
    best: _Case | None = None
    for shape in shapes:
        portion = portion_of(shape, ask.devices)
        if portion is None:
            return None
        memory, cpu = excess(ask.memory, shape.memory, portion), excess(ask.cpu, shape.cpu, portion)
        factor = max(memory, cpu)
        if best is None or factor < best.factor:
            best = _Case(factor, "memory" if memory >= cpu else "cpu", shape, portion)
    return best


def _case(pods: PodSet, ask: PodRequests, chosen: NodeCandidates) -> _Case | None:
    """The mildest case, remembered by what the pods ask for: it depends on nothing else."""
    shapes = fitting(pods, chosen, ask)
    key = ("stranding", pods.totals, ask.memory, ask.cpu)
    remembered = chosen.memo.get(key)
    if remembered is not None and remembered[0] is shapes:
        known: _Case | None = remembered[1]
        return known
    found = _mildest(ask, shapes)
    remember(chosen.memo, key, (shapes, found))
    return found


def check(workload: Workload, params: StrandingParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Warn about pods that leave other accelerators too little, and refuse the worst."""
    for pods in workload.gpu_pod_sets():
        if snapshot.known.get("nodes") is SyncState.PENDING:
            yield _nodes_unknown(pods)
            return
        chosen = node_candidates(pods, snapshot)
        if not chosen.matching:
            continue
        ask = node_request(pods, snapshot, workload.namespace)
        case = _case(pods, ask, chosen)
        if case is not None and case.factor > params.warn_factor:
            finding = _strands(pods, ask, case, params)
            yield finding if case.factor > params.refuse_factor else finding.as_warning()


def _nodes_unknown(pods: PodSet) -> Finding:
    return not_synced("NodesUnknown", pods.field("containers"), "the nodes", "what the pod would leave to other accelerators")


def _strands(pods: PodSet, ask: PodRequests, case: _Case, params: StrandingParams) -> Finding:
    shape, portion = case.shape, case.portion
    asked, room = (ask.memory, shape.memory) if case.resource == "memory" else (ask.cpu, shape.cpu)
    each = room * portion.parts // portion.whole
    others = portion.whole - portion.parts
    usable = min(others, (room - asked) * portion.whole // room)
    amounts = f"{_shown(case.resource, asked)} of {_shown(case.resource, room)} {case.resource}"
    return Finding(
        "StrandsAccelerators",
        pods.field("containers"),
        f"{portion.number} of {portion.name} with {amounts} on {shape.title} is {case.factor:.3g} times the fair share of"
        f" {_shown(case.resource, each)}: it leaves"
        f" {_shown(case.resource, room - asked)}, at that share enough for {usable} of the {others} other {portion.noun},"
        f" {others - usable} stranded; of pods like this {room // asked} fit a node with accelerators for"
        f" {portion.whole // portion.parts}",
        _remedy(asked, room, case, params),
        measure=int(1000 * case.factor),
    )


def _shown(resource: str, amount: int) -> str:
    return show_bytes(amount) if resource == "memory" else format_millicores(amount)


def _remedy(asked: int, room: int, case: _Case, params: StrandingParams) -> str:
    portion = case.portion
    grain = GIB if case.resource == "memory" else 1000
    most = int(room * portion.parts / portion.whole * params.warn_factor)
    most = most // grain * grain or most
    count = min(-(-asked * portion.whole // (room * portion.unit)), portion.whole // portion.unit)
    return (
        f"Ask for at most {_shown(case.resource, most)} of {case.resource} per pod, or for {count} of {portion.name}, to which that"
        f" much {case.resource} belongs."
    )


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
    title="Accelerator pods leave the other accelerators of their node enough to be used",
    since="0.1.0",
    params=StrandingParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS,
    documentation=__doc__,
)
