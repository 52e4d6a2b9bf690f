"""What is known of the cluster: one immutable snapshot of plain frozen records.

Records are made from plain Kubernetes objects, so that a watch and a file exported with ``kubectl get -o yaml`` give
the same facts. Amounts are whole numbers: bytes, millicores, counts.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from gpugate.policies.accelerators import GPU_DEVICE_CLASSES, is_accelerator
from gpugate.policies.fields import Object, mapping, mappings, string
from gpugate.policies.quantity import QuantityError, millicores, whole

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Known(enum.Enum):
    """How far the objects of one kind are known."""

    SYNCED = "synced"
    PENDING = "pending"
    #: The cluster does not serve the kind.
    ABSENT = "absent"
    #: Nobody watches the kind and no file gave any: nothing may be concluded.
    NOT_GIVEN = "not given"


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
        devices: allocatable extended resources, those with a count above zero.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    memory: int
    cpu: int
    devices: Mapping[str, int]


class LocalQueue(NamedTuple):
    """A Kueue LocalQueue."""

    namespace: str
    name: str
    cluster_queue: str


class Namespace(NamedTuple):
    """A namespace and its labels."""

    name: str
    labels: Mapping[str, str]


class ClaimDevices(NamedTuple):
    """A ResourceClaim or ResourceClaimTemplate: the device classes that it asks for."""

    namespace: str
    name: str
    classes: frozenset[str]

    @property
    def is_gpu(self) -> bool:
        """Whether one of the classes stands for a GPU."""
        return not self.classes.isdisjoint(GPU_DEVICE_CLASSES)


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


def _frozen(items: Mapping[_Key, _Value]) -> Mapping[_Key, _Value]:
    return MappingProxyType(dict(items))


@dataclass(frozen=True, slots=True)
class Facts:
    """One snapshot of the cluster.

    Attributes:
        shapes: the nodes, grouped.
        namespaces: namespaces by name.
        queues: LocalQueues by namespace, sorted by name.
        claims: GPU-relevant ResourceClaims by namespace and name.
        claim_templates: ResourceClaimTemplates by namespace and name.
        known: how far each kind is known, by its plural resource name.
        offered: every extended resource that some accelerator node has.
        memo: what :mod:`gpugate.policies.feasibility` worked out from this snapshot, to be found again.
    """

    shapes: tuple[Shape, ...] = ()
    namespaces: Mapping[str, Namespace] = field(default_factory=lambda: _frozen({}))
    queues: Mapping[str, tuple[LocalQueue, ...]] = field(default_factory=lambda: _frozen({}))
    claims: Mapping[tuple[str, str], ClaimDevices] = field(default_factory=lambda: _frozen({}))
    claim_templates: Mapping[tuple[str, str], ClaimDevices] = field(default_factory=lambda: _frozen({}))
    known: Mapping[str, Known] = field(default_factory=lambda: _frozen({}))
    offered: frozenset[str] = frozenset()
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def state(self, resource: str) -> Known:
        """How far objects of ``resource`` (a plural name: ``nodes``) are known."""
        return self.known.get(resource, Known.NOT_GIVEN)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of namespace ``name``; just its name label where it is not known."""
        found = self.namespaces.get(name)
        return found.labels if found else {"kubernetes.io/metadata.name": name}


NO_FACTS: Final = Facts()


def node_of(obj: Object) -> Node:
    """The record of a Node object; an amount that does not parse counts as none.

    Raises:
        MalformedError: a field is of the wrong type.
    """
    metadata = mapping(obj, "metadata", ())
    status = mapping(obj, "status", ())
    allocatable = mapping(status, "allocatable", ("status",)) or mapping(status, "capacity", ("status",))
    taints = tuple(
        Taint(str(taint.get("key") or ""), str(taint.get("value") or ""), str(taint.get("effect") or ""))
        for taint in mappings(mapping(obj, "spec", ()), "taints", ("spec",))
    )
    devices = {name: _amount(value, whole) for name, value in allocatable.items() if "/" in name}
    return Node(
        name=string(metadata, "name", ("metadata",)) or "",
        labels=_labels(metadata),
        taints=tuple(sorted(taints)),
        memory=_amount(allocatable.get("memory"), whole),
        cpu=_amount(allocatable.get("cpu"), millicores),
        devices=_frozen({name: count for name, count in sorted(devices.items()) if count > 0}),
    )


def _amount(quantity: object, unit: Any) -> int:  # noqa: ANN401 - a function of quantity
    if quantity is None:
        return 0
    try:
        amount: int = unit(quantity)
    except QuantityError:
        return 0
    return amount


