"""Keeping the pods of a gang close together: whose pods they are, and who sees to it already."""

from collections.abc import Mapping
from typing import Any, Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.cel import LONGEST_LABEL
from gpugate.policies.kube.fields import lookup, mapping
from gpugate.policies.kube.names import REQUIRED_TOPOLOGY, SLICE_TOPOLOGY
from gpugate.policies.queueing.cluster_queue import cluster_queue_of
from gpugate.policies.workloads.kinds import EXCLUSIVE_TOPOLOGY
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Annotations by which somebody else is asked to place the pods: Kueue, KAI, JobSet and LeaderWorkerSet.
_PLACED_BY: Final = (
    REQUIRED_TOPOLOGY,
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    SLICE_TOPOLOGY,
    "kai.scheduler/topology",
    *EXCLUSIVE_TOPOLOGY,
)


def gang_labels(workload: Workload, pods: PodSet) -> Mapping[str, str] | None:
    """Labels that the pods of one run of the job have, and no others; None where the template does not decide that.

    A CronJob's Jobs and a RayJob's cluster have names that nobody knows beforehand.
    """
    key = pods.kind.pod_label
    name = lookup(workload.root, (*workload.owner_path(pods), "metadata", "name"))
    return {key: name} if key and type(name) is str and 0 < len(name) <= LONGEST_LABEL else None


def is_placed_by_others(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> bool:
    """Whether somebody else decides how close together the pods run."""
    base = workload.owner_path(pods)
    holders: list[Any] = [pods.annotations(), lookup(workload.root, (*base, "metadata", "annotations"))]
    if pods.kind.has_child_jobs:
        holders.append(lookup(workload.root, (*pods.path[:-2], "metadata", "annotations")))
    if any(type(held) is dict and not held.keys().isdisjoint(_PLACED_BY) for held in holders):
        return True
    if pods.kind.topology is not None and lookup(workload.root, (*base, *pods.kind.topology)) is not None:
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
