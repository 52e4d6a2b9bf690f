"""Sums over the pods by node, by group and by owner, updated pod by pod.

The sums always equal a recount: a pod's new amounts are added and its old ones subtracted.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import change_count, frozen
from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.policies.cluster.records.pods import GATED, NOT_READY, PodProblem, PodRecord
from gpugate.policies.kube.quantity import NO_AMOUNTS

_Key = TypeVar("_Key")
_Record = TypeVar("_Record")
_PHASES: Final = frozenset({"Pending", "Running", "Succeeded", "Failed", "Leaving"})
_PhaseCounts: TypeAlias = tuple[int, int, int, int, int]
_TRAITS: Final = ("sizes", "queues", "priorities", "asks", "capacities", "owners")
#: Maximum number of distinct problems: enough to explain why a gang waits.
_MOST_PROBLEMS: Final = 8


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
        memory_limit: bytes that they may grow to.
        least_limit: the smallest ``memory_limit`` of a node.
    """

    memory_limit: int
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
        queues: queues of members, sorted.
        priorities: priority classes of members, sorted.
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


class ProblemCount(NamedTuple):
    """Number of pods with the same :class:`gpugate.policies.cluster.records.pods.PodProblem`; ``since``: start of the first."""

    reason: str
    message: str
    node: str
    number: int
    since: float


class PodCounts(NamedTuple):
    """Counters of the pods of one owner or group, which all request accelerators and still exist.

    Attributes:
        pending: pods that do not run yet.
        leaving: terminating pods.
        held: accelerators of the pods on nodes.
        gated: pending pods with a scheduling gate.
        sorts: problems of pods that do not run, most frequent first; at most eight.
        unready: running pods that are not ready, by node.
    """

    pending: int
    running: int
    succeeded: int
    failed: int
    leaving: int
    held: int
    gated: int
    sorts: tuple[ProblemCount, ...]
    unready: tuple[ProblemCount, ...]


NO_PODS: Final = PodCounts(0, 0, 0, 0, 0, 0, 0, (), ())
NO_USAGE: Final = ShapeUsage(0, 0)
_NO_NODE_USAGE: Final = NodeUsage(0, 0, 0, 0, NO_AMOUNTS)


def _with_pod(usage: NodeUsage, pod: PodRecord, sign: int) -> NodeUsage:
    """Return the sums of a node with ``pod`` added, or removed if ``sign`` is -1."""
    devices = dict(usage.devices)
    for name, count in pod.devices:
        change_count(devices, name, sign * count)
    limit = usage.memory_limit + sign * pod.memory_limit
    memory, cpu = usage.memory + sign * pod.memory, usage.cpu + sign * pod.cpu
    return NodeUsage(usage.pods + sign, memory, limit, cpu, MappingProxyType(devices))


class _PodSum(Generic[_Record]):
    """Counters of pods by phase and what a subclass adds, as a record that is built when it is read."""

    __slots__ = ("_record", "phases")

    def __init__(self) -> None:
        self.phases: dict[str, int] = {}
        self._record: _Record | None = None

    def add(self, pod: PodRecord, sign: int) -> None:
        self._record = None
        change_count(self.phases, pod.phase if pod.phase in _PHASES else "Pending", sign)

    def record(self) -> _Record:
        if self._record is None:
            count = self.phases.get
            counts = (count("Pending", 0), count("Running", 0), count("Succeeded", 0), count("Failed", 0), count("Leaving", 0))
            self._record = self._build(counts)
        return self._record

    def _build(self, phases: _PhaseCounts) -> _Record:
        raise NotImplementedError


