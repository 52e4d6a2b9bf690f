"""Findings of the rule `spot`."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.fields import Path, integer, mapping
from gpugate.policies.rules.placement.spot.checkpoints import NOTHING, is_readable, loss_of
from gpugate.policies.rules.placement.spot.job_restarts import check_restarts
from gpugate.policies.rules.placement.spot.mutate import KEYS, runs_to_an_end
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
from gpugate.policies.workloads.metadata import annotation_for, annotation_path, has_any_annotation
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

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


def check(workload: Workload, params: SpotParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse what would lose its work on spot nodes."""
    spoken = has_any_annotation(workload, KEYS)
    asking = (
        workload.templated_gpu_pod_sets() if spoken else [pods for pods in workload.templated_gpu_pod_sets() if _may_choose(pods)]
    )
    # What made the pods, and what a part is a part of, was judged as a whole.
    if not asking or workload.owner_was_reviewed() or workload.is_child():
        return
    if not spoken:
        asking = [pods for pods in asking if chosen_by_hand(pods, spot_of(params)) is not None]
    found = [finding for pods in asking for finding in _check(workload, pods, params, snapshot)]
    yield from dict.fromkeys(found)


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
    judged = _check_losses(workload, pods, ask, params, snapshot)
    if ask.word or params.by_hand == "Deny":
        yield from judged
    else:
        yield from (finding if finding.reason == "Unreadable" else finding.as_warning() for finding in judged)


def _check_losses(workload: Workload, pods: PodSet, ask: _Ask, params: SpotParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Find what the pods lose when their spot node is reclaimed."""
    gang = gang_of(workload)
    if gang is not None and _is_mixed(ask, params):
        yield Finding(
            "GangMixed",
            ask.path,
            f"the gang of {gang.size} pods may run on spot and on-demand nodes at once: a spot node that goes ends all of it,"
            " and what the others cost is lost with it",
            f"Write {SPOT}: {REQUIRED}, or {NEVER}.",
        )
    kept = annotation_for(workload, pods, CHECKPOINT)
    yield from _check_checkpoint(workload, pods, ask, kept)
    if kept != NOTHING:
        yield from _check_grace(pods, ask, params, snapshot)
        yield from check_restarts(workload, pods, params.interruptions)
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


def _check_checkpoint(workload: Workload, pods: PodSet, ask: _Ask, kept: str | None) -> Iterator[Finding]:
    ways = f"Write {CHECKPOINT}: a path on a volume that outlives the node (a claim, NFS), a claim's name, or s3://bucket/run."
    place = annotation_path(pods, CHECKPOINT)
    if kept is None or (kept == NOTHING and runs_to_an_end(workload)):
        what = "says nowhere" if kept is None else "says nothing of"
        asks = f"{SPOT}: {ask.word}" if ask.word else f"the pods select spot nodes by {ask.hand.label if ask.hand else ''}"
        remedy = ways if runs_to_an_end(workload) else f"{ways} Where nothing can be lost, write {CHECKPOINT}: {NOTHING}."
        yield Finding(
            "NoCheckpoint", ask.path, f"{asks}, and the workload {what} where it goes on from once a node is taken back", remedy
        )
    elif not is_readable(kept):
        yield Finding("Unreadable", place, f"{CHECKPOINT}: {kept!r:.60} is no path, claim or store", ways)
    else:
        loss = loss_of(workload, pods, kept, place)
        if loss is not None:
            yield Finding("CheckpointLost", loss.path, f"{CHECKPOINT}: {kept}: {loss.what}", ways)


def _check_grace(pods: PodSet, ask: _Ask, params: SpotParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
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
        )
