"""Pods that ask alike: what was worked out for one of them holds for the others.

A gang's pods, the replicas of a Deployment and most of a team's Jobs differ in names, images and commands, and ask for the
very same.
"""

from __future__ import annotations

from typing import Any, Final

from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import PodSet, Workload

#: What of a pod spec, beside the containers, decides on what a pod comes to, on its flavors, and on the quotas that count it.
_DECIDING: Final = (
    "activeDeadlineSeconds",
    "affinity",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resources",
    "runtimeClassName",
    "tolerations",
)


def pod_fingerprint(workload: Workload, pods: PodSet) -> Any | None:  # noqa: ANN401 - any hashable
    """A key that only pods have which ask alike in one namespace, in containers of the same names at the same places.

    None for pods that are better looked at each time. How many there are to be is not in it.
    """
    spec = pods.spec
    stated = [(key, value) for key in _DECIDING if (value := spec.get(key)) is not None]
    deciding = memo_key([[one.name for one in pods.containers], stated])
    # Pods whose containers state the same have the very same totals.
    kind = workload.kind
    return None if deciding is None else (workload.namespace, kind.group, kind.kind, pods.path, pods.totals, deciding)
