"""Labels that pods ask of their nodes and that no node carries, with those that are meant."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.common import Taint
from gpugate.policies.findings import Finding
from gpugate.policies.kube.fields import Object, Path, mapping, mappings, whole_number
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.rules.placement.node_terms.node_labels import (
    MEMORY,
    PRESENT,
    PRODUCT,
    WRITTEN,
    deprecated_label,
    intended_label,
    names_cards,
)
from gpugate.policies.rules.placement.node_terms.terms import NodeTerm
from gpugate.policies.scheduling.node_selection import NodeCandidates, meets, open_shapes, values_of
from gpugate.policies.workloads.pod_set import PodSet

_SHOWN: Final = 3
#: A card's memory in GiB has up to three digits, in MiB it has more.
_DIGITS_OF_GIB: Final = 3
_NODES: Final = ("nodes",)
#: What is written for "any card at all", in lower case.
_ANY_CARD: Final = frozenset({"true", "yes", "gpu", "nvidia", "nvidia-gpu", "present"})


class RequestedLabel(NamedTuple):
    """One thing that pods ask of a label.

    Attributes:
        path: where they do.
        key: the label.
        expression: what is asked, as an expression of node affinity.
        required: whether a node that does not have it is out, or one alternative of the affinity is.
    """

    path: Path
    key: str
    expression: Object
    required: bool

    @property
    def value(self) -> Any:  # noqa: ANN401 - any JSON value
        """The only value that is asked for; None where it is not one."""
        values = self.expression.get("values")
        return values[0] if type(values) is list and len(values) == 1 else None

    @property
    def shown(self) -> str:
        """What is asked, in few words."""
        values = self.expression.get("values")
        written = ", ".join(map(str, values)) if type(values) is list else ""
        operator = self.expression.get("operator")
        if operator == "In":
            return f"{self.key:.80}={written:.60}" if len(values or ()) == 1 else f"{self.key:.80} in {written:.60}"
        return f"{self.key:.80} {operator!s:.30} {written:.60}".rstrip()


def wishes(pods: PodSet, terms: Sequence[NodeTerm]) -> Iterator[RequestedLabel]:
    """Everything that the pods ask of their nodes' labels."""
    for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items():
        yield RequestedLabel(pods.field("nodeSelector", key), key, {"key": key, "operator": "In", "values": [value]}, required=True)
    for term in terms:
        for at, one in enumerate(mappings(term.written, "matchExpressions", term.path)):
            name = one.get("key")
            if type(name) is str:
                yield RequestedLabel((*term.path, "matchExpressions", at), name, one, term.required)


def right_label(wish: RequestedLabel, carried: Collection[str] | None) -> str | None:
    """The label that is meant where no node carries the one that is asked for; None where nothing says so.

    ``carried`` are the labels that the nodes do carry, None where the nodes are not known.
    """
    key = wish.key
    replaced = deprecated_label(key)
    known = intended_label(key) if replaced is None else replaced[0]
    if known is not None or carried is None or key in WRITTEN:
        return known
    near = closest_match(key, carried)
    if near is None and names_cards(key):
        near = PRESENT if str(wish.value).lower() in _ANY_CARD else PRODUCT
        return near if near in carried else None
    return near


def check_label(wish: RequestedLabel, carried: Collection[str] | None, shapes: Sequence[NodeShape]) -> Iterator[Finding]:
    """Speak of a label that no node carries and that is near one which some component writes."""
    proper = right_label(wish, carried)
    if proper is None:
        return
    replaced = deprecated_label(wish.key)
    if replaced is not None and carried is None:
        what = f"Kubernetes {replaced[1]} gave this label another name: nodes may cease to carry the old one"
    elif carried is None:
        what = "no component puts such a label on nodes, and the nodes are not known here"
    else:
        what = "no node with accelerators carries such a label"
    yield Finding(
        "UnknownLabel",
        wish.path,
        f"{wish.shown}: {what}",
        _instead(wish, proper, shapes),
        rests_on=() if carried is None else ("nodes",),
    )


