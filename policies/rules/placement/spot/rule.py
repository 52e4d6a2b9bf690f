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

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, Mode
from gpugate.policies.framework.rule import Rule
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.fields import Path, integer, mapping
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.spot.checkpoints import NOTHING, is_readable, loss_of
from gpugate.policies.rules.placement.spot.job_restarts import check_restarts
from gpugate.policies.rules.placement.spot.mutate import runs_to_an_end, send
from gpugate.policies.rules.placement.spot.params import SpotParams, clouds_of, labels_of, spot_of
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.scheduling.spot_capacity import (
    CHECKPOINT,
    NEVER,
    PREFER,
    REQUIRED,
    SPOT,
    WORDS,
    SpotSelection,
    chosen_by_hand,
    notice_of,
)
from gpugate.policies.workloads.metadata import annotation_for, annotation_path, had_any_annotation, has_any_annotation
from gpugate.policies.workloads.workload import PodSet, Workload

_KEYS: Final = frozenset({SPOT, CHECKPOINT})
#: What the API writes where a pod states no grace period. Seconds.
_DEFAULT_GRACE: Final = 30


class _Ask(NamedTuple):
    """What some pods ask of spot capacity: a word of the annotation, or how they choose it by hand."""

    word: str
    hand: SpotSelection | None
    path: Path

    @property
    def wants(self) -> bool:
        return self.word in {REQUIRED, PREFER} or (self.word != NEVER and self.hand is not None)


def _ask(workload: Workload, pods: PodSet, params: SpotParams) -> _Ask:
    word = annotation_for(workload, pods, SPOT) or ""
    hand = chosen_by_hand(pods, spot_of(params))
    return _Ask(word, hand, annotation_path(pods, SPOT) if word or hand is None else hand.path)


