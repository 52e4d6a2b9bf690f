"""Findings about pods that no NUMA zone holds."""

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.kube.memo import remember
from gpugate.policies.scheduling.node_fit import fitting, node_request
from gpugate.policies.scheduling.node_selection import NodeCandidates, open_shapes
from gpugate.policies.scheduling.numa import exclusive_cpus, refusal
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_SHOWN: int = 4


def check_zones(workload: Workload, pods: PodSet, chosen: NodeCandidates, snapshot: ClusterSnapshot) -> list[Finding]:
    """Find pods that every kubelet would end for lack of a NUMA zone."""
    if snapshot.known.get("noderesourcetopologies") is SyncState.PENDING:
        return [_zones_unknown(pods)]
    shapes = open_shapes(pods, chosen)
    if all(shape.topology is None for shape in shapes):
        return []
    refusing = _refusing(pods, chosen)
    if not refusing:
        return []
    could = fitting(pods, chosen, node_request(pods, snapshot, workload.namespace))
    cpus = exclusive_cpus(pods)
    texts = {refusal(pods, shape, cpus): None for shape in could if shape.nodes[0] in refusing}
    if not texts:
        return []
    finding = _no_zone_holds(pods, "; ".join(list(texts)[:_SHOWN]))
    certain = all(shape.nodes[0] in refusing for shape in could)
    return [finding if certain else finding.as_warning()]


def _refusing(pods: PodSet, chosen: NodeCandidates) -> frozenset[str]:
    """First nodes of the reachable shapes whose kubelets would refuse the pod; pods that state the same fare the same."""
    key = ("zones", pods.totals, "resources" in pods.spec)
    found: frozenset[str] | None = chosen.memo.get(key)
    if found is None:
        cpus = exclusive_cpus(pods)
        found = frozenset(shape.nodes[0] for shape in chosen.matching if refusal(pods, shape, cpus))
        remember(chosen.memo, key, found)
    return found


def _zones_unknown(pods: PodSet) -> Finding:
    return not_synced(
        "ZonesUnknown", pods.field("containers"), "the NodeResourceTopologies", "whether a NUMA zone could hold the pod"
    )


def _no_zone_holds(pods: PodSet, sums: str) -> Finding:
    return Finding(
        "NoZoneHolds",
        pods.field("containers"),
        f"the kubelet would end the pod with TopologyAffinityError: {sums}",
        "Ask for what one NUMA zone has, or select nodes whose Topology Manager does not insist.",
        measure=pods.whole_devices() + sum((exclusive_cpus(pods) or {}).values()),
    )
