"""Poll Prometheus at an interval, so that audits use the latest reading without waiting."""

import asyncio
import math
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeAlias

from gpugate.policies.cluster.gpu_usage import IdleBounds, Times, times_of
from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet, mode_of, settings_of
from gpugate.policies.rules.ownership import idle
from gpugate.webhook.prometheus.client import Address, Prometheus, PrometheusError
from gpugate.webhook.prometheus.readings import Readings, read
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.times import rfc3339


def times_wanted(*sets: PolicySet) -> Times:
    """Return the time windows of the policies' idle rules; the rule's defaults if no policy has the rule."""
    bounds = list(_bounds(sets))
    return times_of(bounds or [idle.bounds_of(idle.IdleParams())])


def _bounds(sets: Iterable[PolicySet]) -> Iterator[IdleBounds]:
    for policies in sets:
        for policy in policies.policies:
            settings = settings_of(policy, idle.RULE)
            if settings is not None and mode_of(policy, idle.RULE) is not Mode.DISABLED:
                yield idle.bounds_of(settings)


async def ask(address: Address, wanted: Times, at: float) -> Readings:
    """Read the figures of all devices at a time, in seconds since 1970.

    Raises:
        PrometheusError: Prometheus is not usable.
    """
    async with Prometheus(address) as prometheus:
        return await read(prometheus, wanted, at, address.matchers)


Ask: TypeAlias = Callable[[Address, Times, float], Awaitable[Readings]]
#: Intervals for which a reading stays valid.
_GOOD_FOR: Final = 3
#: Seconds between two checks whether a changed policy needs other time windows.
_PAUSE: Final = 5.0


class UsagePoller:
    """Polls Prometheus at an interval.

    Attributes:
        asked: number of readings tried.
        failed: number of readings that failed.
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
        """Prepare a poller.

        Args:
            address: address of Prometheus.
            policies: returns the policies in force.
            interval: seconds between two readings.
            log: log for failures.
            ask: reads the figures.
            wall: returns the time, in seconds since 1970.
            pause: seconds between two checks of the policies' time windows.
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
        """Poll until cancelled."""
        while True:
            wanted = times_wanted(self._policies())
            await self._poll(wanted)
            await self._wait(wanted)

    async def _wait(self, wanted: Times) -> None:
        """Wait for the end of the interval, or until the policies need other time windows."""
        checks = max(1, math.ceil(self._interval / self._pause))
        for _ in range(checks):
            await asyncio.sleep(self._interval / checks)
            if times_wanted(self._policies()) != wanted:
                return

    async def _poll(self, wanted: Times) -> None:
        self.asked += 1
        try:
            self._latest = await self._ask(self._address, wanted, self._wall())
        except PrometheusError as error:
            self._fail(str(error))
            self._log.warning("GPU figures not read", error=self._problem)
        except Exception as error:  # noqa: BLE001 - the audit goes on without figures
            self._fail(f"Prometheus at {self._address.url}: {type(error).__name__}")
            self._log.error("GPU figures not read", traceback="".join(traceback.format_exception(error)))
        else:
            self._problem = ""

    def _fail(self, problem: str) -> None:
        self.failed += 1
        self._problem = problem

    def current(self) -> Readings | None:
        """Return the last reading, the same object until the next one; None if it is too old or there is none."""
        latest = self._latest
        return None if latest is None or self._wall() - latest.at > _GOOD_FOR * self._interval else latest

    def remarks(self) -> tuple[str, ...]:
        """Return why there is no reading, or no recent one."""
        if not self._problem:
            return ()
        latest = self.current()
        shown = "no figures of GPUs are shown" if latest is None else f"figures of GPUs are those of {rfc3339(latest.at)}"
        return (f"{self._problem}: {shown}",)
