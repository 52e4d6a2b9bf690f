"""Parameters and findings of the rule `node-terms`."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, NamedTuple

from gpugate.policies.cluster.records.common import Taint
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import UNIQUE, LabelKey
from gpugate.policies.kube.memo import keep, recall, remember
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.rules.placement.node_terms.node_labels import speaks_of_accelerators
from gpugate.policies.rules.placement.node_terms.nodes import (
    LOOKED_UP,
    check_label,
    check_selected,
    check_taints,
    check_unit,
    required_labels,
)
from gpugate.policies.rules.placement.node_terms.operators import check_node_term, check_pod_term, check_tolerations
from gpugate.policies.rules.placement.node_terms.terms import SPREAD, node_terms, pod_terms
from gpugate.policies.rules.placement.node_terms.topology import check_selector, check_topology, offered_by
from gpugate.policies.scheduling.node_fit import doubt_about
from gpugate.policies.scheduling.node_selection import NodeCandidates, node_candidates
from gpugate.policies.workloads.metadata import pod_selector
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.resources import memo_key
from gpugate.policies.workloads.workload import Workload

#: Fields of a pod spec that the rule reads.
_READ: Final = ("affinity", "nodeSelector", "tolerations", SPREAD)


class NodeTermsParams(Params):
    """Parameters of `node-terms`."""

    known: Annotated[tuple[LabelKey, ...], *UNIQUE] = ()
    """Keys of labels and taints of nodes that do not exist yet: those of pools that scale up from zero."""


class _OnNodes(NamedTuple):
    """The label keys and the sorted taints of all nodes with accelerators."""

    labels: frozenset[str]
    taints: tuple[Taint, ...]


def _on_nodes(snapshot: ClusterSnapshot) -> _OnNodes:
    on_nodes: _OnNodes | None = snapshot.memo.get("node-terms on nodes")
    if on_nodes is None:
        labels = frozenset(key for shape in snapshot.shapes for key in shape.labels)
        on_nodes = _OnNodes(labels | {HOSTNAME}, tuple(sorted({taint for shape in snapshot.shapes for taint in shape.taints})))
        remember(snapshot.memo, "node-terms on nodes", on_nodes)
    return on_nodes


def check(workload: Workload, params: NodeTermsParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield findings for terms that the API server rejects, or that match nothing."""
    for pods in workload.pod_sets:
        if pods.requests_gpu():
            if pods.is_whole and not pods.is_windows():
                yield from _check(workload, pods, params, snapshot)
        elif "nodeSelector" in pods.spec or "affinity" in pods.spec:
            labels = required_labels(pods, list(node_terms(pods)))
            if any(speaks_of_accelerators(label.key) for label in labels):
                yield from _check(workload, pods, params, snapshot)


def _check(workload: Workload, pods: PodSet, params: NodeTermsParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """Return the findings; remember if there are none, as for most pods."""
    candidates = node_candidates(pods, snapshot)
    key = _memo_key(workload, pods, snapshot)
    if recall(snapshot.memo, "node-terms", key, candidates, params, snapshot.flavors):
        return ()
    findings = list(_check_terms(workload, pods, candidates, params, snapshot))
    if not findings:
        keep(snapshot.memo, "node-terms", key, "nothing", candidates, params, snapshot.flavors)
    return findings


def _memo_key(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Any:  # noqa: ANN401 - any hashable
    """Return a key of all that the findings depend on, except the nodes; None if the findings are not remembered."""
    spec, affinity = pods.spec, pods.spec.get("affinity")
    # Pod affinity depends on the pods' labels, too, and the check of nodes on RuntimeClasses and LimitRanges.
    if not workload.is_pod() or "runtimeClassName" in spec or (type(affinity) is dict and "podAffinity" in affinity):
        return None
    written = memo_key([{field: spec[field] for field in _READ if field in spec}, pods.predicted_tolerations])
    return None if written is None else (written, snapshot.sync_state("nodes"), workload.owner_was_reviewed())


def _check_terms(
    workload: Workload, pods: PodSet, candidates: NodeCandidates, params: NodeTermsParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    spec = pods.spec
    if "affinity" in spec or "nodeSelector" in spec:
        yield from _check_node_terms(workload, pods, candidates, params, snapshot)
    elif candidates.with_resource and doubt_about(workload, pods, snapshot) is None:
        yield from check_selected(pods, candidates, (), _on_nodes(snapshot).labels)
    if "affinity" in spec or SPREAD in spec:
        yield from _check_pod_terms(workload, pods, candidates, snapshot)
    if "tolerations" in spec:
        yield from check_tolerations(pods)
        if snapshot.known.get("nodes") is SyncState.SYNCED and snapshot.shapes and not workload.owner_was_reviewed():
            flavors = snapshot.flavors.values()
            taints = (*_on_nodes(snapshot).taints, *(taint for flavor in flavors for taint in flavor.taints))
            tolerated = (toleration.key for flavor in flavors for toleration in flavor.tolerations)
            yield from check_taints(pods, taints, {*params.known, *tolerated})


def _check_node_terms(
    workload: Workload, pods: PodSet, candidates: NodeCandidates, params: NodeTermsParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    """Yield findings for the nodeSelector and the node affinity."""
    terms = list(node_terms(pods))
    alone = sum(term.required for term in terms) == 1
    findings = [finding for term in terms for finding in check_node_term(term, alone=alone)]
    yield from findings
    state = snapshot.sync_state("nodes")
    if findings or state is SyncState.PENDING:
        return
    labels = list(required_labels(pods, terms))
    on_nodes = _on_nodes(snapshot).labels if state is SyncState.SYNCED and snapshot.shapes else None
    if on_nodes is not None and candidates.with_resource and doubt_about(workload, pods, snapshot) is None:
        findings = list(check_selected(pods, candidates, labels, on_nodes))
        yield from findings
    present = {*params.known, *(key for flavor in snapshot.flavors.values() for key in flavor.labels), *(on_nodes or ())}
    unknown = 0
    for label in labels:
        yield from check_unit(label)
        # The finding that no node is left names the required labels already.
        if not (findings and label.required) and label.key not in present and unknown < LOOKED_UP:
            unknown += 1
            yield from check_label(label, on_nodes, snapshot.shapes)


def _check_pod_terms(workload: Workload, pods: PodSet, candidates: NodeCandidates, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield findings for spread constraints and for affinity to other pods."""
    state = snapshot.sync_state("nodes")
    known = state is SyncState.SYNCED and snapshot.shapes
    offered = offered_by(candidates.matching or candidates.with_resource or snapshot.shapes) if known else None
    own = pod_selector(workload, pods)
    labels = pods.labels()
    for term in pod_terms(pods):
        yield from check_pod_term(term)
        yield from check_selector(term, own)
        if state is not SyncState.PENDING:
            yield from check_topology(term, offered, labels)
