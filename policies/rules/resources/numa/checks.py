"""Findings of the rule `numa`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding
from gpugate.policies.rules.resources.numa.guaranteed_qos import check_guaranteed, not_raised, raised
from gpugate.policies.rules.resources.numa.mutate import plan_for
from gpugate.policies.rules.resources.numa.params import NumaParams
from gpugate.policies.rules.resources.numa.zones import check_zones
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: NumaParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Warn about what keeps the pods from being aligned."""
    for pods in workload.gpu_pod_sets():
        chosen = node_candidates(pods, snapshot)
        if chosen.matching:
            yield from check_zones(workload, pods, chosen, snapshot)
        if chosen.shared_only or not pods.whole_devices():
            continue
        if pods.spec.get("resources") or not pods.totals.is_guaranteed:
            targets = raised(pods, chosen.large_enough, params, plan_for(chosen, params, snapshot).raises)
            # What can be raised has nothing wrong with itself: only a bound may keep it as it is.
            if targets:
                yield from not_raised(workload, pods, targets, chosen.large_enough, snapshot)
            else:
                yield from check_guaranteed(pods, chosen.large_enough, params)
