"""What is to be asked for by the policies in force, and one asking of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpugate.policies.cluster.gpu_usage import IdleBounds, Times, times_of
from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet, mode_of, settings_of
from gpugate.policies.rules.ownership import idle
from gpugate.webhook.prometheus.client import Address, Prometheus
from gpugate.webhook.prometheus.readings import Readings, read


def times_wanted(*sets: PolicySet) -> Times:
    """The times by which the policies judge held devices; those of the rule's defaults where none judges any."""
    bounds = list(_bounds(sets))
    return times_of(bounds or [idle.bounds_of(idle.IdleParams())])


def _bounds(sets: Iterable[PolicySet]) -> Iterator[IdleBounds]:
    for policies in sets:
        for policy in policies.policies:
            settings = settings_of(policy, idle.RULE)
            if settings is not None and mode_of(policy, idle.RULE) is not Mode.DISABLED:
                yield idle.bounds_of(settings)


async def ask(address: Address, wanted: Times, at: float) -> Readings:
    """What Prometheus tells of all devices at a time, in seconds since 1970.

    Raises:
        PrometheusError: it cannot be asked.
    """
    async with Prometheus(address) as prometheus:
        return await read(prometheus, wanted, at, address.matchers)
