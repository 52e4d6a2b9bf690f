"""Spot and preemptible capacity: what marks it on each cloud, and which pods request it.

==========  ==========================================================  ==============================================  ======
cloud       label                                                       taint of its own                                notice
==========  ==========================================================  ==============================================  ======
EKS         ``eks.amazonaws.com/capacityType=SPOT``                     none                                            120 s
GKE         ``cloud.google.com/gke-spot=true``, ``.../gke-preemptible``  the same, where node auto-provisioning makes it  30 s
AKS         ``kubernetes.azure.com/scalesetpriority=spot``              the same                                        30 s
Karpenter   ``karpenter.sh/capacity-type=spot``                         none                                            cloud's
==========  ==========================================================  ==============================================  ======

Sources: EKS user guide, "Simplify node lifecycle with managed node groups", capacity types; GKE documentation, "Spot VMs" and
"Use preemptible VMs"; AKS documentation, "Add an Azure Spot node pool"; sigs.k8s.io/karpenter ``pkg/apis/v1/labels.go``, and
Karpenter's documentation, "Disruption", for the notice of EC2. In a GKE node pool that users create, they set the taint.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import Taint
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import Object, Path, mapping, mappings
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.names import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpugate.policies.kube.taints import is_never_tolerated, words_in
from gpugate.policies.scheduling.node_selection import node_candidates
from gpugate.policies.workloads.node_affinity import Alternative, implies, node_affinity, required_terms
from gpugate.policies.workloads.pod_set import PodSet

#: Annotation: whether the pods run on spot capacity.
SPOT: Final = "gpugate.io/spot"
#: Annotation: the path of a run's checkpoints.
CHECKPOINT: Final = "gpugate.io/checkpoint"
REQUIRED: Final = "required"
PREFER: Final = "preferred"
NEVER: Final = "never"
WORDS: Final = (REQUIRED, PREFER, NEVER)
_SPOT_WORDS: Final = frozenset({"spot", "preemptible"})


class Cloud(NamedTuple):
    """Labels, taints and notice of one platform's spot nodes.

    Attributes:
        labels: labels of spot nodes.
        taints: taints that the platform itself puts on them.
        notice: seconds from the notice to the end of the node; None if another platform decides it.
        marks: prefixes of label keys on all nodes of the platform, spot or not.
    """

    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    notice: int | None
    marks: tuple[str, ...]


CLOUDS: Final[Mapping[str, Cloud]] = {
    "EKS": Cloud((("eks.amazonaws.com/capacityType", "SPOT"),), (), 120, ("eks.amazonaws.com/",)),
    "GKE": Cloud(
        (("cloud.google.com/gke-spot", "true"), ("cloud.google.com/gke-preemptible", "true")),
        (Taint("cloud.google.com/gke-spot", "true", "NoSchedule"), Taint("cloud.google.com/gke-preemptible", "true", "NoSchedule")),
        30,
        ("cloud.google.com/gke-",),
    ),
    "AKS": Cloud(
        (("kubernetes.azure.com/scalesetpriority", "spot"),),
        (Taint("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule"),),
        30,
        ("kubernetes.azure.com/",),
    ),
    "Karpenter": Cloud((("karpenter.sh/capacity-type", "spot"),), (), None, ("karpenter.sh/",)),
}


def clouds_on_nodes(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Return the platforms whose labels nodes have, spot or not."""
    clouds: tuple[str, ...] | None = snapshot.memo.get("spot")
    if clouds is None:
        keys = {key for shape in snapshot.shapes for key in shape.labels}
        clouds = tuple(name for name, cloud in CLOUDS.items() if any(key.startswith(cloud.marks) for key in keys))
        remember(snapshot.memo, "spot", clouds)
    return clouds


def every_label(own: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the labels of spot nodes on all platforms, and the cluster's ``own``."""
    return (*(label for cloud in CLOUDS.values() for label in cloud.labels), *own)


def on_spot(labels: Sequence[tuple[str, str]]) -> tuple[Alternative, ...]:
    """Return the alternatives for nodes with any of ``labels``."""
    return tuple(({"key": key, "operator": "In", "values": [value]},) for key, value in labels)


def off_spot(labels: Sequence[tuple[str, str]]) -> tuple[Alternative, ...]:
    """Return the alternative for nodes without any of ``labels``; a node without the key meets it."""
    return (tuple({"key": key, "operator": "NotIn", "values": [value]} for key, value in labels),)


class SpotSelection(NamedTuple):
    """The field by which pods request spot capacity without the annotation.

    Attributes:
        path: the field.
        only: True if it excludes other capacity.
        label: the label key.
    """

    path: Path
    only: bool
    label: str


def chosen_by_hand(pods: PodSet, spot: Mapping[str, str]) -> SpotSelection | None:
    """Return how ``pods`` select spot capacity; None if they select no label of ``spot`` with its value."""
    spec = pods.spec
    for key, value in mapping(spec, "nodeSelector", pods.field()).items() if "nodeSelector" in spec else ():
        if key in spot and spot[key] == value:
            return SpotSelection(pods.field("nodeSelector", key), only=True, label=key)
    if "affinity" not in spec:
        return None
    affinity = node_affinity(pods)
    required = required_terms(pods) if REQUIRED_AFFINITY in affinity else []
    terms = [term for term in required if term.get("matchExpressions") or term.get("matchFields")]
    labels = [_label_in(term, spot) for term in terms]
    if any(labels):
        alternatives = on_spot(tuple(spot.items()))
        only = all(labels) and all(any(implies(term, part) for (part,) in alternatives) for term in terms)
        return SpotSelection(pods.field("affinity", "nodeAffinity", REQUIRED_AFFINITY), only, next(filter(None, labels)))
    if PREFERRED_AFFINITY not in affinity:
        return None
    path = pods.field("affinity", "nodeAffinity")
    preferred = [mapping(weighted, "preference", path) for weighted in mappings(affinity, PREFERRED_AFFINITY, path)]
    label = next(filter(None, (_label_in(term, spot) for term in preferred)), None)
    return SpotSelection((*path, PREFERRED_AFFINITY), only=False, label=label) if label else None


def _label_in(term: Object, spot: Mapping[str, str]) -> str:
    """Return the first label of ``spot`` that ``term`` selects with its value; empty for none."""
    for expression in mappings(term, "matchExpressions", ()):
        key, values = expression.get("key"), expression.get("values")
        if expression.get("operator") == "In" and type(key) is str and type(values) is list and spot.get(key) in values:
            return key
    return ""


def notice_of(labels: Iterable[str], clouds: Iterable[str]) -> int | None:
    """Return the shortest notice in seconds of ``clouds`` and of those that own one of ``labels``; None if none is known."""
    keys, names = set(labels), set(clouds)
    owners = [cloud for name, cloud in CLOUDS.items() if name in names or any(key in keys for key, _ in cloud.labels)]
    return min((cloud.notice for cloud in owners if cloud.notice is not None), default=None)


def spot_taints(pods: PodSet, labels: Sequence[tuple[str, str]], snapshot: ClusterSnapshot) -> list[Taint]:
    """Return the spot taints of spot nodes with the accelerators that ``pods`` request, sorted."""
    taints = {
        taint
        for shape in node_candidates(pods, snapshot).with_resource
        if any(value in shape.labels.get(key, ()) for key, value in labels)
        for taint in shape.taints
        if taint.effect != "PreferNoSchedule"
        and not _SPOT_WORDS.isdisjoint(words_in(taint.key, taint.value))
        and not is_never_tolerated(taint.key, taint.value)
    }
    return sorted(taints)
