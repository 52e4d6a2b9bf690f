"""Build cluster snapshots object by object: a change costs what it touches, and snapshots share what did not change.

A watch feeds it events, a file feeds it once; the snapshot depends on the objects alone, not on their order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from gpugate.policies.cluster.in_flight import InFlight
from gpugate.policies.cluster.kinds import CLUSTER_KINDS, CONFIGURATION, fact_kind_of
from gpugate.policies.cluster.node_shapes import NodeShapeIndex
from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.cohorts import CohortTree
from gpugate.policies.cluster.records.common import frozen, shared_text
from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.cluster.usage import NodeUsage, UsageIndex
from gpugate.policies.kube.fields import Object

Key: TypeAlias = tuple[str, str]
"""Namespace (empty for none) and name."""


def _by_name(records: Iterable[tuple[Key, Any]]) -> Mapping[str, Any]:
    return frozen({name: record for (_, name), record in records})


def _by_key(records: Iterable[tuple[Key, Any]]) -> Mapping[Key, Any]:
    return frozen(dict(records))


def _by_namespace(records: Iterable[tuple[Key, Any]]) -> Mapping[str, tuple[Any, ...]]:
    found: dict[str, list[Any]] = {}
    for (namespace, _), record in records:
        found.setdefault(namespace, []).append(record)
    return frozen({namespace: tuple(sorted(ones, key=_name)) for namespace, ones in found.items()})


def _name(record: Any) -> str:  # noqa: ANN401 - a record with a name
    name: str = record.name
    return name


def _only(records: Iterable[tuple[Key, Any]]) -> Any:  # noqa: ANN401 - a record
    return next((record for _, record in sorted(records)), None)


_View: TypeAlias = Callable[[Iterable[tuple[Key, Any]]], Any]
#: Snapshot field by resource, and its function of the records.
_VIEWS: Final[Mapping[str, tuple[str, _View]]] = {
    "namespaces": ("namespaces", _by_name),
    "limitranges": ("limit_ranges", _by_namespace),
    "resourcequotas": ("quotas", _by_namespace),
    "priorityclasses": ("priorities", _by_name),
    "runtimeclasses": ("runtime_classes", _by_name),
    "localqueues": ("queues", _by_namespace),
    "clusterqueues": ("cluster_queues", _by_name),
    "cohorts": ("cohorts", _by_name),
    "resourceflavors": ("flavors", _by_name),
    "topologies": ("topologies", _by_name),
    "workloadpriorityclasses": ("workload_priorities", _by_name),
    CONFIGURATION.resource: ("kueue", _only),
    "deviceclasses": ("device_classes", _by_name),
    "resourceclaims": ("claims", _by_key),
    "resourceclaimtemplates": ("claim_templates", _by_key),
}
_POD_GROUPS: Final = tuple(one.resource for one in CLUSTER_KINDS if one.kind == "PodGroup")
#: Kinds without a snapshot field: they only show which objects are no longer in flight.
_NOT_KEPT: Final = frozenset({"workloads"})


class SnapshotBuilder:
    """Records of all kinds, from which snapshots are built."""

    __slots__ = ("_dirty", "_memo", "_nodes", "_occupancy", "_offered", "_records", "_shapes", "_views", "in_flight")

    def __init__(self) -> None:
        self._records: dict[str, dict[Key, Any]] = {one.resource: {} for one in CLUSTER_KINDS}
        self._nodes = NodeShapeIndex()
        self._occupancy = UsageIndex()
        self._views: dict[str, Any] = {}
        self._dirty: set[str] = {*_VIEWS, *_POD_GROUPS}
        self._shapes: tuple[NodeShape, ...] = ()
        self._offered: frozenset[str] = frozenset()
        self._memo: dict[Any, Any] = {}
        self.in_flight = InFlight()

    def node(self, name: str) -> NodeUsage:
        """Return the sums over the pods on the node ``name``."""
        return self._occupancy.node(name)

    def put(self, resource: str, key: Key, record: Any) -> bool:  # noqa: ANN401 - a record
        """Set the object ``key`` of ``resource``, or remove it (None); return whether a fact changed."""
        if resource in _NOT_KEPT:
            return False
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
            self._occupancy.put(key[0], before, record)
        elif resource == "noderesourcetopologies":
            self._nodes.put_topology(key[1], record)
        else:
            self._dirty.add(resource)
        return True

    def replace(self, resource: str, records: Mapping[Key, Any]) -> bool:
        """Replace all objects of ``resource``; return whether a fact changed."""
        return any([*self.replacing(resource, records)])

    def replacing(self, resource: str, records: Mapping[Key, Any]) -> Iterator[bool]:
        """Replace them object by object as the iterator is read; yield whether a fact changed."""
        for key in [key for key in self._records[resource] if records.get(key) is None]:
            yield self.put(resource, key, None)
        for key, record in records.items():
            yield self.put(resource, key, record)

    def settling(self) -> Iterator[None]:
        """Rebuild what changed pods affect piece by piece, as the iterator is read, so that the next snapshot is quick."""
        return self._occupancy.settling()

    def get(self, resource: str, key: Key) -> Any:  # noqa: ANN401 - a record
        """Return the record of the object ``key``; None if there is none."""
        return self._records[resource].get(key)

    def snapshot(self, known: Mapping[str, SyncState], stale: Mapping[str, int] | None = None) -> ClusterSnapshot:
        """Return the snapshot; ``known``: sync state of each kind, ``stale``: age of stale kinds in minutes."""
        self._refresh()
        return ClusterSnapshot(
            shapes=self._shapes,
            shape_usage=self._occupancy.pools(self._shapes),
            groups=self._occupancy.groups(),
            group_homes=self._occupancy.homes(),
            pod_counts=self._occupancy.crews(),
            known=frozen(known),
            stale=frozen(stale or {}),
            offered=self._offered,
            in_flight=self.in_flight,
            memo=self._memo,
            **self._views,
        )

    def _refresh(self) -> None:
        shapes = self._nodes.shapes()
        if shapes is not self._shapes:
            self._shapes = shapes
            self._offered = frozenset(name for shape in shapes for name in shape.devices)
            # Results computed from other shapes are invalid.
            self._memo = {}
        for resource in self._dirty:
            if resource in _VIEWS:
                name, view = _VIEWS[resource]
                self._views[name] = view(self._records[resource].items())
        if not self._dirty.isdisjoint({"clusterqueues", "cohorts"}):
            views = self._views
            views["cohort_tree"] = CohortTree(views["cluster_queues"].values(), views["cohorts"])
        if not self._dirty.isdisjoint(_POD_GROUPS):
            groups = (one for resource in _POD_GROUPS for one in self._records[resource].values())
            self._views["pod_groups"] = frozen({(one.namespace, GroupKey(one.system, one.name)): one for one in groups})
        self._dirty.clear()


def key_of(obj: Object) -> Key:
    """Return namespace and name of an object."""
    metadata = obj.get("metadata")
    if type(metadata) is not dict:
        return ("", "")
    return (shared_text(str(metadata.get("namespace") or "")), str(metadata.get("name") or ""))


#: Namespaced kinds; manifests without a namespace mean ``default``.
_NAMESPACED: Final = frozenset(
    {"pods", "limitranges", "resourcequotas", "localqueues", *_POD_GROUPS, "resourceclaims", "resourceclaimtemplates"}
)


def snapshot_from_objects(objects: Iterable[Object], known: Mapping[str, SyncState] | None = None) -> ClusterSnapshot:
    """Return a snapshot from plain Kubernetes objects, as exported with ``kubectl get -o yaml``; other kinds are skipped.

    A kind without any object counts as not given, not as empty, unless ``known`` says otherwise.

    Raises:
        MalformedError: an object's field is of the wrong type.
    """
    builder, given = builder_from_objects(objects)
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
