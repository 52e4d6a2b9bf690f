"""How much of a resource a ClusterQueue has in a flavor, with what its cohort lends it.

The arithmetic is that of Kueue v0.15.0, ``pkg/cache/scheduler/resource_node.go``: a cohort's quota is its own and what its
children lend it; a node has what it keeps to itself and what its parent has, up to its borrowing limit. Amounts are bytes,
millicores or counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.cohorts import CohortTree
from gpugate.policies.cluster.records.kueue import ClusterQueue, Quota, ResourceGroup

#: A tree of cohorts deeper than this is nobody's; its sums are not known.
_DEEPEST: Final = 64
_NO_QUOTA: Final = Quota(0)


class QuotaNode(NamedTuple):
    """A ClusterQueue or cohort, for one flavor and resource.

    Attributes:
        quota: what it states itself.
        subtree: its own quota and what its children lend it (``SubtreeQuota``).
        usage: what is used of that (``Usage``): a ClusterQueue's reservations, a cohort's children's beyond what they keep.
    """

    quota: Quota
    subtree: int
    usage: int

    @property
    def local_quota(self) -> int:
        """What it lends to nobody (``localQuota``)."""
        lending = self.quota.lending
        return 0 if lending is None else max(0, self.subtree - lending)

    @property
    def local_available(self) -> int:
        """What is unused of what it lends to nobody (``LocalAvailable``)."""
        return max(0, self.local_quota - self.usage)


class Capacity(NamedTuple):
    """What a ClusterQueue has of one resource in one flavor.

    Attributes:
        nominal: its own quota.
        potential: the most that it could ever have: nothing used by anybody (``potentialAvailable``).
        available: what it could get now; below zero where more is reserved than there is (``available``).
        reserved: what is reserved for its own workloads.
        reserved_by_others: what the rest of its cohort's tree has reserved.
    """

    nominal: int
    potential: int
    available: int
    reserved: int
    reserved_by_others: int


class _TooDeepError(Exception):
    pass


def quota_in(groups: Iterable[ResourceGroup], flavor: str, resource: str) -> Quota:
    """What ``groups`` state for ``resource`` in ``flavor``; none where they state nothing."""
    for group in groups:
        for name, quotas in group.flavors:
            if name == flavor and resource in quotas:
                return quotas[resource]
    return _NO_QUOTA


def _node_of_queue(queue: ClusterQueue, flavor: str, resource: str) -> QuotaNode:
    quota = quota_in(queue.groups, flavor, resource)
    return QuotaNode(quota, quota.nominal, queue.reserved.get((flavor, resource), 0))


class _Sums:
    """Nodes of all cohorts below one root, for one flavor and resource."""

    def __init__(self, tree: CohortTree, flavor: str, resource: str) -> None:
        self.tree = tree
        self.flavor = flavor
        self.resource = resource
        self.nodes: dict[str, QuotaNode] = {}
        self.reserved = 0

    def add_up(self, name: str, depth: int = 0) -> QuotaNode:
        if depth > _DEEPEST:
            raise _TooDeepError
        cohort = self.tree.cohorts.get(name)
        quota = quota_in(cohort.groups, self.flavor, self.resource) if cohort else _NO_QUOTA
        subtree, usage = quota.nominal, 0
        queues = [_node_of_queue(queue, self.flavor, self.resource) for queue in self.tree.queues.get(name, ())]
        self.reserved += sum(queue.usage for queue in queues)
        below = [self.add_up(child, depth + 1) for child in self.tree.children.get(name, ())]
        for child in (*below, *queues):
            subtree += child.subtree - child.local_quota
            usage += max(0, child.usage - child.local_quota)
        found = self.nodes[name] = QuotaNode(quota, subtree, usage)
        return found


def _potential(way: list[QuotaNode]) -> int:
    """``potentialAvailable`` of the first of ``way``, which leads up to the root."""
    *below, root = way
    found = root.subtree
    for node in reversed(below):
        found += node.local_quota
        if node.quota.borrowing is not None:
            found = min(node.subtree + node.quota.borrowing, found)
    return found


def _available(way: list[QuotaNode]) -> int:
    """``available`` of the first of ``way``, which leads up to the root."""
    *below, root = way
    found = root.subtree - root.usage
    for node in reversed(below):
        if node.quota.borrowing is not None:
            stored, used = node.subtree - node.local_quota, max(0, node.usage - node.local_quota)
            found = min(stored - used + node.quota.borrowing, found)
        found += node.local_available
    return found


def capacity(tree: CohortTree, queue: ClusterQueue, flavor: str, resource: str) -> Capacity | None:
    """What ``queue`` has of ``resource`` in ``flavor``; None where its cohorts go in a circle.

    Costs what the cohort's own tree holds, once for each state of ClusterQueues and Cohorts.
    """
    key = (queue.name, flavor, resource)
    if key not in tree.memo:
        tree.memo[key] = _capacity(tree, queue, flavor, resource)
    found: Capacity | None = tree.memo[key]
    return found


def _capacity(tree: CohortTree, queue: ClusterQueue, flavor: str, resource: str) -> Capacity | None:
    own = _node_of_queue(queue, flavor, resource)
    if not queue.cohort:
        return Capacity(own.quota.nominal, own.subtree, own.subtree - own.usage, own.usage, 0)
    names = tree.way_up(queue.cohort)
    if names is None:
        return None
    sums = _Sums(tree, flavor, resource)
    try:
        sums.add_up(names[-1])
    except _TooDeepError:
        return None
    way = [own, *(sums.nodes[name] for name in names)]
    return Capacity(own.quota.nominal, _potential(way), _available(way), own.usage, sums.reserved - own.usage)


def bound_without_cohort(queue: ClusterQueue, flavor: str, resource: str) -> int | None:
    """The most that ``queue`` could have whatever its cohort holds: nominal and borrowing limit; None without limit."""
    quota = quota_in(queue.groups, flavor, resource)
    if not queue.cohort:
        return quota.nominal
    return None if quota.borrowing is None else quota.nominal + quota.borrowing
