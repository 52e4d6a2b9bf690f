"""Findings of the rule `commitment`."""

from collections.abc import Iterator, Sequence

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.kube.quantity import GIB, show_bytes
from gpugate.policies.rules.resources.commitment.params import CommitmentParams
from gpugate.policies.scheduling.node_fit import fitting, node_request
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import limited_memory_of
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: CommitmentParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Warn about limits that the nodes could not make good."""
    # Its template was counted when it was made.
    if workload.owner_was_reviewed():
        return
    for pods in workload.gpu_pod_sets():
        if SyncState.PENDING in (snapshot.known.get("nodes"), snapshot.known.get("pods")):
            yield _unknown(pods, "nodes" if snapshot.known.get("nodes") is SyncState.PENDING else "pods")
            return
        chosen = node_candidates(pods, snapshot)
        if not chosen.matching:
            continue
        ask = node_request(pods, snapshot, workload.namespace)
        # What none of them could hold anyway is told of by the rule host-memory.
        shapes = fitting(pods, chosen, ask)
        limit = limited_memory_of(pods) if shapes else 0
        if limit:
            finding = _judge(workload, pods, limit, shapes, params, snapshot)
            if finding is not None:
                yield finding


def _judge(
    workload: Workload, pods: PodSet, limit: int, shapes: Sequence[NodeShape], params: CommitmentParams, snapshot: ClusterSnapshot
) -> Finding | None:
    if all(limit > params.max_ratio * shape.memory for shape in shapes):
        return _above_ratio(pods, limit, shapes, params)
    # Pods of an object that is there already are among those that run.
    if snapshot.sync_state("pods") is not SyncState.SYNCED or (
        workload.operation != "UPDATE" and workload.metadata().get("resourceVersion")
    ):
        return None
    more = _more(workload, pods, limit, shapes)
    if more <= 0:
        return None
    full = _full(pods, limit, more, shapes, params, snapshot)
    return full if full is None or queue_label(workload) is None else full.as_warning()


def _full(
    pods: PodSet, limit: int, more: int, shapes: Sequence[NodeShape], params: CommitmentParams, snapshot: ClusterSnapshot
) -> Finding | None:
    if all(snapshot.usage_of(shape).least_limit + limit > params.max_ratio * shape.memory for shape in shapes):
        return _no_node_left(pods, limit, shapes, params, snapshot)
    used, total = sum(snapshot.usage_of(shape).memory_limit for shape in shapes), sum(shape.total_memory for shape in shapes)
    return _pool_full(pods, used, more, shapes, params) if used + more > params.max_ratio * total else None


def _count(pods: PodSet, shapes: Sequence[NodeShape]) -> int:
    """How many pods there are to be; one for each node where the workload does not say."""
    return sum(len(shape.nodes) for shape in shapes) if pods.count is None else pods.count


def _more(workload: Workload, pods: PodSet, limit: int, shapes: Sequence[NodeShape]) -> int:
    """Return the memory limits, in bytes, that the object adds: those of all its pods, or what an UPDATE adds to them."""
    total = limit * _count(pods, shapes)
    before = None if workload.transition is None else workload.transition.pods_before(pods)
    return total if before is None else total - limited_memory_of(before) * _count(before, shapes)


def _unknown(pods: PodSet, kind: str) -> Finding:
    return not_synced("CommitmentUnknown", pods.field("containers"), f"the {kind}", "what the nodes have promised already")


def _largest(shapes: Sequence[NodeShape]) -> NodeShape:
    return max(shapes, key=lambda shape: shape.memory)


def _room(shapes: Sequence[NodeShape], params: CommitmentParams) -> str:
    memory = _largest(shapes).memory
    return f"{params.max_ratio:g} x {show_bytes(memory)} = {show_bytes(int(params.max_ratio * memory))}"


def _above_ratio(pods: PodSet, limit: int, shapes: Sequence[NodeShape], params: CommitmentParams) -> Finding:
    largest = _largest(shapes)
    most = int(params.max_ratio * largest.memory)
    return Finding(
        "LimitAboveRatio",
        pods.field("containers"),
        f"the pod's memory limits come to {show_bytes(limit)}, more than the policy lets be promised on any node that it may land"
        f" on, even an empty one: {largest.title}: {show_bytes(limit)} > {_room(shapes, params)}",
        f"Lower the memory limits to {show_bytes(most // GIB * GIB or most)} per pod, or to what a node has.",
        measure=limit,
    )


def _no_node_left(
    pods: PodSet, limit: int, shapes: Sequence[NodeShape], params: CommitmentParams, snapshot: ClusterSnapshot
) -> Finding:
    nearest = min(shapes, key=lambda shape: snapshot.usage_of(shape).least_limit + limit - params.max_ratio * shape.memory)
    least = snapshot.usage_of(nearest).least_limit
    return Finding(
        "NodesOvercommitted",
        pods.field("containers"),
        f"no node that the pod may land on can promise its memory limit of {show_bytes(limit)} besides those of the pods there:"
        f" the freest of {nearest.title}: {show_bytes(least)} + {show_bytes(limit)} = {show_bytes(least + limit)} >"
        f" {_room([nearest], params)}",
        "Lower the memory limit towards the request, or wait until pods there have ended.",
        measure=limit,
    )


def _pool_full(pods: PodSet, used: int, more: int, shapes: Sequence[NodeShape], params: CommitmentParams) -> Finding:
    total, nodes = sum(shape.total_memory for shape in shapes), sum(len(shape.nodes) for shape in shapes)
    return Finding(
        "PoolOvercommitted",
        pods.field("containers"),
        f"the memory limits on the {nodes} node{'s' if nodes > 1 else ''} that the pods may land on would come to"
        f" {show_bytes(used)} + {show_bytes(more)} = {show_bytes(used + more)} > {params.max_ratio:g} x {show_bytes(total)} ="
        f" {show_bytes(int(params.max_ratio * total))}",
        "Lower the memory limits towards the requests, ask for fewer pods, or wait until others have ended.",
        measure=more,
    )
