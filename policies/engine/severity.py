"""Where what would otherwise be refused is a warning: nodes that are still to come, and the start or stop of what was let in."""

from __future__ import annotations

from collections.abc import Mapping

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.equivalence import semantically_equal
from gpugate.policies.kube.fields import Object, lookup, sequence
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.scheduling.node_selection import are_autoscaled, node_candidates
from gpugate.policies.workloads.kinds import CONTROLLERS
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.workload import Workload


def relax_findings(findings: list[Finding], workload: Workload, snapshot: ClusterSnapshot) -> list[Finding]:
    """``findings``, where those that rest on the nodes of today are warnings if other nodes may come to run the pods.

    All are warnings in the template of a part (a JobSet's Job): what it is a part of was let in, and would wait for it. Its pods
    pass the door themselves.
    """
    if workload.is_template() and workload.is_child():
        return [one.as_warning() for one in findings]
    if not any(one.level is Level.DENY and "nodes" in one.rests_on for one in findings) or not _may_run_elsewhere(
        workload, snapshot
    ):
        return findings
    return [one.as_warning() if "nodes" in one.rests_on else one for one in findings]


def _may_run_elsewhere(workload: Workload, snapshot: ClusterSnapshot) -> bool:
    """Whether the nodes that are known are not all that the pods could ever run on."""
    manager = None if workload.kind.managed_by is None else lookup(workload.root, workload.kind.managed_by)
    if type(manager) is str and manager not in CONTROLLERS:
        return True
    queue = cluster_queue_of(workload, snapshot)
    if queue is not None and queue.checked:
        return True
    return are_autoscaled(shape for pods in workload.gpu_pod_sets() for shape in node_candidates(pods, snapshot).matching)


def is_suspend_toggle(workload: Workload, before: Workload) -> bool:
    """Whether an UPDATE starts or stops what was let in before, and asks for no more than it did then.

    Kueue starts a Job, and takes its gate off a pod, with the labels of the flavor that it chose as node selector, and takes
    these out as it stops it. Were it refused, it would try the same again, and hold the quota meanwhile.
    """
    if queue_label(workload) != queue_label(before) or not _is_let_go(workload, before):
        return False
    old = {pods.path: pods.count or 0 for pods in before.pod_sets}
    return same_requests(workload, before) and all((pods.count or 0) <= old[pods.path] for pods in workload.pod_sets)


def same_requests(workload: Workload, before: Workload) -> bool:
    """Whether all pods of ``workload`` are as ``before`` in all that decides on what they take of a node."""
    old = {pods.path: pods for pods in before.pod_sets}
    return all(pods.path in old and semantically_equal(_asks(pods.spec), _asks(old[pods.path].spec)) for pods in workload.pod_sets)


def _is_let_go(workload: Workload, before: Workload) -> bool:
    new, old = _spec(workload.root), _spec(before.root)
    if workload.is_pod():
        return len(sequence(new, "schedulingGates", ("spec",))) < len(sequence(old, "schedulingGates", ("spec",)))
    switch = workload.kind.suspend
    return switch is not None and (lookup(before.root, switch) is True) != (lookup(workload.root, switch) is True)


def _spec(root: Object) -> Object:
    spec = root.get("spec")
    return spec if type(spec) is dict else {}


def _asks(spec: Mapping[str, object]) -> dict[str, object]:
    return {key: spec.get(key) for key in ("containers", "initContainers", "resources", "overhead", "volumes")}
