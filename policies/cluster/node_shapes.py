"""Group nodes into shapes as nodes come, change and go: a change costs its own group, not all nodes."""

from collections.abc import Mapping
from typing import Any, Final

from gpugate.policies.cluster.nodes import Node, NodeShape, NodeTopology
from gpugate.policies.cluster.records.common import CAPACITY, change_count, frozen

#: Labels that split shapes: a scheduler distinguishes nodes by them. Other labels are kept as the set of their values and
#: do not split a shape: names and serial numbers would make one shape per node.
_SPLITTING_PREFIXES: Final = (
    *("nvidia.com/gpu.", "nvidia.com/mig", "amd.com/gpu.", "gpugate.io/", "feature.node.kubernetes.io/memory-numa"),
)
_SPLITTING: Final = frozenset(
    {
        *("node.kubernetes.io/instance-type", "kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/zone"),
        *("accelerator", *CAPACITY),
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
            change_count(self.values.setdefault(key, {}), value, 1)
        self.shape = None

    def remove(self, node: Node) -> None:
        del self.nodes[node.name]
        for key, value in node.labels.items():
            change_count(self.values[key], value, -1)
            if not self.values[key]:
                del self.values[key]
        self.shape = None

    def built(self) -> NodeShape:
        if self.shape is None:
            nodes, values = self.nodes, sorted(self.values.items())
            first = nodes[min(nodes)]
            memory, extra = [node.memory for node in nodes.values()], [node.extra for node in nodes.values()]
            stated_by_all = sorted(set(extra[0]).intersection(*extra))
            self.shape = NodeShape(
                nodes=tuple(sorted(nodes)),
                labels=frozen({key: _values_of(counts, len(nodes)) for key, counts in values}),
                taints=first.taints,
                devices=first.devices,
                memory=max(memory),
                least_memory=min(memory),
                cpu=first.cpu,
                total_memory=sum(memory),
                topology=first.topology,
                extra=frozen({name: max(amounts[name] for amounts in extra) for name in stated_by_all}),
                counts=frozen({key: frozen(counts) for key, counts in values if max(counts.values()) > 1}),
            )
        return self.shape


def _values_of(counts: Mapping[str, int], nodes: int) -> frozenset[str | None]:
    """Return the values of a label, with None if some node lacks it."""
    values: frozenset[str | None] = frozenset(counts)
    return values if sum(counts.values()) == nodes else values | {None}


class NodeShapeIndex:
    """The shapes of the nodes that have accelerators."""

    __slots__ = ("_autoscaled", "_groups", "_nodes", "_shapes", "_topologies")

    def __init__(self) -> None:
        #: Group (None without accelerators) and record of each node.
        self._nodes: dict[str, tuple[_Group | None, Node]] = {}
        self._groups: dict[Any, _Group] = {}
        self._autoscaled: set[str] = set()
        self._topologies: dict[str, NodeTopology] = {}
        self._shapes: tuple[NodeShape, ...] | None = ()

    def put(self, name: str, node: Node | None) -> None:
        """Set the node ``name``, or remove it (None)."""
        group, before = self._nodes.pop(name, (None, None))
        if group is not None and before is not None:
            group.remove(before)
            if not group.nodes:
                del self._groups[group.key]
            self._shapes = None
        self._autoscaled.discard(name)
        if node is None:
            return
        if node.autoscaled:
            self._autoscaled.add(name)
        if name in self._topologies:
            node = node._replace(topology=self._topologies[name])
        group = None
        if node.has_accelerators:
            key = _shape_key(node)
            group = self._groups.setdefault(key, _Group(key))
            group.add(node)
            self._shapes = None
        # Nodes without accelerators are kept: a device plugin may start on them later.
        self._nodes[name] = (group, node)

    def put_topology(self, name: str, topology: NodeTopology | None) -> None:
        """Set the NUMA zones of the node ``name``, or remove them (None)."""
        if topology is None:
            self._topologies.pop(name, None)
        else:
            self._topologies[name] = topology
        if name in self._nodes:
            self.put(name, self._nodes[name][1]._replace(topology=None))

    @property
    def are_autoscaled(self) -> bool:
        """Whether a node, with accelerators or without, shows signs of an autoscaler."""
        return bool(self._autoscaled)

    def shapes(self) -> tuple[NodeShape, ...]:
        """Return the shapes, largest group first, then by name; the identical tuple until a node changes."""
        if self._shapes is None:
            shapes = [group.built() for group in self._groups.values()]
            self._shapes = tuple(sorted(shapes, key=lambda shape: (-len(shape.nodes), shape.nodes[0])))
        return self._shapes


def _shape_key(node: Node) -> Any:  # noqa: ANN401 - any hashable
    labels = tuple(
        sorted((key, value) for key, value in node.labels.items() if key in _SPLITTING or key.startswith(_SPLITTING_PREFIXES))
    )
    topology = node.topology
    zones = (
        None
        if topology is None
        else (
            topology.policy,
            topology.scope,
            tuple((zone.name, tuple(sorted(zone.allocatable.items()))) for zone in topology.zones),
        )
    )
    return (labels, node.taints, tuple(node.devices.items()), node.cpu, node.memory // _MEMORY_GRAIN, zones)
