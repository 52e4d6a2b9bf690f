"""A workload keeps to the ResourceQuotas and LimitRanges of its namespace, so that its pods can be made.

## What it does

Works out what each pod comes to once the API's defaults, those of the LimitRanges and the RuntimeClass's overhead are in, and
holds it against the namespace. Refuses pods that the API would never take: one pod, or all that must run together, above the
hard limit of a ResourceQuota whose scopes it is in; CPU or memory that a quota counts and a container does not state; what is
above the maximum, below the minimum or beyond the ratio of a LimitRange. A Job that could go on with fewer pods, since nobody
declares it a gang and no queue admits it as a whole, a group of plain pods that would be too large if all asked alike, and a
quota that is merely full now, are warned about.

## Why

A Job or Deployment is taken whatever its pods ask for; the quota turns away only the pods, one by one, and says so in an event
of the controller. A gang of which half the pods are refused holds its GPUs and waits for ever.

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
from gpugate.policies.rules.queueing.namespace_limits.checks import check
from gpugate.policies.rules.queueing.namespace_limits.params import NamespaceLimitsParams

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
        "A limit is more times the request than a LimitRange allows.",
        warns="`neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "NamespaceLimitsUnknown": Reason("The ResourceQuotas or LimitRanges are not synced yet.", action="Unknown"),
    "QuotaFullNow": Reason("The request fits the ResourceQuota, but not beside what is used now.", action="waits"),
    "QuotaNeedsRequest": Reason(
        "A ResourceQuota counts a resource that the pod does not state.",
        warns="the LimitRanges are not known, `neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "QuotaNeverFits": Reason(
        "The request is above the hard limit of a ResourceQuota.",
        warns="the pods may run in turns, `neverFits` is Warn, or gpugate has reviewed the owner",
    ),
}

RULE = Rule(
    id="namespace-limits",
    title="A workload keeps to the quotas and limit ranges of its namespace",
    since="0.1.0",
    params=NamespaceLimitsParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"limitranges", "priorityclasses", "resourcequotas", "runtimeclasses"}),
    reads=frozenset({"activeDeadlineSeconds", "affinity", "annotations", "priorityClassName", "runtimeClassName"}),
    documentation=__doc__,
)
