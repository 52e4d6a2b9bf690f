"""Poll Prometheus at an interval, so that audits use the latest reading without waiting."""

import asyncio
import math
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from gpugate.policies.cluster.gpu_usage import Times, times_of
from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet, mode_of, settings_of
from gpugate.policies.rules.ownership import idle
from gpugate.webhook.prometheus.client import Address, Prometheus, PrometheusError
from gpugate.webhook.prometheus.readings import Readings, read
from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.times import rfc3339


def idle_times(*sets: PolicySet) -> Times:
    """Return the time windows of the policies' idle rules; the rule's defaults if no policy has the rule."""
    bounds = [
        idle.bounds_of(settings)
        for policies in sets
        for policy in policies.policies
        if (settings := settings_of(policy, idle.RULE)) is not None and mode_of(policy, idle.RULE) is not Mode.DISABLED
    ]
    return times_of(bounds or [idle.bounds_of(idle.IdleParams())])


async def fetch_readings(address: Address, times: Times, at: float) -> Readings:
    """Read the figures of all devices at a time, in seconds since 1970.

    Raises:
        PrometheusError: Prometheus is not usable.
    """
    async with Prometheus(address) as prometheus:
        return await read(prometheus, times, at, address.matchers)


Fetch: TypeAlias = Callable[[Address, Times, float], Awaitable[Readings]]
#: Intervals for which a reading stays valid.
_VALID_INTERVALS: Final = 3
#: Seconds between two checks whether a changed policy needs other time windows.
_PAUSE: Final = 5.0


class UsagePoller:
    """Polls Prometheus at an interval; ``asked`` and ``failed`` count the readings tried and failed."""

    def __init__(
        self,
        address: Address,
        policies: Callable[[], PolicySet],
        interval: float,
        log: Log,
        *,
        fetch: Fetch = fetch_readings,
        wall: Callable[[], float] = time.time,
        pause: float = _PAUSE,
    ) -> None:
        """Prepare a poller with ``interval`` seconds between two readings, and ``pause`` between two checks of the policies."""
        self.asked = 0
        self.failed = 0
        self._address = address
        self._policies = policies
        self._interval = interval
        self._log = log
        self._fetch = fetch
        self._wall = wall
        self._pause = pause
        self._latest: Readings | None = None
        self._problem = ""

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            times = idle_times(self._policies())
            await self._poll(times)
            await self._wait(times)

    async def _wait(self, times: Times) -> None:
        """Wait for the end of the interval, or until the policies need other time windows."""
        checks = max(1, math.ceil(self._interval / self._pause))
        for _ in range(checks):
            await asyncio.sleep(self._interval / checks)
            if idle_times(self._policies()) != times:
                return

    async def _poll(self, times: Times) -> None:
        self.asked += 1
        try:
            self._latest = await self._fetch(self._address, times, self._wall())
        except PrometheusError as error:
            self._fail(str(error))
            self._log.warning("cannot read GPU figures", error=self._problem)
        except Exception as error:  # noqa: BLE001 - the audit goes on without figures
            self._fail(f"Prometheus at {self._address.url}: {type(error).__name__}")
            self._log.error("cannot read GPU figures", traceback="".join(traceback.format_exception(error)))
        else:
            self._problem = ""

    def _fail(self, problem: str) -> None:
        self.failed += 1
        self._problem = problem

    def current(self) -> Readings | None:
        """Return the last reading, the same object until the next one; None if it is too old or there is none."""
        latest = self._latest
        return None if latest is None or self._wall() - latest.at > _VALID_INTERVALS * self._interval else latest

    def remarks(self) -> tuple[str, ...]:
        """Return why there is no reading, or no recent one."""
        if not self._problem:
            return ()
        latest = self.current()
        effect = "no GPU figures are shown" if latest is None else f"GPU figures are those of {rfc3339(latest.at)}"
        return (f"{self._problem}: {effect}",)
