"""Findings of the rule `spot`."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.fields import Path, integer, mapping
from gpugate.policies.rules.placement.spot.checkpoints import NO_CHECKPOINT, is_readable, loss_of
from gpugate.policies.rules.placement.spot.mutate import (
    KEYS,
    Labels,
    SpotParams,
    clouds_of,
    has_work_to_lose,
    label_values,
    selected_labels,
)
from gpugate.policies.rules.placement.spot.restarts import check_restarts
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

#: Default of terminationGracePeriodSeconds in the API.
_DEFAULT_GRACE: Final = 30


class _SpotRequest(NamedTuple):
    """How pods request spot capacity: the value of the annotation, and how they select spot nodes themselves."""

    value: str
    selection: SpotSelection | None
    path: Path

    @property
    def may_run_on_spot(self) -> bool:
        return self.value in {REQUIRED, PREFER} or (self.value != NEVER and self.selection is not None)


def _request_of(workload: Workload, pods: PodSet, params: SpotParams) -> _SpotRequest:
    value = annotation_for(workload, pods, SPOT) or ""
    selection = chosen_by_hand(pods, label_values(params))
    return _SpotRequest(value, selection, annotation_path(pods, SPOT) if value or selection is None else selection.path)


def check(workload: Workload, params: SpotParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield findings for pods that would lose their work on spot nodes."""
    pod_sets = workload.templated_gpu_pod_sets()
    annotated = has_any_annotation(workload, KEYS)
    if not annotated:
        pod_sets = [pods for pods in pod_sets if "nodeSelector" in pods.spec or "affinity" in pods.spec]
    # The owner, or the object that this is a part of, was reviewed as a whole.
    if not pod_sets or workload.owner_was_reviewed() or workload.is_child():
        return
    if not annotated:
        pod_sets = [pods for pods in pod_sets if chosen_by_hand(pods, label_values(params)) is not None]
        if not pod_sets:
            return
    requests = ((pods, _request_of(workload, pods, params)) for pods in pod_sets)
    yield from dict.fromkeys(finding for pods, request in requests for finding in _check(workload, pods, request, params, snapshot))


