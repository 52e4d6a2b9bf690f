"""The Kueue Workloads that have not finished: which belong to no object yet, and to which objects the others belong."""

from collections import Counter
from collections.abc import Iterator

from gpugate.policies.cluster.records.kueue import KueueWorkload


class KueueWorkloads:
    """The Workloads by namespace and name, updated one by one. They change between reviews, never during one."""

    __slots__ = ("_dispatched", "_objects", "_owners")

    def __init__(self) -> None:
        #: The uids of the owners of each Workload.
        self._owners: dict[tuple[str, str], tuple[str, ...]] = {}
        #: The Workloads that MultiKueue made for objects of another cluster.
        self._dispatched: set[tuple[str, str]] = set()
        #: How many Workloads belong to each object, by its uid.
        self._objects: Counter[str] = Counter()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._owners)

    def put(self, key: tuple[str, str], workload: KueueWorkload | None) -> bool:
        """Set the Workload ``key``, or remove it (None, or it has finished); return whether something changed."""
        self._dispatched.discard(key)
        if workload is not None and workload.dispatched and not workload.finished:
            self._dispatched.add(key)
        before = self._owners.get(key)
        now = None if workload is None or workload.finished else workload.owners
        if before == now:
            return False
        for uid in before or ():
            self._objects[uid] -= 1
            if not self._objects[uid]:
                del self._objects[uid]
        if now is None:
            del self._owners[key]
        else:
            self._owners[key] = now
            self._objects.update(now)
        return True

    def is_free(self, namespace: str, name: str) -> bool:
        """Return whether the Workload of this name exists and belongs to no object yet, so that a job can take it."""
        return self._owners.get((namespace, name)) == ()

    def is_dispatched(self, namespace: str, name: str) -> bool:
        """Return whether MultiKueue made the Workload of this name, for an object of another cluster."""
        return (namespace, name) in self._dispatched

    def belong_to(self, uid: str) -> bool:
        """Return whether a Workload belongs to the object with this uid: Kueue has seen the object."""
        return uid in self._objects
