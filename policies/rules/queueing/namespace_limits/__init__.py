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

from __future__ import annotations

from gpugate.policies.framework.rule import Rule, no_edits
from gpugate.policies.rules.queueing.namespace_limits.checks import check
from gpugate.policies.rules.queueing.namespace_limits.params import NamespaceLimitsParams

RULE = Rule(
    id="namespace-limits",
    title="A workload keeps to the quotas and limit ranges of its namespace",
    since="0.1.0",
    params=NamespaceLimitsParams,
    mutate=no_edits,
    check=check,
    needs=frozenset({"limitranges", "priorityclasses", "resourcequotas", "runtimeclasses"}),
    documentation=__doc__,
)
