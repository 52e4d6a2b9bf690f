"""The Kueue Workloads that have not finished: which are still without a job, and which objects they belong to."""

from collections import Counter
from collections.abc import Iterator

from gpugate.policies.cluster.records.kueue import KueueWorkload


class KueueWorkloads:
    """The Workloads by namespace and name, updated one by one. They change between reviews, never during one."""

    __slots__ = ("_controllers", "_workloads")

    def __init__(self) -> None:
        #: The uid of each Workload's controller; empty for none.
        self._workloads: dict[tuple[str, str], str] = {}
        self._controllers: Counter[str] = Counter()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._workloads)

    def put(self, key: tuple[str, str], workload: KueueWorkload | None) -> bool:
        """Set the Workload ``key``, or remove it (None, or it has finished); return whether something changed."""
        before = self._workloads.get(key)
        now = None if workload is None or workload.finished else workload.controller
        if before == now:
            return False
        if before:
            self._controllers[before] -= 1
            if not self._controllers[before]:
                del self._controllers[before]
        if now is None:
            del self._workloads[key]
        else:
            self._workloads[key] = now
            if now:
                self._controllers[now] += 1
        return True

    def is_free(self, namespace: str, name: str) -> bool:
        """Return whether the Workload of this name exists and belongs to no object yet, so that a job can take it."""
        return self._workloads.get((namespace, name)) == ""

    def belong_to(self, uid: str) -> bool:
        """Return whether a Workload belongs to the object with this uid: Kueue has seen the object."""
        return uid in self._controllers
