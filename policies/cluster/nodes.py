"""Node records, and shapes of equal nodes, so that a check costs the number of shapes.

Amounts are whole numbers: bytes, millicores, counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpugate.policies.cluster.records.common import Taint, amount, amount_or_none, frozen, labels_of, taints_in
from gpugate.policies.cluster.records.numa import NodeTopology
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.fields import Object, mapping, string
from gpugate.policies.kube.quantity import NO_AMOUNTS, millicores, whole


class Node(NamedTuple):
    """A node, reduced to what decisions read.

    Attributes:
        name: its name.
        labels: its labels.
        taints: its taints, those of ``spec``.
        memory: allocatable memory in bytes.
        cpu: allocatable CPU in millicores.
        devices: extended resources with a count above zero.
        topology: its NUMA zones; None if unknown.
        extra: allocatable ephemeral storage and huge pages in bytes, as far as stated.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    memory: int
    cpu: int
    devices: Mapping[str, int]
    topology: NodeTopology | None = None
    extra: Mapping[str, int] = NO_AMOUNTS

    @property
    def has_accelerators(self) -> bool:
        """True if a device plugin offers an accelerator on it."""
        return any(is_accelerator(name) for name in self.devices)


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
        name: max(amount(allocatable.get(name), whole), amount(capacity.get(name), whole))
        for name in {*allocatable, *capacity}
        if "/" in name
    }
    return Node(
        name=string(metadata, "name", ("metadata",)) or "",
        labels=labels_of(metadata),
        taints=taints_in(mapping(obj, "spec", ()), "taints", ("spec",)),
        memory=max(0, amount(allocatable.get("memory"), whole)),
        cpu=max(0, amount(allocatable.get("cpu"), millicores)),
        devices=frozen({name: count for name, count in sorted(devices.items()) if count > 0}),
        extra=_extra(allocatable),
    )


def _extra(allocatable: Object) -> Mapping[str, int]:
    amounts: dict[str, int] = {}
    for name in sorted(allocatable):
        if name == "ephemeral-storage" or name.startswith("hugepages-"):
            size = amount_or_none(allocatable[name], name)
            # A kubelet reports zero before it has read its disk.
            if size is not None and (size > 0 or name != "ephemeral-storage"):
                amounts[name] = max(0, size)
    return frozen(amounts) if amounts else NO_AMOUNTS


def _none() -> Mapping[str, int]:
    return NO_AMOUNTS


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Nodes that are equal for every decision.

    Attributes:
        nodes: their names, sorted.
        labels: label key to the values found, with None if some node lacks the key.
        taints: the taints of all of them.
        devices: allocatable extended resources per node.
        memory: allocatable memory in bytes of the largest node.
        least_memory: the same of the smallest node.
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
    extra: Mapping[str, int] = field(default_factory=_none)
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