def _instead(wish: RequestedLabel, proper: str, shapes: Sequence[NodeShape]) -> str:
    found = sorted({value for shape in shapes for value in shape.labels.get(proper, ()) if value is not None})
    there = f" (the nodes have {_some(found)})" if found else ""
    if proper == PRESENT:
        return f'Write {PRESENT}: "true" instead of {wish.key:.80}.'
    return f"Write {proper} instead of {wish.key:.80}{there}."


def check_unit(wish: RequestedLabel) -> Iterator[Finding]:
    """Speak of memory in GiB where the label counts MiB."""
    amount = wish.value
    if wish.key != MEMORY or whole_number(amount, _DIGITS_OF_GIB) is None:
        return
    yield Finding(
        "WrongUnit",
        (*wish.path, "values") if "values" in wish.expression and wish.path[-1] != MEMORY else wish.path,
        f"{wish.shown}: {MEMORY} counts MiB, and no card has as little as {amount} MiB",
        f'Write "{int(amount) * 1024}" for {amount} GiB.',
    )


def check_selected(
    pods: PodSet, chosen: NodeCandidates, asked: Sequence[RequestedLabel], carried: Collection[str]
) -> Iterator[Finding]:
    """Speak of pods that no node which offers their accelerators may take, whatever else runs there."""
    offering = chosen.with_resource
    names = " and ".join(sorted(pods.accelerators()))
    of_all = f"of {sum(len(shape.nodes) for shape in offering)} nodes that offer {names}"
    if not chosen.matching:
        unmet = [wish for wish in asked if wish.required and not _met(wish, offering)]
        # Terms that are alternatives may ask for the same.
        lacking = list(dict.fromkeys(_lacking(wish, offering, carried) for wish in unmet))
        why = f": {'; '.join(lacking[:_SHOWN])}" if lacking else ""
        yield Finding(
            "NoNodeSelected",
            unmet[0].path if unmet else pods.field("nodeSelector"),
            f"{of_all}, its nodeSelector and affinity match none{why}",
            _cure(unmet, offering, carried),
        )
    elif not open_shapes(pods, chosen):
        taints = sorted({taint for shape in chosen.matching for taint in shape.taints if taint.effect != "PreferNoSchedule"})
        yield Finding(
            "NoNodeSelected",
            pods.field("tolerations"),
            f"{of_all}, its tolerations let it onto none: {', '.join(map(shown_taint, taints[:_SHOWN]))}",
            "Tolerate the taint of the nodes meant.",
        )


def shown_taint(taint: Taint) -> str:
    """A taint as ``kubectl taint`` takes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _met(wish: RequestedLabel, shapes: Sequence[NodeShape]) -> bool:
    return any(meets(wish.expression, values_of(shape, wish.key)) for shape in shapes)


def _there(key: str, shapes: Sequence[NodeShape]) -> list[str]:
    return sorted({value for shape in shapes for value in values_of(shape, key) if value is not None})


def _lacking(wish: RequestedLabel, shapes: Sequence[NodeShape], carried: Collection[str]) -> str:
    if wish.key not in carried:
        return f"no node carries {wish.key:.80}"
    there = _there(wish.key, shapes)
    return f"none has {wish.shown}, they have {_some(there)}" if there else f"none of them carries {wish.key:.80}"


def _some(values: Sequence[str]) -> str:
    return ", ".join(f"{value:.60}" for value in values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")


def _cure(unmet: Sequence[RequestedLabel], shapes: Sequence[NodeShape], carried: Collection[str]) -> str:
    for wish in unmet:
        proper = right_label(wish, carried) if wish.key not in carried else None
        if proper is not None:
            return _instead(wish, proper, shapes)
        near = closest_match(str(wish.value), _there(wish.key, shapes))
        if near is not None:
            return f"Write {near} instead of {wish.value!s:.60}."
    return "Correct the selector to labels that the nodes carry."