def mutate(workload: Workload, params: SpotParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Send the pods to spot nodes, or keep them off, as the annotation says."""
    if not has_any_annotation(workload, _KEYS) and not had_any_annotation(workload, _KEYS):
        return ()
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in send(workload, pods, params, snapshot)]


def check(workload: Workload, params: SpotParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """Refuse what would lose its work on spot nodes."""
    spoken = has_any_annotation(workload, _KEYS)
    asking = (
        workload.templated_gpu_pod_sets() if spoken else [pods for pods in workload.templated_gpu_pod_sets() if _may_choose(pods)]
    )
    # What made the pods, and what a part is a part of, was judged as a whole.
    if not asking or workload.owner_was_reviewed() or workload.is_child():
        return ()
    if not spoken:
        asking = [pods for pods in asking if chosen_by_hand(pods, spot_of(params)) is not None]
    found = [finding for pods in asking for finding in _check(workload, pods, params, snapshot)]
    return list(dict.fromkeys(found))


def _may_choose(pods: PodSet) -> bool:
    return "nodeSelector" in pods.spec or "affinity" in pods.spec


def _check(workload: Workload, pods: PodSet, params: SpotParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    ask = _ask(workload, pods, params)
    if ask.word and ask.word not in WORDS:
        yield Finding("Unreadable", ask.path, f"{SPOT}: {ask.word!r:.40} is no word of it", f"Write one of {', '.join(WORDS)}.")
        return
    yield from _contradictions(pods, ask, params)
    if not ask.wants:
        return
    refuse = bool(ask.word) or params.by_hand == "Deny"
    gang = gang_of(workload)
    if gang is not None and _is_mixed(ask, params):
        yield Finding(
            "GangMixed",
            ask.path,
            f"the gang of {gang.size} pods may run on spot and on-demand nodes at once: a spot node that goes ends all of it,"
            " and what the others cost is lost with it",
            f"Write {SPOT}: {REQUIRED}, or {NEVER}.",
            Level.DENY if refuse else Level.WARN,
        )
    kept = annotation_for(workload, pods, CHECKPOINT)
    yield from _check_checkpoint(workload, pods, ask, kept, refuse=refuse)
    if kept != NOTHING:
        yield from _check_grace(pods, ask, params, snapshot, refuse=refuse)
        yield from check_restarts(workload, pods, params.interruptions, refuse=refuse)
    if ask.word:
        yield from _check_nodes(pods, ask, labels_of(params, snapshot), snapshot)


def _is_mixed(ask: _Ask, params: SpotParams) -> bool:
    if ask.word:
        return ask.word == PREFER and params.preferred_gang == "Deny"
    return ask.hand is not None and not ask.hand.only


def _contradictions(pods: PodSet, ask: _Ask, params: SpotParams) -> Iterator[Finding]:
    if ask.word == NEVER and ask.hand is not None and ask.hand.only:
        yield Finding(
            "Contradicts",
            ask.hand.path,
            f"{SPOT}: {NEVER}, and the pods select spot nodes by {ask.hand.label}",
            f"Remove {ask.hand.label} there, or write {SPOT}: {REQUIRED}.",
        )
    spot = spot_of(params)
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    for key in selector if ask.word == REQUIRED else ():
        if key in spot and selector[key] != spot[key]:
            yield Finding(
                "Contradicts",
                pods.field("nodeSelector", key),
                f"{SPOT}: {REQUIRED}, and the node selector asks for {key}: {selector[key]}, which is not spot capacity",
                f"Remove {key} from the node selector, or write {SPOT}: {NEVER}.",
            )


def _check_checkpoint(workload: Workload, pods: PodSet, ask: _Ask, kept: str | None, *, refuse: bool) -> Iterator[Finding]:
    ways = f"Write {CHECKPOINT}: a path on a volume that outlives the node (a claim, NFS), a claim's name, or s3://bucket/run."
    place = annotation_path(pods, CHECKPOINT)
    if kept is None or (kept == NOTHING and runs_to_an_end(workload)):
        what = "says nowhere" if kept is None else "says nothing of"
        asks = f"{SPOT}: {ask.word}" if ask.word else f"the pods select spot nodes by {ask.hand.label if ask.hand else ''}"
        remedy = ways if runs_to_an_end(workload) else f"{ways} Where nothing can be lost, write {CHECKPOINT}: {NOTHING}."
        yield Finding(
            "NoCheckpoint",
            ask.path,
            f"{asks}, and the workload {what} where it goes on from once a node is taken back",
            remedy,
            Level.DENY if refuse else Level.WARN,
        )
    elif not is_readable(kept):
        yield Finding("Unreadable", place, f"{CHECKPOINT}: {kept!r:.60} is no path, claim or store", ways)
    else:
        loss = loss_of(workload, pods, kept, place)
        if loss is not None:
            yield Finding(
                "CheckpointLost", loss.path, f"{CHECKPOINT}: {kept}: {loss.what}", ways, Level.DENY if refuse else Level.WARN
            )


def _check_grace(pods: PodSet, ask: _Ask, params: SpotParams, snapshot: ClusterSnapshot, *, refuse: bool) -> Iterator[Finding]:
    stated = integer(pods.spec, "terminationGracePeriodSeconds", pods.field())
    grace = _DEFAULT_GRACE if stated is None else stated
    place = pods.field("terminationGracePeriodSeconds")
    named = () if ask.hand is None else (ask.hand.label,)
    notice = notice_of(named, () if named else clouds_of(params, snapshot))
    if grace < params.least_grace:
        yield Finding(
            "GraceTooShort",
            place,
            f"the pods are killed {grace} s after they are told to end: {grace} < {params.least_grace}",
            f"Write terminationGracePeriodSeconds: {max(params.least_grace, notice or _DEFAULT_GRACE)}.",
            Level.DENY if refuse else Level.WARN,
            measure=params.least_grace - grace,
        )
    elif notice is not None and grace > notice:
        yield Finding(
            "GraceTooLong",
            place,
            f"the node is gone {notice} s after its notice, before the grace period ends: {grace} > {notice}",
            # Less than the policy asks for would be refused.
            f"Write terminationGracePeriodSeconds: {notice}, and checkpoint so that less is enough."
            if params.least_grace <= notice
            else f"Checkpoint so that {notice} s are enough, and have leastGrace of the policy lowered from {params.least_grace} to"
            " that: no node here gives more.",
            Level.WARN,
        )


def _check_nodes(pods: PodSet, ask: _Ask, labels: Sequence[tuple[str, str]], snapshot: ClusterSnapshot) -> Iterator[Finding]:
    offering = node_candidates(pods, snapshot).with_resource
    if snapshot.sync_state("nodes") is not SyncState.SYNCED or not offering:
        return
    if not any(value in shape.labels.get(key, ()) for shape in offering for key, value in labels):
        nodes = sum(len(shape.nodes) for shape in offering)
        yield Finding(
            "NoSpotNodes",
            ask.path,
            f"{SPOT}: {ask.word}: none of the {nodes} nodes that offer {' and '.join(sorted(pods.accelerators()))} carries"
            f" {' or '.join(f'{key}={value}' for key, value in labels)}",
            "Nothing is to be done where such nodes are made when pods wait for them; or name your own labels in the policy.",
            Level.WARN,
            rests_on=("nodes",),
        )


RULE = Rule(
    id="spot",
    title="Spot capacity for runs that ask for it, keep checkpoints and start again; no gang on both",
    since="0.1.0",
    params=SpotParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    documentation=__doc__,
    applied_at_pods=True,
    trigger_annotations=_KEYS,
    default_max_mode=Mode.WARN,
    default_mode_reason=(
        "Whether work may be lost to save money is a team's decision, and pods that select spot nodes by hand have run so before."
    ),
)
