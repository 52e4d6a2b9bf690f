"""Nodes as a decision sees them: stripped records, grouped into shapes so that a check costs the number of shapes.

Amounts are whole numbers: bytes, millicores, counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from gpugate.policies.accelerators import is_accelerator
from gpugate.policies.fields import Object, mapping, mappings, string
from gpugate.policies.quantity import QuantityError, millicores, whole

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def frozen(items: Mapping[_Key, _Value]) -> Mapping[_Key, _Value]:
    """A read-only copy of ``items``."""
    return MappingProxyType(dict(items))


class Taint(NamedTuple):
    """A node's taint."""

    key: str
    value: str
    effect: str


class Node(NamedTuple):
    """What a decision needs of a node.

    Attributes:
        name: its name.
        labels: its labels.
        taints: its taints, those of ``spec``.
        memory: allocatable memory in bytes.
        cpu: allocatable CPU in millicores.
        devices: extended resources that the node has, those with a count above zero.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    memory: int
    cpu: int
    devices: Mapping[str, int]


def node_of(obj: Object) -> Node:
    """The record of a Node object; an amount that does not parse counts as none.

    Raises:
        MalformedError: a field is of the wrong type.
    """
    metadata = mapping(obj, "metadata", ())
    status = mapping(obj, "status", ())
    capacity = mapping(status, "capacity", ("status",))
    allocatable = mapping(status, "allocatable", ("status",)) or capacity
    taints = tuple(
        Taint(str(taint.get("key") or ""), str(taint.get("value") or ""), str(taint.get("effect") or ""))
        for taint in mappings(mapping(obj, "spec", ()), "taints", ("spec",))
    )
    # Allocatable leaves out the devices that are sick now, or all of them while the device plugin restarts: the node
    # has them still, and what it could ever hold does not change with them.
    devices = {
        name: max(_amount(allocatable.get(name), whole), _amount(capacity.get(name), whole))
        for name in {*allocatable, *capacity}
        if "/" in name
    }
    return Node(
        name=string(metadata, "name", ("metadata",)) or "",
        labels=labels_of(metadata),
        taints=tuple(sorted(taints)),
        memory=_amount(allocatable.get("memory"), whole),
        cpu=_amount(allocatable.get("cpu"), millicores),
        devices=frozen({name: count for name, count in sorted(devices.items()) if count > 0}),
    )


def _amount(quantity: object, unit: Any) -> int:  # noqa: ANN401 - a function of quantity
    if quantity is None:
        return 0
    try:
        amount: int = unit(quantity)
    except QuantityError:
        return 0
    return amount


def labels_of(metadata: Object) -> Mapping[str, str]:
    """The labels in ``metadata``, values as text."""
    return frozen({key: str(value) for key, value in mapping(metadata, "labels", ("metadata",)).items()})


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes that are alike for every decision.

    Attributes:
        nodes: their names, sorted.
        labels: label key to the values found, None among them where some node lacks the key.
        taints: the taints, which all of them have.
        devices: allocatable extended resources per node.
        memory: allocatable memory in bytes of the node that has most.
        least_memory: the same of the node that has least.
        cpu: allocatable CPU in millicores.
    """

    nodes: tuple[str, ...]
    labels: Mapping[str, frozenset[str | None]]
    taints: tuple[Taint, ...]
    devices: Mapping[str, int]
    memory: int
    least_memory: int
    cpu: int

    @property
    def accelerators(self) -> int:
        """Accelerators of all names on one node."""
        return sum(count for name, count in self.devices.items() if is_accelerator(name))

    @property
    def title(self) -> str:
        """What people call such a node: its product, else its instance type, else its first name."""
        for key in ("nvidia.com/gpu.product", "node.kubernetes.io/instance-type"):
            values = sorted(value for value in self.labels.get(key, ()) if value)
            if values:
                return values[0]
        return self.nodes[0]


#: Labels by which nodes with the same hardware still differ for a scheduler. Every other label is kept too, as the
#: set of its values, but does not split a shape: names and serial numbers would make one shape per node.
_SPLITTING_PREFIXES: Final = (
    "nvidia.com/gpu.",
    "nvidia.com/mig",
    "amd.com/gpu.",
    "gpugate.io/",
    "feature.node.kubernetes.io/memory-numa",
)
_SPLITTING: Final = frozenset(
    {"node.kubernetes.io/instance-type", "kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/zone", "accelerator"}
)
#: Allocatable memory of equal machines differs by what firmware and kernel keep; grouped within this much (bytes).
_MEMORY_GRAIN: Final = 1 << 30


def shapes_of(nodes: Iterable[Node]) -> tuple[Shape, ...]:
    """``nodes`` grouped into shapes, largest group first, then by name; only nodes with accelerators."""
    groups: dict[Any, list[Node]] = {}
    for node in nodes:
        if not any(is_accelerator(name) for name in node.devices):
            continue
        groups.setdefault(_shape_key(node), []).append(node)
    shapes = [_shape(group) for group in groups.values()]
    return tuple(sorted(shapes, key=lambda shape: (-len(shape.nodes), shape.nodes[0])))


def _shape_key(node: Node) -> Any:  # noqa: ANN401 - any hashable
    labels = tuple(
        sorted((key, value) for key, value in node.labels.items() if key in _SPLITTING or key.startswith(_SPLITTING_PREFIXES))
    )
    return (labels, node.taints, tuple(node.devices.items()), node.cpu, node.memory // _MEMORY_GRAIN)


def _shape(nodes: list[Node]) -> Shape:
    keys = {key for node in nodes for key in node.labels}
    return Shape(
        nodes=tuple(sorted(node.name for node in nodes)),
        labels=frozen({key: frozenset(node.labels.get(key) for node in nodes) for key in sorted(keys)}),
        taints=nodes[0].taints,
        devices=nodes[0].devices,
        memory=max(node.memory for node in nodes),
        least_memory=min(node.memory for node in nodes),
        cpu=nodes[0].cpu,
    )
