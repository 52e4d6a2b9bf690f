"""Node affinity: what pods require of their nodes, and how one thing more is required of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gpugate.policies.edits import Edit
from gpugate.policies.fields import Object, mapping, mappings
from gpugate.policies.workload import PodSet

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_MOST_DIGITS: Final = 18


def node_affinity(pods: PodSet) -> Object:
    """The node affinity of ``pods``; an empty one where they state none.

    Raises:
        MalformedError: a field on the way is no map.
    """
    return mapping(mapping(pods.spec, "affinity", pods.field()), "nodeAffinity", pods.field("affinity"))


def required_terms(pods: PodSet) -> list[Object]:
    """The terms of the node affinity that ``pods`` require; a node has to meet one of them.

    Raises:
        MalformedError: a field on the way is of the wrong type.
    """
    path = pods.field("affinity", "nodeAffinity")
    return list(mappings(mapping(node_affinity(pods), REQUIRED, path), "nodeSelectorTerms", (*path, REQUIRED)))


def asks_above(term: Object, key: str, bound: int) -> bool:
    """Whether a term asks for more than ``bound`` of the label ``key`` already, by an operator ``Gt``."""
    return any(
        one.get("key") == key and one.get("operator") == "Gt" and _whole(one.get("values")) >= bound
        for one in mappings(term, "matchExpressions", ())
    )


def _whole(values: object) -> int:
    """The only element of ``values`` as a number; -1 where it is none (``Gt`` compares with an int64)."""
    written = values[0] if type(values) is list and len(values) == 1 else None
    if type(written) is not str or not written.isascii() or not written.isdigit() or len(written) > _MOST_DIGITS:
        return -1
    return int(written)


def _asks_already(_term: Object) -> bool:
    return False


def require(pods: PodSet, expression: Object, note: str, has: Callable[[Object], bool] = _asks_already) -> Iterator[Edit]:
    """Edits after which ``pods`` go only to nodes that meet ``expression``, too; all of them or none.

    Args:
        pods: the pods.
        expression: what is asked of a node's labels besides what is asked already.
        note: a few words on it for people.
        has: whether a term asks for as much already.
    """
    place = pods.field("affinity", "nodeAffinity", REQUIRED)
    terms = required_terms(pods)
    if not terms:
        yield Edit("set", place, {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}, note)
        return
    for at, term in enumerate(terms):
        # Terms are alternatives: each must ask for it, or the pod could pass by another. An empty one matches no node
        # and would match some with an expression in it.
        if (not term.get("matchExpressions") and not term.get("matchFields")) or has(term):
            continue
        yield Edit("append", (*place, "nodeSelectorTerms", at, "matchExpressions"), expression, note, "affinity")
        note = ""
