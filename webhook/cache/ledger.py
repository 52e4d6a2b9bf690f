"""Ledger of objects that this replica admitted and the watch does not show yet."""

import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from gpugate.policies.cluster.in_flight import Admitted, InFlight
from gpugate.policies.cluster.kinds import Key

#: Seconds after which an object that the watch never showed counts as rejected later in the admission chain.
_TIME_OUT: Final = 15.0
#: Most objects in one timeout: more are not counted. A review adds up the queues of all.
_MOST: Final = 4096


class InFlightLedger:
    """Counts an admitted object until the watch shows it, its name is created again, or a timeout."""

    __slots__ = ("_clock", "_due", "_ends", "_names", "_time_out", "in_flight")

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, time_out: float = _TIME_OUT, authenticated: bool = True
    ) -> None:
        """Prepare an empty ledger; ``time_out`` in seconds.

        Without ``authenticated`` callers, objects are unconfirmed until the watch shows something of them, and count no longer than
        the timeout of their request.
        """
        self._clock = clock
        self._time_out = time_out
        self._due: dict[str, float] = {}
        self._ends: list[tuple[float, str]] = []
        self._names: dict[tuple[str, Key], str] = {}
        self.in_flight = InFlight(None if authenticated else InFlight())

    def __len__(self) -> int:
        return len(self._due)

    def admit(self, uid: str, admitted: Admitted, timeout: float = _TIME_OUT) -> None:
        """Count ``admitted`` under the ``uid`` of its object; ``timeout`` is that of the request in seconds."""
        self.expire()
        self.supersede(admitted.kind, admitted.namespace, admitted.name)
        self.observe(uid)
        if len(self._ends) >= _MOST:
            return
        unconfirmed = self.in_flight.unconfirmed
        self._names[(admitted.kind, (admitted.namespace, admitted.name))] = uid
        self._count_until(uid, self._clock() + (self._time_out if unconfirmed is None else min(self._time_out, timeout)))
        (self.in_flight if unconfirmed is None else unconfirmed).add(uid, admitted)

    def _count_until(self, uid: str, due: float) -> None:
        self._due[uid] = due
        heappush(self._ends, (due, uid))

    def confirm(self, uid: str, namespace: str) -> None:
        """Count the object ``uid`` like any other: a new Kueue Workload in ``namespace`` shows that it is real."""
        unconfirmed = self.in_flight.unconfirmed
        admitted = unconfirmed.remove(uid) if unconfirmed is not None else None
        if admitted is None:
            return
        if admitted.namespace == namespace:
            self._count_until(uid, self._clock() + self._time_out)
            self.in_flight.add(uid, admitted)
        else:
            self._forget(uid, admitted)

    def supersede(self, kind: str, namespace: str, name: str) -> None:
        """Drop the earlier object of this name: creating the name again means that it was never stored, or is gone."""
        self.observe(self._names.get((kind, (namespace, name)), ""))

    def observe(self, uid: str) -> None:
        """Stop counting the object with this ``uid``: the watch shows it, or an object created for it."""
        if self._due.pop(uid, None) is None:
            return
        unconfirmed = self.in_flight.unconfirmed
        gone = self.in_flight.remove(uid) or (unconfirmed.remove(uid) if unconfirmed is not None else None)
        if gone is not None:
            self._forget(uid, gone)

    def _forget(self, uid: str, gone: Admitted) -> None:
        self._due.pop(uid, None)
        self._names.pop((gone.kind, (gone.namespace, gone.name)), None)

    def observe_pod(self, key: Key, uid: str, owner: str) -> None:
        """Stop counting what a watched pod stands for: itself, its controller's object, and any object expected under its name."""
        if not self._due:
            return
        for admitted in (uid, owner, self._names.get(("Pod", key), "")):
            self.observe(admitted)

    def expire(self) -> None:
        """Stop counting overdue entries."""
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            due, uid = heappop(self._ends)
            if self._due.get(uid) == due:
                self.observe(uid)
