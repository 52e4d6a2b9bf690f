"""What spread constraints and pod affinity select pods by, and over which label of the nodes."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import selector_in
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import Object
from gpugate.policies.kube.names import HOSTNAME
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.rules.placement.node_terms.node_labels import WRITTEN, deprecated_label, intended_label, means_numa
from gpugate.policies.rules.placement.node_terms.terms import AFFINITY, SPREAD, PodTerm

_NAMES: Final = {SPREAD: "spread", AFFINITY: "pod affinity"}
_NUMA: Final = (
    "Remove the constraint: all NUMA nodes of a machine are one node to the scheduler. Alignment is the work of the kubelet's"
    " Topology Manager, for Guaranteed pods with whole CPUs."
)


def _name(term: PodTerm) -> str:
    return _NAMES.get(term.kind, "pod anti-affinity")


def check_selector(term: PodTerm, own: Object | None) -> Iterator[Finding]:
    """Speak of a constraint or term that selects no pods; ``own``: the selector for the workload's own pods, if any."""
    if term.written.get("labelSelector") is not None:
        return
    waits = term.kind == AFFINITY and term.required
    what = "no node ever satisfies it, and the pods stay Pending" if waits else "it counts no pods and does nothing"
    yield Finding(
        "SelectsNoPods",
        term.path,
        f"the {_name(term)} over {term.written.get('topologyKey')!s:.80} has no labelSelector: {what}",
        _lines(own),
        Level.DENY if waits else Level.WARN,
    )


def _lines(own: Object | None) -> str:
    if own is None:
        return "Give the pods a label of their own, such as app, and write a labelSelector with it."
    labels = ", ".join(f"{key}: {value}" for key, value in sorted(own["matchLabels"].items()))
    return f"Write labelSelector: {{matchLabels: {{{labels}}}}}, the workload's own pods."


def check_topology(term: PodTerm, shapes: Sequence[NodeShape] | None, labels: Object) -> Iterator[Finding]:
    """Speak of a topologyKey that no node carries.

    Args:
        term: the constraint or term.
        shapes: the nodes that the pods may land on; None where the nodes are not known.
        labels: the pods' own labels.
    """
    key = term.written.get("topologyKey")
    if type(key) is not str or not key or key == HOSTNAME:
        return
    proper = right_topology(key, shapes)
    if shapes is None:
        if proper is not None or means_numa(key):
            yield _on_no_node(
                term, key, "no component puts the label on nodes, and the nodes are not known here", proper, rests_on=()
            )
    elif not any(key in shape.labels for shape in shapes) and (proper is not None or _matters(term, key, labels)):
        nodes = sum(len(shape.nodes) for shape in shapes)
        why = f"none of the {nodes} nodes that the pods may land on carries it"
        yield _on_no_node(term, key, why, proper, rests_on=("nodes",))


def _matters(term: PodTerm, key: str, labels: Object) -> bool:
    """Whether a key that no node carries, and that is no slip, is worth a word."""
    if not _waits(term):
        # Clusters of one zone have none to name, and manifests that are made for all clusters spread over zones even so.
        return key not in WRITTEN
    if term.kind != AFFINITY:
        return True
    # What keeps the workload's own pods together is looked at with all of them in view.
    selector = selector_in(term.written, "labelSelector")
    return selector is None or not selector.matches(labels)


def _waits(term: PodTerm) -> bool:
    """Whether pods are not placed where no node carries the key."""
    return term.required and term.kind in {SPREAD, AFFINITY}


def right_topology(key: str, shapes: Sequence[NodeShape] | None) -> str | None:
    """The key that is meant by ``key``; None where nothing says so."""
    replaced = deprecated_label(key)
    if replaced is not None:
        return replaced[0]
    if means_numa(key):
        return None
    known = intended_label(key)
    if known is not None or shapes is None:
        return known
    return closest_match(key, {HOSTNAME, *(label for shape in shapes for label in shape.labels)})


def _on_no_node(term: PodTerm, key: str, why: str, proper: str | None, *, rests_on: tuple[str, ...]) -> Finding:
    then = "leaves the pods Pending" if _waits(term) else "does nothing"
    if proper is not None:
        remedy = f"Write {proper} instead of {key}."
    elif means_numa(key):
        remedy = _NUMA
    else:
        remedy = "Name a label that the nodes carry, or have them labelled."
    return Finding(
        "KeyOnNoNode",
        (*term.path, "topologyKey"),
        f"{_name(term)} over {key}: {why}; over a label that no node has it {then}",
        remedy,
        rests_on=rests_on,
    )
