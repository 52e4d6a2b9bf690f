"""Findings of the rule `spread`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.rules.placement.spread.fabric import gang_labels
from gpugate.policies.rules.placement.spread.mutate import (
    gang_to_pack,
    has_fabric,
    is_left,
    known_domains,
    serving,
    spread_topologies,
)
from gpugate.policies.rules.placement.spread.params import SpreadParams
from gpugate.policies.rules.placement.spread.replicas import selector_of
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: SpreadParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Say what could not be spread or packed."""
    if workload.is_pod():
        return
    for pods in serving(workload, params):
        wanted = spread_topologies(pods, params, snapshot)
        if wanted and selector_of(workload, pods) is None:
            yield _without_selector(pods)
            continue
        for topology, obstacle in wanted:
            if obstacle:
                yield Finding(
                    "NotSpread",
                    pods.field("topologySpreadConstraints"),
                    f"the replicas are not spread over {topology.key}: {obstacle}",
                    f"Label the nodes with {topology.key}, or leave it out of the policy."
                    if not known_domains(topology.key, pods, snapshot)
                    else "Add nodes, or let the policy prefer it.",
                )
    gang = gang_to_pack(workload, params)
    for part in gang.parts if gang is not None else ():
        yield from _check_packing(workload, part, params.fabric_key or "", snapshot)


def _without_selector(pods: PodSet) -> Finding:
    return Finding(
        "SelectorMissing",
        (*pods.path[:-1], "selector"),
        "the workload has no selector, so that nothing tells its pods from others",
        "Write spec.selector, as the API asks for it.",
    )


def _check_packing(workload: Workload, part: PodSet, key: str, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    if is_left(workload, part, key, snapshot):
        return
    if gang_labels(workload, part) is None:
        yield Finding(
            "NotPacked",
            part.field("affinity"),
            f"the gang is not kept within one {key}: its pods get no label of their own that is known beforehand",
            f"Write podAffinity over {key} with a label of the pods, or leave it to the queue's topology.",
        )
    elif not has_fabric(key, part, snapshot):
        yield Finding(
            "FabricUnknown",
            part.field("affinity"),
            f"the gang is not kept within one {key}: no node that it may land on carries that label",
            f"Have the nodes labelled with {key}, or name in the policy a label that they carry.",
        )
