"""The cluster snapshot: plain frozen records of Kubernetes objects.

A watch and a file exported with ``kubectl get -o yaml`` give the same snapshot. Amounts are whole numbers: bytes, millicores,
counts.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpugate.policies.cluster.gpu_usage import Usage
from gpugate.policies.cluster.in_flight import InFlight
from gpugate.policies.cluster.kueue_workloads import KueueWorkloads
from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import frozen
from gpugate.policies.cluster.records.devices import ClaimDevices, DeviceClass, RuntimeClass
from gpugate.policies.cluster.records.kueue import (
    ClusterQueue,
    Cohort,
    CohortTree,
    KueueConfiguration,
    LocalQueue,
    PriorityClass,
    ResourceFlavor,
    Topology,
)
from gpugate.policies.cluster.records.namespaces import LimitRange, Namespace, ResourceQuota
from gpugate.policies.cluster.records.pod_groups import GroupKey, PodGroup
from gpugate.policies.cluster.usage import NO_PODS, NO_USAGE, GroupMembers, PodCounts, ShapeUsage
from gpugate.policies.kube.names import NAMESPACE_NAME
from gpugate.policies.workloads.kinds.owners import ServedKinds


class SyncState(enum.Enum):
    """Sync state of the objects of one kind."""

    SYNCED = "synced"
    PENDING = "pending"
    #: The cluster does not serve the kind.
    ABSENT = "absent"
    #: The kind is not watched and no file has any: nothing can be concluded.
    NOT_GIVEN = "not given"


#: A member of an enum is looked up with less work by a name of its own: rules ask many times in a review.
_NOT_GIVEN: Final = SyncState.NOT_GIVEN
_EMPTY: Final[Mapping[Any, Any]] = frozen({})
_NO_NAMES: Final[frozenset[str]] = frozenset()


def _none() -> Mapping[Any, Any]:
    return _EMPTY


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A snapshot of the cluster. It is immutable except for the objects in flight and the Workloads.

    Records are by name, or by namespace and name. Tuples of records by namespace are sorted by name.

    Attributes:
        shapes: the nodes, grouped.
        shape_usage: sums over the pods on each shape's nodes, by the shape's first node.
        groups: groups of pods by namespace and key.
        group_homes: namespaces that have members of a group of this key, sorted.
        pod_counts: pod counters by namespace and :func:`gpugate.policies.cluster.records.pods.owner_group_of`.
        queues: LocalQueues by namespace.
        cohort_tree: the tree of cohorts and ClusterQueues.
        workload_priorities: WorkloadPriorityClasses.
        priorities: PriorityClasses.
        kueue: Kueue's own Configuration; None if unknown.
        known: sync state of each kind, by its resource name as in :data:`gpugate.policies.cluster.kinds.CLUSTER_KINDS`.
        stale: age in whole minutes of the kinds whose watch is broken.
        autoscaled: whether a node shows signs of an autoscaler: it may add nodes, of pools that have none now.
        offered: every extended resource that some accelerator node has.
        usage: GPU utilisation of workloads; None except in an audit with Prometheus.
        served: the kinds that the cluster serves; None if unknown.
        in_flight: objects admitted and not yet visible in the other fields.
        kueue_workloads: the Workloads that have not finished.
        memo: results computed from the shapes, and those of :mod:`gpugate.policies.kube.memo`.
    """

    shapes: tuple[NodeShape, ...] = ()
    shape_usage: Mapping[str, ShapeUsage] = field(default_factory=_none)
    groups: Mapping[str, Mapping[GroupKey, GroupMembers]] = field(default_factory=_none)
    group_homes: Mapping[GroupKey, tuple[str, ...]] = field(default_factory=_none)
    pod_counts: Mapping[str, Mapping[str, PodCounts]] = field(default_factory=_none)
    namespaces: Mapping[str, Namespace] = field(default_factory=_none)
    queues: Mapping[str, tuple[LocalQueue, ...]] = field(default_factory=_none)
    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=_none)
    cohorts: Mapping[str, Cohort] = field(default_factory=_none)
    cohort_tree: CohortTree = field(default_factory=CohortTree, compare=False, repr=False)
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=_none)
    topologies: Mapping[str, Topology] = field(default_factory=_none)
    workload_priorities: Mapping[str, PriorityClass] = field(default_factory=_none)
    priorities: Mapping[str, PriorityClass] = field(default_factory=_none)
    runtime_classes: Mapping[str, RuntimeClass] = field(default_factory=_none)
    limit_ranges: Mapping[str, tuple[LimitRange, ...]] = field(default_factory=_none)
    quotas: Mapping[str, tuple[ResourceQuota, ...]] = field(default_factory=_none)
    pod_groups: Mapping[tuple[str, GroupKey], PodGroup] = field(default_factory=_none)
    device_classes: Mapping[str, DeviceClass] = field(default_factory=_none)
    claims: Mapping[tuple[str, str], ClaimDevices] = field(default_factory=_none)
    claim_templates: Mapping[tuple[str, str], ClaimDevices] = field(default_factory=_none)
    kueue: KueueConfiguration | None = None
    known: Mapping[str, SyncState] = field(default_factory=_none)
    stale: Mapping[str, int] = field(default_factory=_none)
    autoscaled: bool = False
    offered: frozenset[str] = frozenset()
    usage: Usage | None = None
    served: ServedKinds | None = None
    in_flight: InFlight = field(default_factory=InFlight, compare=False, repr=False)
    kueue_workloads: KueueWorkloads = field(default_factory=KueueWorkloads, compare=False, repr=False)
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def sync_state(self, resource: str) -> SyncState:
        """Return the sync state of ``resource`` (a plural name: ``nodes``)."""
        return self.known.get(resource, _NOT_GIVEN)

    @property
    def served_by_claims(self) -> frozenset[str]:
        """Extended resources that a DeviceClass serves (``spec.extendedResourceName``, on by default in Kubernetes 1.36)."""
        if not self.device_classes:
            return _NO_NAMES
        return frozenset(served for record in self.device_classes.values() if (served := record.extended_resource))

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of namespace ``name``; just its name label if it is unknown."""
        namespace = self.namespaces.get(name)
        return namespace.labels if namespace else {NAMESPACE_NAME: name}

    def namespace_says(self, name: str, keys: Iterable[str]) -> str | None:
        """Return the first of ``keys`` that namespace ``name`` has, as label or annotation; None if it has none or is unknown."""
        namespace = self.namespaces.get(name)
        if namespace is None:
            return None
        values = (namespace.labels.get(key) or namespace.annotations.get(key) for key in keys)
        return next(filter(None, values), None)

    def queue(self, namespace: str, name: str) -> LocalQueue | None:
        """Return the LocalQueue of this name; None if unknown."""
        for queue in self.queues.get(namespace, ()):
            if queue.name == name:
                return queue
        return None

    def is_gpu_claim(self, namespace: str, claim: str, template: str) -> bool:
        """Return whether the ResourceClaim or ResourceClaimTemplate of this name requests a GPU or a part of one."""
        return any(self._gpu_claims(namespace, claim, template))

    def may_be_slice(self, namespace: str, claim: str, template: str) -> bool:
        """Return whether the claim may request a part of a GPU."""
        return any(devices.may_be_slice for devices in self._gpu_claims(namespace, claim, template))

    def _gpu_claims(self, namespace: str, claim: str, template: str) -> Iterator[ClaimDevices]:
        """Yield the claim or template that requests a GPU: by NVIDIA's classes, or by another class of NVIDIA's driver."""
        for devices in (self.claims.get((namespace, claim)), self.claim_templates.get((namespace, template))):
            if devices is None:
                continue
            classes = (self.device_classes.get(name) for name in devices.classes)
            if devices.is_gpu or any(device_class is not None and device_class.is_gpu for device_class in classes):
                yield devices

    def usage_of(self, shape: NodeShape) -> ShapeUsage:
        """Return the sums over the pods on the nodes of ``shape``."""
        return self.shape_usage.get(shape.nodes[0], NO_USAGE)

    def group(self, namespace: str, key: GroupKey) -> GroupMembers | None:
        """Return the known members of a group; None if there are none."""
        return self.groups.get(namespace, _EMPTY).get(key)

    def counts_of(self, namespace: str, key: str) -> PodCounts:
        """Return the counters of the pods of owner or group ``key``."""
        counts: PodCounts = self.pod_counts.get(namespace, _EMPTY).get(key, NO_PODS)
        return counts


EMPTY_SNAPSHOT: Final = ClusterSnapshot()
