"""Pods of a gang start together and leave no GPU fragments.

## What it does

A gang is what its kind or its author declares to start together: all pods with accelerators of a Kubeflow job, JobSet, RayJob or
Volcano Job (master and workers are one gang), each group of a LeaderWorkerSet, and any workload or plain pod with the annotation
`gpugate.io/gang-size`. A declared size may include or omit pods without accelerators and pods that start later.

A Job with several pods at once, also an indexed one, is most often a queue of work, whose pods run as there is room. It (or a
CronJob that creates such Jobs) is a gang if it has an annotation of gpugate about gangs, Volcano's minimum member count or a pod
group in its template, or if the policy sets `jobs: Parallel`. A gang has the pods that run at once: the `completions` if these
are below the `parallelism`.

gpugate writes what the policy's scheduler reads: Kueue's pod group label and total count on plain pods (Kueue admits a Job with a
queue name as a whole); the pod group label of Coscheduling; Volcano's scheduler name and group annotation; the `schedulingGroup`
of Kubernetes; KAI's scheduler name and queue label. Plain pods name their group in `gpugate.io/gang-name`. Where an operator
creates the PodGroups itself (Kubeflow, KubeRay, Volcano), its pods get no label for Coscheduling, Volcano or Kubernetes.
gpugate's controller creates the named PodGroup (see the page about gangs), unless `podGroups: Leave` is set: then another tool
creates it, and a Job under Volcano gets the minimum member count.

It refuses a declared size that differs from the number of pods; a minimum below the full size; a gang of a Deployment, ReplicaSet
or DaemonSet, which start and replace pods one by one; an UPDATE that makes a running gang smaller or changes its group or queue.
It warns about `completions` above the `parallelism`, and about accelerators per pod that leave a remainder on every node (3 of 8).
A workload whose pods do not wait for each other sets `gpugate.io/gang-size: "1"`. A gang that can run with
fewer pods sets `gpugate.io/gang-elastic: "true"`, the fewest pods in `gpugate.io/gang-min-size`, Kueue's
`kueue.x-k8s.io/elastic-job: "true"`, or fields of its kind: `elasticPolicy.minReplicas`, or `minReplicas` of a Ray group with
autoscaling.

## Why

The default scheduler places pods one by one. Two gangs that each hold a part of what the other needs wait forever, and their GPUs
are idle meanwhile. Three devices per pod on nodes of eight leave two on every node that no pod of the gang can use.

## Practice

- NUMA guide, "Gang Scheduling for Distributed Training": all workers start at once, with Volcano or the coscheduling plugin.
- Field guide, "The default scheduler is wrong for GPU work", and step 2: all pods of a job or none, with Kueue.
- Orchestration guide, "Distributed Training Patterns": the kinds of Kubeflow and Ray, each with its own groups of pods.

## Example

Before, with the coscheduling plugin: a Job `llm` with `parallelism: 4` and `gpugate.io/gang-size: "4"`. After:

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
from gpugate.policies.rules.gangs.gang.mutate import GangParams, mutate, parallel_jobs_are_gangs
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

__all__ = ["REASONS", "RULE", "GangParams", "parallel_jobs_are_gangs"]

REASONS: Final[dict[str, Reason]] = {
    "CompletionsNotParallelism": Reason("The completions of a gang are above its parallelism.", action="Warn"),
    "Fragments": Reason("The GPUs per pod leave a remainder on every node.", action="fragments", facts=("nodes",)),
    "GangNameMissing": Reason("The pods lack the group name that the scheduler reads."),
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
    title="Pods of a gang start together and leave no GPU fragments",
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
