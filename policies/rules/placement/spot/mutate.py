"""Parameters and edits of the rule `spot`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.cel import UNIQUE, LabelKey, LabelName
from gpugate.policies.kube.fields import mapping, mappings
from gpugate.policies.kube.managers import has_kueue_marks
from gpugate.policies.kube.names import PREFERRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.spot.checkpoints import NO_CHECKPOINT, is_readable, loss_of
from gpugate.policies.rules.placement.tolerated_taints import TaintParam, ToleratedTaint, missing_tolerations
from gpugate.policies.scheduling.spot_capacity import (
    CHECKPOINT,
    CLOUDS,
    NEVER,
    PREFER,
    REQUIRED,
    SPOT,
    clouds_on_nodes,
    every_label,
    off_spot,
    on_spot,
    spot_taints,
)
from gpugate.policies.workloads.metadata import (
    annotation_before,
    annotation_for,
    copy_to_template,
    had_any_annotation,
    has_any_annotation,
)
from gpugate.policies.workloads.node_affinity import implies, node_affinity, require
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

KEYS: Final = frozenset({SPOT, CHECKPOINT})
_MOST: Final = 16
_WEIGHT: Final = 100
#: Labels of nodes, each with its value.
Labels: TypeAlias = Sequence[tuple[str, str]]


class SpotLabel(Params):
    """A label of this cluster's spot nodes."""

    key: LabelKey
    """The label's key."""
    value: LabelName
    """Its value on spot nodes."""


class SpotParams(Params):
    """Parameters of `spot`."""

    clouds: Annotated[tuple[Literal["EKS", "GKE", "AKS", "Karpenter"], ...], *UNIQUE] = ()
    """The platforms whose spot nodes are selected; by default those found on nodes, or all if none is found."""
    labels: Annotated[tuple[SpotLabel, ...], Field(max_length=_MOST)] = ()
    """Labels of spot nodes that this cluster sets itself, besides those of the platforms."""
    taints: Annotated[tuple[TaintParam, ...], Field(max_length=_MOST)] = ()
    """Taints of this cluster's spot nodes. Pods with the annotation tolerate them."""
    from_nodes: bool = True
    """Whether pods with the annotation tolerate taints of spot nodes that contain `spot` or `preemptible`, too."""
    preferred_gang: Literal["Deny", "Required"] = "Deny"
    """Whether a gang that prefers spot nodes is refused, or runs only on spot nodes."""
    by_hand: Literal["Deny", "Warn"] = "Warn"
    """What is done about pods that select spot nodes without the annotation and would lose their work."""
    interruptions: Annotated[int, Field(ge=0, le=1000)] = 3
    """Minimum number of interruptions that a Job must survive."""
    least_grace: Annotated[int, Field(ge=0, le=3600)] = 10
    """Minimum time in seconds that pods must have to write a checkpoint after SIGTERM."""


_ALL_LABELS: Final[Labels] = every_label(())
_ALL_VALUES: Final[Mapping[str, str]] = dict(_ALL_LABELS)


def _own_labels(params: SpotParams) -> Labels:
    return tuple((label.key, label.value) for label in params.labels)


def all_labels(params: SpotParams) -> Labels:
    """Return the labels of spot nodes on all platforms."""
    return every_label(_own_labels(params)) if params.labels else _ALL_LABELS


def label_values(params: SpotParams) -> Mapping[str, str]:
    """Return the same labels by key."""
    return dict(all_labels(params)) if params.labels else _ALL_VALUES


def selected_labels(params: SpotParams, snapshot: ClusterSnapshot) -> Labels:
    """Return the labels of the spot nodes that pods with the annotation select."""
    labels = (*(label for cloud in clouds_of(params, snapshot) for label in CLOUDS[cloud].labels), *_own_labels(params))
    return labels or _ALL_LABELS


def clouds_of(params: SpotParams, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Return the platforms whose spot nodes are selected; none if none is known."""
    return params.clouds or clouds_on_nodes(snapshot)


def has_work_to_lose(workload: Workload) -> bool:
    """Return whether the workload is a run to completion or a gang."""
    return workload.is_batch or gang_of(workload) is not None


def mutate(workload: Workload, params: SpotParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Select spot nodes, or exclude them, as the annotation says."""
    if not has_any_annotation(workload, KEYS) and not had_any_annotation(workload, KEYS):
        return ()
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in _edits(workload, pods, params, snapshot)]


