"""Callers whose reviews have taken much time of late: their next ones come after those of others."""

import math
from collections import OrderedDict
from typing import Final

#: Seconds of CPU of one review from which on it counts. A usual one takes a fraction of a millisecond.
_LONG: Final = 0.005
#: Seconds after which a caller's time counts for a third.
_MEMORY: Final = 2.0
#: Seconds below which a caller's time no longer counts.
_NOTHING: Final = 0.002
#: Callers at once; of more, the one whose last long review is the longest ago is forgotten.
_MOST: Final = 256
_USER: Final = b'"userInfo":{"username":"'
_NAMESPACE: Final = b'"namespace":"'


def caller_of(body: bytes) -> bytes:
    """Return a key of the namespace and the user of a review as the apiserver writes it; empty for what nobody can tell.

    The namespace and the user come before the object, and a quote in a name is escaped: no object can pretend to another caller.
    Controllers act for all namespaces, so the namespace is part of the key.
    """
    user = body.find(_USER)
    if user < 0:
        return b""
    namespace = body.rfind(_NAMESPACE, 0, user) + len(_NAMESPACE)
    start = user + len(_USER)
    of_namespace = body[namespace : body.find(b'"', namespace)] if namespace >= len(_NAMESPACE) else b""
    return of_namespace + b"/" + body[start : body.find(b'"', start)]


class Callers:
    """The time that long reviews of each caller have taken; older time counts less and less."""

    def __init__(self) -> None:
        self._spent: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def __bool__(self) -> bool:
        """Return whether any caller had a long review of late."""
        return bool(self._spent)

    def spent(self, caller: bytes, now: float) -> float:
        """Return the seconds that reviews of ``caller`` have taken of late; forget a caller whose time no longer counts."""
        oldest = next(iter(self._spent), None)
        if oldest is not None and self._left(oldest, now) < _NOTHING:
            del self._spent[oldest]
        return self._left(caller, now)

    def _left(self, caller: bytes, now: float) -> float:
        seconds, at = self._spent.get(caller, (0.0, now))
        return seconds * math.exp((at - now) / _MEMORY)

    def add(self, caller: bytes, seconds: float, now: float) -> None:
        """Count a review that took so many ``seconds``."""
        self._spent[caller] = (self._left(caller, now) + seconds, now)
        self._spent.move_to_end(caller)
        if len(self._spent) > _MOST:
            self._spent.popitem(last=False)

    @staticmethod
    def is_long(seconds: float) -> bool:
        """Return whether a review that took so many ``seconds`` counts."""
        return seconds > _LONG
