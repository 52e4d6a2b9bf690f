"""Read the node affinity that pods require, and add a requirement to it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple, TypeAlias

from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, whole_number
from gpugate.policies.kube.names import REQUIRED_AFFINITY
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.pod_set import PodSet

_MOST_DIGITS: Final = 18

#: Expressions about a node's labels, all of which a node must meet.
Alternative: TypeAlias = tuple[Object, ...]


def node_affinity(pods: PodSet) -> Object:
    """Return the node affinity of ``pods``; empty if they have none.

    Raises:
        MalformedError: a field on the way is no map.
    """
    return mapping(mapping(pods.spec, "affinity", pods.field()), "nodeAffinity", pods.field("affinity"))


def required_terms(pods: PodSet) -> list[Object]:
    """Return the required node affinity terms of ``pods``; a node must meet one of them.

    Raises:
        MalformedError: a field on the way is of the wrong type.
    """
    path = pods.field("affinity", "nodeAffinity")
    return list(mappings(mapping(node_affinity(pods), REQUIRED_AFFINITY, path), "nodeSelectorTerms", (*path, REQUIRED_AFFINITY)))


def implies(term: Object, expression: Object) -> bool:
    """Tell whether every node that meets ``term`` meets ``expression``, by an expression of the term for the same label."""
    key, operator, wanted = expression.get("key"), expression.get("operator"), _texts(expression)
    for present in mappings(term, "matchExpressions", ()):
        if present.get("key") != key:
            continue
        if present.get("operator") == operator and sorted(_texts(present)) == sorted(wanted):
            return True
        if _is_stronger(present, operator, wanted):
            return True
    return False


def _is_stronger(present: Object, operator: object, wanted: list[str]) -> bool:
    has, values = present.get("operator"), _texts(present)
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
    """Tell whether no label can meet both ``term`` and ``expression``, as far as the ``In`` lists of the term show."""
    return any(
        not any(fits(expression, value) for value in _texts(present))
        for present in mappings(term, "matchExpressions", ())
        if present.get("key") == expression.get("key") and present.get("operator") == "In"
    )


def fits(expression: Object, value: str) -> bool:
    """Tell whether a label with ``value`` meets ``expression``: ``In``, ``NotIn``, ``Exists`` or ``Gt``."""
    operator, values = expression.get("operator"), _texts(expression)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return operator == "Exists" or (operator == "Gt" and _whole([value]) > _whole(values))


def _texts(expression: Object) -> list[str]:
    return [value for value in sequence(expression, "values", ()) if type(value) is str]


def _whole(values: object) -> int:
    """Return the only element of ``values`` as a number; -1 if it is none (``Gt`` compares with an int64)."""
    written = values[0] if type(values) is list and len(values) == 1 else None
    number = whole_number(written, _MOST_DIGITS)
    return -1 if number is None else number


def both(wants: Iterable[Sequence[Alternative]]) -> tuple[Alternative, ...]:
    """Return alternatives such that a node that meets one of them meets one of each of ``wants``."""
    return tuple(tuple(expression for part in parts for expression in part) for parts in product(*wants))


class Growth(NamedTuple):
    """How many affinity terms pods have once they require one of some alternatives, too.

    Attributes:
        met: how many terms require it already.
        unmet: how many do not; each becomes one term for each alternative.
        alternatives: how many alternatives there are.
    """

    met: int
    unmet: int
    alternatives: int

    @property
    def terms(self) -> int:
        """The number of terms then."""
        return self.met + self.unmet * self.alternatives


def growth(pods: PodSet, alternatives: Sequence[Alternative]) -> Growth:
    """Return how many terms ``pods`` have once they require one of ``alternatives``, too."""
    terms = [term for term in required_terms(pods) if not _is_empty(term)]
    met = sum(_is_met(term, alternatives) for term in terms)
    return Growth(met, len(terms) - met if terms else 1, len(alternatives))


def require(pods: PodSet, alternatives: Sequence[Alternative], note: str, before: Sequence[Alternative] = ()) -> Iterator[Edit]:
    """Yield edits, all or none to be made, after which ``pods`` require one of ``alternatives``, too.

    Every present term gets the first alternative, and a copy of the term gets each further one, so that the terms select exactly
    the nodes that met one of the terms and meet one of the alternatives. Lists are extended and nothing is overwritten: if GitOps
    controls the template, the pods get the edits instead.

    Args:
        pods: the pods.
        alternatives: what a node's labels must meet, too; nothing if empty.
        note: the edit in a few words for people.
        before: the alternatives that the same rule required before. An UPDATE contains them if the user's tool merges with the
            stored object.
    """
    path = pods.field("affinity", "nodeAffinity", REQUIRED_AFFINITY)
    terms = required_terms(pods)
    kept = _without(terms, before, alternatives) if before else terms
    if kept != terms:
        # Only gpugate states these terms, so replacing them is no drift.
        joined = [part for term in kept for part in _joined(term, alternatives)] if kept else _as_terms(alternatives)
        value = {"nodeSelectorTerms": joined} if joined else None
        yield Edit("set" if joined else "remove", path, value, note or "node affinity removed", defaulted=True)
        return
    if not alternatives:
        return
    if not terms:
        yield Edit("set", path, {"nodeSelectorTerms": _as_terms(alternatives)}, note)
        return
    for at, term in enumerate(terms):
        first, *others = _additions(term, alternatives)
        for expression in first:
            yield Edit("append", (*path, "nodeSelectorTerms", at, "matchExpressions"), expression, note, "affinity")
            note = ""
        for more in others:
            yield Edit("append", (*path, "nodeSelectorTerms"), _with(term, more), note, "affinity")
            note = ""


def _as_terms(alternatives: Sequence[Alternative]) -> list[Object]:
    return [{"matchExpressions": list(alternative)} for alternative in alternatives]


def _additions(term: Object, alternatives: Sequence[Alternative]) -> list[list[Object]]:
    """Return the expressions that ``term`` lacks of each alternative that it does not rule out; nothing if it needs none.

    Each term needs them, since a node must meet only one term. An empty term matches no node, and would match some with an
    expression in it.
    """
    if not alternatives or _is_empty(term) or _is_met(term, alternatives):
        return [[]]
    possible = [parts for parts in alternatives if not any(rules_out(term, expression) for expression in parts)]
    return [[expression for expression in parts if not implies(term, expression)] for parts in possible or [alternatives[0]]]


def _with(term: Object, more: Iterable[Object]) -> Object:
    expressions = [*mappings(term, "matchExpressions", ()), *more]
    return {**term, "matchExpressions": expressions} if expressions else term


def _joined(term: Object, alternatives: Sequence[Alternative]) -> list[Object]:
    return [_with(term, more) for more in _additions(term, alternatives)]


def _without(terms: list[Object], before: Sequence[Alternative], alternatives: Sequence[Alternative]) -> list[Object]:
    """Return ``terms`` without the expressions of ``before``; unchanged if ``alternatives`` has all of these, too."""
    own = [expression for alternative in before for expression in alternative]
    still = [expression for alternative in alternatives for expression in alternative]
    stated = [expression for term in terms for expression in mappings(term, "matchExpressions", ())]
    if not any(expression in own and expression not in still for expression in stated):
        return terms
    kept: list[Object] = []
    for term in terms:
        left = [expression for expression in mappings(term, "matchExpressions", ()) if expression not in own]
        rest = {key: value for key, value in term.items() if key != "matchExpressions"} | (
            {"matchExpressions": left} if left else {}
        )
        # Drop a term that had only gpugate's expressions, and copies of a term.
        if (rest or not term) and rest not in kept:
            kept.append(rest)
    return kept


def _is_empty(term: Object) -> bool:
    return not term.get("matchExpressions") and not term.get("matchFields")


def _is_met(term: Object, alternatives: Sequence[Alternative]) -> bool:
    """Tell whether every node that meets ``term`` meets one of ``alternatives``."""
    return any(all(implies(term, expression) for expression in alternative) for alternative in alternatives)
