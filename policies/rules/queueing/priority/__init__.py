"""Workloads have the priority that is right for what they are, and none above what their namespace may use.

## What it does

Tells what a workload is for, `training`, `inference` or `interactive`, and gives it the policy's classes for that: the
PriorityClass in its pods' template (`priorityClassName`), and Kueue's WorkloadPriorityClass as label
`kueue.x-k8s.io/priority-class` on the object itself. What somebody has written stays; where only some pods of a workload name
a class, the others get the same. A class that does not exist is not written, nor one above the highest that the namespace may
use; a warning says so.

| what it is | taken for |
|---|---|
| annotation `gpugate.io/workload-kind` on the object, or alike on all its templates | what it says |
| a pod, or what holds it, of a notebook or workspace (Kubeflow, JupyterHub, DevWorkspace) | interactive |
| a pod that nobody of a known kind made, with `tty` or `stdin` | interactive |
| such a pod with `restartPolicy` Never or OnFailure | training |
| Deployment, StatefulSet, ReplicaSet, LeaderWorkerSet, RayService | inference |
| what runs to its end: Job, CronJob, JobSet, Kubeflow's jobs, RayJob, Volcano's Job | training |
| all else (DaemonSet, RayCluster, a pod that is started again for ever) | nothing: it says so itself, or names a class |

Refuses a class that does not exist, one of the system's (`system-*`), one above the highest that the namespace may use, and,
where the policy requires one, a workload without. The highest is what the namespace says in the label or annotation
`gpugate.io/highest-priority` (for Kueue's classes `gpugate.io/highest-workload-priority`), the name of a class or a number,
else what the policy states.

Pods of a controller keep what its template gives them; one above the highest is warned about there. At a bare pod, the
priority that the apiserver has worked out before gpugate is asked is taken out, so that it works it out anew.

## Why

Without a class everything is worth the same, and training of last week keeps inference of today waiting. With classes for
everybody, everybody takes the highest. The apiserver refuses an unknown class at pods alone: a Job that names one is taken, and
waits for pods that nobody lets in. `system-*` classes push aside what the cluster itself runs on.

A class with `preemptionPolicy: Never` comes first in the scheduler's queue and pushes nobody aside; others evict pods of lower
classes, with the work since their last checkpoint. Kueue orders and preempts Workloads by the WorkloadPriorityClass, and where
there is none by the pods' class; the scheduler knows the pods' alone. A hard bound under forged owners is a ResourceQuota with
`scopeSelector` on PriorityClass.

## Practice

- Orchestration guide, "Priority Classes": production inference has a higher class than experiments, and a contended cluster
  preempts the lower.
- Field guide, "Gang scheduling with Kueue": a training job of high priority evicts an experiment of low priority.
- Basics guide, device plugin: `system-node-critical` is for what nodes need; no workload that asks for GPUs has it.

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
from gpugate.policies.rules.queueing.priority.mutate import mutate
from gpugate.policies.rules.queueing.priority.params import PriorityParams

REASONS: Final[dict[str, Reason]] = {
    "ClassOfPolicyTooHigh": Reason("The class that the policy names is above the namespace's maximum.", action="Warn"),
    "ClassOfPolicyUnknown": Reason("The class that the policy names does not exist.", action="Warn", facts=("priorityclasses",)),
    "PriorityMissing": Reason("The policy requires a priority class and the workload names none.", facts=("priorityclasses",)),
    "PrioritySystem": Reason("The workload names a system priority class.", warns="a controller made the pod"),
    "PriorityTooHigh": Reason("The priority is above the maximum of the namespace.", warns="a controller made the pod"),
    "PriorityUndecided": Reason("The priority classes are not known.", action="Unknown"),
    "PriorityUnknown": Reason("The named priority class does not exist."),
    "WorkloadKindUnknown": Reason("The annotation names no known kind of work."),
}


RULE = Rule(
    id="priority",
    title="Workloads have a priority class that fits what they are for, and none above what their namespace may use",
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
    default_mode_reason="Which classes there are, and who comes before whom, is for the owners of the cluster to say.",
)
