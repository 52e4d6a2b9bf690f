"""Read the required node affinity of pods, and add requirements; a malformed field raises a ``MalformedError``."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from typing import Final, NamedTuple, TypeAlias

from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, whole_number
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.pod_set import PodSet

_MOST_DIGITS: Final = 18

#: Expressions about labels, all of which a node must meet.
Alternative: TypeAlias = tuple[Object, ...]


def node_affinity(pods: PodSet) -> Object:
    """Return the node affinity of ``pods``; empty if they have none."""
    return mapping(mapping(pods.spec, "affinity", pods.field()), "nodeAffinity", pods.field("affinity"))


def required_terms(pods: PodSet) -> list[Object]:
    """Return the required node affinity terms of ``pods``; a node must meet one of them."""
    path = pods.field("affinity", "nodeAffinity")
    return list(mappings(mapping(node_affinity(pods), REQUIRED_AFFINITY, path), "nodeSelectorTerms", (*path, REQUIRED_AFFINITY)))


def implies(term: Object, expression: Object) -> bool:
    """Return whether every node that meets ``term`` meets ``expression``, by an expression of the term for the same label."""
    return any(
        present.get("key") == expression.get("key") and _is_as_strict(present, expression)
        for present in mappings(term, "matchExpressions", ())
    )


def _is_as_strict(present: Object, expression: Object) -> bool:
    operator, values = present.get("operator"), _texts(present)
    required_operator, required = expression.get("operator"), _texts(expression)
    if operator == required_operator and sorted(values) == sorted(required):
        return True
    # The values of the label are known.
    is_list = operator == "In" and bool(values)
    if required_operator == "In":
        return is_list and set(values) <= set(required)
    if required_operator == "NotIn":
        return (operator == "NotIn" and set(values) >= set(required)) or (is_list and set(values).isdisjoint(required))
    if required_operator == "Gt":
        bound = _whole(required)
        return (operator == "Gt" and _whole(values) >= bound) or (is_list and all(_whole([value]) > bound for value in values))
    return False


def rules_out(term: Object, expression: Object) -> bool:
    """Return whether no label in the ``In`` lists of ``term`` meets ``expression``."""
    return any(
        not any(fits(expression, value) for value in _texts(present))
        for present in mappings(term, "matchExpressions", ())
        if present.get("key") == expression.get("key") and present.get("operator") == "In"
    )


def fits(expression: Object, value: str) -> bool:
    """Return whether a label with ``value`` meets ``expression``: ``In``, ``NotIn``, ``Exists`` or ``Gt``."""
    operator, values = expression.get("operator"), _texts(expression)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return operator == "Exists" or (operator == "Gt" and _whole([value]) > _whole(values))


def _texts(expression: Object) -> list[str]:
    return [value for value in sequence(expression, "values", ()) if type(value) is str]


def _whole(values: list[str]) -> int:
    """Return the only element of ``values`` as a number; -1 if it is no number (``Gt`` compares with an int64)."""
    number = whole_number(values[0], _MOST_DIGITS) if len(values) == 1 else None
    return -1 if number is None else number


def both(requirements: Iterable[Sequence[Alternative]]) -> tuple[Alternative, ...]:
    """Return alternatives such that a node that meets one of them meets one of each of ``requirements``."""
    return tuple(tuple(chain.from_iterable(parts)) for parts in product(*requirements))


class Growth(NamedTuple):
    """Numbers of affinity terms if pods also require one of some alternatives: each unmet term becomes one term per alternative."""

    met: int
    unmet: int
    alternatives: int

    @property
    def terms(self) -> int:
        """The number of terms with the alternatives."""
        return self.met + self.unmet * self.alternatives


def growth(pods: PodSet, alternatives: Sequence[Alternative]) -> Growth:
    """Return the numbers of terms if ``pods`` also require one of ``alternatives``."""
    terms = [term for term in required_terms(pods) if not _is_empty(term)]
    met = sum(_is_met(term, alternatives) for term in terms)
    return Growth(met, len(terms) - met if terms else 1, len(alternatives))


def require(pods: PodSet, alternatives: Sequence[Alternative], note: str, before: Sequence[Alternative] = ()) -> Iterator[Edit]:
    """Yield edits, applied all or none, after which ``pods`` also require one of ``alternatives``; nothing changes if empty.

    Every present term gets the first alternative, and a copy of the term each further one, so the terms select exactly
    the nodes that met one of the terms and meet one of the alternatives. Lists are extended and nothing is overwritten: if GitOps
    controls the template, the pods get the edits instead. ``before`` are the alternatives that the same rule required before the
    UPDATE: the new object contains them if the user's tool merges with the stored object.
    """
    path = pods.field("affinity", "nodeAffinity", REQUIRED_AFFINITY)
    terms = required_terms(pods)
    remaining = _without(terms, before, alternatives) if before else terms
    if remaining != terms:
        # gpugate wrote these terms, so replacing them is no drift.
        joined = [_with(term, more) for term in remaining for more in _additions(term, alternatives)]
        joined = joined if remaining else _as_terms(alternatives)
        value = {"nodeSelectorTerms": joined} if joined else None
        yield Edit("set" if joined else "remove", path, value, note or "node affinity removed", defaulted=True)
        return
    if not alternatives:
        return
    if not terms:
        yield Edit("set", path, {"nodeSelectorTerms": _as_terms(alternatives)}, note)
        return
    for index, term in enumerate(terms):
        first, *others = _additions(term, alternatives)
        for expression in first:
            yield Edit("append", (*path, "nodeSelectorTerms", index, "matchExpressions"), expression, note, "affinity")
            note = ""
        for more in others:
            yield Edit("append", (*path, "nodeSelectorTerms"), _with(term, more), note, "affinity")
            note = ""


def _as_terms(alternatives: Sequence[Alternative]) -> list[Object]:
    return [{"matchExpressions": list(alternative)} for alternative in alternatives]


def _additions(term: Object, alternatives: Sequence[Alternative]) -> list[list[Object]]:
    """Return the expressions that ``term`` lacks of each alternative that it does not rule out.

    Each term needs them, since a node must meet only one term. An empty term matches no node, and gets no expression.
    """
    if not alternatives or _is_empty(term) or _is_met(term, alternatives):
        return [[]]
    possible = [parts for parts in alternatives if not any(rules_out(term, expression) for expression in parts)]
    return [[expression for expression in parts if not implies(term, expression)] for parts in possible or [alternatives[0]]]


def _with(term: Object, more: Iterable[Object]) -> Object:
    expressions = [*mappings(term, "matchExpressions", ()), *more]
    return {**term, "matchExpressions": expressions} if expressions else term


def _without(terms: list[Object], before: Sequence[Alternative], alternatives: Sequence[Alternative]) -> list[Object]:
    """Return ``terms`` without the expressions of ``before``; unchanged if they are also in ``alternatives``."""
    own, current = list(chain.from_iterable(before)), list(chain.from_iterable(alternatives))
    present = chain.from_iterable(mappings(term, "matchExpressions", ()) for term in terms)
    if not any(expression in own and expression not in current for expression in present):
        return terms
    result: list[Object] = []
    for term in terms:
        rest = {key: value for key, value in term.items() if key != "matchExpressions"}
        if others := [expression for expression in mappings(term, "matchExpressions", ()) if expression not in own]:
            rest["matchExpressions"] = others
        # Drop a term that had only gpugate's expressions, and copies of a term.
        if (rest or not term) and rest not in result:
            result.append(rest)
    return result


def _is_empty(term: Object) -> bool:
    return not term.get("matchExpressions") and not term.get("matchFields")


def _is_met(term: Object, alternatives: Sequence[Alternative]) -> bool:
    """Return whether every node that meets ``term`` meets one of ``alternatives``."""
    return any(all(implies(term, expression) for expression in alternative) for alternative in alternatives)
