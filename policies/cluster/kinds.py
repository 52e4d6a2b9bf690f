"""The kinds that a snapshot is built from, each with its reader and its field of the snapshot."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from gpugate.policies.cluster.nodes import node_of, node_topology_of
from gpugate.policies.cluster.records.common import frozen
from gpugate.policies.cluster.records.devices import claim_of, device_class_of, runtime_class_of
from gpugate.policies.cluster.records.kueue import (
    cluster_queue_of,
    cohort_of,
    flavor_of,
    kueue_configuration_of,
    kueue_workload_of,
    local_queue_of,
    priority_class_of,
    topology_of,
)
from gpugate.policies.cluster.records.namespaces import limit_range_of, namespace_of, resource_quota_of
from gpugate.policies.cluster.records.pod_groups import pod_group_of
from gpugate.policies.cluster.records.pods import pod_record_of
from gpugate.policies.kube.fields import Object

Key: TypeAlias = tuple[str, str]
"""Namespace (empty for none) and name."""
Records: TypeAlias = Mapping[Key, Any]
"""Records of the objects of one kind."""


def _by_name(records: Records) -> Mapping[str, Any]:
    return frozen({name: record for (_, name), record in records.items()})


def _by_namespace(records: Records) -> Mapping[str, tuple[Any, ...]]:
    groups: dict[str, list[Any]] = {}
    for (namespace, _), record in records.items():
        groups.setdefault(namespace, []).append(record)
    return frozen({namespace: tuple(sorted(group, key=attrgetter("name"))) for namespace, group in groups.items()})


def _first(records: Records) -> Any:  # noqa: ANN401 - a record
    return records[min(records)] if records else None


class ClusterKind(NamedTuple):
    """A kind that a snapshot is built from.

    Attributes:
        resource: its plural name, with its group where other groups have the same one; rules name it so in ``needs``.
        group: its API group; empty for the core group.
        read: returns the record of an object; None if no rule could use it.
        field: its field of the snapshot; empty for a kind whose records are summed up or joined.
        view: returns the value of that field.
    """

    resource: str
    group: str
    kind: str
    read: Callable[[Object], Any]
    field: str = ""
    view: Callable[[Records], Any] = frozen


_KUEUE: Final = "kueue.x-k8s.io"
_DRA: Final = "resource.k8s.io"
CONFIGURATION: Final = ClusterKind("configurations", f"config.{_KUEUE}", "Configuration", kueue_configuration_of, "kueue", _first)

CLUSTER_KINDS: Final[tuple[ClusterKind, ...]] = (
    ClusterKind("nodes", "", "Node", node_of),
    ClusterKind("pods", "", "Pod", pod_record_of),
    ClusterKind("namespaces", "", "Namespace", namespace_of, "namespaces", _by_name),
    ClusterKind("limitranges", "", "LimitRange", limit_range_of, "limit_ranges", _by_namespace),
    ClusterKind("resourcequotas", "", "ResourceQuota", resource_quota_of, "quotas", _by_namespace),
    ClusterKind("priorityclasses", "scheduling.k8s.io", "PriorityClass", priority_class_of, "priorities", _by_name),
    ClusterKind("runtimeclasses", "node.k8s.io", "RuntimeClass", runtime_class_of, "runtime_classes", _by_name),
    ClusterKind("localqueues", _KUEUE, "LocalQueue", local_queue_of, "queues", _by_namespace),
    ClusterKind("clusterqueues", _KUEUE, "ClusterQueue", cluster_queue_of, "cluster_queues", _by_name),
    ClusterKind("cohorts", _KUEUE, "Cohort", cohort_of, "cohorts", _by_name),
    ClusterKind("resourceflavors", _KUEUE, "ResourceFlavor", flavor_of, "flavors", _by_name),
    ClusterKind("topologies", _KUEUE, "Topology", topology_of, "topologies", _by_name),
    ClusterKind("workloadpriorityclasses", _KUEUE, "WorkloadPriorityClass", priority_class_of, "workload_priorities", _by_name),
    ClusterKind("workloads", _KUEUE, "Workload", kueue_workload_of),
    CONFIGURATION,
    ClusterKind("podgroups.scheduling.x-k8s.io", "scheduling.x-k8s.io", "PodGroup", pod_group_of),
    ClusterKind("podgroups.scheduling.volcano.sh", "scheduling.volcano.sh", "PodGroup", pod_group_of),
    ClusterKind("podgroups.scheduling.k8s.io", "scheduling.k8s.io", "PodGroup", pod_group_of),
    ClusterKind("noderesourcetopologies", "topology.node.k8s.io", "NodeResourceTopology", node_topology_of),
    ClusterKind("deviceclasses", _DRA, "DeviceClass", device_class_of, "device_classes", _by_name),
    ClusterKind("resourceclaims", _DRA, "ResourceClaim", claim_of, "claims"),
    ClusterKind("resourceclaimtemplates", _DRA, "ResourceClaimTemplate", claim_of, "claim_templates"),
)
BY_RESOURCE: Final = {kind.resource: kind for kind in CLUSTER_KINDS}
_BY_KIND: Final = {kind.kind: kind for kind in reversed(CLUSTER_KINDS)}
_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in CLUSTER_KINDS}


def fact_kind_of(obj: Object) -> ClusterKind | None:
    """Return the entry for an object's group and kind, in any version; None for a kind that no snapshot holds."""
    kind, version = str(obj.get("kind")), obj.get("apiVersion")
    if not version:
        # Some tools write the items of a list without it.
        return _BY_KIND.get(kind)
    return _BY_NAME.get((str(version).rpartition("/")[0], kind))
