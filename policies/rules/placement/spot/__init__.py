"""Workloads that keep checkpoints run on spot capacity if they request it; no others do.

## What it does

Reads the annotation `gpugate.io/spot` of the object or its pod template:

- `required`: the pods run only on spot nodes: required node affinity for the platform's label, tolerations for its taint.
- `preferred`: spot nodes first, others if there are none: preferred node affinity and the tolerations.
- `never`: no spot nodes, whatever their taints: required node affinity `NotIn`.

The platforms are EKS, GKE, AKS and Karpenter; the policy can add labels and taints. Only platforms count that the policy names, or
whose labels nodes have; if none is known, all count. Several are alternatives. Taints of spot nodes that contain `spot` or
`preemptible` are tolerated, too. No other rule tolerates any of these taints.

`required` and `preferred` need `gpugate.io/checkpoint`, and nothing is written without it: a path on a volume that outlives the
pod and its node (a claim, NFS, a CSI volume), the name of a mounted claim, or the URL of an object store. `none` is for replicas
that have nothing to lose, not for a run to completion.

Refuses the following; for pods that select spot nodes without the annotation it only warns, unless `byHand` is Deny:

- no checkpoint (`NoCheckpoint`), or one that is lost with the pod or the node (`CheckpointLost`);
- a job that fails for good after fewer than `interruptions` interruptions (`BackoffTooSmall`), counted as the table shows;
- a restart policy or Volcano policy that does not restart the pods, or a pod without a controller (`NotRestarted`);
- a gang that may run on spot and on-demand nodes (`GangMixed`);
- too little time to write a checkpoint (`GraceTooShort`);
- selectors that contradict the annotation (`Contradicts`), and unknown values (`Unreadable`).

| | limit | what one interruption uses of it |
|---|---|---|
| Job, CronJob, JobSet | `backoffLimit` | one failed pod, all pods of a gang; none that a `podFailurePolicy` ignores |
| JobSet | `failurePolicy.maxRestarts`, which is enough by itself | one |
| MPIJob | `runPolicy.backoffLimit`, of the launcher; one less with `restartPolicy: OnFailure` | one, since the launcher ends |
| Kubeflow's others | `restartPolicy`: `Never`, also by default, fails the job | |
| Volcano | `maxRetry`, less the first run, if a policy for `PodEvicted` has `RestartJob` | one |
| RayJob | `backoffLimit` | one, for the head alone |

Accepts what is re-created without a limit: LeaderWorkerSet, RayCluster, RayService, Ray's workers, and Volcano's pods if no policy
decides otherwise and containers restart in place.

Warns if the grace period is longer than the platform's notice (`GraceTooLong`): EKS 120 s, GKE and AKS 30 s. GKE gives pods 15 s
of these unless the node pool sets another time. Warns if no known node is spot (`NoSpotNodes`).

## Why

Spot capacity costs a third to a half, and is reclaimed within two minutes or half a minute. A run that resumes loses minutes, any
other loses everything. A gang on both pays the full price for on-demand nodes that stop with the spot nodes. A `backoffLimit`
counts evicted pods: when one node of a gang of eight is reclaimed, eight pods fail, and the default of 6 ends the Job for good.

## Practice

- NUMA guide, "GPU Instance Selection: Cost vs Performance": spot for training that checkpoints every 100 to 500 steps; reserved
  capacity for inference.
- Orchestration guide, "Spot Instances": `cloud.google.com/gke-preemptible: "true"` for fault-tolerant work, and on demand for
  what has to finish.
- Orchestration guide, "Reserved Instance Optimization": `never` keeps production off spot nodes.
- Field guide, "Step 6 · Spot/preemptible nodes for training": automatic restart, and a checkpoint to resume from.

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
from gpugate.policies.rules.placement.spot.mutate import KEYS, SpotParams, mutate
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS

_BY_HAND: Final = "the pods select spot nodes themselves and `byHand` is Warn"

REASONS: Final[dict[str, Reason]] = {
    "BackoffTooSmall": Reason("The retry limit is below the expected number of reclaimed nodes.", warns=_BY_HAND),
    "CheckpointLost": Reason("The checkpoint is lost with the node.", warns=_BY_HAND),
    "Contradicts": Reason("The annotation and the node selector disagree about spot nodes."),
    "GangMixed": Reason("The gang may run on spot and on-demand nodes at once.", warns=_BY_HAND),
    "GraceTooLong": Reason("The grace period is longer than the notice before a spot node is reclaimed.", action="Warn"),
    "GraceTooShort": Reason("The grace period is shorter than `leastGrace`.", warns=_BY_HAND),
    "NoCheckpoint": Reason("The workload names no checkpoint to resume from.", warns=_BY_HAND),
    "NoSpotNodes": Reason("No node with the requested GPU carries a spot label.", action="Warn", facts=("nodes",)),
    "NotRestarted": Reason(
        "Nothing restarts the pods after a spot node is reclaimed.", warns=f"{_BY_HAND}, or the pod has no controller"
    ),
    "Unreadable": Reason("The value of an annotation does not parse."),
}


RULE = Rule(
    id="spot",
    title="Spot capacity for workloads that request it, keep checkpoints and restart; no gang on spot and on-demand nodes",
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
    default_max_mode=Mode.MUTATE,
    default_mode_reason="Each team decides whether to risk work to save money, and pods already select spot nodes by hand.",
)
