"""Events about pods of callers without a client certificate, held until the watch shows the pod.

Anybody who reaches the server can send a review, so a review alone proves nothing. The apiserver gives a pod its uid before it
calls validating webhooks, and nobody can guess it: a new pod with that uid in the watch proves that the review was real.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

#: Seconds to wait for the watch: the longest ``timeoutSeconds`` of a webhook, after which the apiserver does not store the pod.
_TIME_OUT: Final = 30.0
#: Events held at once; the oldest is dropped.
_MOST: Final = 256


class _Held(NamedTuple):
    namespace: str
    owner: str
    expires: float
    emit: Callable[[], None]


class HeldEvents:
    """Emits the Event of a pod when the watch shows the pod as new, and drops it otherwise."""

    __slots__ = ("_clock", "_dropped", "_held", "_most", "_time_out")

    def __init__(
        self,
        dropped: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        time_out: float = _TIME_OUT,
        most: int = _MOST,
    ) -> None:
        """Hold at most ``most`` Events, each for at most ``time_out`` seconds; ``dropped`` is called for each that is dropped."""
        self._dropped = dropped
        self._clock = clock
        self._time_out = time_out
        self._most = most
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, uid: str, namespace: str, owner: str, emit: Callable[[], None]) -> None:
        """Call ``emit`` once the watch shows a new pod ``uid`` in ``namespace``, whose controller has the uid ``owner``."""
        now = self._clock()
        while self._held:
            oldest = next(iter(self._held))
            if len(self._held) < self._most and self._held[oldest].expires > now:
                break
            self._drop(oldest)
        if uid in self._held:
            self._drop(uid)
        self._held[uid] = _Held(namespace, owner, now + self._time_out, emit)

    def _drop(self, uid: str) -> None:
        del self._held[uid]
        self._dropped()

    def added(self, uid: str, namespace: str, owner: str) -> None:
        """Take note of a pod that the watch shows for the first time."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        if (namespace, owner) == (held.namespace, held.owner) and held.expires > self._clock():
            held.emit()
        else:
            self._dropped()
