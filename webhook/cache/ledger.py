"""Ledger of objects that this replica admitted and the watch does not show yet."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gpugate.policies.cluster.in_flight import Admitted, InFlight
from gpugate.policies.cluster.kinds import Key

#: Seconds after which an object that the watch never showed counts as rejected later in the admission chain.
_TIME_OUT: Final = 15.0


class InFlightLedger:
    """Counts an admitted object until the watch shows it, its name is created again, or a timeout."""

    __slots__ = ("_clock", "_due", "_names", "_time_out", "in_flight")

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, time_out: float = _TIME_OUT) -> None:
        """Prepare an empty ledger; ``time_out`` in seconds."""
        self._clock = clock
        self._time_out = time_out
        self._due: OrderedDict[str, float] = OrderedDict()
        self._names: dict[tuple[str, Key], str] = {}
        self.in_flight = InFlight()

    def __len__(self) -> int:
        return len(self._due)

    def admit(self, uid: str, admitted: Admitted) -> None:
        """Count ``admitted`` under the ``uid`` of its object."""
        self.expire()
        self.supersede(admitted.kind, admitted.namespace, admitted.name)
        self._names[(admitted.kind, (admitted.namespace, admitted.name))] = uid
        self._due[uid] = self._clock() + self._time_out
        self._due.move_to_end(uid)
        self.in_flight.add(uid, admitted)

    def supersede(self, kind: str, namespace: str, name: str) -> None:
        """Drop the earlier object of this name: creating the name again means that it was never stored, or is gone."""
        self.observe(self._names.get((kind, (namespace, name)), ""))

    def observe(self, uid: str) -> None:
        """Stop counting the object with this ``uid``: the watch shows it, or an object created for it."""
        if self._due.pop(uid, None) is None:
            return
        gone = self.in_flight.remove(uid)
        if gone is not None:
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
        while self._due:
            uid, due = next(iter(self._due.items()))
            if due > now:
                return
            self.observe(uid)
