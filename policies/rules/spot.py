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
- a Job that fails for good after fewer interruptions than `interruptions` (`BackoffTooSmall`): each counts one failed pod, all
  pods of a gang, and none of which a `podFailurePolicy` ignores the condition `DisruptionTarget`;
- a restart policy, or a pod by itself, that nobody starts again (`NotRestarted`);
- a gang partly on spot and partly on demand (`GangMixed`);
- too little time to write a checkpoint in (`GraceTooShort`);
- selectors that contradict the annotation (`Contradicts`), and words that are none (`Unreadable`).

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field

from gpugate.policies.affinity import PREFERRED, implies, node_affinity, require
from gpugate.policies.annotations import place_for, said_before, says_any, told_to_pods, written_before, written_for
from gpugate.policies.checkpoints import NOTHING, is_readable, loss_of
from gpugate.policies.edits import Edit
from gpugate.policies.facts import Facts, Known
from gpugate.policies.feasibility import selection
from gpugate.policies.fields import Path, integer, mapping, mappings
from gpugate.policies.finding import Finding, Level, Mode
from gpugate.policies.gangs import gang_of
from gpugate.policies.gitops import kueue_marked
from gpugate.policies.interruptions import check_restarts
from gpugate.policies.rule import Params, Rule
from gpugate.policies.spot import (
    CHECKPOINT,
    CLOUDS,
    NEVER,
    PREFER,
    REQUIRED,
    SPOT,
    WORDS,
    Chosen,
    chosen_by_hand,
    clouds_on_nodes,
    every_label,
    notice_of,
    off_spot,
    on_spot,
    spot_taints,
)
from gpugate.policies.tolerating import TaintParam, covers, want
from gpugate.policies.validations import UNIQUE, LabelKey, LabelName
from gpugate.policies.workload import PodSet, Workload

_KEYS: Final = frozenset({SPOT, CHECKPOINT})
_MOST: Final = 16
#: What the API writes where a pod states no grace period. Seconds.
_DEFAULT_GRACE: Final = 30
_WEIGHT: Final = 100
_EVERYWHERE: Final = every_label(())
_SPOT_LABELS: Final = dict(_EVERYWHERE)


class SpotLabel(Params):
    """A label of this cluster's spot nodes."""

    key: LabelKey
    """The label's key."""
    value: LabelName
    """Its value on spot nodes."""


class SpotParams(Params):
    """Parameters of `spot`."""

    clouds: Annotated[tuple[Literal["EKS", "GKE", "AKS", "Karpenter"], ...], *UNIQUE] = ()
    """The platforms whose spot nodes are chosen; where it is left out those found on nodes, or all where none is."""
    labels: Annotated[tuple[SpotLabel, ...], Field(max_length=_MOST)] = ()
    """Labels of spot nodes that this cluster sets itself, beside the platforms' own."""
    taints: Annotated[tuple[TaintParam, ...], Field(max_length=_MOST)] = ()
    """Taints of this cluster's spot nodes, tolerated where the annotation asks for them."""
    from_nodes: bool = True
    """Whether taints found on spot nodes that say so are tolerated, too, where the annotation asks for them."""
    preferred_gang: Literal["Deny", "Required"] = "Deny"
    """Whether a gang that prefers spot nodes is refused, or runs on nothing else."""
    by_hand: Literal["Deny", "Warn"] = "Warn"
    """Whether pods that select spot nodes themselves, without the annotation, are refused where they would lose their work, or only
    warned about."""
    interruptions: Annotated[int, Field(ge=0, le=1000)] = 3
    """Interruptions that a Job must survive at least."""
    least_grace: Annotated[int, Field(ge=0, le=3600)] = 10
    """Seconds that pods must have at least to write a checkpoint once they are told to end."""


class _Ask(NamedTuple):
    """What some pods ask of spot capacity: a word of the annotation, or how they choose it by hand."""

    word: str
    hand: Chosen | None
    path: Path

    @property
    def wants(self) -> bool:
        return self.word in {REQUIRED, PREFER} or (self.word != NEVER and self.hand is not None)


def _own(params: SpotParams) -> tuple[tuple[str, str], ...]:
    return tuple((one.key, one.value) for one in params.labels)


