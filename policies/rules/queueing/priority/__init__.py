"""Workloads have the priority class of their purpose, and none above the maximum of their namespace.

## What it does

Finds the purpose of a workload, `training`, `inference` or `interactive`, and writes the policy's classes for it: the
PriorityClass into its pods' template (`priorityClassName`), and Kueue's WorkloadPriorityClass as label
`kueue.x-k8s.io/priority-class` on the object itself. It keeps the classes that a user wrote; if only some pods of a workload name
a class, the others get the same. It does not write a class that does not exist or is above the maximum of the namespace, and
warns about it.

| workload | purpose |
|---|---|
| annotation `gpugate.io/workload-kind` on the object, or the same on all its templates | its value |
| a pod of a notebook or workspace, or its owner (Kubeflow, JupyterHub, DevWorkspace) | interactive |
| a pod without an owner of a known kind, with `tty` or `stdin` | interactive |
| such a pod with `restartPolicy` Never or OnFailure | training |
| Deployment, StatefulSet, ReplicaSet, LeaderWorkerSet, RayService | inference |
| kinds that run to completion: Job, CronJob, JobSet, Kubeflow's jobs, RayJob, Volcano's Job | training |
| all others (DaemonSet, RayCluster, a pod that restarts always) | none: the annotation states it, or the workload names a class |

It refuses a class that does not exist, a class of the system (`system-*`), one above the maximum of the namespace, and a workload
without a class if the policy requires one. The maximum is the value of the namespace's label or annotation
`gpugate.io/highest-priority` (for Kueue's classes `gpugate.io/highest-workload-priority`), the name of a class or a number, else
that of the policy.

Pods of a controller keep the class of its template; one above the maximum is a warning there. In a bare pod, gpugate removes the
priority that the API server computed before it called gpugate, so that the API server computes it again.

## Why

Without classes all workloads have the same priority, and training of last week keeps inference of today waiting. If all may use
any class, all use the highest. The API server refuses an unknown class only in pods: it accepts a Job that names one, and then
rejects its pods. Workloads with `system-*` classes preempt the components of the cluster itself.

A class with `preemptionPolicy: Never` comes first in the scheduler's queue and preempts no pods; others evict pods of lower
classes, with the work since their last checkpoint. Kueue orders and preempts Workloads by the WorkloadPriorityClass, and without
one by the pods' class; the scheduler reads only the pods' class. To enforce a maximum even with forged owners, use a
ResourceQuota with `scopeSelector` on PriorityClass.

## Practice

- Orchestration guide, "Priority Classes": production inference has a higher class than experiments, and a contended cluster
  preempts the lower.
- Field guide, "Gang scheduling with Kueue": a training job of high priority evicts an experiment of low priority.
- Basics guide, device plugin: `system-node-critical` is for components that nodes need; no workload that requests GPUs has it.

## Example

Before: a Job without a class; the policy has `training: {pods: batch, workload: research}`. After:

```yaml
metadata:
  labels:
    kueue.x-k8s.io/priority-class: research
spec:
  template:
    spec:
      priorityClassName: batch
```
"""

from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.queueing.priority.checks import check
from gpugate.policies.rules.queueing.priority.classes import PriorityParams
from gpugate.policies.rules.queueing.priority.mutate import mutate

REASONS: Final[dict[str, Reason]] = {
    "ClassOfPolicyTooHigh": Reason("The class that the policy names is above the namespace's maximum.", action="Warn"),
    "ClassOfPolicyUnknown": Reason("The class that the policy names does not exist.", action="Warn", facts=("priorityclasses",)),
    "PriorityMissing": Reason("The policy requires a priority class and the workload names none.", facts=("priorityclasses",)),
    "PrioritySystem": Reason("The workload names a system priority class.", warns="a controller made the pod"),
    "PriorityTooHigh": Reason("The priority is above the maximum of the namespace.", warns="a controller made the pod"),
    "PriorityUndecided": Reason("The priority classes are unknown.", action="Unknown"),
    "PriorityUnknown": Reason("The named priority class does not exist."),
    "WorkloadKindUnknown": Reason("The annotation states no known purpose."),
}


RULE = Rule(
    id="priority",
    title="Workloads have the priority class of their purpose, and none above the maximum of their namespace",
    since="0.1.0",
    params=PriorityParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"namespaces", "priorityclasses", "workloadpriorityclasses"}),
    reads=frozenset({"annotations", "labels", "preemptionPolicy", "priority", "priorityClassName", "stdin", "tty"}),
    writes=frozenset({"labels", "priorityClassName"}),
    writes_to_pods=frozenset({"preemptionPolicy", "priority"}),
    documentation=__doc__,
    on_update=False,
    default_max_mode=Mode.DISABLED,
    default_mode_reason="The owners of the cluster define its classes and their order.",
)