def _labels(metadata: Object) -> Mapping[str, str]:
    return _frozen({key: str(value) for key, value in mapping(metadata, "labels", ("metadata",)).items()})


def namespace_of(obj: Object) -> Namespace:
    """The record of a Namespace object."""
    metadata = mapping(obj, "metadata", ())
    name = string(metadata, "name", ("metadata",)) or ""
    return Namespace(name, _frozen({"kubernetes.io/metadata.name": name, **_labels(metadata)}))


def local_queue_of(obj: Object) -> LocalQueue:
    """The record of a Kueue LocalQueue object (``v1beta1`` and ``v1beta2`` agree on these fields)."""
    metadata = mapping(obj, "metadata", ())
    cluster_queue = string(mapping(obj, "spec", ()), "clusterQueue", ("spec",)) or ""
    return LocalQueue(str(metadata.get("namespace") or "default"), str(metadata.get("name") or ""), cluster_queue)


def claim_of(obj: Object) -> ClaimDevices:
    """The record of a ResourceClaim or ResourceClaimTemplate (``resource.k8s.io``, any version)."""
    metadata = mapping(obj, "metadata", ())
    spec, path = mapping(obj, "spec", ()), ("spec",)
    if obj.get("kind") == "ResourceClaimTemplate":
        spec, path = mapping(spec, "spec", path), ("spec", "spec")  # type: ignore[assignment]
    classes: set[str] = set()
    for request in mappings(mapping(spec, "devices", path), "requests", path):
        exactly = mapping(request, "exactly", path)
        alternatives = mappings(request, "firstAvailable", path)
        for asked in (request, exactly, *alternatives):
            name = asked.get("deviceClassName")
            if isinstance(name, str):
                classes.add(name)
    return ClaimDevices(str(metadata.get("namespace") or "default"), str(metadata.get("name") or ""), frozenset(classes))


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
        labels=_frozen({key: frozenset(node.labels.get(key) for node in nodes) for key in sorted(keys)}),
        taints=nodes[0].taints,
        devices=nodes[0].devices,
        memory=max(node.memory for node in nodes),
        least_memory=min(node.memory for node in nodes),
        cpu=nodes[0].cpu,
    )


def facts_from(
    *,
    nodes: Iterable[Node] = (),
    namespaces: Iterable[Namespace] = (),
    queues: Iterable[LocalQueue] = (),
    claims: Iterable[ClaimDevices] = (),
    claim_templates: Iterable[ClaimDevices] = (),
    known: Mapping[str, Known],
) -> Facts:
    """A snapshot of these records."""
    by_namespace: dict[str, list[LocalQueue]] = {}
    for queue in queues:
        by_namespace.setdefault(queue.namespace, []).append(queue)
    shapes = shapes_of(nodes)
    return Facts(
        shapes=shapes,
        offered=frozenset(name for shape in shapes for name in shape.devices),
        namespaces=_frozen({one.name: one for one in namespaces}),
        queues=_frozen({name: tuple(sorted(found)) for name, found in by_namespace.items()}),
        claims=_frozen({(one.namespace, one.name): one for one in claims}),
        claim_templates=_frozen({(one.namespace, one.name): one for one in claim_templates}),
        known=_frozen(known),
    )


def facts_from_objects(objects: Iterable[Object], known: Mapping[str, Known] | None = None) -> Facts:
    """A snapshot from plain Kubernetes objects, as exported with ``kubectl get -o yaml``; other kinds are passed over.

    A kind of which there is no object at all counts as not given, not as empty, unless ``known`` says otherwise: nothing
    may be concluded from what nobody exported.

    Raises:
        MalformedError: an object's field is of the wrong type.
    """
    readers: dict[str, tuple[str, Any]] = {
        "Node": ("nodes", node_of),
        "Namespace": ("namespaces", namespace_of),
        "LocalQueue": ("localqueues", local_queue_of),
        "ResourceClaim": ("resourceclaims", claim_of),
        "ResourceClaimTemplate": ("resourceclaimtemplates", claim_of),
    }
    records: dict[str, list[Any]] = {resource: [] for resource, _ in readers.values()}
    for obj in objects:
        entry = readers.get(str(obj.get("kind")))
        if entry is not None:
            records[entry[0]].append(entry[1](obj))
    return facts_from(
        nodes=records["nodes"],
        namespaces=records["namespaces"],
        queues=records["localqueues"],
        claims=records["resourceclaims"],
        claim_templates=records["resourceclaimtemplates"],
        known={**{resource: Known.SYNCED for resource, found in records.items() if found}, **(known or {})},
    )
