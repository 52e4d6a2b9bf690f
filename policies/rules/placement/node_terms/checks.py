"""Findings of the rule `node-terms`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import Taint
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.kube.memo import keep, recall, remember
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.rules.placement.node_terms.labels import check_label, check_selected, check_unit, wishes
from gpugate.policies.rules.placement.node_terms.node_labels import speaks_of_accelerators
from gpugate.policies.rules.placement.node_terms.operators import check_node_term, check_pod_term, check_tolerations
from gpugate.policies.rules.placement.node_terms.params import NodeTermsParams
from gpugate.policies.rules.placement.node_terms.taints import check_taints
from gpugate.policies.rules.placement.node_terms.terms import SPREAD, node_terms, pod_terms
from gpugate.policies.rules.placement.node_terms.topology import check_selector, check_topology
from gpugate.policies.scheduling.node_fit import doubt_about
from gpugate.policies.scheduling.node_selection import NodeCandidates, node_candidates
from gpugate.policies.workloads.metadata import pod_selector
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import Workload

#: What of a pod spec the rule reads.
_READ: Final = ("affinity", "nodeSelector", "tolerations", SPREAD)


class _Carried(NamedTuple):
    """What the nodes with accelerators carry, all together.

    Attributes:
        labels: keys of labels.
        taints: taints, sorted.
    """

    labels: frozenset[str]
    taints: tuple[Taint, ...]


def _carried(snapshot: ClusterSnapshot) -> _Carried:
    """What the nodes carry, remembered with them."""
    found: _Carried | None = snapshot.memo.get("carried by nodes")
    if found is None:
        labels = frozenset(key for shape in snapshot.shapes for key in shape.labels)
        found = _Carried(labels | {HOSTNAME}, tuple(sorted({taint for shape in snapshot.shapes for taint in shape.taints})))
        remember(snapshot.memo, "carried by nodes", found)
    return found


def check(workload: Workload, params: NodeTermsParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Name what no component reads or knows."""
    for pods in workload.pod_sets:
        if pods.requests_gpu():
            if pods.is_whole and not pods.is_windows():
                yield from _check(workload, pods, params, snapshot)
        elif ("nodeSelector" in pods.spec or "affinity" in pods.spec) and _speaks(pods):
            yield from _check(workload, pods, params, snapshot)


def _speaks(pods: PodSet) -> bool:
    return any(speaks_of_accelerators(wish.key) for wish in wishes(pods, list(node_terms(pods))))


def _check(workload: Workload, pods: PodSet, params: NodeTermsParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """What is found of the pods. That nothing is, as with nearly all, is remembered."""
    chosen = node_candidates(pods, snapshot)
    key = _key(workload, pods, snapshot)
    if key is not None and recall(snapshot.memo, "node-terms", key, chosen, params, snapshot.flavors):
        return ()
    found = list(_look(workload, pods, chosen, params, snapshot))
    if not found:
        keep(snapshot.memo, "node-terms", key, "nothing", chosen, params, snapshot.flavors)
    return found


def _key(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Any:  # noqa: ANN401 - any hashable
    """All that decides whether something is found, but the nodes; None where it is better worked out each time."""
    spec, affinity = pods.spec, pods.spec.get("affinity")
    # Whom an affinity selects depends on the pods' labels, and whether nodes are looked at on RuntimeClasses and LimitRanges.
    if not workload.is_pod() or "runtimeClassName" in spec or (type(affinity) is dict and "podAffinity" in affinity):
        return None
    written = memo_key([{field: spec[field] for field in _READ if field in spec}, pods.predicted_tolerations])
    return None if written is None else (written, snapshot.sync_state("nodes"), workload.owner_was_reviewed())


def _look(
    workload: Workload, pods: PodSet, chosen: NodeCandidates, params: NodeTermsParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    spec = pods.spec
    if "affinity" in spec or "nodeSelector" in spec:
        yield from _check_nodes(workload, pods, chosen, params, snapshot)
    elif chosen.with_resource and doubt_about(workload, pods, snapshot) is None:
        yield from check_selected(pods, chosen, (), _carried(snapshot).labels)
    if "affinity" in spec or SPREAD in spec:
        yield from _check_pods(workload, pods, chosen, snapshot)
    if "tolerations" in spec:
        yield from check_tolerations(pods)
        if snapshot.known.get("nodes") is SyncState.SYNCED and snapshot.shapes and not workload.owner_was_reviewed():
            yield from _check_taints(pods, params, snapshot)


def _check_nodes(
    workload: Workload, pods: PodSet, chosen: NodeCandidates, params: NodeTermsParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    """What the pods ask of their nodes' labels."""
    terms = list(node_terms(pods))
    alone = sum(term.required for term in terms) == 1
    found = [finding for term in terms for finding in check_node_term(term, alone=alone)]
    yield from found
    state = snapshot.sync_state("nodes")
    if found or state is SyncState.PENDING:
        return
    asked = list(wishes(pods, terms))
    carried = None
    if state is SyncState.SYNCED and snapshot.shapes:
        carried = _carried(snapshot).labels
        if chosen.with_resource and doubt_about(workload, pods, snapshot) is None:
            found = list(check_selected(pods, chosen, asked, carried))
            yield from found
    to_come = {*params.known, *(key for flavor in snapshot.flavors.values() for key in flavor.labels)}
    for wish in asked:
        yield from check_unit(wish)
        # What leaves no node at all is told with the labels that do.
        if not (found and wish.required) and wish.key not in to_come and (carried is None or wish.key not in carried):
            yield from check_label(wish, carried, snapshot.shapes)


def _check_pods(workload: Workload, pods: PodSet, chosen: NodeCandidates, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """What the pods ask of the pods beside them."""
    state = snapshot.sync_state("nodes")
    shapes: Sequence[NodeShape] | None = None
    if state is SyncState.SYNCED and snapshot.shapes:
        shapes = chosen.matching or chosen.with_resource or snapshot.shapes
    for term in pod_terms(pods):
        yield from check_pod_term(term)
        yield from check_selector(term, pod_selector(workload, pods))
        if state is not SyncState.PENDING:
            yield from check_topology(term, shapes, pods.labels())


def _check_taints(pods: PodSet, params: NodeTermsParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    flavors = snapshot.flavors.values()
    known = {*params.known, *(one.key for flavor in flavors for one in flavor.tolerations)}
    yield from check_taints(pods, (*_carried(snapshot).taints, *(taint for flavor in flavors for taint in flavor.taints)), known)
