"""Tell which flavors of a ClusterQueue Kueue may give a pod (v0.15.0, ``pkg/scheduler/flavorassigner``)."""

from collections.abc import Sequence
from typing import Final

from gpugate.policies.cluster.records.common import Taint, toleration_of
from gpugate.policies.cluster.records.kueue import ResourceFlavor, ResourceGroup
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.fields import mapping, mappings
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.scheduling.node_selection import meets
from gpugate.policies.workloads.pod_set import PodSet

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


def label_keys(group: ResourceGroup, snapshot: ClusterSnapshot) -> frozenset[str]:
    """Return the keys of the node labels that the flavors of ``group`` have: Kueue ignores selectors of other keys."""
    known = (snapshot.flavors.get(name) for name, _ in group.flavors)
    return frozenset(key for flavor in known if flavor for key in flavor.labels)


def flavor_mismatch(pods: PodSet, flavor: ResourceFlavor | None, keys: frozenset[str], *, taints_hold: bool) -> str:
    """Return why Kueue can not give ``pods`` the flavor, as text; empty where it can or the flavor is not known.

    Args:
        pods: the pods.
        flavor: the flavor; None where the object is not known.
        keys: the label keys of its group.
        taints_hold: whether the tolerations of ``pods`` are those that Kueue will read.
    """
    if flavor is None:
        return ""
    if taints_hold:
        for taint in flavor.taints:
            if taint.effect in _REPELLING and not _tolerated(pods, flavor, taint):
                value = f"={taint.value}" if taint.value else ""
                return f"its taint {taint.key}{value}:{taint.effect} is not tolerated"
    return "" if _selected(pods, flavor, keys) else f"{_labels_of(flavor)} do not match the pods' nodeSelector or affinity"


def _labels_of(flavor: ResourceFlavor) -> str:
    return "its node labels " + (", ".join(f"{key}={value}" for key, value in sorted(flavor.labels.items())) or "(none)")


def _tolerated(pods: PodSet, flavor: ResourceFlavor, taint: Taint) -> bool:
    written = map(toleration_of, mappings(pods.spec, "tolerations", pods.field()))
    return any(toleration.covers(taint) for toleration in (*flavor.tolerations, *written))


def _selected(pods: PodSet, flavor: ResourceFlavor, keys: frozenset[str]) -> bool:
    """Return whether the flavor's labels match nodeSelector and required node affinity, as far as these select ``keys``."""
    for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
        if key in keys and flavor.labels.get(key) != value:
            return False
    affinity = mapping(mapping(pods.spec, "affinity", pods.field()), "nodeAffinity", pods.field("affinity"))
    path = pods.field("affinity", "nodeAffinity")
    required = mapping(affinity, REQUIRED_AFFINITY, path)
    terms = []
    for term in mappings(required, "nodeSelectorTerms", path):
        relevant = [expression for expression in mappings(term, "matchExpressions", path) if str(expression.get("key")) in keys]
        if not relevant:
            # Terms are alternatives: one that selects none of the keys matches every flavor.
            return True
        terms.append(relevant)
    return not terms or any(_all_met(term, flavor) for term in terms)


def _all_met(expressions: Sequence[dict[str, object]], flavor: ResourceFlavor) -> bool:
    return all(meets(expression, frozenset({flavor.labels.get(str(expression.get("key")))})) for expression in expressions)
