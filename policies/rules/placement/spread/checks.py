"""Findings of the rule `spread`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.rules.placement.spread.mutate import (
    SpreadParams,
    gang_labels,
    gang_to_pack,
    has_fabric,
    is_placed,
    known_domains,
    missing_topologies,
    replicated_pod_sets,
    selector_of,
)
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: SpreadParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield findings for replicas that are not spread and gangs that are not packed."""
    if workload.is_pod():
        return
    for pods in replicated_pod_sets(workload, params):
        topologies = missing_topologies(pods, params, snapshot)
        if topologies and selector_of(workload, pods) is None:
            yield Finding(
                "SelectorMissing",
                (*pods.path[:-1], "selector"),
                "the workload has no selector, so its pods cannot be told apart from other pods",
                "Write spec.selector, which the API requires.",
            )
            continue
        for topology, obstacle in topologies:
            if obstacle:
                yield Finding(
                    "NotSpread",
                    pods.field("topologySpreadConstraints"),
                    f"the replicas are not spread over {topology.key}: {obstacle}",
                    "Add nodes, or set whenUnsatisfiable: ScheduleAnyway in the policy."
                    if known_domains(topology.key, pods, snapshot)
                    else f"Label the nodes with {topology.key}, or remove it from the policy.",
                )
    key = params.fabric_key or ""
    for pods in gang_to_pack(workload, params):
        if is_placed(workload, pods, key, snapshot):
            continue
        if gang_labels(workload, pods) is None:
            yield Finding(
                "NotPacked",
                pods.field("affinity"),
                f"gpugate does not pack the gang into one {key}, because no label selects only its pods before they are created",
                f"Write podAffinity over {key} with a label of the pods, or use the topology of the queue.",
            )
        elif not has_fabric(key, pods, snapshot):
            yield Finding(
                "FabricUnknown",
                pods.field("affinity"),
                f"the gang is not kept within one {key}: no node that it may run on has that label",
                f"Label the nodes with {key}, or set fabricKey in the policy to a label that they have.",
            )
