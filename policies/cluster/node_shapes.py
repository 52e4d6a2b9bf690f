"""Group nodes into shapes as nodes come, change and go: a change costs its own group, not all nodes."""

from collections.abc import Mapping
from typing import Any, Final

from gpugate.policies.cluster.nodes import Node, NodeShape
from gpugate.policies.cluster.records.common import CAPACITY, frozen
from gpugate.policies.cluster.records.numa import NodeTopology
from gpugate.policies.kube.quantity import NO_AMOUNTS

#: Labels that split shapes: a scheduler distinguishes nodes by them. Other labels are kept as the set of their values and
#: do not split a shape: names and serial numbers would make one shape per node.
_SPLITTING_PREFIXES: Final = (
    "nvidia.com/gpu.",
    "nvidia.com/mig",
    "amd.com/gpu.",
    "gpugate.io/",
    "feature.node.kubernetes.io/memory-numa",
)
_SPLITTING: Final = frozenset(
    {
        *("node.kubernetes.io/instance-type", "kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/zone"),
        "accelerator",
        *CAPACITY,
    }
)
#: Bytes by which allocatable memory may differ within a shape: firmware and kernel reserve different amounts.
_MEMORY_GRAIN: Final = 1 << 30


class _Group:
    """Nodes of one shape, with counts of each label's values."""

    __slots__ = ("key", "nodes", "shape", "values")

    def __init__(self, key: Any) -> None:  # noqa: ANN401 - any hashable
        self.key = key
        self.nodes: dict[str, Node] = {}
        self.values: dict[str, dict[str, int]] = {}
        self.shape: NodeShape | None = None

    def add(self, node: Node) -> None:
        self.nodes[node.name] = node
        for key, value in node.labels.items():
            counts = self.values.setdefault(key, {})
            counts[value] = counts.get(value, 0) + 1
        self.shape = None

    def remove(self, node: Node) -> None:
        del self.nodes[node.name]
        for key, value in node.labels.items():
            counts = self.values[key]
            counts[value] -= 1
            if not counts[value]:
                del counts[value]
                if not counts:
                    del self.values[key]
        self.shape = None

    def built(self) -> NodeShape:
        if self.shape is None:
            self.shape = self._build()
        return self.shape

    def _build(self) -> NodeShape:
        nodes = self.nodes
        first = nodes[min(nodes)]
        memory = [node.memory for node in nodes.values()]
        return NodeShape(
            nodes=tuple(sorted(nodes)),
            labels=frozen({key: _found(counts, len(nodes)) for key, counts in sorted(self.values.items())}),
            taints=first.taints,
            devices=first.devices,
            memory=max(memory),
            least_memory=min(memory),
            cpu=first.cpu,
            total_memory=sum(memory),
            topology=first.topology,
            extra=_most_of([node.extra for node in nodes.values()]),
            counts=frozen({key: frozen(counts) for key, counts in sorted(self.values.items()) if _repeats(counts)}),
        )


def _most_of(amounts: list[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the maximum of each amount that every node states."""
    names = set(amounts[0]).intersection(*amounts)
    return frozen({name: max(stated[name] for stated in amounts) for name in sorted(names)}) if names else NO_AMOUNTS


def _repeats(counts: Mapping[str, int]) -> bool:
    """Return whether several nodes carry the same value."""
    return any(count > 1 for count in counts.values())


def _found(counts: Mapping[str, int], nodes: int) -> frozenset[str | None]:
    """Return the values of a label, with None if some node lacks it."""
    values: frozenset[str | None] = frozenset(counts)
    return values if sum(counts.values()) == nodes else values | {None}


class NodeShapeIndex:
    """The shapes of the nodes that have accelerators."""

    __slots__ = ("_groups", "_places", "_shapes", "_topologies")

    def __init__(self) -> None:
        #: Group (None without accelerators) and record of each node.
        self._places: dict[str, tuple[_Group | None, Node]] = {}
        self._groups: dict[Any, _Group] = {}
        self._topologies: dict[str, NodeTopology] = {}
        self._shapes: tuple[NodeShape, ...] | None = ()

    def put(self, name: str, node: Node | None) -> None:
        """Set the node ``name``, or remove it (None)."""
        before = self._places.pop(name, None)
        if before is not None and before[0] is not None:
            self._leave(before[0], before[1])
        if node is None:
            return
        found = self._topologies.get(name)
        joined = node if found is None else node._replace(topology=found)
        # Nodes without accelerators are kept: a device plugin may start on them later.
        group = self._group_of(joined) if joined.has_accelerators else None
        self._places[name] = (group, joined)
        if group is not None:
            group.add(joined)
            self._shapes = None

    def _group_of(self, node: Node) -> _Group:
        key = _shape_key(node)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(key)
        return group

    def put_topology(self, name: str, topology: NodeTopology | None) -> None:
        """Set the NUMA zones of the node ``name``, or remove them (None)."""
        if topology is None:
            self._topologies.pop(name, None)
        else:
            self._topologies[name] = topology
        before = self._places.get(name)
        if before is not None:
            self.put(name, before[1]._replace(topology=None))

    def _leave(self, group: _Group, node: Node) -> None:
        group.remove(node)
        if not group.nodes:
            del self._groups[group.key]
        self._shapes = None

    def shapes(self) -> tuple[NodeShape, ...]:
        """Return the shapes, largest group first, then by name; the identical tuple until a node changes."""
        if self._shapes is None:
            built = [group.built() for group in self._groups.values()]
            self._shapes = tuple(sorted(built, key=lambda shape: (-len(shape.nodes), shape.nodes[0])))
        return self._shapes


def _shape_key(node: Node) -> Any:  # noqa: ANN401 - any hashable
    labels = tuple(
        sorted((key, value) for key, value in node.labels.items() if key in _SPLITTING or key.startswith(_SPLITTING_PREFIXES))
    )
    topology = node.topology
    zones = topology and (
        topology.policy,
        topology.scope,
        tuple((zone.name, tuple(sorted(zone.allocatable.items()))) for zone in topology.zones),
    )
    return (labels, node.taints, tuple(node.devices.items()), node.cpu, node.memory // _MEMORY_GRAIN, zones)