def _check(
    workload: Workload, pods: PodSet, request: _SpotRequest, params: SpotParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    if request.value and request.value not in WORDS:
        message = f"{SPOT}: {request.value!r:.40} is not a known value"
        yield Finding("Unreadable", request.path, message, f"Write one of {', '.join(WORDS)}.")
        return
    yield from _check_contradictions(pods, request, params)
    if not request.may_run_on_spot:
        return
    for finding in _check_losses(workload, pods, request, params, snapshot):
        keeps_level = request.value or params.by_hand == "Deny" or finding.reason == "Unreadable"
        yield finding if keeps_level else finding.as_warning()


def _check_losses(
    workload: Workload, pods: PodSet, request: _SpotRequest, params: SpotParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    """Yield findings for what the pods lose when their spot node is reclaimed."""
    gang, selection = gang_of(workload), request.selection
    mixed_by_annotation = request.value == PREFER and params.preferred_gang == "Deny"
    mixed_by_hand = not request.value and selection is not None and not selection.only
    if gang is not None and (mixed_by_annotation or mixed_by_hand):
        yield Finding(
            "GangMixed",
            request.path,
            f"the gang of {gang.size} pods may run on spot and on-demand nodes at once, so one reclaimed spot node ends the whole"
            " gang and wastes the on-demand nodes",
            f"Write {SPOT}: {REQUIRED}, or {NEVER}.",
        )
    checkpoint = annotation_for(workload, pods, CHECKPOINT)
    yield from _check_checkpoint(workload, pods, request, checkpoint)
    if checkpoint != NO_CHECKPOINT:
        yield from _check_grace(pods, request, params, snapshot)
        yield from check_restarts(workload, pods, params.interruptions)
    if request.value:
        yield from _check_nodes(pods, request, selected_labels(params, snapshot), snapshot)


def _check_contradictions(pods: PodSet, request: _SpotRequest, params: SpotParams) -> Iterator[Finding]:
    selection = request.selection
    if request.value == NEVER and selection is not None and selection.only:
        yield Finding(
            "Contradicts",
            selection.path,
            f"{SPOT}: {NEVER}, but the pods select spot nodes by {selection.label}",
            f"Remove {selection.label} there, or write {SPOT}: {REQUIRED}.",
        )
    spot = label_values(params)
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    for key in selector if request.value == REQUIRED else ():
        if key in spot and selector[key] != spot[key]:
            yield Finding(
                "Contradicts",
                pods.field("nodeSelector", key),
                f"{SPOT}: {REQUIRED}, but the nodeSelector {key}: {selector[key]} excludes spot nodes",
                f"Remove {key} from the nodeSelector, or write {SPOT}: {NEVER}.",
            )


def _check_checkpoint(workload: Workload, pods: PodSet, request: _SpotRequest, checkpoint: str | None) -> Iterator[Finding]:
    remedy = f"Write {CHECKPOINT} with a path on a volume that outlives the node (a claim, NFS), a claim's name, or s3://bucket/run"
    path = annotation_path(pods, CHECKPOINT)
    if checkpoint is None or (checkpoint == NO_CHECKPOINT and has_work_to_lose(workload)):
        label = request.selection.label if request.selection else ""
        cause = f"{SPOT}: {request.value}" if request.value else f"the pods select spot nodes by {label}"
        loss = (
            f"{cause}, but the workload names no checkpoint to resume from when a node is reclaimed"
            if checkpoint is None
            else f"{cause} and {CHECKPOINT}: {NO_CHECKPOINT}, but the workload loses its work when a node is reclaimed"
        )
        none = "" if has_work_to_lose(workload) else f", or {NO_CHECKPOINT} if there is nothing to lose"
        yield Finding("NoCheckpoint", request.path, loss, f"{remedy}{none}.")
    elif not is_readable(checkpoint):
        message = f"{CHECKPOINT}: {checkpoint!r:.60} is no path, claim or URL of an object store"
        yield Finding("Unreadable", path, message, f"{remedy}.")
    else:
        lost = loss_of(workload, pods, checkpoint, path)
        if lost is not None:
            yield Finding("CheckpointLost", lost.path, f"{CHECKPOINT}: {checkpoint}: {lost.why}", f"{remedy}.")


def _check_grace(pods: PodSet, request: _SpotRequest, params: SpotParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    written = integer(pods.spec, "terminationGracePeriodSeconds", pods.field())
    grace = _DEFAULT_GRACE if written is None else written
    path = pods.field("terminationGracePeriodSeconds")
    labels = () if request.selection is None else (request.selection.label,)
    notice = notice_of(labels, () if labels else clouds_of(params, snapshot))
    least = params.least_grace
    if grace < least:
        yield Finding(
            "GraceTooShort",
            path,
            f"the pods are killed {grace} s after SIGTERM, too early to write a checkpoint: {grace} < {least}",
            f"Write terminationGracePeriodSeconds: {max(least, notice or _DEFAULT_GRACE)}.",
            measure=least - grace,
        )
    elif notice is not None and grace > notice:
        yield Finding(
            "GraceTooLong",
            path,
            f"a spot node is removed {notice} s after its notice, before the grace period ends: {grace} > {notice}",
            # A grace period below leastGrace would be refused.
            f"Write terminationGracePeriodSeconds: {notice}, and write the checkpoint in that time."
            if least <= notice
            else f"Write the checkpoint in {notice} s, and lower leastGrace in the policy from {least} to {notice}.",
        )


def _check_nodes(pods: PodSet, request: _SpotRequest, labels: Labels, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    shapes = node_candidates(pods, snapshot).with_resource
    if snapshot.sync_state("nodes") is not SyncState.SYNCED or not shapes:
        return
    if not any(value in shape.labels.get(key, ()) for shape in shapes for key, value in labels):
        nodes = sum(len(shape.nodes) for shape in shapes)
        yield Finding(
            "NoSpotNodes",
            request.path,
            f"{SPOT}: {request.value}: none of the {nodes} nodes that offer {' and '.join(sorted(pods.accelerators()))} has the"
            f" label {' or '.join(f'{key}={value}' for key, value in labels)}",
            "List the labels of your spot nodes in the policy, or ignore this if an autoscaler adds spot nodes for pending pods.",
        )