class _GroupSum(_PodSum[GroupMembers]):
    __slots__ = ("traits",)

    def __init__(self) -> None:
        super().__init__()
        self.traits: dict[str, dict[Any, int]] = {name: {} for name in _TRAITS}

    def add(self, pod: PodRecord, sign: int) -> None:
        super().add(pod, sign)
        member, traits = pod.member, self.traits
        # Requests of a member that is gone or has failed do not bind others.
        if member is None or pod.phase in {"Failed", "Leaving"}:
            return
        if member.size:
            change_count(traits["sizes"], member.size, sign)
        change_count(traits["queues"], member.queue, sign)
        change_count(traits["priorities"], member.priority, sign)
        change_count(traits["asks"], member.asks, sign)
        if member.capacity:
            change_count(traits["capacities"], member.capacity, sign)
        change_count(traits["owners"], pod.owner, sign)

    def _build(self, phases: _PhaseCounts) -> GroupMembers:
        traits: list[Any] = [tuple(sorted(self.traits[name])) for name in _TRAITS]
        return GroupMembers(*phases, *traits)


class _OwnerSum(_PodSum[PodCounts]):
    __slots__ = ("held", "problems")

    def __init__(self) -> None:
        super().__init__()
        self.held = 0
        self.problems: dict[PodProblem, int] = {}

    def add(self, pod: PodRecord, sign: int) -> None:
        super().add(pod, sign)
        if pod.node:
            self.held += sign * sum(count for _, count in pod.devices)
        if pod.problem is not None:
            change_count(self.problems, pod.problem, sign)

    def _build(self, phases: _PhaseCounts) -> PodCounts:
        pods: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
        for problem, number in self.problems.items():
            pods.setdefault(problem[1:], []).append((number, problem.since))
        problems = [
            ProblemCount(*kind, sum(number for number, _ in counts), min(since for _, since in counts))
            for kind, counts in pods.items()
        ]
        problems.sort(key=lambda problem: (-problem.number, problem[:3]))
        return PodCounts(
            *phases,
            held=self.held,
            gated=sum(problem.number for problem in problems if problem.reason == GATED),
            sorts=tuple(problem for problem in problems if problem.reason != NOT_READY)[:_MOST_PROBLEMS],
            unready=tuple(problem for problem in problems if problem.reason == NOT_READY),
        )


class _SumsByNamespace(Generic[_Key, _Record]):
    """Sums over pods by namespace and key, and their records as last read."""

    __slots__ = ("_changed", "_new_sum", "_records", "sums")

    def __init__(self, new_sum: type[_PodSum[_Record]]) -> None:
        self._new_sum = new_sum
        self.sums: dict[str, dict[_Key, _PodSum[_Record]]] = {}
        self._records: Mapping[str, Mapping[_Key, _Record]] = frozen({})
        #: Namespaces whose sums changed since.
        self._changed: set[str] = set()

    def add(self, namespace: str, key: _Key, pod: PodRecord, sign: int) -> None:
        sums = self.sums.setdefault(namespace, {})
        total = sums.get(key)
        if total is None:
            total = sums[key] = self._new_sum()
        total.add(pod, sign)
        if not total.phases:
            del sums[key]
            if not sums:
                del self.sums[namespace]
        self._changed.add(namespace)

    def rebuild(self) -> Iterator[None]:
        for namespace in sorted(self._changed):
            for total in list(self.sums.get(namespace, {}).values()):
                total.record()
                yield None

    def records(self) -> Mapping[str, Mapping[_Key, _Record]]:
        if self._changed:
            records = dict(self._records)
            for namespace in self._changed:
                sums = self.sums.get(namespace)
                if sums is None:
                    records.pop(namespace, None)
                else:
                    records[namespace] = MappingProxyType({key: total.record() for key, total in sums.items()})
            self._records = MappingProxyType(records)
            self._changed.clear()
        return self._records


