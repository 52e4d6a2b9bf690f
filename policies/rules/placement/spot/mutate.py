"""What sends pods to spot nodes or keeps them off: node affinity, tolerations, and what the pods must know of it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.fields import mapping, mappings
from gpugate.policies.kube.managers import has_kueue_marks
from gpugate.policies.kube.names import PREFERRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.spot.checkpoints import NOTHING, is_readable, loss_of
from gpugate.policies.rules.placement.spot.params import SpotParams, every_of, labels_of
from gpugate.policies.rules.placement.toleration_params import covers, want
from gpugate.policies.scheduling.spot_capacity import (
    CHECKPOINT,
    CLOUDS,
    NEVER,
    PREFER,
    REQUIRED,
    SPOT,
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

_WEIGHT: Final = 100


def send(workload: Workload, pods: PodSet, params: SpotParams, snapshot: ClusterSnapshot) -> list[Edit]:
    """Edits that send ``pods`` to spot nodes, or keep them off, as the annotation says."""
    word = annotation_for(workload, pods, SPOT)
    if word == PREFER and gang_of(workload) is not None:
        word = REQUIRED if params.preferred_gang == "Required" else None
    if word in {REQUIRED, PREFER} and not _is_kept(workload, pods):
        word = None
    labels = labels_of(params, snapshot)
    edits = list(_select(workload, pods, word, labels, params)) if _is_free(workload) else []
    if word in {REQUIRED, PREFER}:
        edits += _tolerate(pods, labels, params, snapshot)
    if edits and ("affinity" in pods.spec or "tolerations" in pods.spec):
        edits += _tell(workload, pods, word)
    return edits


def _select(
    workload: Workload, pods: PodSet, word: str | None, labels: Sequence[tuple[str, str]], params: SpotParams
) -> Iterator[Edit]:
    """Edits of the node affinity for ``word``, and of what another word put there before."""
    asks = {REQUIRED: on_spot(labels), NEVER: off_spot(every_of(params))}
    selector = mapping(pods.spec, "nodeSelector", pods.field())
    named = any(selector.get(key) == value for key, value in labels)
    wanted = () if word == REQUIRED and named else asks.get(word or "", ())
    note = {REQUIRED: "node affinity for spot nodes", NEVER: "node affinity off spot nodes"}.get(word or "", "")
    yield from require(pods, wanted, note, asks.get(annotation_before(workload, pods, SPOT) or "", ()))
    if word == PREFER and not named:
        yield from _prefer(pods, labels)


def _tell(workload: Workload, pods: PodSet, word: str | None) -> Iterator[Edit]:
    """What the pods must know where their template keeps its lists: a gang's pods do not know that they are one."""
    yield from copy_to_template(workload, pods, [CHECKPOINT] if word is not None else [CHECKPOINT, SPOT])
    if word is not None and not workload.is_pod() and pods.annotations().get(SPOT) != word:
        yield Edit("set", pods.meta("annotations", SPOT), word)


def _is_free(workload: Workload) -> bool:
    """Whether the pods' place is still to be chosen: Kueue chose that of its pods by the template."""
    return not (workload.is_pod() and workload.controller() is not None and has_kueue_marks(workload.root))


def _is_kept(workload: Workload, pods: PodSet) -> bool:
    """Whether what the run has done outlives its pods."""
    written = annotation_for(workload, pods, CHECKPOINT)
    if written is None or not is_readable(written) or (written == NOTHING and runs_to_an_end(workload)):
        return False
    return loss_of(workload, pods, written, ()) is None


def runs_to_an_end(workload: Workload) -> bool:
    """Whether the workload has something to lose: a run to completion, or a gang."""
    return workload.is_batch or gang_of(workload) is not None


def _prefer(pods: PodSet, labels: Sequence[tuple[str, str]]) -> Iterator[Edit]:
    place = pods.field("affinity", "nodeAffinity", PREFERRED_AFFINITY)
    present = mappings(node_affinity(pods), PREFERRED_AFFINITY, place[:-1])
    stated = [mapping(one, "preference", place) for one in present]
    note = "preference for spot nodes"
    for one in on_spot(labels):
        if any(all(implies(term, part) for part in one) for term in stated):
            continue
        yield Edit("append", place, {"weight": _WEIGHT, "preference": {"matchExpressions": list(one)}}, note, "spot")
        note = ""


def _tolerate(pods: PodSet, labels: Sequence[tuple[str, str]], params: SpotParams, snapshot: ClusterSnapshot) -> Iterator[Edit]:
    keys = {key for key, _ in labels}
    wanted = [want(*taint) for cloud in CLOUDS.values() for taint in cloud.taints if taint.key in keys]
    wanted += [want(one.key, one.value, one.effect) for one in params.taints if one.effect != "PreferNoSchedule"]
    wanted += [want(*taint) for taint in spot_taints(pods, labels, snapshot)] if params.from_nodes else []
    present = list(mappings(pods.spec, "tolerations", pods.field()))
    for one in wanted:
        if not any(covers(toleration, one.key, one.value, one.effect) for toleration in present):
            present.append(one.toleration)
            yield Edit("append", pods.field("tolerations"), one.toleration, one.note)


KEYS: Final = frozenset({SPOT, CHECKPOINT})


def mutate(workload: Workload, params: SpotParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Send the pods to spot nodes, or keep them off, as the annotation says."""
    if not has_any_annotation(workload, KEYS) and not had_any_annotation(workload, KEYS):
        return ()
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in send(workload, pods, params, snapshot)]
