"""Token buckets: a burst, and then a rate per second."""

from collections import OrderedDict
from collections.abc import Hashable


class TokenBucket:
    """One bucket, full at the start; the caller passes the time in seconds."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        """Make a bucket that holds ``burst`` and is filled by ``rate`` a second."""
        self._burst = burst
        self._rate = rate
        self._left = float(burst)
        self._at = now

    def _fill(self, now: float) -> None:
        self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now

    def take(self, now: float) -> bool:
        """Take one token; return False if there is none."""
        self._fill(now)
        # Accept rounding errors: else a caller that waited for a token may wait twice.
        if self._left < 1.0 - 1e-9:
            return False
        self._left -= 1.0
        return True

    def wait(self, now: float) -> float:
        """Return the seconds until there is a token."""
        self._fill(now)
        return 0.0 if self._left >= 1.0 - 1e-9 else (1.0 - self._left) / self._rate


class Buckets:
    """A bucket per key; the least recently used ones are dropped."""

    __slots__ = ("_burst", "_kept", "_most", "_rate")

    def __init__(self, burst: float, rate: float, most: int) -> None:
        """Prepare buckets as in :class:`TokenBucket`, at most ``most`` of them at a time."""
        self._burst = burst
        self._rate = rate
        self._most = most
        self._kept: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, key: Hashable, now: float) -> bool:
        """Take one token from the bucket of ``key``; return False if there is none."""
        bucket = self._kept.get(key)
        if bucket is None:
            bucket = self._kept[key] = TokenBucket(self._burst, self._rate, now)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return bucket.take(now)
