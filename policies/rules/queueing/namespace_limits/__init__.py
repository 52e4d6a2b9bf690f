"""A workload keeps to the ResourceQuotas and LimitRanges of its namespace.

## What it does

Adds the API's defaults, those of the LimitRanges and the RuntimeClass's overhead to the requests of each pod, and
compares them with the namespace. It refuses pods that the API would never create: one pod, or all that must run together, above
the hard limit of a ResourceQuota that counts it; CPU or memory that a quota counts and a container does not set; a value
above the maximum, below the minimum or beyond the ratio of a LimitRange. It warns about a Job that could continue with fewer
pods, since it is not declared a gang and no queue admits it as a whole, about plain pods that would be too large if all
requested the same, and about a quota that is only full now.

## Why

The API accepts a Job or Deployment with any requests of its pods; the quota rejects only the pods, one by one, in events
of the controller. A gang of which half the pods are rejected holds its GPUs and waits forever.

## Practice

- Orchestration guide, "Resource Quotas and Limits": a ResourceQuota on GPUs and memory keeps a team within its share.

## Example

Refused, where the ResourceQuota of the namespace has `requests.nvidia.com/gpu: 16`:

```yaml
spec:
  parallelism: 4
  completions: 4
  template:
    spec:
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
```

4 pods x 8 = 32 of requests.nvidia.com/gpu > 16.
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.queueing.namespace_limits.checks import NamespaceLimitsParams, check

REASONS: Final[dict[str, Reason]] = {
    "LimitRangeDefault": Reason(
        "The default limit of a LimitRange is below the request.", warns="`neverFits` is Warn, or gpugate has reviewed the owner"
    ),
    "LimitRangeMax": Reason(
        "A request or limit is above the maximum of a LimitRange.", warns="`neverFits` is Warn, or gpugate has reviewed the owner"
    ),
    "LimitRangeMin": Reason(
        "A request or limit is below the minimum of a LimitRange.", warns="`neverFits` is Warn, or gpugate has reviewed the owner"
    ),
    "LimitRangeRatio": Reason(
        "The ratio of limit to request is above that of a LimitRange.",
        warns="`neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "NamespaceLimitsUnknown": Reason("The ResourceQuotas or LimitRanges are not synced yet.", action="Unknown"),
    "QuotaFullNow": Reason("The request fits the ResourceQuota, but not the part of it that is unused now.", action="waits"),
    "QuotaNeedsRequest": Reason(
        "A ResourceQuota counts a request or limit that the pod does not set.",
        warns="the LimitRanges are unknown, `neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "QuotaNeverFits": Reason(
        "The request is above the hard limit of a ResourceQuota.",
        warns="the pods may run in turns, `neverFits` is Warn, or gpugate has reviewed the owner",
    ),
}

RULE = Rule(
    id="namespace-limits",
    title="A workload keeps to the ResourceQuotas and LimitRanges of its namespace",
    since="0.1.0",
    params=NamespaceLimitsParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"limitranges", "priorityclasses", "resourcequotas", "runtimeclasses"}),
    reads=frozenset({"activeDeadlineSeconds", "affinity", "annotations", "priorityClassName", "runtimeClassName"}),
    documentation=__doc__,
)
