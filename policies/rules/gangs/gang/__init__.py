"""Pods that must start together are marked so for the scheduler, and never in a way that lets them start in part.

## What it does

A gang is a Job of several pods with accelerators (or a CronJob that makes such Jobs), all such pods of a Kubeflow job, a JobSet,
a RayJob or a Volcano Job together (master and workers are one gang), each group of a LeaderWorkerSet, or a workload or plain
pod annotated `gpugate.io/gang-size`. A declared size may count pods without accelerators, or those that start later, or not.
It gets what the policy's scheduler reads: Kueue's pod group label and total count on plain pods (a
Job with a queue name is all-or-nothing by itself); the pod group label of the coscheduling plugin; Volcano's scheduler name
and group annotation; the `schedulingGroup` of Kubernetes; KAI's scheduler name and queue label. Plain pods name their group by
`gpugate.io/gang-name`. Where an operator makes the pod groups itself (Kubeflow, KubeRay, Volcano), its pods are not marked for
Coscheduling, Volcano or Kubernetes. The PodGroup that such a mark names is made by gpugate's controller (see the page about
gangs), unless `podGroups: Leave`: then somebody else makes it, and a Job under Volcano gets the minimum member count instead.

Refuses: a declared size that differs from the pods made; `completions` that is not `parallelism`; a minimum below the full
size; a gang made by a Deployment, ReplicaSet or DaemonSet, which start and replace pods one by one; accelerators per pod that
leave a remainder on every node (3 of 8), unless the policy allows it; an UPDATE that makes a running gang smaller or larger,
or gives it another group or queue. A Job whose pods do not wait for each other says so by `gpugate.io/gang-size: "1"`; a gang
that can run with fewer pods says so by `gpugate.io/gang-elastic: "true"`, by `gpugate.io/gang-min-size` with the fewest, to
Kueue by `kueue.x-k8s.io/elastic-job: "true"`, or in its own fields: `elasticPolicy.minReplicas`, a Ray group's `minReplicas`
with autoscaling.

## Why

The default scheduler places pods one by one. Two gangs that each hold a part of what the other needs wait for ever, with
every device they hold idle. Three devices per pod on nodes of eight leave two on every node that no pod of the gang can use.

## Practice

- NUMA guide, "Gang Scheduling for Distributed Training": all workers start at once, by Volcano or the coscheduling plugin.
- Field guide, "The default scheduler is wrong for GPU work", and step 2: all pods of a job or none, by Kueue.
- Orchestration guide, "Distributed Training Patterns": the kinds of Kubeflow and Ray, each with its own sense of what belongs
  together.

## Example

Before, with the coscheduling plugin: a Job `llm` with `completions: 4`, `parallelism: 4`. After:

```yaml
spec:
  template:
    metadata:
      labels:
        scheduling.x-k8s.io/pod-group: llm
```
"""

from typing import Final

from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.gangs.gang.checks import check
from gpugate.policies.rules.gangs.gang.mutate import mutate
from gpugate.policies.rules.gangs.gang.params import GangParams
from gpugate.policies.rules.gangs.gang.pod_groups import (
    API_GROUPS,
    PodGroupPlan,
    WantedPodGroup,
    correction,
    fits,
    is_ours,
    manifest,
    plan,
    plan_together,
)
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

__all__ = [
    "API_GROUPS",
    "RULE",
    "GangParams",
    "PodGroupPlan",
    "WantedPodGroup",
    "correction",
    "fits",
    "is_ours",
    "manifest",
    "plan",
    "plan_together",
]

REASONS: Final[dict[str, Reason]] = {
    "CompletionsNotParallelism": Reason("completions and parallelism of a gang differ."),
    "Fragments": Reason("The GPUs per pod leave a remainder on every node.", action="fragments", facts=("nodes",)),
    "GangNameMissing": Reason("The scheduler groups pods by a name that these pods lack."),
    "Grows": Reason("An UPDATE adds pods to a running gang.", action="Warn"),
    "NodesUnknown": Reason("The nodes are not synced yet.", action="Unknown"),
    "NotHeldTogether": Reason("The gang has no queue name, so Kueue does not admit it as a whole.", action="Warn"),
    "OneByOne": Reason(
        "The controller or scheduler starts the pods one by one.", action="one_by_one", warns="KAI groups each pod of a Job alone"
    ),
    "PartialStart": Reason("A minimum lets the gang start with fewer pods than it needs."),
    "Shrinks": Reason("An UPDATE leaves a running gang fewer pods than it needs."),
    "SizeMismatch": Reason("The declared size and the number of pods differ."),
    "SizeUnreadable": Reason("The declared size is no whole number of at least 1."),
    "Splits": Reason("An UPDATE moves pods of a running gang to another group, size or queue."),
}


RULE = Rule(
    id="gang",
    title="Pods that must start together are held together, and leave no fragments",
    since="0.1.0",
    params=GangParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS | {"annotations", "labels", "schedulerName", "schedulingGroup"},
    writes=frozenset({"annotations", "labels", "schedulerName", "schedulingGroup"}),
    documentation=__doc__,
    on_update=False,
)
