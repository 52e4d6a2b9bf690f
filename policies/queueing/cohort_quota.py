"""Compute the quota of a ClusterQueue for one resource in one flavor, with the quota that it may borrow from its cohort.

Formula: Kueue v0.15.0, ``pkg/cache/scheduler/resource_node.go``. A cohort has its own quota and the quota that its children
lend it; a ClusterQueue or cohort has its local quota and its parent's, up to its borrowing limit. Amounts are bytes, millicores
or counts.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.kueue import ClusterQueue, CohortTree, Quota, ResourceGroup

#: Maximum depth of a tree of cohorts whose sums are computed.
_MAX_DEPTH: Final = 64
_NO_QUOTA: Final = Quota(0)


class QuotaNode(NamedTuple):
    """A ClusterQueue or cohort, for one flavor and resource.

    Attributes:
        quota: its own quota.
        subtree: its own quota and the quota that its children lend it (``SubtreeQuota``).
        usage: the used part of that (``Usage``): reservations of a ClusterQueue, or of a cohort's children beyond their local
            quota.
    """

    quota: Quota
    subtree: int
    usage: int

    @property
    def local_quota(self) -> int:
        """The part of the quota that is never lent (``localQuota``)."""
        lending = self.quota.lending
        return 0 if lending is None else max(0, self.subtree - lending)


class Capacity(NamedTuple):
    """The quota of a ClusterQueue for one resource in one flavor.

    Attributes:
        nominal: its own quota.
        potential: its maximum while nothing is reserved in its cohort (``potentialAvailable``).
        available: the amount that it can get now; below zero if reservations exceed the quota (``available``).
        reserved: reserved for its own workloads.
        reserved_by_others: reserved in the rest of its cohort's tree.
    """

    nominal: int
    potential: int
    available: int
    reserved: int
    reserved_by_others: int


class _TooDeepError(Exception):
    pass


def quota_in(groups: Iterable[ResourceGroup], flavor: str, resource: str) -> Quota:
    """Return the quota of ``groups`` for ``resource`` in ``flavor``; zero if they have none."""
    flavors = (quotas for group in groups for name, quotas in group.flavors if name == flavor and resource in quotas)
    return next((quotas[resource] for quotas in flavors), _NO_QUOTA)


def _node_of_queue(queue: ClusterQueue, flavor: str, resource: str) -> QuotaNode:
    quota = quota_in(queue.groups, flavor, resource)
    return QuotaNode(quota, quota.nominal, queue.reserved.get((flavor, resource), 0))


class _Sums:
    """The sums of all cohorts below one root, for one flavor and resource."""

    def __init__(self, tree: CohortTree, flavor: str, resource: str) -> None:
        self.tree, self.flavor, self.resource = tree, flavor, resource
        self.nodes: dict[str, QuotaNode] = {}
        self.reserved = 0

    def add_up(self, name: str, depth: int = 0) -> QuotaNode:
        if depth > _MAX_DEPTH:
            raise _TooDeepError
        cohort = self.tree.cohorts.get(name)
        quota = quota_in(cohort.groups, self.flavor, self.resource) if cohort else _NO_QUOTA
        subtree, usage = quota.nominal, 0
        queues = [_node_of_queue(queue, self.flavor, self.resource) for queue in self.tree.queues.get(name, ())]
        self.reserved += sum(queue.usage for queue in queues)
        cohorts = [self.add_up(child, depth + 1) for child in self.tree.children.get(name, ())]
        for child in (*cohorts, *queues):
            subtree += child.subtree - child.local_quota
            usage += max(0, child.usage - child.local_quota)
        node = self.nodes[name] = QuotaNode(quota, subtree, usage)
        return node


def _potential(path: list[QuotaNode]) -> int:
    """Return ``potentialAvailable`` of the first node of ``path``, which leads up to the root."""
    *below, root = path
    potential = root.subtree
    for node in reversed(below):
        potential += node.local_quota
        if node.quota.borrowing is not None:
            potential = min(node.subtree + node.quota.borrowing, potential)
    return potential


def _available(path: list[QuotaNode]) -> int:
    """Return ``available`` of the first node of ``path``, which leads up to the root."""
    *below, root = path
    available = root.subtree - root.usage
    for node in reversed(below):
        if node.quota.borrowing is not None:
            stored, used = node.subtree - node.local_quota, max(0, node.usage - node.local_quota)
            available = min(stored - used + node.quota.borrowing, available)
        # LocalAvailable
        available += max(0, node.local_quota - node.usage)
    return available


def capacity(tree: CohortTree, queue: ClusterQueue, flavor: str, resource: str) -> Capacity | None:
    """Return the quota of ``queue`` for ``resource`` in ``flavor``; None if its cohorts form a cycle or are nested too deep.

    The sums visit the whole tree of the cohort, once for each state of ClusterQueues and Cohorts.
    """
    key = (queue.name, flavor, resource)
    if key not in tree.memo:
        tree.memo[key] = _capacity(tree, queue, flavor, resource)
    result: Capacity | None = tree.memo[key]
    return result


def _capacity(tree: CohortTree, queue: ClusterQueue, flavor: str, resource: str) -> Capacity | None:
    own = _node_of_queue(queue, flavor, resource)
    if not queue.cohort:
        return Capacity(own.quota.nominal, own.subtree, own.subtree - own.usage, own.usage, 0)
    names = tree.path_to_root(queue.cohort)
    if names is None:
        return None
    sums = _Sums(tree, flavor, resource)
    try:
        sums.add_up(names[-1])
    except _TooDeepError:
        return None
    path = [own, *(sums.nodes[name] for name in names)]
    return Capacity(own.quota.nominal, _potential(path), _available(path), own.usage, sums.reserved - own.usage)


def bound_without_cohort(queue: ClusterQueue, flavor: str, resource: str) -> int | None:
    """Return the maximum of ``queue`` in any cohort: nominal quota plus borrowing limit; None without such a limit."""
    quota = quota_in(queue.groups, flavor, resource)
    if not queue.cohort:
        return quota.nominal
    return None if quota.borrowing is None else quota.nominal + quota.borrowing
