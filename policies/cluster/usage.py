"""Sums over the pods by node and by group, updated pod by pod.

The sums always equal a recount: a pod's new amounts are added and its old ones subtracted.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.pod_counts import PodCounts, PodCountsSum
from gpugate.policies.cluster.records.common import frozen
from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.records.pods import PodRecord
from gpugate.policies.kube.quantity import NO_AMOUNTS


class NodeUsage(NamedTuple):
    """Sums over the pods on one node.

    Attributes:
        pods: number of pods.
        memory: bytes requested.
        memory_limit: bytes that they may grow to.
        cpu: millicores requested.
        devices: accelerators held, by name.
    """

    pods: int
    memory: int
    memory_limit: int
    cpu: int
    devices: Mapping[str, int]


class ShapeUsage(NamedTuple):
    """Sums over the pods on all nodes of one shape.

    Attributes:
        memory: bytes requested.
        memory_limit: bytes that they may grow to.
        devices: accelerators held, by name.
        least_limit: the smallest ``memory_limit`` of a node.
    """

    memory: int
    memory_limit: int
    devices: Mapping[str, int]
    least_limit: int


class GroupMembers(NamedTuple):
    """The known members of one group.

    Attributes:
        pending: members that exist and do not run yet.
        running: running members.
        succeeded: succeeded members.
        failed: failed members; others may replace them.
        leaving: terminating members.
        sizes: sizes that members declare, sorted.
        queues: queues that members name, sorted.
        priorities: priority classes that members name, sorted.
        asks: distinct requests of members, sorted.
        capacities: ``spot`` and ``on-demand``, as members require them, sorted.
        owners: uids of the members' controllers, sorted; an empty one for plain pods.
    """

    pending: int
    running: int
    succeeded: int
    failed: int
    leaving: int
    sizes: tuple[int, ...]
    queues: tuple[str, ...]
    priorities: tuple[str, ...]
    asks: tuple[tuple[tuple[str, int], ...], ...]
    capacities: tuple[str, ...]
    owners: tuple[str, ...]

    @property
    def present(self) -> int:
        """Number of members that exist or have succeeded."""
        return self.pending + self.running + self.succeeded


NO_POOL_USE: Final = ShapeUsage(0, 0, NO_AMOUNTS, 0)
_PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Leaving")
_TRAITS: Final = ("sizes", "queues", "priorities", "asks", "capacities", "owners")


class _NodeSum:
    __slots__ = ("cpu", "devices", "memory", "memory_limit", "pods")

    def __init__(self) -> None:
        self.pods = self.memory = self.memory_limit = self.cpu = 0
        self.devices: dict[str, int] = {}

    def add(self, pod: PodRecord, sign: int) -> None:
        self.pods += sign
        self.memory += sign * pod.memory
        self.memory_limit += sign * pod.memory_limit
        self.cpu += sign * pod.cpu
        for name, count in pod.devices:
            _count(self.devices, name, sign * count)


class _GroupSum:
    __slots__ = ("_built", "phases", "traits")

    def __init__(self) -> None:
        self.phases: dict[str, int] = {}
        self.traits: dict[str, dict[Any, int]] = {name: {} for name in _TRAITS}
        self._built: GroupMembers | None = None

    def add(self, pod: PodRecord, sign: int) -> None:
        self._built = None
        member, traits = pod.member, self.traits
        _count(self.phases, pod.phase if pod.phase in _PHASES else "Pending", sign)
        # Requests of a member that is gone or has failed do not bind others.
        if member is None or pod.phase in {"Failed", "Leaving"}:
            return
        if member.size:
            _count(traits["sizes"], member.size, sign)
        _count(traits["queues"], member.queue, sign)
        _count(traits["priorities"], member.priority, sign)
        _count(traits["asks"], member.asks, sign)
        if member.capacity:
            _count(traits["capacities"], member.capacity, sign)
        _count(traits["owners"], pod.owner, sign)

    def built(self) -> GroupMembers:
        if self._built is None:
            phases: list[Any] = [self.phases.get(phase, 0) for phase in _PHASES]
            traits: list[Any] = [tuple(sorted(self.traits[name])) for name in _TRAITS]
            self._built = GroupMembers(*phases, *traits)
        return self._built


def _count(counts: dict[Any, int], key: Any, change: int) -> None:  # noqa: ANN401 - any hashable
    total = counts.get(key, 0) + change
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


class UsageIndex:
    """Sums over all known pods by node, by group, and by owner."""

    __slots__ = (
        *("_changed", "_crews", "_crews_published", "_crews_unpublished", "_groups", "_homes", "_nodes", "_pools"),
        *("_published", "_published_homes", "_shapes", "_unpublished"),
    )

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeSum] = {}
        self._groups: dict[str, dict[GroupKey, _GroupSum]] = {}
        #: Groups by namespace as published last, and the namespaces whose groups changed since.
        self._published: Mapping[str, Mapping[GroupKey, GroupMembers]] = frozen({})
        self._unpublished: set[str] = set()
        #: The same for the pod counters.
        self._crews: dict[str, dict[str, PodCountsSum]] = {}
        self._crews_published: Mapping[str, Mapping[str, PodCounts]] = frozen({})
        self._crews_unpublished: set[str] = set()
        #: Namespaces with members of a group, for groups of the same name in several.
        self._homes: dict[GroupKey, set[str]] = {}
        self._published_homes: Mapping[GroupKey, tuple[str, ...]] | None = None
        self._changed: set[str] = set()
        self._shapes: tuple[NodeShape, ...] = ()
        self._pools: Mapping[str, ShapeUsage] = frozen({})

    def put(self, namespace: str, before: PodRecord | None, after: PodRecord | None) -> None:
        """Replace a pod of ``namespace``: ``None`` stands for an absent pod."""
        # New amounts first: a group or node that remains must not vanish in between.
        for pod, sign in ((after, 1), (before, -1)):
            if pod is None:
                continue
            if pod.node:
                self._add_to_node(pod, sign)
            if pod.group is not None:
                self._add_to_group(namespace, pod, pod.group, sign)
            if pod.owner_group:
                self._add_to_crew(namespace, pod, sign)

    def _add_to_node(self, pod: PodRecord, sign: int) -> None:
        usage = self._nodes.setdefault(pod.node, _NodeSum())
        usage.add(pod, sign)
        if not usage.pods:
            del self._nodes[pod.node]
        self._changed.add(pod.node)

    def _add_to_group(self, namespace: str, pod: PodRecord, key: GroupKey, sign: int) -> None:
        groups = self._groups.setdefault(namespace, {})
        if key not in groups:
            groups[key] = _GroupSum()
            self._homes.setdefault(key, set()).add(namespace)
            self._published_homes = None
        members = groups[key]
        members.add(pod, sign)
        if not members.phases:
            del groups[key]
            self._leave_home(namespace, key)
            if not groups:
                del self._groups[namespace]
        self._unpublished.add(namespace)

    def _add_to_crew(self, namespace: str, pod: PodRecord, sign: int) -> None:
        crews = self._crews.setdefault(namespace, {})
        counts = crews.setdefault(pod.owner_group, PodCountsSum())
        counts.add(pod, sign)
        if not any(counts.phases):
            del crews[pod.owner_group]
            if not crews:
                del self._crews[namespace]
        self._crews_unpublished.add(namespace)

    def settling(self) -> Iterator[None]:
        """Build the changed groups one by one, as the iterator is read, for :meth:`groups`."""
        for namespace in sorted(self._unpublished):
            for one in list(self._groups.get(namespace, {}).values()):
                one.built()
                yield None
        for namespace in sorted(self._crews_unpublished):
            for crew in list(self._crews.get(namespace, {}).values()):
                crew.built()
                yield None

    def _leave_home(self, namespace: str, key: GroupKey) -> None:
        homes = self._homes[key]
        homes.remove(namespace)
        if not homes:
            del self._homes[key]
        self._published_homes = None

    def homes(self) -> Mapping[GroupKey, tuple[str, ...]]:
        """Return the namespaces that have members of a group of each key, sorted; recomputed only if one came or went."""
        if self._published_homes is None:
            self._published_homes = frozen({key: tuple(sorted(namespaces)) for key, namespaces in self._homes.items()})
        return self._published_homes

    def groups(self) -> Mapping[str, Mapping[GroupKey, GroupMembers]]:
        """Return the groups by namespace."""
        if self._unpublished:
            published = dict(self._published)
            for namespace in self._unpublished:
                found = self._groups.get(namespace)
                if found is None:
                    published.pop(namespace, None)
                else:
                    published[namespace] = MappingProxyType({key: one.built() for key, one in found.items()})
            self._published = MappingProxyType(published)
            self._unpublished.clear()
        return self._published

    def crews(self) -> Mapping[str, Mapping[str, PodCounts]]:
        """Return the pod counters by namespace."""
        if self._crews_unpublished:
            published = dict(self._crews_published)
            for namespace in self._crews_unpublished:
                found = self._crews.get(namespace)
                if found is None:
                    published.pop(namespace, None)
                else:
                    published[namespace] = MappingProxyType({key: one.built() for key, one in found.items()})
            self._crews_published = MappingProxyType(published)
            self._crews_unpublished.clear()
        return self._crews_published

    def node(self, name: str) -> NodeUsage:
        """Return the sums over the pods on the node ``name``."""
        usage = self._nodes.get(name)
        if usage is None:
            return NodeUsage(0, 0, 0, 0, NO_AMOUNTS)
        return NodeUsage(usage.pods, usage.memory, usage.memory_limit, usage.cpu, frozen(usage.devices))

    def pools(self, shapes: tuple[NodeShape, ...]) -> Mapping[str, ShapeUsage]:
        """Return the sums over the pods on each of ``shapes``, by the shape's first node; only changed shapes are recomputed."""
        if shapes is self._shapes and not self._changed:
            return self._pools
        # An identical shape has the same nodes, and the same sums unless one of these changed.
        same = {id(one) for one in self._shapes}
        pools: dict[str, ShapeUsage] = {}
        for shape in shapes:
            first = shape.nodes[0]
            kept = id(shape) in same and self._changed.isdisjoint(shape.nodes)
            pools[first] = self._pools[first] if kept else self._pool(shape)
        self._shapes = shapes
        self._changed.clear()
        self._pools = MappingProxyType(pools)
        return self._pools

    def _pool(self, shape: NodeShape) -> ShapeUsage:
        known = self._nodes
        memory = limit = 0
        least: int | None = None
        devices: dict[str, int] = {}
        for name in shape.nodes:
            one = known.get(name)
            if one is None:
                least = 0
                continue
            memory += one.memory
            limit += one.memory_limit
            if least is None or one.memory_limit < least:
                least = one.memory_limit
            for device, count in one.devices.items():
                devices[device] = devices.get(device, 0) + count
        return ShapeUsage(memory, limit, frozen(dict(sorted(devices.items()))), least or 0)
