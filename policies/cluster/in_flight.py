"""Objects in flight: admitted, and not yet visible in the watched objects.

Rules add these sums to those of a snapshot, so two objects of a burst do not get the same capacity. They change between
reviews, never during one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.records.common import change_count
from gpugate.policies.cluster.records.pod_groups import GroupKey

#: Percentage of a quota that unconfirmed objects may take together.
_SHARE: Final = 10
_NOTHING: Final[Mapping[str, int]] = {}


class Admitted(NamedTuple):
    """An admitted object.

    Attributes:
        pods: number of pods that it creates, or 1 for a pod.
        queue: its LocalQueue; empty for none.
        group: the pod group of a plain pod.
        requests: sum over all its pods: bytes, millicores or counts by resource.
    """

    kind: str
    namespace: str
    name: str
    pods: int
    queue: str
    group: GroupKey | None
    requests: Mapping[str, int]


class InFlight:
    """Sums over the objects in flight, updated entry by entry.

    Where anybody can send a review, objects may be made up. Until the watch shows something of an object, it is unconfirmed: it
    takes little from others, and refuses nothing.

    Attributes:
        unconfirmed: the sums over unconfirmed objects; None where all callers are authenticated.
    """

    __slots__ = ("_entries", "_groups", "_namespaces", "_queues", "unconfirmed")

    def __init__(self, unconfirmed: "InFlight | None" = None) -> None:
        self.unconfirmed = unconfirmed
        self._entries: dict[str, Admitted] = {}
        self._queues: dict[tuple[str, str], dict[str, int]] = {}
        self._namespaces: dict[str, dict[str, int]] = {}
        self._groups: dict[tuple[str, GroupKey], int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def add(self, uid: str, admitted: Admitted) -> None:
        """Add ``admitted`` under its ``uid``."""
        self.remove(uid)
        self._entries[uid] = admitted
        self._count(admitted, 1)

    def remove(self, uid: str) -> Admitted | None:
        """Remove the object ``uid`` and return it; None if it is not in flight."""
        removed = self._entries.pop(uid, None)
        if removed is not None:
            self._count(removed, -1)
        return removed

    def _count(self, admitted: Admitted, sign: int) -> None:
        namespace, requests, pods = admitted.namespace, admitted.requests, admitted.pods
        if admitted.queue:
            _add(self._queues, (namespace, admitted.queue), requests, sign)
        _add(self._namespaces, namespace, {**requests, "pods": pods}, sign)
        if admitted.group is not None:
            change_count(self._groups, (namespace, admitted.group), sign * pods)

    def into_namespace(self, name: str) -> bool:
        """Return whether any object in flight goes into namespace ``name``, confirmed or not."""
        return bool(self.namespace(name)) or (self.unconfirmed is not None and self.unconfirmed.into_namespace(name))

    def queue(self, namespace: str, name: str) -> Mapping[str, int]:
        """Return the amounts in flight into a LocalQueue by resource."""
        return self._queues.get((namespace, name), _NOTHING)

    def queues(self) -> Iterable[tuple[tuple[str, str], Mapping[str, int]]]:
        """Return the amounts in flight by resource, by namespace and name of the LocalQueue."""
        return self._queues.items()

    def namespace(self, name: str) -> Mapping[str, int]:
        """Return the amounts in flight into a namespace by resource, including ``pods``."""
        return self._namespaces.get(name, _NOTHING)

    def members(self, namespace: str, group: GroupKey) -> int:
        """Return the number of members of a group in flight."""
        return self._groups.get((namespace, group), 0)


def in_all(confirmed: Mapping[str, int], unconfirmed: Mapping[str, int], quota: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts of resources in ``quota``: those confirmed, and of the others at most a share of the quota, rounded up."""
    amounts: dict[str, int] = {}
    for name in quota.keys() & (confirmed.keys() | unconfirmed.keys()):
        share = -(-max(0, quota[name]) * _SHARE // 100)
        amounts[name] = confirmed.get(name, 0) + min(unconfirmed.get(name, 0), share)
    return amounts


def _add(sums: dict[Any, dict[str, int]], key: Any, amounts: Mapping[str, int], sign: int) -> None:  # noqa: ANN401 - any hashable
    counts = sums.setdefault(key, {})
    for name, amount in amounts.items():
        change_count(counts, name, sign * amount)
    if not counts:
        del sums[key]
