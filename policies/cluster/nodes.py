"""Node records with NUMA zones, and shapes of equal nodes, so that a check costs the number of shapes.

Amounts are whole numbers: bytes, millicores, counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import Taint, amount_of, frozen, labels_of, name_of, taints_in
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence
from gpugate.policies.kube.quantity import NO_AMOUNTS


class Zone(NamedTuple):
    """One NUMA zone of a node: allocatable amounts by resource, in bytes, millicores or counts; unhealthy devices count."""

    name: str
    allocatable: Mapping[str, int]


class NodeTopology(NamedTuple):
    """NUMA zones of a node, as its agent reports them (NodeResourceTopology, ``topology.node.k8s.io/v1alpha2``).

    Attributes:
        policy: the kubelet's Topology Manager policy (``single-numa-node``, ``restricted``, ...); empty if unknown.
        scope: its scope, ``container`` or ``pod``; empty if unknown.
        zones: the zones of type ``Node``, sorted by name.
    """

    policy: str
    scope: str
    zones: tuple[Zone, ...]


#: ``topologyPolicies`` of v1alpha1 objects, deprecated: policy and scope in one word.
_LEGACY: Final = {
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "Restricted": ("restricted", ""),
    "RestrictedContainerLevel": ("restricted", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "BestEffort": ("best-effort", ""),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
    "None": ("none", ""),
}


def node_topology_of(obj: Object) -> NodeTopology:
    """Return the record of a NodeResourceTopology, which has the name of its node."""
    attributes = {str(zone.get("name")): str(zone.get("value")) for zone in mappings(obj, "attributes", ())}
    zones = (zone for zone in mappings(obj, "zones", ()) if zone.get("type") == "Node")
    legacy = next((_LEGACY[str(policy)] for policy in sequence(obj, "topologyPolicies", ()) if str(policy) in _LEGACY), ("", ""))
    return NodeTopology(
        attributes.get("topologyManagerPolicy", legacy[0]),
        attributes.get("topologyManagerScope", legacy[1]),
        tuple(sorted(map(_zone_of, zones), key=attrgetter("name"))),
    )


def _zone_of(zone: Object) -> Zone:
    amounts: dict[str, int] = {}
    for resource in mappings(zone, "resources", ()):
        name = str(resource.get("name") or "")
        # An unhealthy device still belongs to the zone.
        keys = ("allocatable", "capacity") if "/" in name else ("allocatable",)
        known = [amount for key in keys if (amount := amount_of(resource.get(key), name)) is not None]
        if known:
            amounts[name] = max(known)
    return Zone(str(zone.get("name") or ""), frozen(amounts))


#: Labels of nodes that an autoscaler creates for pending pods (Karpenter; GKE's flex-start and queued provisioning).
_AUTOSCALED: Final = frozenset(
    {
        *("karpenter.sh/nodepool", "karpenter.sh/provisioner-name"),
        *("cloud.google.com/gke-flex-start", "cloud.google.com/gke-queued"),
    }
)
#: A part of the taints of the Cluster Autoscaler (``ToBeDeletedByClusterAutoscaler``, ``DeletionCandidateOfClusterAutoscaler``).
_CLUSTER_AUTOSCALER: Final = "ClusterAutoscaler"
#: Prefixes of the annotations by which both autoscalers, or their users, mark nodes (``scale-down-disabled``).
_AUTOSCALER_ANNOTATIONS: Final = ("cluster-autoscaler.kubernetes.io/", "karpenter.sh/")


class Node(NamedTuple):
    """A node, reduced to what decisions read.

    Attributes:
        memory: allocatable memory in bytes.
        cpu: allocatable CPU in millicores.
        devices: extended resources with a count above zero.
        topology: its NUMA zones; None if unknown.
        extra: allocatable ephemeral storage and huge pages in bytes, as far as stated.
        autoscaled: whether it shows signs of an autoscaler.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    memory: int
    cpu: int
    devices: Mapping[str, int]
    topology: NodeTopology | None = None
    extra: Mapping[str, int] = NO_AMOUNTS
    autoscaled: bool = False

    @property
    def has_accelerators(self) -> bool:
        """True if a device plugin offers an accelerator on it."""
        return any(map(is_accelerator, self.devices))


