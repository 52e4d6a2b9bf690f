"""Keeping the pods of a gang close together: whose pods they are, and who sees to it already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.cel import LONGEST_LABEL
from gpugate.policies.kube.fields import Path, lookup, mapping
from gpugate.policies.kube.names import REQUIRED_TOPOLOGY, SLICE_TOPOLOGY
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.workloads.kinds import JOB, JOB_SET, VOLCANO_JOB
from gpugate.policies.workloads.workload import PodSet, Workload

#: The label that each controller puts on all pods of one job, with the job's name (JobSet v0.10, Volcano v1.10).
_NAMED_BY: Final = {
    JOB: "batch.kubernetes.io/job-name",
    JOB_SET: "jobset.sigs.k8s.io/jobset-name",
    VOLCANO_JOB: "volcano.sh/job-name",
}
#: The same of Kubeflow's operators (training operator v1.9, MPI operator v0.7).
_KUBEFLOW_LABEL: Final = "training.kubeflow.org/job-name"
#: Annotations by which somebody else is asked to place the pods: Kueue, KAI, JobSet and LeaderWorkerSet.
_PLACED_BY: Final = (
    REQUIRED_TOPOLOGY,
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    SLICE_TOPOLOGY,
    "kai.scheduler/topology",
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
)


def gang_labels(workload: Workload, pods: PodSet) -> Mapping[str, str] | None:
    """Labels that the pods of one run of the job have, and no others; None where the template does not decide that.

    A CronJob's Jobs and a RayJob's cluster have names that nobody knows beforehand.
    """
    key = _NAMED_BY.get(pods.kind) or (_KUBEFLOW_LABEL if pods.kind.group == "kubeflow.org" else None)
    name = lookup(workload.root, (*_base(workload, pods), "metadata", "name"))
    return {key: name} if key and type(name) is str and 0 < len(name) <= LONGEST_LABEL else None


def _base(workload: Workload, pods: PodSet) -> Path:
    """Where the object that makes the pods is: the workload itself, or what an AppWrapper wraps."""
    wraps = workload.kind.wraps
    return () if wraps is None else pods.path[: len(wraps) + 2]


def is_placed_by_others(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Whether somebody else decides how close together the pods run."""
    base = _base(workload, pods)
    holders: list[Any] = [pods.annotations(), lookup(workload.root, (*base, "metadata", "annotations"))]
    if pods.kind is JOB_SET:
        holders.append(lookup(workload.root, (*pods.path[:-2], "metadata", "annotations")))
    if any(type(held) is dict and not held.keys().isdisjoint(_PLACED_BY) for held in holders):
        return True
    if pods.kind is VOLCANO_JOB and lookup(workload.root, (*base, "spec", "networkTopology")) is not None:
        return True
    return _queue_knows_topology(workload, snapshot)


def _queue_knows_topology(workload: Workload, snapshot: ClusterSnapshot) -> bool:
    """Whether a flavor of the workload's queue has a Topology: Kueue then names the node of every pod, annotated or not."""
    queue = cluster_queue_of(workload, snapshot)
    flavors = () if queue is None else (snapshot.flavors.get(name) for group in queue.groups for name, _ in group.flavors)
    return any(flavor is not None and bool(flavor.topology) for flavor in flavors)


def states_affinity(pods: PodSet) -> bool:
    """Whether the pods state themselves which other pods they want, or do not want, beside them."""
    affinity = mapping(pods.spec, "affinity", pods.field())
    return bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))