def _every(params: SpotParams) -> tuple[tuple[str, str], ...]:
    """The labels of spot nodes, whichever platform this is."""
    return every_label(_own(params)) if params.labels else _EVERYWHERE


def _spot(params: SpotParams) -> Mapping[str, str]:
    return dict(_every(params)) if params.labels else _SPOT_LABELS


def _labels(params: SpotParams, facts: Facts) -> tuple[tuple[str, str], ...]:
    """The labels of the spot nodes that are chosen."""
    clouds = _clouds(params, facts)
    own = _own(params)
    return (*(label for name in clouds for label in CLOUDS[name].labels), *own) if clouds or own else _EVERYWHERE


def _clouds(params: SpotParams, facts: Facts) -> tuple[str, ...]:
    return params.clouds or clouds_on_nodes(facts)


def _ask(workload: Workload, pods: PodSet, params: SpotParams) -> _Ask:
    word = written_for(workload, pods, SPOT) or ""
    hand = chosen_by_hand(pods, _spot(params))
    return _Ask(word, hand, place_for(pods, SPOT) if word or hand is None else hand.path)


def mutate(workload: Workload, params: SpotParams, facts: Facts) -> Iterable[Edit]:
    """Send the pods to spot nodes, or keep them off, as the annotation says."""
    if not says_any(workload, _KEYS) and not said_before(workload, _KEYS):
        return ()
    return [edit for pods in workload.stated() for edit in _send(workload, pods, params, facts)]


def _send(workload: Workload, pods: PodSet, params: SpotParams, facts: Facts) -> list[Edit]:
    word = written_for(workload, pods, SPOT)
    if word == PREFER and gang_of(workload) is not None:
        word = REQUIRED if params.preferred_gang == "Required" else None
    if word in {REQUIRED, PREFER} and not _is_kept(workload, pods):
        word = None
    labels = _labels(params, facts)
    edits = list(_select(workload, pods, word, labels, params)) if _is_free(workload) else []
    if word in {REQUIRED, PREFER}:
        edits += _tolerate(pods, labels, params, facts)
    if edits and ("affinity" in pods.spec or "tolerations" in pods.spec):
        edits += _tell(workload, pods, word)
    return edits


def _select(
    workload: Workload, pods: PodSet, word: str | None, labels: Sequence[tuple[str, str]], params: SpotParams
) -> Iterator[Edit]:
    """Edits of the node affinity for ``word``, and of what another word put there before."""
    asks = {REQUIRED: on_spot(labels), NEVER: off_spot(_every(params))}
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    named = any(selector.get(key) == value for key, value in labels)
    wanted = () if word == REQUIRED and named else asks.get(word or "", ())
    note = {REQUIRED: "node affinity for spot nodes", NEVER: "node affinity off spot nodes"}.get(word or "", "")
    yield from require(pods, wanted, note, asks.get(written_before(workload, pods, SPOT) or "", ()))
    if word == PREFER and not named:
        yield from _prefer(pods, labels)


def _tell(workload: Workload, pods: PodSet, word: str | None) -> Iterator[Edit]:
    """What the pods must know where their template keeps its lists: a gang's pods do not know that they are one."""
    yield from told_to_pods(workload, pods, [CHECKPOINT] if word is not None else [CHECKPOINT, SPOT])
    if word is not None and not workload.is_pod() and pods.annotations().get(SPOT) != word:
        yield Edit("set", pods.meta("annotations", SPOT), word)


def _is_free(workload: Workload) -> bool:
    """Whether the pods' place is still to be chosen: Kueue chose that of its pods by the template."""
    return not (workload.is_pod() and workload.controller() is not None and kueue_marked(workload.root))


def _is_kept(workload: Workload, pods: PodSet) -> bool:
    """Whether what the run has done outlives its pods."""
    written = written_for(workload, pods, CHECKPOINT)
    if written is None or not is_readable(written) or (written == NOTHING and _runs_to_an_end(workload)):
        return False
    return loss_of(workload, pods, written, ()) is None


def _runs_to_an_end(workload: Workload) -> bool:
    return workload.is_batch or gang_of(workload) is not None


