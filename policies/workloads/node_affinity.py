"""Node affinity: what pods require of their nodes, and how one thing more is required of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, whole_number
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.workload import PodSet

_MOST_DIGITS: Final = 18

#: Expressions about a node's labels that a node has to meet together.
Alternative: TypeAlias = tuple[Object, ...]


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
    return list(mappings(mapping(node_affinity(pods), REQUIRED_AFFINITY, path), "nodeSelectorTerms", (*path, REQUIRED_AFFINITY)))


def implies(term: Object, expression: Object) -> bool:
    """Whether a node that meets ``term`` meets ``expression`` anyhow, by an expression of the term for the same label."""
    key, operator, wanted = expression.get("key"), expression.get("operator"), _texts(expression)
    for one in mappings(term, "matchExpressions", ()):
        if one.get("key") != key:
            continue
        if one.get("operator") == operator and sorted(_texts(one)) == sorted(wanted):
            return True
        if _is_stronger(one, operator, wanted):
            return True
    return False


def _is_stronger(one: Object, operator: object, wanted: list[str]) -> bool:
    has, values = one.get("operator"), _texts(one)
    if operator == "In":
        return has == "In" and bool(values) and set(values) <= set(wanted)
    if operator == "NotIn":
        return (has == "NotIn" and set(values) >= set(wanted)) or (has == "In" and bool(values) and not set(values) & set(wanted))
    if operator == "Gt":
        bound = _whole(wanted)
        if has == "Gt":
            return _whole(values) >= bound
        return has == "In" and bool(values) and all(_whole([value]) > bound for value in values)
    return False


def rules_out(term: Object, expression: Object) -> bool:
    """Whether no label could meet both ``term`` and ``expression``, as far as a look at lists of values shows."""
    return any(
        not any(fits(expression, value) for value in _texts(one))
        for one in mappings(term, "matchExpressions", ())
        if one.get("key") == expression.get("key") and one.get("operator") == "In"
    )


def fits(expression: Object, value: str) -> bool:
    """Whether a label with ``value`` meets ``expression``, one of ``In``, ``NotIn``, ``Exists`` and ``Gt``."""
    operator, values = expression.get("operator"), _texts(expression)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return operator == "Exists" or (operator == "Gt" and _whole([value]) > _whole(values))


def _texts(expression: Object) -> list[str]:
    return [value for value in sequence(expression, "values", ()) if type(value) is str]


def _whole(values: object) -> int:
    """The only element of ``values`` as a number; -1 where it is none (``Gt`` compares with an int64)."""
    written = values[0] if type(values) is list and len(values) == 1 else None
    number = whole_number(written, _MOST_DIGITS)
    return -1 if number is None else number


def both(wants: Iterable[Sequence[Alternative]]) -> tuple[Alternative, ...]:
    """The alternatives of which a node has to meet one, so that it meets one of each of ``wants``."""
    return tuple(tuple(expression for part in parts for expression in part) for parts in product(*wants))


class Growth(NamedTuple):
    """What becomes of the terms of pods that are required to meet one of some alternatives, too.

    Attributes:
        met: terms that ask for it already.
        unmet: those that do not, each of which takes the place of as many as there are alternatives.
        alternatives: how many there are.
    """

    met: int
    unmet: int
    alternatives: int

    @property
    def terms(self) -> int:
        """How many terms there are then."""
        return self.met + self.unmet * self.alternatives


def growth(pods: PodSet, alternatives: Sequence[Alternative]) -> Growth:
    """How the terms of ``pods`` grow where they are required to meet one of ``alternatives``, too."""
    terms = [term for term in required_terms(pods) if not _is_empty(term)]
    met = sum(_is_met(term, alternatives) for term in terms)
    return Growth(met, len(terms) - met if terms else 1, len(alternatives))


def require(pods: PodSet, alternatives: Sequence[Alternative], note: str, before: Sequence[Alternative] = ()) -> Iterator[Edit]:
    """Edits after which ``pods`` go only to nodes that meet one of ``alternatives``, too; all of them or none.

    Every term that is there gets the first alternative, and a copy of it each further one, so that the terms select exactly
    the nodes that met one of the terms and meet one of the alternatives. Lists are extended and nothing is overwritten: where
    somebody else states the template, that is left to the pods.

    Args:
        pods: the pods.
        alternatives: what is asked of a node's labels besides what is asked already; nothing where it is empty.
        note: a few words on it for people.
        before: what was asked in their place until now, by the same rule. An UPDATE sends it back where its user's tool merges
            it with what is stored.
    """
    place = pods.field("affinity", "nodeAffinity", REQUIRED_AFFINITY)
    terms = required_terms(pods)
    kept = _without(terms, before, alternatives) if before else terms
    if kept != terms:
        # What gpugate put there is nobody's to state.
        joined = [part for term in kept for part in _joined(term, alternatives)] if kept else _as_terms(alternatives)
        value = {"nodeSelectorTerms": joined} if joined else None
        yield Edit("set" if joined else "remove", place, value, note or "node affinity removed", defaulted=True)
        return
    if not alternatives:
        return
    if not terms:
        yield Edit("set", place, {"nodeSelectorTerms": _as_terms(alternatives)}, note)
        return
    for at, term in enumerate(terms):
        first, *others = _additions(term, alternatives)
        for expression in first:
            yield Edit("append", (*place, "nodeSelectorTerms", at, "matchExpressions"), expression, note, "affinity")
            note = ""
        for more in others:
            yield Edit("append", (*place, "nodeSelectorTerms"), _with(term, more), note, "affinity")
            note = ""


def _as_terms(alternatives: Sequence[Alternative]) -> list[Object]:
    return [{"matchExpressions": list(one)} for one in alternatives]


def _additions(term: Object, alternatives: Sequence[Alternative]) -> list[list[Object]]:
    """What ``term`` lacks of each of ``alternatives`` that it does not rule out; nothing where it needs nothing.

    Terms are alternatives themselves: each must ask for it, or the pod could pass by another. An empty one matches no node and
    would match some with an expression in it.
    """
    if not alternatives or _is_empty(term) or _is_met(term, alternatives):
        return [[]]
    possible = [one for one in alternatives if not any(rules_out(term, expression) for expression in one)] or [alternatives[0]]
    return [[expression for expression in one if not implies(term, expression)] for one in possible]


def _with(term: Object, more: Iterable[Object]) -> Object:
    found = [*mappings(term, "matchExpressions", ()), *more]
    return {**term, "matchExpressions": found} if found else term


def _joined(term: Object, alternatives: Sequence[Alternative]) -> list[Object]:
    return [_with(term, more) for more in _additions(term, alternatives)]


def _without(terms: list[Object], before: Sequence[Alternative], alternatives: Sequence[Alternative]) -> list[Object]:
    """``terms`` without what ``before`` put into them; as they are where that is asked for still."""
    own = [expression for one in before for expression in one]
    still = [expression for one in alternatives for expression in one]
    stated = [expression for term in terms for expression in mappings(term, "matchExpressions", ())]
    if not any(expression in own and expression not in still for expression in stated):
        return terms
    kept: list[Object] = []
    for term in terms:
        left = [expression for expression in mappings(term, "matchExpressions", ()) if expression not in own]
        rest = {key: value for key, value in term.items() if key != "matchExpressions"} | (
            {"matchExpressions": left} if left else {}
        )
        # A term that was wholly gpugate's asks for nothing any more, and one that was copied is there once.
        if (rest or not term) and rest not in kept:
            kept.append(rest)
    return kept


def _is_empty(term: Object) -> bool:
    return not term.get("matchExpressions") and not term.get("matchFields")


def _is_met(term: Object, alternatives: Sequence[Alternative]) -> bool:
    """Whether a node that meets ``term`` meets one of ``alternatives`` anyhow."""
    return any(all(implies(term, expression) for expression in one) for one in alternatives)