def node_of(obj: Object) -> Node:
    """Return the record of a Node object; an invalid or negative amount counts as zero.

    Raises:
        MalformedError: a field is of the wrong type.
    """
    metadata = mapping(obj, "metadata", ())
    status = mapping(obj, "status", ())
    capacity = mapping(status, "capacity", ("status",))
    allocatable = mapping(status, "allocatable", ("status",)) or capacity
    # Allocatable excludes unhealthy devices, and all devices while the device plugin restarts. The node still has them, so
    # capacity counts for what it could ever hold.
    devices = {
        name: max(amount_of(amounts.get(name), name) or 0 for amounts in (allocatable, capacity))
        for name in sorted({*allocatable, *capacity})
        if "/" in name
    }
    labels, taints = labels_of(metadata), taints_in(mapping(obj, "spec", ()), "taints", ("spec",))
    return Node(
        name=name_of(metadata),
        labels=labels,
        taints=taints,
        memory=max(0, amount_of(allocatable.get("memory"), "memory") or 0),
        cpu=max(0, amount_of(allocatable.get("cpu"), "cpu") or 0),
        devices=frozen({name: count for name, count in devices.items() if count > 0}),
        extra=_extra(allocatable),
        autoscaled=(
            not _AUTOSCALED.isdisjoint(labels)
            or any(_CLUSTER_AUTOSCALER in taint.key for taint in taints)
            or any(str(key).startswith(_AUTOSCALER_ANNOTATIONS) for key in mapping(metadata, "annotations", ("metadata",)))
        ),
    )


def _extra(allocatable: Object) -> Mapping[str, int]:
    amounts: dict[str, int] = {}
    for name in sorted(allocatable):
        if name == "ephemeral-storage" or name.startswith("hugepages-"):
            size = amount_of(allocatable[name], name)
            # A kubelet reports zero before it has read its disk.
            if size is not None and (size > 0 or name != "ephemeral-storage"):
                amounts[name] = max(0, size)
    return frozen(amounts) if amounts else NO_AMOUNTS


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Nodes that are equal for every decision.

    Attributes:
        nodes: their names, sorted.
        labels: label key to its values, with None if some node lacks the key.
        devices: allocatable extended resources per node.
        memory: allocatable memory in bytes of the largest node.
        least_memory: allocatable memory in bytes of the smallest node.
        cpu: allocatable CPU in millicores.
        total_memory: allocatable memory of all its nodes together in bytes.
        topology: NUMA zones, equal on all nodes; None if unknown.
        extra: allocatable ephemeral storage and huge pages in bytes of the largest node, if every node states them.
        counts: label key to value to number of nodes, for keys with a value on several nodes.
    """

    nodes: tuple[str, ...]
    labels: Mapping[str, frozenset[str | None]]
    taints: tuple[Taint, ...]
    devices: Mapping[str, int]
    memory: int
    least_memory: int
    cpu: int
    total_memory: int = 0
    topology: NodeTopology | None = None
    extra: Mapping[str, int] = field(default_factory=lambda: NO_AMOUNTS)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def carriers(self, key: str) -> Mapping[str, int]:
        """Return the number of nodes by value of label ``key``."""
        counts = self.counts.get(key)
        if counts is None:
            # Names and serial numbers: one node per value, which the set of values already shows.
            return {value: 1 for value in self.labels.get(key, ()) if value is not None}
        return counts

    @property
    def accelerators(self) -> int:
        """Accelerators of all names on one node."""
        return sum(count for name, count in self.devices.items() if is_accelerator(name))

    @property
    def title(self) -> str:
        """Name in messages: its GPU product, else its instance type, else its first node."""
        for key in ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type"):
            values = sorted(value for value in self.labels.get(key, ()) if value)
            if values:
                return values[0]
        return self.nodes[0]
