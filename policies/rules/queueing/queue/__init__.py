"""Accelerator workloads stand in a Kueue queue, named where Kueue reads it.

## What it does

Puts the label `kueue.x-k8s.io/queue-name` on the object where Kueue reads it (a Job's own labels, a CronJob's
`spec.jobTemplate.metadata.labels`), never on what a controller made. The name comes from the object itself (where somebody
put it in another place), else from the namespace's label `gpugate.io/default-queue`, else from the policy, else it is the
only LocalQueue of the namespace, or the one called `default`, which Kueue itself would take.

Names no queue on what Kueue's own webhooks would then turn away (a Ray cluster that scales by itself, a RayJob that keeps its
cluster, more than 8 sorts of pods), and says so.

Refuses a workload for which none can be found where the policy requires one, and a name of a LocalQueue that does not exist.

## Why

Without the label a workload passes Kueue by and takes devices that others have quota for. With a name that does not exist it
is never admitted, and Kueue says so only in a Workload that nobody reads. The name must be there before Kueue's own webhook
runs.

## Practice

- Field guide, step 2: jobs stand in queues of Kueue, with quota per team.
- Orchestration guide, "Resource Quotas and Limits": no team takes the whole cluster.

## Example

Before: a Job without labels in a namespace with one LocalQueue, `team-a-train`. After:

```yaml
metadata:
  labels:
    kueue.x-k8s.io/queue-name: team-a-train
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.queueing.queue.checks import check
from gpugate.policies.rules.queueing.queue.mutate import mutate
from gpugate.policies.rules.queueing.queue.params import QueueParams

REASONS: Final[dict[str, Reason]] = {
    "NotQueueable": Reason(
        "Kueue cannot queue the workload as it is written.", warns="the policy requires no queue, or the workload names one"
    ),
    "QueueMissing": Reason("The policy requires a queue and nothing names one.", facts=("localqueues", "namespaces")),
    "QueueUndecided": Reason("No queue is named, and the LocalQueues are not known.", action="Unknown"),
    "QueueUnknown": Reason("The namespace has no LocalQueue of that name.", facts=("localqueues",)),
}


RULE = Rule(
    id="queue",
    title="Accelerator workloads stand in a Kueue queue, named where Kueue reads it",
    since="0.1.0",
    params=QueueParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"localqueues", "namespaces"}),
    reads=frozenset({"labels"}),
    writes=frozenset({"labels"}),
    documentation=__doc__,
    on_update=False,
)
