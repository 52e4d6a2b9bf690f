"""Keeps a reading of all devices, on its own: whoever audits takes what is there and waits for nothing."""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from gpugate.policies.cluster.gpu_usage import Times
from gpugate.policies.policy.binding import PolicySet
from gpugate.webhook.prometheus.client import Address, PrometheusError
from gpugate.webhook.prometheus.collect import ask, times_wanted
from gpugate.webhook.prometheus.readings import Readings
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.times import rfc3339

Ask: TypeAlias = Callable[[Address, Times, float], Awaitable[Readings]]

#: A reading is good for so many intervals.
_GOOD_FOR: Final = 3
#: Seconds between two looks at whether other times are wanted, since a policy has changed.
_PAUSE: Final = 5.0


class UsagePoller:
    """Asks Prometheus at an interval.

    Attributes:
        asked: how often it was asked.
        failed: how often it gave no answer.
    """

    def __init__(
        self,
        address: Address,
        policies: Callable[[], PolicySet],
        interval: float,
        log: Log,
        *,
        ask: Ask = ask,
        wall: Callable[[], float] = time.time,
        pause: float = _PAUSE,
    ) -> None:
        """Prepare a keeper.

        Args:
            address: where Prometheus is.
            policies: gives the policies in force.
            interval: seconds between two questions.
            log: where failures are told.
            ask: asks.
            wall: the time, in seconds since 1970.
            pause: seconds between two looks at which times the policies want.
        """
        self.asked = 0
        self.failed = 0
        self._address = address
        self._policies = policies
        self._interval = interval
        self._log = log
        self._ask = ask
        self._wall = wall
        self._pause = pause
        self._latest: Readings | None = None
        self._problem = ""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            wanted = times_wanted(self._policies())
            await self._look(wanted)
            await self._rest(wanted)

    async def _rest(self, wanted: Times) -> None:
        """Wait for the end of the interval, or until other times are wanted."""
        looks = max(1, math.ceil(self._interval / self._pause))
        for _ in range(looks):
            await asyncio.sleep(self._interval / looks)
            if times_wanted(self._policies()) != wanted:
                return

    async def _look(self, wanted: Times) -> None:
        self.asked += 1
        try:
            self._latest = await self._ask(self._address, wanted, self._wall())
        except PrometheusError as error:
            self._fail(str(error))
            self._log.warning("GPU figures not read", error=self._problem)
        except Exception as error:  # noqa: BLE001 - whatever it is, the audit goes on without
            self._fail(f"Prometheus at {self._address.url}: {type(error).__name__}")
            self._log.error("GPU figures not read", traceback="".join(traceback.format_exception(error)))
        else:
            self._problem = ""

    def _fail(self, problem: str) -> None:
        self.failed += 1
        self._problem = problem

    def current(self) -> Readings | None:
        """The last reading, the very same until there is another; None where it is too old, or there was none."""
        latest = self._latest
        return None if latest is None or self._wall() - latest.at > _GOOD_FOR * self._interval else latest

    def remarks(self) -> tuple[str, ...]:
        """Why there is no reading, or none that is new."""
        if not self._problem:
            return ()
        latest = self.current()
        shown = "no figures of GPUs are shown" if latest is None else f"figures of GPUs are those of {rfc3339(latest.at)}"
        return (f"{self._problem}: {shown}",)
