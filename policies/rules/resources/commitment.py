"""The memory limits on accelerator nodes stay within a ratio of the memory of these nodes.

## What it does

Adds up the memory limits of the pods that run on the nodes which a workload's pods may land on, adds the workload's own, and
compares the sum with the policy's ratio of these nodes' allocatable memory. A container without a limit counts with its
request. Warns, or refuses if the policy says so:

- no single node could take one more such pod within the ratio, or
- all these nodes together could not take all of the workload's pods.

A pod whose own limit is above the ratio on every node, even an empty one, is refused in any case. A workload in a queue waits
for its turn and only gets a warning: the nodes may be free by then.

## Why

The scheduler counts requests alone, while limits let a pod grow. If they add up to more than the node has, and the pods do
grow, the kernel kills one of them, not necessarily the one that grew. A ratio of 1.5 leaves room for pods that peak at
different times, and less than every pod at twice its request would take.

## Practice

- NUMA guide, "GPU Memory Management": oversubscribed memory ends in pods that are killed, on the card and on the node.
- None of the guides bounds the sum of limits on a node, though all four write limits above requests.

## Example

A node has 2000Gi and its pods limits of 2900Gi. Another pod with 200Gi gets a warning: 3100Gi is more than 1.5 x 2000Gi.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from pydantic import Field

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.quantity import GIB, show_bytes
from gpugate.policies.scheduling.node_fit import fitting, node_request
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS, node_candidates
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import limited_memory_of
from gpugate.policies.workloads.workload import Workload


class CommitmentParams(Params):
    """Parameters of `commitment`."""

    max_ratio: Annotated[float, Field(ge=1)] = 1.5
    """Maximum sum of the memory limits on a node, as a multiple of its allocatable memory."""
    refuse: bool = False
    """Whether a workload that exceeds the ratio only together with the pods that run now is refused; if not, it gets a warning."""


def check(workload: Workload, params: CommitmentParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Warn about memory limits that the nodes could not satisfy together."""
    # The limits of a reviewed owner were counted when its template was created.
    if workload.owner_was_reviewed():
        return
    for pods in workload.gpu_pod_sets():
        for kind in ("nodes", "pods"):
            if snapshot.known.get(kind) is SyncState.PENDING:
                yield not_synced("CommitmentUnknown", pods.field("containers"), f"the {kind}", "which limits the nodes' pods have")
                return
        chosen = node_candidates(pods, snapshot)
        if not chosen.matching:
            continue
        # The rule host-memory reports pods that no node could hold.
        shapes = fitting(pods, chosen, node_request(pods, snapshot, workload.namespace))
        limit = limited_memory_of(pods) if shapes else 0
        finding = _exceeded(workload, pods, limit, shapes, params, snapshot) if limit else None
        if finding is not None:
            yield finding


def _exceeded(
    workload: Workload, pods: PodSet, limit: int, shapes: Sequence[NodeShape], params: CommitmentParams, snapshot: ClusterSnapshot
) -> Finding | None:
    ratio = params.max_ratio
    if all(limit > ratio * shape.memory for shape in shapes):
        largest = max(shapes, key=lambda shape: shape.memory)
        most = int(ratio * largest.memory)
        return Finding(
            "LimitAboveRatio",
            pods.field("containers"),
            f"the pod's memory limits add up to {show_bytes(limit)}, more than the policy's ratio allows on any node that it may"
            f" run on, even when empty; the largest is {largest.title}: {show_bytes(limit)} > {_bound(largest.memory, ratio)}",
            f"Lower the memory limits to {show_bytes(most // GIB * GIB or most)} per pod at most.",
            measure=limit,
        )
    # The pods of an existing object are among those that run.
    exists = workload.operation != "UPDATE" and workload.metadata().get("resourceVersion")
    if exists or snapshot.sync_state("pods") is not SyncState.SYNCED:
        return None
    more = _added_limits(workload, pods, limit, shapes)
    finding = _overcommitted(pods, limit, more, shapes, ratio, snapshot) if more > 0 else None
    return finding if finding is None or queue_label(workload) is None else finding.as_warning()


def _added_limits(workload: Workload, pods: PodSet, limit: int, shapes: Sequence[NodeShape]) -> int:
    """Return the memory limits in bytes that the object adds: those of all its pods, or what an UPDATE adds to them.

    A workload that does not state its number of pods has one on each node.
    """
    total = limit * _number(pods, shapes)
    before = None if workload.transition is None else workload.transition.pods_before(pods)
    return total if before is None else total - limited_memory_of(before) * _number(before, shapes)


def _number(pods: PodSet, shapes: Sequence[NodeShape]) -> int:
    return sum(len(shape.nodes) for shape in shapes) if pods.count is None else pods.count


def _bound(memory: int, ratio: float) -> str:
    return f"{ratio:g} x {show_bytes(memory)} = {show_bytes(int(ratio * memory))}"


def _overcommitted(
    pods: PodSet, limit: int, more: int, shapes: Sequence[NodeShape], ratio: float, snapshot: ClusterSnapshot
) -> Finding | None:
    """Return the finding if no node, or not all nodes together, have room for ``limit``, and ``more`` for all pods, in bytes."""
    usage = [(shape, snapshot.usage_of(shape)) for shape in shapes]
    if all(used.least_limit + limit > ratio * shape.memory for shape, used in usage):
        freest, used = min(usage, key=lambda pair: pair[1].least_limit + limit - ratio * pair[0].memory)
        return Finding(
            "NodesOvercommitted",
            pods.field("containers"),
            f"no node that the pod may run on has room for its memory limit of {show_bytes(limit)} in addition to the limits of"
            f" its pods; the node with the most room is {freest.title}: {show_bytes(used.least_limit)} + {show_bytes(limit)} ="
            f" {show_bytes(used.least_limit + limit)} > {_bound(freest.memory, ratio)}",
            "Lower the memory limit towards the request, or wait until other pods have ended.",
            measure=limit,
        )
    present, total = sum(used.memory_limit for _, used in usage), sum(shape.total_memory for shape in shapes)
    if present + more <= ratio * total:
        return None
    nodes = sum(len(shape.nodes) for shape in shapes)
    return Finding(
        "PoolOvercommitted",
        pods.field("containers"),
        f"the memory limits on the {nodes} node{'s' if nodes > 1 else ''} that the pods may land on would add up to"
        f" {show_bytes(present)} + {show_bytes(more)} = {show_bytes(present + more)} > {_bound(total, ratio)}",
        "Lower the memory limits towards the requests, request fewer pods, or wait until other pods have ended.",
        measure=more,
    )


_QUEUED: Final = "the workload is in a queue"
REASONS: Final[dict[str, Reason]] = {
    "CommitmentUnknown": Reason("The nodes or pods are not synced yet.", action="Unknown"),
    "LimitAboveRatio": Reason("The memory limit is above the ratio of every node, even an empty one.", facts=("nodes",)),
    "NodesOvercommitted": Reason(
        "No node has room for the memory limit beside its pods.", action="refuse", facts=("nodes", "pods"), warns=_QUEUED
    ),
    "PoolOvercommitted": Reason(
        "All nodes together have no room for the memory limits.", action="refuse", facts=("nodes", "pods"), warns=_QUEUED
    ),
}

RULE = Rule(
    id="commitment",
    title="The memory limits on accelerator nodes stay within a ratio of what the nodes have",
    since="0.1.0",
    params=CommitmentParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"nodes", "pods"}),
    reads=SCHEDULING_FIELDS,
    documentation=__doc__,
)
