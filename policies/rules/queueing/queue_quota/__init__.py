"""A workload asks for no more than its Kueue queue could ever have.

## What it does

Adds up what Kueue will count: pods times what one requests, with LimitRange defaults, limits that stand in for requests and
the RuntimeClass's overhead, as Kueue's own Configuration has resources left out or transformed. Holds it against the quota of
the ClusterQueue behind the workload's LocalQueue: nominal quota and what its cohorts could lend it, in each flavor that the
pods may be given.

Refuses what can never be admitted: more than the queue could have with nothing else in the cohort, a resource that the queue
does not cover, flavors none of which the pods tolerate or select, a namespace that the queue admits nothing from, a priority
class that does not exist. What merely does not fit now, or waits for a stopped queue, is at most a warning. Says nothing about
kinds that Kueue does not manage here.

## Why

Kueue admits such a workload never, and says so only in the status of a Workload that nobody reads: the Job stays suspended,
and in a StrictFIFO queue everything behind it waits, too.

## Practice

- Field guide, step 2: a quota per team or flavor, admitted whole or not at all.
- Orchestration guide, "Resource Quotas and Limits": what a team may never have is known when the job is sent.

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
from gpugate.policies.rules.queueing.queue_quota.checks import check
from gpugate.policies.rules.queueing.queue_quota.params import QueueQuotaParams
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "ClusterQueueUnknown": Reason("The LocalQueue names a ClusterQueue that does not exist.", action="Warn"),
    "NamespaceNotAdmitted": Reason("The ClusterQueue admits nothing from the namespace.", warns="the object may never be queued"),
    "NoFlavorMatches": Reason(
        "No flavor of the ClusterQueue suits the pods.", warns="Kueue counts the object as pods, or `neverFits` is Warn"
    ),
    "NotCovered": Reason(
        "The ClusterQueue does not cover a requested resource.", warns="Kueue's configuration is not known, or `neverFits` is Warn"
    ),
    "PriorityClassUnknown": Reason("The WorkloadPriorityClass does not exist.", warns="`neverFits` is Warn"),
    "QueueStopped": Reason("The queue admits nothing now.", action="Warn"),
    "QuotaNeverFits": Reason(
        "The request is above the quota, even with all that may be borrowed.",
        warns="the quota of the cohort is not known, or `neverFits` is Warn",
    ),
    "QuotaUnknown": Reason("The queues or their quotas are not synced yet.", action="Unknown"),
    "WaitsForQuota": Reason("The request fits the quota, but not now.", action="waits"),
}

RULE = Rule(
    id="queue-quota",
    title="A workload asks for no more than its Kueue queue could ever have",
    since="0.1.0",
    params=QueueQuotaParams,
    reasons=REASONS,
    check=check,
    needs=frozenset(
        {
            "clusterqueues",
            "cohorts",
            "configurations",
            "limitranges",
            "localqueues",
            "namespaces",
            "resourceflavors",
            "runtimeclasses",
            "workloadpriorityclasses",
        }
    ),
    reads=SCHEDULING_FIELDS | {"annotations", "labels"},
    documentation=__doc__,
)
