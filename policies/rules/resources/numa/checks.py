"""Findings of the rule `numa`."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.kube.memo import remember
from gpugate.policies.rules.resources.numa.guaranteed_qos import NumaParams, check_bounds, check_guaranteed, raised
from gpugate.policies.scheduling.node_fit import fitting, node_request
from gpugate.policies.scheduling.node_selection import NodeCandidates, node_candidates, open_shapes
from gpugate.policies.scheduling.numa import exclusive_cpus, refusal
from gpugate.policies.scheduling.pods_per_node import shapes_in_reach
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_SHOWN: Final = 4


def check(workload: Workload, params: NumaParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse pods that no NUMA zone holds; warn about what keeps the others from being aligned."""
    for pods in workload.gpu_pod_sets():
        chosen = node_candidates(pods, snapshot)
        if chosen.matching:
            yield from _check_zones(workload, pods, chosen, snapshot)
        if chosen.shared_only or not pods.whole_devices():
            continue
        if pods.spec.get("resources") or not pods.totals.is_guaranteed:
            shapes = shapes_in_reach(pods, chosen)
            targets = raised(workload, pods, chosen, shapes, params)
            finding = (
                check_bounds(workload, pods, targets, shapes, snapshot)
                if targets
                else check_guaranteed(workload, pods, shapes, params)
            )
            if finding is not None:
                yield finding


def _check_zones(workload: Workload, pods: PodSet, chosen: NodeCandidates, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Find pods that kubelets would end because no NUMA zone holds them."""
    place = pods.field("containers")
    if snapshot.known.get("noderesourcetopologies") is SyncState.PENDING:
        yield not_synced("ZonesUnknown", place, "the NodeResourceTopologies", "whether a NUMA zone could hold the pod")
        return
    if all(shape.topology is None for shape in open_shapes(pods, chosen)) or not (refusing := _refusing(pods, chosen)):
        return
    shapes = fitting(pods, chosen, node_request(pods, snapshot, workload.namespace))
    cpus = exclusive_cpus(pods)
    texts = list(dict.fromkeys(refusal(pods, shape, cpus) for shape in shapes if shape.nodes[0] in refusing))
    if texts:
        finding = Finding(
            "NoZoneHolds",
            place,
            f"the kubelet would end the pod with TopologyAffinityError, because {'; '.join(texts[:_SHOWN])}",
            "Request what one NUMA zone has, or select nodes whose Topology Manager does not require alignment.",
            measure=pods.whole_devices() + sum((cpus or {}).values()),
        )
        yield finding if all(shape.nodes[0] in refusing for shape in shapes) else finding.as_warning()


def _refusing(pods: PodSet, chosen: NodeCandidates) -> frozenset[str]:
    """Return the first nodes of the matching shapes whose kubelets would reject the pod, remembered by its resources."""
    key = ("zones", pods.totals, "resources" in pods.spec)
    nodes: frozenset[str] | None = chosen.memo.get(key)
    if nodes is None:
        cpus = exclusive_cpus(pods)
        nodes = frozenset(shape.nodes[0] for shape in chosen.matching if refusal(pods, shape, cpus))
        remember(chosen.memo, key, nodes)
    return nodes
