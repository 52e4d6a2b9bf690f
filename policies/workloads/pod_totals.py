"""What the containers of one pod come to together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gpugate.policies.kube.accelerators import Form, form_of
from gpugate.policies.workloads.container import EPHEMERAL, INIT, SIDECAR, Container


class PodTotals:
    """What the containers of one pod come to together, worked out once for all pods whose containers state the same.

    Attributes:
        accelerators: what the scheduler counts for one pod: accelerator name to count.
        holders: indices of the containers that ask for accelerators by resource, ephemeral ones left out.
        whole_devices: how many whole devices one pod holds by resource.
        others: whether a container states a resource besides memory, CPU and accelerators.
        is_guaranteed: whether every container is Guaranteed by the very text of what it states.
        demand: what :mod:`gpugate.policies.workloads.requests` added up from the containers; None until it is asked.
        ceiling: bytes that it added up from their memory limits; None until it is asked.
    """

    __slots__ = ("accelerators", "ceiling", "demand", "holders", "is_guaranteed", "others", "whole_devices")

    def __init__(self, containers: Sequence[Container]) -> None:
        self.accelerators = _count(containers)
        self.holders = tuple(at for at, one in enumerate(containers) if one.role is not EPHEMERAL and one.accelerators())
        self.whole_devices = sum(count for name, count in self.accelerators.items() if form_of(name) is Form.WHOLE)
        self.is_guaranteed = all(one.stated.is_guaranteed for one in containers)
        self.others = any(one.stated.has_others for one in containers)
        self.demand: Any = None
        self.ceiling: int | None = None


def _count(containers: Sequence[Container]) -> dict[str, int]:
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers:
        for name, count in container.accelerators().items():
            if container.role is INIT:
                peak[name] = max(peak.get(name, 0), count + sidecars.get(name, 0))
            elif container.role is not EPHEMERAL:
                total[name] = total.get(name, 0) + count
                if container.role is SIDECAR:
                    sidecars[name] = sidecars.get(name, 0) + count
    for name, count in peak.items():
        total[name] = max(total.get(name, 0), count)
    return total


#: Totals by what the containers state and their roles.
_memo: Final[dict[tuple[Any, ...], PodTotals]] = {}
_REMEMBERED: Final = 4096
#: Pods of more containers than this are rare, and their keys large.
_MOST_CONTAINERS: Final = 16


def totals_of(containers: tuple[Container, ...]) -> PodTotals:
    """The totals of ``containers``.

    Raises:
        MalformedError: a count of accelerators is no quantity.
    """
    if len(containers) > _MOST_CONTAINERS:
        return PodTotals(containers)
    key = tuple([part for one in containers for part in (one.stated, one.role)])
    found = _memo.get(key)
    if found is None:
        found = PodTotals(containers)
        if len(_memo) >= _REMEMBERED:
            _memo.clear()
        _memo[key] = found
    return found
