"""Check the label selectors and topology keys of spread constraints and of pod affinity."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import selector_in
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import Object
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.rules.placement.node_terms.node_labels import DEPRECATED, WRITTEN, intended_label, means_numa
from gpugate.policies.rules.placement.node_terms.terms import AFFINITY, ANTI_AFFINITY, SPREAD, PodTerm

_NAMES: Final = {SPREAD: "spread", AFFINITY: "pod affinity", ANTI_AFFINITY: "pod anti-affinity"}


class Offered(NamedTuple):
    """What the nodes offer that pods may run on: the keys of their labels, and how many they are."""

    labels: frozenset[str]
    nodes: int


def offered_by(shapes: Sequence[NodeShape]) -> Offered:
    """Return what ``shapes`` of nodes offer."""
    return Offered(frozenset().union({HOSTNAME}, *(shape.labels for shape in shapes)), sum(len(shape.nodes) for shape in shapes))


def check_selector(term: PodTerm, own: Object | None) -> Iterator[Finding]:
    """Yield a finding for a term without labelSelector; ``own``: a selector for the workload's own pods, if there is one."""
    if term.value.get("labelSelector") is not None:
        return
    pending = term.kind == AFFINITY and term.required
    effect = "no node satisfies it and the pods stay Pending" if pending else "it counts no pods and does nothing"
    if own is None:
        remedy = "Give the pods a label of their own, such as app, and write a labelSelector with it."
    else:
        labels = ", ".join(f"{key}: {value}" for key, value in sorted(own["matchLabels"].items()))
        remedy = f"Write labelSelector: {{matchLabels: {{{labels}}}}} to select the workload's own pods."
    yield Finding(
        "SelectsNoPods",
        term.path,
        f"the {_NAMES[term.kind]} over {term.value.get('topologyKey')!s:.80} has no labelSelector, so {effect}",
        remedy,
        Level.DENY if pending else Level.WARN,
    )


def check_topology(term: PodTerm, offered: Offered | None, labels: Object) -> Iterator[Finding]:
    """Yield a finding for a topologyKey that no node has as a label.

    Args:
        term: the constraint or term.
        offered: what the nodes offer that the pods may run on; None if the nodes are unknown.
        labels: the pods' own labels.
    """
    key = term.value.get("topologyKey")
    if type(key) is not str or not key or key == HOSTNAME:
        return
    intended = _intended_key(key, offered)
    if offered is None:
        if intended is None and not means_numa(key):
            return
        problem = "no known component sets this label, and gpugate does not know the nodes"
    elif key in offered.labels or (intended is None and not _is_suspicious(term, key, labels)):
        return
    else:
        problem = f"none of the {offered.nodes} nodes that the pods may run on has this label"
    if intended is not None:
        remedy = f"Write {intended} instead of {key}."
    elif means_numa(key):
        remedy = (
            "Remove the constraint: to the scheduler all NUMA nodes of a machine are one node, and the kubelet's Topology Manager"
            " aligns Guaranteed pods with whole CPUs."
        )
    else:
        remedy = "Name a label that the nodes have, or add this label to the nodes."
    yield Finding(
        "KeyOnNoNode",
        (*term.path, "topologyKey"),
        f"{_NAMES[term.kind]} over {key}: {problem}, so {'the pods stay Pending' if _blocks(term) else 'the term does nothing'}",
        remedy,
        rests_on=() if offered is None else ("nodes",),
    )


def _is_suspicious(term: PodTerm, key: str, labels: Object) -> bool:
    """Return whether to warn about a key that no node has and that resembles no known label."""
    if not _blocks(term):
        # Clusters of one zone need no zone labels, and manifests for all clusters spread over zones.
        return key not in WRITTEN
    if term.kind != AFFINITY:
        return True
    # gang-packing checks affinity of the workload's pods to each other.
    selector = selector_in(term.value, "labelSelector")
    return selector is None or not selector.matches(labels)


def _blocks(term: PodTerm) -> bool:
    """Return whether pods stay Pending if no node has the key."""
    return term.required and term.kind in {SPREAD, AFFINITY}


def _intended_key(key: str, offered: Offered | None) -> str | None:
    deprecated = DEPRECATED.get(key)
    if deprecated is not None:
        return deprecated[0]
    if means_numa(key):
        return None
    known = intended_label(key)
    return known if known is not None or offered is None else closest_match(key, offered.labels)
