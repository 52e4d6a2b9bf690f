"""What is known of the cluster: one immutable snapshot of plain frozen records.

Records are made from plain Kubernetes objects, so that a watch and a file exported with ``kubectl get -o yaml`` give
the same facts. Amounts are whole numbers: bytes, millicores, counts.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gpugate.policies.accelerators import GPU_DEVICE_CLASSES
from gpugate.policies.fields import Object, mapping, mappings, sequence, string
from gpugate.policies.nodes import Node, Shape, frozen, labels_of, node_of, shapes_of


class Known(enum.Enum):
    """How far the objects of one kind are known."""

    SYNCED = "synced"
    PENDING = "pending"
    #: The cluster does not serve the kind.
    ABSENT = "absent"
    #: Nobody watches the kind and no file gave any: nothing may be concluded.
    NOT_GIVEN = "not given"


class LocalQueue(NamedTuple):
    """A Kueue LocalQueue."""

    namespace: str
    name: str
    cluster_queue: str


class ClusterQueue(NamedTuple):
    """A Kueue ClusterQueue: the resources that its quota covers. It admits no workload that asks for another."""

    name: str
    covered: frozenset[str]


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
class Facts:
    """One snapshot of the cluster.

    Attributes:
        shapes: the nodes, grouped.
        namespaces: namespaces by name.
        queues: LocalQueues by namespace, sorted by name.
        cluster_queues: ClusterQueues by name.
        claims: GPU-relevant ResourceClaims by namespace and name.
        claim_templates: ResourceClaimTemplates by namespace and name.
        known: how far each kind is known, by its plural resource name.
        offered: every extended resource that some accelerator node has.
        memo: what :mod:`gpugate.policies.feasibility` worked out from this snapshot, to be found again.
    """

    shapes: tuple[Shape, ...] = ()
    namespaces: Mapping[str, Namespace] = field(default_factory=lambda: frozen({}))
    queues: Mapping[str, tuple[LocalQueue, ...]] = field(default_factory=lambda: frozen({}))
    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=lambda: frozen({}))
    claims: Mapping[tuple[str, str], ClaimDevices] = field(default_factory=lambda: frozen({}))
    claim_templates: Mapping[tuple[str, str], ClaimDevices] = field(default_factory=lambda: frozen({}))
    known: Mapping[str, Known] = field(default_factory=lambda: frozen({}))
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


def namespace_of(obj: Object) -> Namespace:
    """The record of a Namespace object."""
    metadata = mapping(obj, "metadata", ())
    name = string(metadata, "name", ("metadata",)) or ""
    return Namespace(name, frozen({"kubernetes.io/metadata.name": name, **labels_of(metadata)}))


def local_queue_of(obj: Object) -> LocalQueue:
    """The record of a Kueue LocalQueue object (``v1beta1`` and ``v1beta2`` agree on these fields)."""
    metadata = mapping(obj, "metadata", ())
    cluster_queue = string(mapping(obj, "spec", ()), "clusterQueue", ("spec",)) or ""
    return LocalQueue(str(metadata.get("namespace") or "default"), str(metadata.get("name") or ""), cluster_queue)


def cluster_queue_of(obj: Object) -> ClusterQueue:
    """The record of a Kueue ClusterQueue object (``v1beta1`` and ``v1beta2`` agree on these fields)."""
    metadata = mapping(obj, "metadata", ())
    groups = mappings(mapping(obj, "spec", ()), "resourceGroups", ("spec",))
    covered = {str(name) for group in groups for name in sequence(group, "coveredResources", ("spec", "resourceGroups"))}
    return ClusterQueue(str(metadata.get("name") or ""), frozenset(covered))


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


def facts_from(
    *,
    nodes: Iterable[Node] = (),
    namespaces: Iterable[Namespace] = (),
    queues: Iterable[LocalQueue] = (),
    cluster_queues: Iterable[ClusterQueue] = (),
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
        namespaces=frozen({one.name: one for one in namespaces}),
        queues=frozen({name: tuple(sorted(found)) for name, found in by_namespace.items()}),
        cluster_queues=frozen({one.name: one for one in cluster_queues}),
        claims=frozen({(one.namespace, one.name): one for one in claims}),
        claim_templates=frozen({(one.namespace, one.name): one for one in claim_templates}),
        known=frozen(known),
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
        "ClusterQueue": ("clusterqueues", cluster_queue_of),
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
        cluster_queues=records["clusterqueues"],
        claims=records["resourceclaims"],
        claim_templates=records["resourceclaimtemplates"],
        known={**{resource: Known.SYNCED for resource, found in records.items() if found}, **(known or {})},
    )