def _edits(workload: Workload, pods: PodSet, params: SpotParams, snapshot: ClusterSnapshot) -> list[Edit]:
    value = annotation_for(workload, pods, SPOT)
    if value == PREFER and gang_of(workload) is not None:
        value = REQUIRED if params.preferred_gang == "Required" else None
    if value in {REQUIRED, PREFER} and not _keeps_checkpoints(workload, pods):
        value = None
    labels = selected_labels(params, snapshot)
    # Kueue selects the nodes of its pods by their template.
    is_placed = workload.is_pod() and workload.controller() is not None and has_kueue_marks(workload.root)
    edits = [] if is_placed else list(_select(workload, pods, value, labels, params))
    if value in {REQUIRED, PREFER}:
        edits += _tolerate(pods, labels, params, snapshot)
    if edits and ("affinity" in pods.spec or "tolerations" in pods.spec):
        edits += _annotate_template(workload, pods, value)
    return edits


def _keeps_checkpoints(workload: Workload, pods: PodSet) -> bool:
    """Return whether the checkpoints outlive the pods, or there is no work to lose."""
    checkpoint = annotation_for(workload, pods, CHECKPOINT)
    if checkpoint is None or not is_readable(checkpoint) or (checkpoint == NO_CHECKPOINT and has_work_to_lose(workload)):
        return False
    return loss_of(workload, pods, checkpoint, ()) is None


def _select(workload: Workload, pods: PodSet, value: str | None, labels: Labels, params: SpotParams) -> Iterator[Edit]:
    """Yield the edits of the node affinity for ``value``; they remove what an earlier value of the annotation required."""
    alternatives = {REQUIRED: on_spot(labels), NEVER: off_spot(all_labels(params))}
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    selects_spot = any(selector.get(key) == label for key, label in labels)
    required = () if value == REQUIRED and selects_spot else alternatives.get(value or "", ())
    note = {REQUIRED: "node affinity for spot nodes", NEVER: "node affinity off spot nodes"}.get(value or "", "")
    yield from require(pods, required, note, alternatives.get(annotation_before(workload, pods, SPOT) or "", ()))
    if value == PREFER and not selects_spot:
        yield from _prefer(pods, labels)


def _prefer(pods: PodSet, labels: Labels) -> Iterator[Edit]:
    path = pods.field("affinity", "nodeAffinity", PREFERRED_AFFINITY)
    terms = [mapping(term, "preference", path) for term in mappings(node_affinity(pods), PREFERRED_AFFINITY, path[:-1])]
    note = "preference for spot nodes"
    for expressions in on_spot(labels):
        if not any(all(implies(term, expression) for expression in expressions) for term in terms):
            preference = {"weight": _WEIGHT, "preference": {"matchExpressions": list(expressions)}}
            yield Edit("append", path, preference, note, "spot")
            note = ""


def _tolerate(pods: PodSet, labels: Labels, params: SpotParams, snapshot: ClusterSnapshot) -> list[Edit]:
    keys = {key for key, _ in labels}
    taints = [ToleratedTaint(*taint) for cloud in CLOUDS.values() for taint in cloud.taints if taint.key in keys]
    taints += [ToleratedTaint(taint.key, taint.value, taint.effect) for taint in params.taints]
    taints += [ToleratedTaint(*taint) for taint in spot_taints(pods, labels, snapshot)] if params.from_nodes else []
    return missing_tolerations(pods, taints)


def _annotate_template(workload: Workload, pods: PodSet, value: str | None) -> Iterator[Edit]:
    """Yield the annotations that a template needs whose owner may keep its lists: the pods of a gang do not know the gang."""
    yield from copy_to_template(workload, pods, [CHECKPOINT] if value is not None else [CHECKPOINT, SPOT])
    if value is not None and not workload.is_pod() and pods.annotations().get(SPOT) != value:
        yield Edit("set", pods.meta("annotations", SPOT), value)
