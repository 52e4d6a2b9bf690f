"""Runs that keep checkpoints go to spot capacity when they ask for it; nothing else does.

## What it does

By an annotation of the object or its pod template, `gpugate.io/spot`:

- `required`: the pods run on spot nodes alone: required node affinity on the label of the platform, tolerations for its taint.
- `preferred`: spot nodes first, others where there is none: preferred node affinity and the tolerations.
- `never`: not on spot nodes, whatever they are tainted with: required node affinity `NotIn`.

The platforms are EKS, GKE, AKS and Karpenter, beside labels and taints of the policy's own. Those count whose labels are found on
nodes, or which the policy names; where none is known all do. Several are alternatives. Taints found on spot nodes that say `spot`
or `preemptible` are tolerated too. No other rule tolerates any of them.

`required` and `preferred` want `gpugate.io/checkpoint`, and nothing is written without it: a path on a volume that outlives the
pod and its node (a claim, NFS, a CSI volume), the name of a mounted claim, or the URL of an object store. `none` is for replicas
that have nothing to lose, and not for a run to completion.

Refuses, and only warns about pods that select spot nodes by hand unless `byHand` says otherwise:

- no checkpoint (`NoCheckpoint`), or one that goes with the pod or the node (`CheckpointLost`);
- a job that fails for good after fewer interruptions than `interruptions` (`BackoffTooSmall`); how each kind counts them is below;
- a restart policy, a Volcano policy, or a pod by itself, that nobody starts again (`NotRestarted`);
- a gang partly on spot and partly on demand (`GangMixed`);
- too little time to write a checkpoint in (`GraceTooShort`);
- selectors that contradict the annotation (`Contradicts`), and words that are none (`Unreadable`).

| | limit | what one interruption takes of it |
|---|---|---|
| Job, CronJob, JobSet | `backoffLimit` | one failed pod, all pods of a gang; none that a `podFailurePolicy` ignores |
| JobSet | `failurePolicy.maxRestarts`, which is enough by itself | one |
| MPIJob | `runPolicy.backoffLimit`, of the launcher; one less with `restartPolicy: OnFailure` | one, since the launcher ends |
| Kubeflow's others | `restartPolicy`: `Never`, also by default, fails the job | |
| Volcano | `maxRetry`, less the first run, where a policy for `PodEvicted` says `RestartJob` | one |
| RayJob | `backoffLimit` | one, for the head alone |

What is made anew for ever is let be: LeaderWorkerSet, RayCluster, RayService, Ray's workers, and Volcano's pods where no policy
says otherwise and containers start again in place.

Warns where the grace period is longer than the platform's notice (`GraceTooLong`): EKS 120 s, GKE and AKS 30 s. GKE gives pods 15 s
of these unless the node pool says otherwise. Warns where no known node is spot (`NoSpotNodes`).

## Why

Spot capacity costs a third to a half, and goes within two minutes or half of one. A run that resumes loses minutes, any other loses
everything. A gang on both pays the full price for nodes that stop with the cheap ones.

A `backoffLimit` counts evicted pods. When one node of a gang of eight goes, eight pods fail, and the default of 6 ends the Job for
good on the first interruption.

## Practice

- NUMA guide, "GPU Instance Selection: Cost vs Performance": spot for training that checkpoints every 100 to 500 steps; reserved
  capacity for inference.
- Orchestration guide, "Spot Instances": `cloud.google.com/gke-preemptible: "true"` for what tolerates faults, and on demand for
  what has to finish.
- Orchestration guide, "Reserved Instance Optimization": `never` keeps production off spot nodes.
- Field guide, "Step 6 · Spot/preemptible nodes for training": restart by itself, and a checkpoint to resume from.

## Example

Before: a Job with the annotations `gpugate.io/spot: required` and `gpugate.io/checkpoint: /checkpoints`, on AKS. After:

```yaml
tolerations:
  - key: kubernetes.azure.com/scalesetpriority
    operator: Equal
    value: spot
    effect: NoSchedule
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: kubernetes.azure.com/scalesetpriority, operator: In, values: [spot]}
```
"""

from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.placement.spot.checks import check
from gpugate.policies.rules.placement.spot.mutate import KEYS, mutate
from gpugate.policies.rules.placement.spot.params import SpotParams
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

REASONS: Final[dict[str, Reason]] = {
    "BackoffTooSmall": Reason(
        "The retry limit is below the expected number of reclaimed nodes.",
        warns="the pods select spot nodes themselves and `byHand` is Warn",
    ),
    "CheckpointLost": Reason(
        "The checkpoint is lost with the node.", warns="the pods select spot nodes themselves and `byHand` is Warn"
    ),
    "Contradicts": Reason("The annotation and the node selector disagree about spot nodes."),
    "GangMixed": Reason(
        "The gang may run on spot and on-demand nodes at once.", warns="the pods select spot nodes themselves and `byHand` is Warn"
    ),
    "GraceTooLong": Reason("The grace period is longer than the notice before a spot node is reclaimed.", action="Warn"),
    "GraceTooShort": Reason(
        "The grace period is shorter than `leastGrace`.", warns="the pods select spot nodes themselves and `byHand` is Warn"
    ),
    "NoCheckpoint": Reason(
        "The workload names no checkpoint to resume from.", warns="the pods select spot nodes themselves and `byHand` is Warn"
    ),
    "NoSpotNodes": Reason("No node with the requested GPU carries a spot label.", action="Warn", facts=("nodes",)),
    "NotRestarted": Reason(
        "Nothing restarts the pods after a spot node is reclaimed.",
        warns="the pods select spot nodes themselves and `byHand` is Warn, or the pod has no controller",
    ),
    "Unreadable": Reason("The value of an annotation does not parse."),
}


RULE = Rule(
    id="spot",
    title="Spot capacity for runs that ask for it, keep checkpoints and start again; no gang on both",
    since="0.1.0",
    params=SpotParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    reads=SCHEDULING_FIELDS | {"annotations", "labels", "terminationGracePeriodSeconds", "volumeMounts", "volumes"},
    writes=frozenset({"affinity", "annotations", "tolerations"}),
    documentation=__doc__,
    applied_at_pods=True,
    trigger_annotations=KEYS,
    default_max_mode=Mode.WARN,
    default_mode_reason=(
        "Whether work may be lost to save money is a team's decision, and pods that select spot nodes by hand have run so before."
    ),
)
