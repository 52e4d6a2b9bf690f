"""Edits of the rule `placement`."""

from collections.abc import Iterable
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.kube.accelerators import LEGACY_GPU
from gpugate.policies.kube.managers import has_kueue_marks
from gpugate.policies.kube.memo import remember
from gpugate.policies.patch import Edit
from gpugate.policies.rules.placement.gpu_selection.params import PlacementParams
from gpugate.policies.rules.placement.gpu_selection.products import PRODUCT_LABEL
from gpugate.policies.rules.placement.gpu_selection.requirements import (
    KEYS,
    Labels,
    requirements_before,
    requirements_of,
    said_something,
    says_something,
)
from gpugate.policies.workloads.metadata import copy_to_template
from gpugate.policies.workloads.node_affinity import both, growth, require, required_terms
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Terms that a pod's node affinity may come to. The API sets no bound; the scheduler reads each of them for each node.
MOST_TERMS: Final = 64


_NVIDIA: Final = "nvidia.com/"


#: Names under which dynamic resource allocation serves devices of any maker.
_ANY_MAKER: Final = "deviceclass.resource.kubernetes.io/"


def labels_for(params: PlacementParams, snapshot: ClusterSnapshot) -> Labels:
    """Return the labels that the nodes' version of GPU Feature Discovery writes, with the products that nodes have."""
    found: frozenset[str] | None = snapshot.memo.get("placement")
    if found is None:
        found = frozenset(value for shape in snapshot.shapes for value in shape.labels.get(PRODUCT_LABEL, ()) if value)
        remember(snapshot.memo, "placement", found)
    return Labels(params.driver_labels, params.shared, found)


def mutate(workload: Workload, params: PlacementParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Require of the nodes what the annotations say."""
    if not says_something(workload) and not said_something(workload):
        return ()
    if workload.is_pod() and workload.controller() is not None and has_kueue_marks(workload.root):
        # Kueue chose the pod's place by the template.
        return ()
    labels = labels_for(params, snapshot)
    return [edit for pods in workload.templated_gpu_pod_sets() for edit in _place(workload, pods, labels)]


def _place(workload: Workload, pods: PodSet, labels: Labels) -> list[Edit]:
    wanted, _ = requirements_of(workload, pods, labels)
    was = requirements_before(workload, pods, labels) if workload.old is not None else []
    if not (wanted or was) or of_other_makers(pods):
        return []
    alternatives = both(one.alternatives for one in wanted) if wanted else ()
    before = both(one.alternatives for one in was) if was else ()
    if growth(pods, alternatives).terms > MOST_TERMS:
        return []
    note = f"node affinity for {', '.join(one.shown for one in wanted)}" if wanted else ""
    edits = list(require(pods, alternatives, note, before))
    if edits and required_terms(pods):
        edits += copy_to_template(workload, pods, KEYS)
    return edits


def of_other_makers(pods: PodSet) -> list[str]:
    """Return the requested devices of other vendors than NVIDIA, sorted."""
    return sorted(name for name in pods.accelerators() if not name.startswith((_NVIDIA, _ANY_MAKER)) and name != LEGACY_GPU)