class UsageIndex:
    """Sums over all known pods by node, by group, and by owner."""

    __slots__ = ("_changed", "_group_homes", "_groups", "_homes", "_nodes", "_owners", "_shape_usage", "_shapes")

    def __init__(self) -> None:
        self._nodes: dict[str, NodeUsage] = {}
        self._groups: _SumsByNamespace[GroupKey, GroupMembers] = _SumsByNamespace(_GroupSum)
        self._owners: _SumsByNamespace[str, PodCounts] = _SumsByNamespace(_OwnerSum)
        #: Namespaces with members of a group, for groups of the same name in several; and the same as last read.
        self._homes: dict[GroupKey, set[str]] = {}
        self._group_homes: Mapping[GroupKey, tuple[str, ...]] | None = None
        #: Nodes whose sums changed since the sums by shape were last read.
        self._changed: set[str] = set()
        self._shapes: tuple[NodeShape, ...] = ()
        self._shape_usage: Mapping[str, ShapeUsage] = frozen({})

    def put(self, namespace: str, before: PodRecord | None, after: PodRecord | None) -> None:
        """Replace a pod of ``namespace``: ``None`` stands for an absent pod."""
        # New amounts first: a group or node that remains must not vanish in between.
        for pod, sign in ((after, 1), (before, -1)):
            if pod is None:
                continue
            if pod.node:
                self._nodes[pod.node] = _with_pod(self.node(pod.node), pod, sign)
                if not self._nodes[pod.node].pods:
                    del self._nodes[pod.node]
                self._changed.add(pod.node)
            if pod.group is not None:
                self._add_to_group(namespace, pod, pod.group, sign)
            if pod.owner_group:
                self._owners.add(namespace, pod.owner_group, pod, sign)

    def _add_to_group(self, namespace: str, pod: PodRecord, key: GroupKey, sign: int) -> None:
        groups = self._groups.sums
        was_known = key in groups.get(namespace, ())
        self._groups.add(namespace, key, pod, sign)
        if was_known == (key in groups.get(namespace, ())):
            return
        homes = self._homes.setdefault(key, set())
        homes.symmetric_difference_update({namespace})
        if not homes:
            del self._homes[key]
        self._group_homes = None

    def rebuild(self) -> Iterator[None]:
        """Rebuild the changed records one by one, as the iterator is read, for :meth:`groups` and :meth:`pod_counts`."""
        yield from self._groups.rebuild()
        yield from self._owners.rebuild()

    def group_homes(self) -> Mapping[GroupKey, tuple[str, ...]]:
        """Return the namespaces that have members of a group of each key, sorted; recomputed only if one came or went."""
        if self._group_homes is None:
            self._group_homes = frozen({key: tuple(sorted(namespaces)) for key, namespaces in self._homes.items()})
        return self._group_homes

    def groups(self) -> Mapping[str, Mapping[GroupKey, GroupMembers]]:
        """Return the groups by namespace."""
        return self._groups.records()

    def pod_counts(self) -> Mapping[str, Mapping[str, PodCounts]]:
        """Return the pod counters of owners by namespace."""
        return self._owners.records()

    def node(self, name: str) -> NodeUsage:
        """Return the sums over the pods on the node ``name``."""
        return self._nodes.get(name, _NO_NODE_USAGE)

    def shape_usage(self, shapes: tuple[NodeShape, ...]) -> Mapping[str, ShapeUsage]:
        """Return the sums over the pods on each of ``shapes``, by the shape's first node; only changed shapes are recomputed."""
        if shapes is not self._shapes or self._changed:
            # An identical shape has the same nodes, and the same sums unless one of these changed.
            same = {id(shape) for shape in self._shapes}
            usage: dict[str, ShapeUsage] = {}
            for shape in shapes:
                first = shape.nodes[0]
                if id(shape) in same and self._changed.isdisjoint(shape.nodes):
                    usage[first] = self._shape_usage[first]
                else:
                    limits = [self.node(name).memory_limit for name in shape.nodes]
                    usage[first] = ShapeUsage(sum(limits), min(limits))
            self._shapes, self._shape_usage = shapes, MappingProxyType(usage)
            self._changed.clear()
        return self._shape_usage
