"""Build cluster snapshots object by object: snapshots share what did not change.

A watch feeds it events, a file feeds it once; the snapshot depends on the objects alone, not on their order.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpugate.policies.cluster.in_flight import InFlight
from gpugate.policies.cluster.kinds import BY_RESOURCE, CLUSTER_KINDS, Key, Records, fact_kind_of
from gpugate.policies.cluster.kueue_workloads import KueueWorkloads
from gpugate.policies.cluster.node_shapes import NodeShapeIndex
from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import frozen, shared_text
from gpugate.policies.cluster.records.kueue import CohortTree
from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import NodeUsage, UsageIndex
from gpugate.policies.kube.fields import Object
from gpugate.policies.workloads.kinds.owners import ServedKinds

_POD_GROUPS: Final = tuple(kind.resource for kind in CLUSTER_KINDS if kind.kind == "PodGroup")
#: The kind of which only an index is kept.
_WORKLOADS: Final = "workloads"
#: Namespaced kinds; manifests without a namespace mean ``default``.
_NAMESPACED: Final = frozenset(
    {"pods", "limitranges", "resourcequotas", "localqueues", _WORKLOADS, *_POD_GROUPS, "resourceclaims", "resourceclaimtemplates"}
)


class SnapshotBuilder:
    """Records of all kinds, from which snapshots are built."""

    __slots__ = (
        "_changed",
        "_fields",
        "_memo",
        "_nodes",
        "_offered",
        "_records",
        "_shapes",
        "_usage",
        "in_flight",
        "kueue_workloads",
        "served",
    )

    def __init__(self) -> None:
        self._records: dict[str, dict[Key, Any]] = {kind.resource: {} for kind in CLUSTER_KINDS}
        self._nodes = NodeShapeIndex()
        self._usage = UsageIndex()
        self._fields: dict[str, Any] = {}
        self._changed: set[str] = set(BY_RESOURCE)
        self._shapes: tuple[NodeShape, ...] = ()
        self._offered: frozenset[str] = frozenset()
        self._memo: dict[Any, Any] = {}
        self.in_flight = InFlight()
        self.kueue_workloads = KueueWorkloads()
        self.served: ServedKinds | None = None

    def node(self, name: str) -> NodeUsage:
        """Return the sums over the pods on the node ``name``."""
        return self._usage.node(name)

    def put(self, resource: str, key: Key, record: Any) -> bool:  # noqa: ANN401 - a record
        """Set the object ``key`` of ``resource``, or remove it (None); return whether a fact changed."""
        if resource == _WORKLOADS:
            return self.kueue_workloads.put(key, record)
        records = self._records[resource]
        before = records.get(key)
        if before == record:
            return False
        if record is None:
            del records[key]
        else:
            records[key] = record
        if resource == "nodes":
            self._nodes.put(key[1], record)
        elif resource == "pods":
            self._usage.put(key[0], before, record)
        elif resource == "noderesourcetopologies":
            self._nodes.put_topology(key[1], record)
        else:
            self._changed.add(resource)
        return True

    def replace(self, resource: str, records: Records) -> bool:
        """Replace all objects of ``resource``; return whether a fact changed."""
        return any([*self.replacing(resource, records)])

    def replacing(self, resource: str, records: Records) -> Iterator[bool]:
        """Replace them object by object as the iterator is read; yield whether a fact changed."""
        present: Iterable[Key] = self.kueue_workloads if resource == _WORKLOADS else self._records[resource]
        for key in [key for key in present if records.get(key) is None]:
            yield self.put(resource, key, None)
        for key, record in records.items():
            yield self.put(resource, key, record)

    def rebuild(self) -> Iterator[None]:
        """Rebuild the sums of changed pods piece by piece, as the iterator is read; the next snapshot is quick then."""
        return self._usage.rebuild()

    def get(self, resource: str, key: Key) -> Any:  # noqa: ANN401 - a record
        """Return the record of the object ``key``; None if there is none."""
        return self._records[resource].get(key)

    def snapshot(self, known: Mapping[str, SyncState], stale: Mapping[str, int] | None = None) -> ClusterSnapshot:
        """Return the snapshot; ``known``: sync state of each kind, ``stale``: age of stale kinds in minutes."""
        self._refresh()
        return ClusterSnapshot(
            shapes=self._shapes,
            shape_usage=self._usage.shape_usage(self._shapes),
            groups=self._usage.groups(),
            group_homes=self._usage.group_homes(),
            pod_counts=self._usage.pod_counts(),
            known=frozen(known),
            stale=frozen(stale or {}),
            offered=self._offered,
            autoscaled=self._nodes.are_autoscaled,
            served=self.served,
            in_flight=self.in_flight,
            kueue_workloads=self.kueue_workloads,
            memo=self._memo,
            **self._fields,
        )

    def _refresh(self) -> None:
        shapes = self._nodes.shapes()
        if shapes is not self._shapes:
            self._shapes = shapes
            self._offered = frozenset(name for shape in shapes for name in shape.devices)
            # Results computed from other shapes are invalid.
            self._memo = {}
        fields = self._fields
        for resource in self._changed:
            kind = BY_RESOURCE[resource]
            if kind.field:
                fields[kind.field] = kind.view(self._records[resource])
        if not self._changed.isdisjoint({"clusterqueues", "cohorts"}):
            fields["cohort_tree"] = CohortTree(fields["cluster_queues"].values(), fields["cohorts"])
        if not self._changed.isdisjoint(_POD_GROUPS):
            groups = (group for resource in _POD_GROUPS for group in self._records[resource].values())
            fields["pod_groups"] = frozen({(group.namespace, GroupKey(group.system, group.name)): group for group in groups})
        self._changed.clear()


def key_of(obj: Object) -> Key:
    """Return namespace and name of an object."""
    metadata = obj.get("metadata")
    if type(metadata) is not dict:
        return ("", "")
    return (shared_text(str(metadata.get("namespace") or "")), str(metadata.get("name") or ""))


def snapshot_from_objects(
    objects: Iterable[Object], known: Mapping[str, SyncState] | None = None, *, served: ServedKinds | None = None
) -> ClusterSnapshot:
    """Return a snapshot from plain Kubernetes objects, as exported with ``kubectl get -o yaml``; other kinds are skipped.

    A kind without any object counts as not given, not as empty, unless ``known`` says otherwise. ``served``: the kinds that the
    cluster serves.

    Raises:
        MalformedError: an object's field is of the wrong type.
    """
    builder, given = builder_from_objects(objects)
    builder.served = served
    return builder.snapshot({**given, **(known or {})})


def builder_from_objects(objects: Iterable[Object]) -> tuple[SnapshotBuilder, dict[str, SyncState]]:
    """Return a builder with plain Kubernetes objects, and the kinds of which there were any.

    Raises:
        MalformedError: an object's field is of the wrong type.
    """
    builder = SnapshotBuilder()
    given: dict[str, SyncState] = {}
    for obj in objects:
        kind = fact_kind_of(obj)
        if kind is not None:
            namespace, name = key_of(obj)
            if not namespace and kind.resource in _NAMESPACED:
                namespace = "default"
            builder.put(kind.resource, (namespace, name), kind.read(obj))
            given[kind.resource] = SyncState.SYNCED
    return builder, given
