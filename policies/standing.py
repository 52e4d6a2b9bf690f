"""Where a workload stands: whether anything is taken for it yet."""

from __future__ import annotations

from typing import Final

from gpugate.policies.workload import Workload

#: Fields of a status that only a controller or kubelet writes, once it has seen the object.
_SEEN: Final = frozenset({"conditions", "observedGeneration", "startTime"})


def is_new(workload: Workload) -> bool:
    """Whether nothing is taken for the workload yet: what its controller has seen may be counted as used already."""
    status = workload.root.get("status")
    return workload.operation != "UPDATE" and (type(status) is not dict or _SEEN.isdisjoint(status))
