"""A workload requests no more than its Kueue queue could ever have.

## What it does

Adds up the requests that Kueue will count: the pods times the requests of one, with LimitRange defaults, limits in place of
missing requests and the RuntimeClass's overhead, without resources that Kueue's own Configuration excludes, and with those that
it transforms. It compares them with the quota of the ClusterQueue behind the workload's LocalQueue: nominal quota and the quota
that its cohorts could lend it, in each flavor that the pods may use.

It refuses workloads that can never be admitted: requests above the quota even in an empty cohort, a resource that the queue does
not cover, flavors none of which the pods tolerate or select, a namespace that the queue does not admit, a priority class that
does not exist. A workload that does not fit now, or waits for a stopped queue, gets at most a warning. The rule ignores kinds
that Kueue does not manage here.

## Why

Kueue never admits such a workload, and reports it only in the status of its Workload: the Job stays suspended, and in a
StrictFIFO queue everything behind it waits, too.

## Practice

- Field guide, step 2: a quota per team or flavor, admitted as a whole or not at all.
- Orchestration guide, "Resource Quotas and Limits": a team learns when it submits the job what it can never have.

## Example

Refused, in a queue with 16 GPUs of its own and 8 to borrow:

```yaml
spec:
  parallelism: 4
  template:
    spec:
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
```

4 pods x 8 = 32 of nvidia.com/gpu > 24. With `parallelism: 3` it runs.
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.queueing.queue_quota.checks import QueueQuotaParams, check
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "ClusterQueueUnknown": Reason("The LocalQueue names a ClusterQueue that does not exist.", action="Warn"),
    "NamespaceNotAdmitted": Reason("The ClusterQueue admits nothing from the namespace.", warns="the object may never be queued"),
    "NoFlavorMatches": Reason(
        "No flavor of the ClusterQueue matches the pods.", warns="Kueue counts the object as pods, or `neverFits` is Warn"
    ),
    "NotCovered": Reason(
        "The ClusterQueue does not cover a requested resource.", warns="Kueue's Configuration is unknown, or `neverFits` is Warn"
    ),
    "PriorityClassUnknown": Reason("The WorkloadPriorityClass does not exist.", warns="`neverFits` is Warn"),
    "QueueStopped": Reason("The queue admits nothing now.", action="Warn"),
    "QuotaNeverFits": Reason(
        "The request is above the quota, even with the most that can be borrowed.",
        warns="the quota of the cohort is unknown, or `neverFits` is Warn",
    ),
    "QuotaUnknown": Reason("The queues or their quotas are not synced yet.", action="Unknown"),
    "WaitsForQuota": Reason("The request fits the quota, but not now.", action="waits"),
}

RULE = Rule(
    id="queue-quota",
    title="A workload requests no more than its Kueue queue could ever have",
    since="0.1.0",
    params=QueueQuotaParams,
    reasons=REASONS,
    check=check,
    refuses=lambda kind, _params: kind.queued,
    needs=frozenset(
        {
            *("clusterqueues", "cohorts", "configurations", "limitranges", "localqueues"),
            *("namespaces", "resourceflavors", "runtimeclasses", "workloadpriorityclasses"),
        }
    ),
    reads=SCHEDULING_FIELDS | {"annotations", "labels"},
    documentation=__doc__,
)
