"""Check the labels that pods require of nodes, and the taints that they tolerate, against those that nodes have."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import CAPACITY, Taint, Toleration, toleration_of
from gpugate.policies.findings import Finding
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.fields import Object, Path, mapping, mappings, whole_number
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.kube.taints import is_transient_taint, words_in
from gpugate.policies.rules.placement.node_terms.node_labels import (
    DEPRECATED,
    MEMORY,
    PRESENT,
    PRODUCT,
    WRITTEN,
    intended_label,
    names_cards,
)
from gpugate.policies.rules.placement.node_terms.terms import NodeTerm
from gpugate.policies.scheduling.node_selection import NodeCandidates, meets, open_shapes, values_of
from gpugate.policies.workloads.pod_set import PodSet

_SHOWN: Final = 3
#: Unknown labels, and unknown taints, of a pod that are compared with known ones: nobody reads more findings, and each takes
#: some 0.1 ms.
LOOKED_UP: Final = 64
#: The memory of a GPU has up to three digits in GiB, and more in MiB.
_DIGITS_OF_GIB: Final = 3
#: Label values for any GPU, in lower case.
_ANY_GPU: Final = frozenset({"true", "yes", "gpu", "nvidia", "nvidia-gpu", "present"})
_SPOT: Final = frozenset({"spot", "preemptible", "preemption"})
#: Taints that the chart of JupyterHub tolerates in every user's pod, for nodes that a hub may have of its own (Zero to JupyterHub
#: 4.0, ``scheduling.userPods``); the second is for clouds that allow no slash.
_OF_CHARTS: Final = frozenset({"hub.jupyter.org/dedicated", "hub.jupyter.org_dedicated"})


class RequiredLabel(NamedTuple):
    """A requirement on one label of nodes, as an expression of node affinity; preferences are not ``required``."""

    path: Path
    key: str
    expression: Object
    required: bool

    @property
    def value(self) -> Any:  # noqa: ANN401 - any JSON value
        """The value if there is exactly one; else None."""
        values = self.expression.get("values")
        return values[0] if type(values) is list and len(values) == 1 else None

    @property
    def shown(self) -> str:
        """The requirement in words."""
        values = self.expression.get("values")
        written = ", ".join(map(str, values)) if type(values) is list else ""
        operator = self.expression.get("operator")
        if operator == "In":
            return f"{self.key:.80}={written:.60}" if len(values or ()) == 1 else f"{self.key:.80} in {written:.60}"
        return f"{self.key:.80} {operator!s:.30} {written:.60}".rstrip()


def required_labels(pods: PodSet, terms: Sequence[NodeTerm]) -> Iterator[RequiredLabel]:
    """Yield the requirements of the nodeSelector and of ``terms`` on labels of nodes."""
    for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
        expression = {"key": key, "operator": "In", "values": [value]}
        yield RequiredLabel(pods.field("nodeSelector", key), key, expression, required=True)
    for term in terms:
        for at, expression in enumerate(mappings(term.value, "matchExpressions", term.path)):
            name = expression.get("key")
            if type(name) is str:
                yield RequiredLabel((*term.path, "matchExpressions", at), name, expression, term.required)


def _intended_label(label: RequiredLabel, on_nodes: Collection[str] | None) -> str | None:
    """Return the label that a label which no node has stands for; None if there is none.

    ``on_nodes``: the labels that nodes have; None if the nodes are unknown.
    """
    deprecated = DEPRECATED.get(label.key)
    known = intended_label(label.key) if deprecated is None else deprecated[0]
    if known is not None or on_nodes is None or label.key in WRITTEN:
        return known
    match = closest_match(label.key, on_nodes)
    if match is None and names_cards(label.key):
        match = PRESENT if str(label.value).lower() in _ANY_GPU else PRODUCT
        return match if match in on_nodes else None
    return match


def check_label(label: RequiredLabel, on_nodes: Collection[str] | None, shapes: Sequence[NodeShape]) -> Iterator[Finding]:
    """Yield a finding for a label that no node has, if it stands for another one."""
    intended = _intended_label(label, on_nodes)
    if intended is None:
        return
    deprecated = DEPRECATED.get(label.key)
    if on_nodes is not None:
        problem = "no node with accelerators has such a label"
    elif deprecated is not None:
        problem = f"Kubernetes {deprecated[1]} renamed this label, so nodes may lack the old name"
    else:
        problem = "no known component sets such a label, and gpugate does not know the nodes"
    yield Finding(
        "UnknownLabel",
        label.path,
        f"{label.shown}: {problem}",
        _replacement(label, intended, shapes),
        rests_on=() if on_nodes is None else ("nodes",),
    )


def _replacement(label: RequiredLabel, intended: str, shapes: Sequence[NodeShape]) -> str:
    if intended == PRESENT:
        return f'Write {PRESENT}: "true" instead of {label.key:.80}.'
    values = sorted({value for shape in shapes for value in shape.labels.get(intended, ()) if value is not None})
    return f"Write {intended} instead of {label.key:.80}{f' (the nodes have {_listed(values)})' if values else ''}."


def check_unit(label: RequiredLabel) -> Iterator[Finding]:
    """Yield a finding for a value in GiB of a label in MiB."""
    amount = label.value
    if label.key != MEMORY or whole_number(amount, _DIGITS_OF_GIB) is None:
        return
    yield Finding(
        "WrongUnit",
        (*label.path, "values") if "values" in label.expression and label.path[-1] != MEMORY else label.path,
        f"{label.shown}: {MEMORY} is in MiB, and no GPU has as little as {amount} MiB",
        f'Write "{int(amount) * 1024}" for {amount} GiB.',
    )


def check_selected(
    pods: PodSet, candidates: NodeCandidates, labels: Sequence[RequiredLabel], on_nodes: Collection[str]
) -> Iterator[Finding]:
    """Yield a finding for pods whose selectors or tolerations exclude every node that offers their accelerators."""
    shapes = candidates.with_resource
    nodes = f"{sum(len(shape.nodes) for shape in shapes)} nodes that offer {' and '.join(sorted(pods.accelerators()))}"
    if not candidates.matching:
        unmet = [label for label in labels if label.required and not _is_met(label, shapes)]
        # Terms that are alternatives may require the same.
        missing = list(dict.fromkeys(_missing(label, shapes, on_nodes) for label in unmet[:LOOKED_UP]))
        yield Finding(
            "NoNodeSelected",
            unmet[0].path if unmet else pods.field("nodeSelector"),
            f"nodeSelector and affinity match none of the {nodes}{': ' if missing else ''}{'; '.join(missing[:_SHOWN])}",
            _selector_remedy(unmet, shapes, on_nodes),
        )
    elif not open_shapes(pods, candidates):
        taints = sorted({taint for shape in candidates.matching for taint in shape.taints if taint.effect != "PreferNoSchedule"})
        yield Finding(
            "NoNodeSelected",
            pods.field("tolerations"),
            f"the pods can run on none of the {nodes}: they do not tolerate {', '.join(map(_shown_taint, taints[:_SHOWN]))}",
            "Add a toleration for the taint of the nodes that the pods are meant for.",
        )


def _is_met(label: RequiredLabel, shapes: Sequence[NodeShape]) -> bool:
    return any(meets(label.expression, values_of(shape, label.key)) for shape in shapes)


def _values(key: str, shapes: Sequence[NodeShape]) -> list[str]:
    return sorted({value for shape in shapes for value in values_of(shape, key) if value is not None})


def _missing(label: RequiredLabel, shapes: Sequence[NodeShape], on_nodes: Collection[str]) -> str:
    if label.key not in on_nodes:
        return f"no node has the label {label.key:.80}"
    values = _values(label.key, shapes)
    return f"none has {label.shown}, they have {_listed(values)}" if values else f"none of them has the label {label.key:.80}"


def _listed(values: Sequence[str]) -> str:
    return ", ".join(f"{value:.60}" for value in values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")


def _selector_remedy(unmet: Sequence[RequiredLabel], shapes: Sequence[NodeShape], on_nodes: Collection[str]) -> str:
    for label in unmet[:LOOKED_UP]:
        intended = _intended_label(label, on_nodes) if label.key not in on_nodes else None
        if intended is not None:
            return _replacement(label, intended, shapes)
        match = closest_match(str(label.value), _values(label.key, shapes))
        if match is not None:
            return f"Write {match} instead of {label.value!s:.60}."
    return "Select labels that the nodes have."


def check_taints(pods: PodSet, taints: Sequence[Taint], known: Collection[str]) -> Iterator[Finding]:
    """Yield findings for tolerations that match none of ``taints``, those of all nodes.

    ``known``: keys of taints on nodes that may be added.
    """
    tolerations = list(map(toleration_of, mappings(pods.spec, "tolerations", pods.field())))
    keys = frozenset(taint.key for taint in taints)
    covered: dict[str, bool] = {}
    unknown = 0
    for at, toleration in enumerate(tolerations):
        key = toleration.key
        # A toleration with a key covers only taints of that key.
        if not key or toleration.operator not in {"Equal", "Exists"} or (key in keys and any(map(toleration.covers, taints))):
            continue
        same_key = [taint for taint in taints if taint.key == key] if key in keys else []
        path = pods.field("tolerations", at)
        if same_key:
            # If another toleration covers such a taint, this one may be meant for other nodes.
            if key not in covered:
                others = (*tolerations, *map(toleration_of, pods.predicted_tolerations))
                covered[key] = any(other.covers(taint) for other in others for taint in same_key)
            if not covered[key]:
                yield _differs(path, toleration, same_key)
        elif key not in known and not _is_common_taint(key):
            unknown += 1
            match = closest_match(key, keys) if unknown <= LOOKED_UP else None
            yield Finding(
                "ToleratesNothing",
                (*path, "key"),
                f"{_shown_toleration(toleration)} matches no taint: no node with accelerators has a taint with that key",
                "Remove the toleration, or list its key under known in the policy if nodes with the taint will be added."
                if match is None
                else f"Write {match} instead of {key:.80}.",
            )


def _is_common_taint(key: str) -> bool:
    """Return whether absent nodes may have a taint with this key: spot, a node condition, an accelerator."""
    return (
        is_accelerator(key)
        or key in CAPACITY
        or key in _OF_CHARTS
        or is_transient_taint(key, "")
        or not _SPOT.isdisjoint(words_in(key))
    )


def _differs(path: Path, toleration: Toleration, same_key: Sequence[Taint]) -> Finding:
    first = same_key[0]
    if toleration.effect and toleration.effect not in {taint.effect for taint in same_key}:
        field, remedy = "effect", f"effect {first.effect}"
    else:
        field, remedy = "value", f'value "{first.value}", or operator Exists' if first.value else "operator Exists"
        remedy += " without a value"
    return Finding(
        "ToleratesNothing",
        (*path, field),
        f"{_shown_toleration(toleration)} matches no taint: the nodes have {', '.join(map(_shown_taint, same_key))}",
        f"Write {remedy}.",
    )


def _shown_taint(taint: Taint) -> str:
    """Return a taint as ``kubectl taint`` writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _shown_toleration(toleration: Toleration) -> str:
    value = f"={toleration.value:.40}" if toleration.operator == "Equal" and toleration.value else ""
    return f"the toleration {toleration.key:.80}{value}{':' + toleration.effect if toleration.effect else ''}"
