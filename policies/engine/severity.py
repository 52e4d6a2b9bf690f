"""Downgrade denials where more nodes may still come, and in templates whose owner was reviewed."""

from __future__ import annotations

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import lookup
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.scheduling.node_selection import are_autoscaled, node_candidates
from gpugate.policies.workloads.kinds import CONTROLLERS
from gpugate.policies.workloads.workload import Workload


def relax_findings(findings: list[Finding], workload: Workload, snapshot: ClusterSnapshot) -> list[Finding]:
    """Return ``findings``; those that rest on today's nodes are warnings if the pods may run on other nodes.

    All are warnings in the template of a child (a JobSet's Job): its owner was admitted and would wait for it, and its pods are
    reviewed themselves.
    """
    if workload.is_template() and workload.is_child():
        return [finding.as_warning() for finding in findings]
    denied = any(finding.level is Level.DENY and "nodes" in finding.rests_on for finding in findings)
    if not denied or not _may_run_elsewhere(workload, snapshot):
        return findings
    return [finding.as_warning() if "nodes" in finding.rests_on else finding for finding in findings]


def _may_run_elsewhere(workload: Workload, snapshot: ClusterSnapshot) -> bool:
    """Tell whether the pods may run on nodes that are not known: of another cluster, or made by an autoscaler."""
    manager = None if workload.kind.managed_by is None else lookup(workload.root, workload.kind.managed_by)
    if type(manager) is str and manager not in CONTROLLERS:
        return True
    queue = cluster_queue_of(workload, snapshot)
    if queue is not None and queue.checked:
        return True
    return are_autoscaled(shape for pods in workload.gpu_pod_sets() for shape in node_candidates(pods, snapshot).matching)
