"""The kinds that a snapshot is built from, each with its reader."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.nodes import node_of
from gpugate.policies.cluster.records.devices import claim_of, device_class_of, runtime_class_of
from gpugate.policies.cluster.records.kueue import (
    cluster_queue_of,
    cohort_of,
    flavor_of,
    kueue_workload_of,
    local_queue_of,
    priority_class_of,
    topology_of,
)
from gpugate.policies.cluster.records.kueue_config import kueue_configuration_of
from gpugate.policies.cluster.records.namespaces import limit_range_of, namespace_of, resource_quota_of
from gpugate.policies.cluster.records.numa import node_topology_of
from gpugate.policies.cluster.records.pod_groups import pod_group_of
from gpugate.policies.cluster.records.pods import pod_record_of
from gpugate.policies.kube.fields import Object


class ClusterKind(NamedTuple):
    """One kind.

    Attributes:
        resource: its plural name, with its group where other groups have the same one; rules name it so in ``needs``.
        group: its API group; empty for the core group.
        kind: its ``kind`` in manifests.
        read: returns the record of an object; None if no rule could use it.
    """

    resource: str
    group: str
    kind: str
    read: Callable[[Object], Any]


_KUEUE: Final = "kueue.x-k8s.io"
_DRA: Final = "resource.k8s.io"
CONFIGURATION: Final = ClusterKind("configurations", "config.kueue.x-k8s.io", "Configuration", kueue_configuration_of)

CLUSTER_KINDS: Final[tuple[ClusterKind, ...]] = (
    ClusterKind("nodes", "", "Node", node_of),
    ClusterKind("pods", "", "Pod", pod_record_of),
    ClusterKind("namespaces", "", "Namespace", namespace_of),
    ClusterKind("limitranges", "", "LimitRange", limit_range_of),
    ClusterKind("resourcequotas", "", "ResourceQuota", resource_quota_of),
    ClusterKind("priorityclasses", "scheduling.k8s.io", "PriorityClass", priority_class_of),
    ClusterKind("runtimeclasses", "node.k8s.io", "RuntimeClass", runtime_class_of),
    ClusterKind("localqueues", _KUEUE, "LocalQueue", local_queue_of),
    ClusterKind("clusterqueues", _KUEUE, "ClusterQueue", cluster_queue_of),
    ClusterKind("cohorts", _KUEUE, "Cohort", cohort_of),
    ClusterKind("resourceflavors", _KUEUE, "ResourceFlavor", flavor_of),
    ClusterKind("topologies", _KUEUE, "Topology", topology_of),
    ClusterKind("workloadpriorityclasses", _KUEUE, "WorkloadPriorityClass", priority_class_of),
    ClusterKind("workloads", _KUEUE, "Workload", kueue_workload_of),
    CONFIGURATION,
    ClusterKind("podgroups.scheduling.x-k8s.io", "scheduling.x-k8s.io", "PodGroup", pod_group_of),
    ClusterKind("podgroups.scheduling.volcano.sh", "scheduling.volcano.sh", "PodGroup", pod_group_of),
    ClusterKind("podgroups.scheduling.k8s.io", "scheduling.k8s.io", "PodGroup", pod_group_of),
    ClusterKind("noderesourcetopologies", "topology.node.k8s.io", "NodeResourceTopology", node_topology_of),
    ClusterKind("deviceclasses", _DRA, "DeviceClass", device_class_of),
    ClusterKind("resourceclaims", _DRA, "ResourceClaim", claim_of),
    ClusterKind("resourceclaimtemplates", _DRA, "ResourceClaimTemplate", claim_of),
)
BY_RESOURCE: Final = {one.resource: one for one in CLUSTER_KINDS}
_BY_KIND: Final = {one.kind: one for one in reversed(CLUSTER_KINDS)}
_BY_NAME: Final = {(one.group, one.kind): one for one in CLUSTER_KINDS}


def fact_kind_of(obj: Object) -> ClusterKind | None:
    """Return the entry for an object's group and kind, in any version; None for a kind that no snapshot holds."""
    kind, version = str(obj.get("kind")), obj.get("apiVersion")
    if not version:
        # Some tools write the items of a list without it.
        return _BY_KIND.get(kind)
    return _BY_NAME.get((str(version).rpartition("/")[0], kind))