def _prefer(pods: PodSet, labels: Sequence[tuple[str, str]]) -> Iterator[Edit]:
    place = pods.field("affinity", "nodeAffinity", PREFERRED)
    present = mappings(node_affinity(pods), PREFERRED, place[:-1])
    stated = [mapping(one, "preference", place) for one in present]
    note = "preference for spot nodes"
    for one in on_spot(labels):
        if any(all(implies(term, part) for part in one) for term in stated):
            continue
        yield Edit("append", place, {"weight": _WEIGHT, "preference": {"matchExpressions": list(one)}}, note, "spot")
        note = ""


def _tolerate(pods: PodSet, labels: Sequence[tuple[str, str]], params: SpotParams, facts: Facts) -> Iterator[Edit]:
    keys = {key for key, _ in labels}
    wanted = [want(*taint) for cloud in CLOUDS.values() for taint in cloud.taints if taint.key in keys]
    wanted += [want(one.key, one.value, one.effect) for one in params.taints if one.effect != "PreferNoSchedule"]
    wanted += [want(*taint) for taint in spot_taints(pods, labels, facts)] if params.from_nodes else []
    present = list(mappings(pods.spec, "tolerations", pods.field()))
    for one in wanted:
        if not any(covers(toleration, one.key, one.value, one.effect) for toleration in present):
            present.append(one.toleration)
            yield Edit("append", pods.field("tolerations"), one.toleration, one.note)


def check(workload: Workload, params: SpotParams, facts: Facts) -> Iterable[Finding]:
    """Refuse what would lose its work on spot nodes."""
    spoken = says_any(workload, _KEYS)
    asking = workload.stated() if spoken else [pods for pods in workload.stated() if _may_choose(pods)]
    # What made the pods, and what a part is a part of, was judged as a whole.
    if not asking or workload.judged_before() or workload.is_part():
        return ()
    if not spoken:
        asking = [pods for pods in asking if chosen_by_hand(pods, _spot(params)) is not None]
    found = [finding for pods in asking for finding in _check(workload, pods, params, facts)]
    return list(dict.fromkeys(found))


def _may_choose(pods: PodSet) -> bool:
    return "nodeSelector" in pods.spec or "affinity" in pods.spec


def _check(workload: Workload, pods: PodSet, params: SpotParams, facts: Facts) -> Iterator[Finding]:
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
    kept = written_for(workload, pods, CHECKPOINT)
    yield from _check_checkpoint(workload, pods, ask, kept, refuse=refuse)
    if kept != NOTHING:
        yield from _check_grace(pods, ask, params, facts, refuse=refuse)
        yield from check_restarts(workload, pods, params.interruptions, refuse=refuse)
    if ask.word:
        yield from _check_nodes(pods, ask, _labels(params, facts), facts)


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
    spot = _spot(params)
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
    place = place_for(pods, CHECKPOINT)
    if kept is None or (kept == NOTHING and _runs_to_an_end(workload)):
        what = "says nowhere" if kept is None else "says nothing of"
        asks = f"{SPOT}: {ask.word}" if ask.word else f"the pods select spot nodes by {ask.hand.label if ask.hand else ''}"
        remedy = ways if _runs_to_an_end(workload) else f"{ways} Where nothing can be lost, write {CHECKPOINT}: {NOTHING}."
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


def _check_grace(pods: PodSet, ask: _Ask, params: SpotParams, facts: Facts, *, refuse: bool) -> Iterator[Finding]:
    stated = integer(pods.spec, "terminationGracePeriodSeconds", pods.field())
    grace = _DEFAULT_GRACE if stated is None else stated
    place = pods.field("terminationGracePeriodSeconds")
    named = () if ask.hand is None else (ask.hand.label,)
    notice = notice_of(named, () if named else _clouds(params, facts))
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


def _check_nodes(pods: PodSet, ask: _Ask, labels: Sequence[tuple[str, str]], facts: Facts) -> Iterator[Finding]:
    offering = selection(pods, facts).offering
    if facts.state("nodes") is not Known.SYNCED or not offering:
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
    at_pods=True,
    told_by=_KEYS,
    unnamed=Mode.WARN,
    opinion=(
        "Whether work may be lost to save money is a team's decision, and pods that select spot nodes by hand have run so before."
    ),
)
