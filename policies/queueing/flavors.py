"""Which flavors of a ClusterQueue a pod may be given (Kueue v0.15.0, ``pkg/scheduler/flavorassigner``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpugate.policies.cluster.records.common import Taint, toleration_of
from gpugate.policies.cluster.records.kueue import ResourceFlavor, ResourceGroup
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import mapping, mappings
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.scheduling.node_selection import meets
from gpugate.policies.workloads.workload import PodSet

_KEEPS_OFF: Final = frozenset({"NoSchedule", "NoExecute"})


def label_keys(group: ResourceGroup, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Keys of the node labels that the flavors of ``group`` state: selectors of other keys are not looked at."""
    known = (snapshot.flavors.get(name) for name, _ in group.flavors)
    return frozenset(key for flavor in known if flavor for key in flavor.labels)


def flavor_mismatch(pods: PodSet, flavor: ResourceFlavor | None, keys: frozenset[str], *, taints_hold: bool) -> str:
    """Why ``pods`` can not be given ``flavor``; empty where they can, or where nothing is known of it.

    Args:
        pods: the pods.
        flavor: the flavor; None where there is no such object that is known.
        keys: the label keys of its group.
        taints_hold: whether the pods' tolerations are those that Kueue will see.
    """
    if flavor is None:
        return ""
    if taints_hold:
        for taint in flavor.taints:
            if taint.effect in _KEEPS_OFF and not _tolerated(pods, flavor, taint):
                value = f"={taint.value}" if taint.value else ""
                return f"its taint {taint.key}{value}:{taint.effect} is not tolerated"
    return "" if _selected(pods, flavor, keys) else f"{_labels_of(flavor)} do not match the pods' nodeSelector or affinity"


def _labels_of(flavor: ResourceFlavor) -> str:
    return "its node labels " + (", ".join(f"{key}={value}" for key, value in sorted(flavor.labels.items())) or "(none)")


def _tolerated(pods: PodSet, flavor: ResourceFlavor, taint: Taint) -> bool:
    written = map(toleration_of, mappings(pods.spec, "tolerations", pods.field()))
    return any(one.covers(taint) for one in (*flavor.tolerations, *written))


def _selected(pods: PodSet, flavor: ResourceFlavor, keys: frozenset[str]) -> bool:
    """Whether nodeSelector and required node affinity, as far as they are about ``keys``, match the flavor's labels."""
    for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
        if key in keys and flavor.labels.get(key) != value:
            return False
    affinity = mapping(mapping(pods.spec, "affinity", pods.field()), "nodeAffinity", pods.field("affinity"))
    path = pods.field("affinity", "nodeAffinity")
    required = mapping(affinity, REQUIRED_AFFINITY, path)
    terms = []
    for term in mappings(required, "nodeSelectorTerms", path):
        about = [one for one in mappings(term, "matchExpressions", path) if str(one.get("key")) in keys]
        if not about:
            # Terms are alternatives: one that is about nothing here lets every flavor through.
            return True
        terms.append(about)
    return not terms or any(_all_met(term, flavor) for term in terms)


def _all_met(expressions: Sequence[dict[str, object]], flavor: ResourceFlavor) -> bool:
    return all(meets(one, frozenset({flavor.labels.get(str(one.get("key")))})) for one in expressions)
