"""How long a reflector waits for what."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Time, as tests may replace it; durations in seconds, `jitter` within [0, 1)."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    first_backoff: float = 1.0
    longest_backoff: float = 30.0
    absent_poll: float = 5.0
    watch: float = 120.0
    """A watch lasts once to twice as long, so that replicas do not reconnect in step."""
    grace: float = 15.0
    """Silence beyond a watch's own end, after which the connection counts as dead."""
    initial: float = 60.0
    """Silence within a streamed list, after which the connection counts as dead."""

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after so many failures before, doubled by each, and jittered by up to half."""
        longest = min(self.longest_backoff, self.first_backoff * 2.0 ** min(failures, 16))
        return longest * (1 + self.jitter()) / 2
