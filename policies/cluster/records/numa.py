"""NodeResourceTopology (``topology.node.k8s.io/v1alpha2``): resources of each NUMA zone of a node."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import amount_or_none, frozen, name_of
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence


class Zone(NamedTuple):
    """One NUMA zone of a node: allocatable amounts by resource, in bytes, millicores or counts; unhealthy devices count."""

    name: str
    allocatable: Mapping[str, int]


class NodeTopology(NamedTuple):
    """NUMA zones of a node, as its agent reports them.

    Attributes:
        node: the node.
        policy: the kubelet's Topology Manager policy (``single-numa-node``, ``restricted``, ...); empty if unknown.
        scope: its scope, ``container`` or ``pod``; empty if unknown.
        zones: the zones of type ``Node``, sorted by name.
    """

    node: str
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
    old = next((_LEGACY[str(zone)] for zone in sequence(obj, "topologyPolicies", ()) if str(zone) in _LEGACY), ("", ""))
    return NodeTopology(
        name_of(mapping(obj, "metadata", ())),
        attributes.get("topologyManagerPolicy", old[0]),
        attributes.get("topologyManagerScope", old[1]),
        tuple(sorted((_zone_of(zone) for zone in mappings(obj, "zones", ()) if zone.get("type") == "Node"), key=_name)),
    )


def _name(zone: Zone) -> str:
    return zone.name


def _zone_of(zone: Object) -> Zone:
    found: dict[str, int] = {}
    for resource in mappings(zone, "resources", ()):
        name = str(resource.get("name") or "")
        amounts = [amount_or_none(resource.get("allocatable"), name)]
        if "/" in name:
            # An unhealthy device still belongs to the zone.
            amounts.append(amount_or_none(resource.get("capacity"), name))
        known = [amount for amount in amounts if amount is not None]
        if known:
            found[name] = max(known)
    return Zone(str(zone.get("name") or ""), frozen(found))
