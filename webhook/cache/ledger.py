"""The ledger of what this replica admitted a moment ago and the watch does not show yet."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gpugate.policies.cluster.builder import Key
from gpugate.policies.cluster.in_flight import Admitted, InFlight

#: Seconds after which what the watch never showed is taken to have failed later in the chain of admission.
_TIME_OUT: Final = 15.0


class InFlightLedger:
    """Counts an admitted object until the watch shows it, its name comes again, or a time-out.

    Attributes:
        in_flight: the sums, as rules read them.
    """

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
        """Count ``admitted``, whose object has this ``uid``."""
        self.expire()
        self.supersede(admitted.kind, admitted.namespace, admitted.name)
        self._names[(admitted.kind, (admitted.namespace, admitted.name))] = uid
        self._due[uid] = self._clock() + self._time_out
        self._due.move_to_end(uid)
        self.in_flight.add(uid, admitted)

    def supersede(self, kind: str, namespace: str, name: str) -> None:
        """Take that an object of this name is created again: the one counted before never came to be, or is gone."""
        before = self._names.get((kind, (namespace, name)))
        if before is not None:
            self.saw(before)

    def saw(self, uid: str) -> None:
        """Count the object with this ``uid`` no longer: the watch shows it, or what was made for it."""
        if self._due.pop(uid, None) is None:
            return
        gone = self.in_flight.remove(uid)
        if gone is not None:
            self._names.pop((gone.kind, (gone.namespace, gone.name)), None)

    def saw_pod(self, key: Key, uid: str, owner: str) -> None:
        """Take a pod that the watch shows: itself, its controller's object, and whatever else was to have its name."""
        if not self._due:
            return
        self.saw(uid)
        if owner:
            self.saw(owner)
        other = self._names.get(("Pod", key))
        if other is not None:
            self.saw(other)

    def expire(self) -> None:
        """Count no longer what is overdue."""
        now = self._clock()
        while self._due:
            uid, due = next(iter(self._due.items()))
            if due > now:
                return
            self.saw(uid)
