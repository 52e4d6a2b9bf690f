"""Operators and values of node affinity, label selectors and tolerations: what the API takes (``validation.go``, 1.36)."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import Object, Path, mapping, mappings, sequence
from gpugate.policies.kube.quantity import MIB, QuantityError, exact
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.rules.placement.node_terms.node_labels import MEMORY
from gpugate.policies.rules.placement.node_terms.terms import NodeTerm, PodTerm
from gpugate.policies.workloads.pod_set import PodSet

_TOLERATIONS: Final = "tolerations"
_BARE: Final = ("Exists", "DoesNotExist")
_NUMERIC: Final = ("Gt", "Lt")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_INTEGER: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_SHOWN: Final = 60


class _Language(NamedTuple):
    """What may be said in one place.

    Attributes:
        name: what people call it.
        operators: its operators.
    """

    name: str
    operators: tuple[str, ...]


_NODES: Final = _Language("node affinity", ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
_FIELDS: Final = _Language("a match of a node's fields", ("In", "NotIn"))
_PODS: Final = _Language("a label selector", ("In", "NotIn", "Exists", "DoesNotExist"))
#: ``Gt`` and ``Lt`` are taken where the gate TaintTolerationComparisonOperators is on (alpha, 1.35).
_TAINTS: Final = _Language("a toleration", ("Equal", "Exists", "Gt", "Lt"))

#: What people write, in lower case, and what says the same; a number is added to the value compared with.
_SAME: Final[dict[str, tuple[str, int]]] = {
    **dict.fromkeys(("gte", "ge", ">=", "=>", "greaterthanorequal", "greaterorequal", "atleast", "min"), ("Gt", -1)),
    **dict.fromkeys(("lte", "le", "<=", "=<", "lessthanorequal", "lessorequal", "atmost", "max"), ("Lt", 1)),
    **dict.fromkeys((">", "greaterthan", "greater", "above"), ("Gt", 0)),
    **dict.fromkeys(("<", "lessthan", "less", "below"), ("Lt", 0)),
    **dict.fromkeys(("equal", "equals", "eq", "==", "=", "is", "oneof", "anyof", "has"), ("In", 0)),
    **dict.fromkeys(("notequal", "notequals", "ne", "neq", "!=", "isnot", "noneof"), ("NotIn", 0)),
    **dict.fromkeys(("!", "notexists", "notexist", "doesnotexists", "absent", "missing"), ("DoesNotExist", 0)),
    **dict.fromkeys(("present", "any", "*"), ("Exists", 0)),
}


def check_node_term(term: NodeTerm, *, alone: bool) -> Iterator[Finding]:
    """Speak of the expressions of a term of node affinity; ``alone``: whether it is the only one that is required."""
    for field, language in (("matchExpressions", _NODES), ("matchFields", _FIELDS)):
        for at, one in enumerate(mappings(term.written, field, term.path)):
            path = (*term.path, field, at)
            yield from _check_expression(one, path, language)
            yield from _check_number(one, path, refuse=alone and term.required)


def check_pod_term(term: PodTerm) -> Iterator[Finding]:
    """Speak of the expressions in the label selectors of a spread constraint or a term of pod affinity."""
    for field in ("labelSelector", "namespaceSelector"):
        path = (*term.path, field)
        for at, one in enumerate(mappings(mapping(term.written, field, term.path), "matchExpressions", path)):
            yield from _check_expression(one, (*path, "matchExpressions", at), _PODS)


def check_tolerations(pods: PodSet) -> Iterator[Finding]:
    """Speak of operators, values and effects of tolerations that the API does not take."""
    for at, one in enumerate(mappings(pods.spec, _TOLERATIONS, pods.field())):
        path = pods.field(_TOLERATIONS, at)
        yield from _check_toleration(one, path)
        effect = one.get("effect")
        if type(effect) is str and effect and effect not in _EFFECTS:
            proper = closest_match(effect, _EFFECTS)
            yield Finding(
                "UnknownEffect",
                (*path, "effect"),
                f"{effect:.30}: a taint has no such effect, and the apiserver refuses pods with it",
                f"Write {proper}." if proper else f"Write one of {', '.join(_EFFECTS)}.",
            )


def _check_toleration(one: Object, path: Path) -> Iterator[Finding]:
    operator, value, key = one.get("operator"), one.get("value"), one.get("key")
    if operator and operator not in _TAINTS.operators:
        yield _unknown(operator, [value] if value else [], (*path, "operator"), _TAINTS)
    elif operator == "Exists" and value:
        yield Finding(
            "BadValues",
            (*path, "value"),
            f"Exists with the value {value!s:.40}: Exists asks for the key alone, and the apiserver refuses pods that say both",
            "Write operator Equal to ask for the value, or leave the value out.",
        )
    elif operator != "Exists" and not key:
        yield Finding(
            "BadValues",
            (*path, "operator"),
            f"{operator or 'Equal'} without a key: a toleration that names no key means all taints, and says so by Exists alone",
            "Write the key of the taint, or operator Exists.",
        )
    elif operator in _NUMERIC and not _is_integer(value):
        yield Finding(
            "BadValues",
            (*path, "value"),
            f"{operator} {value!s:.40}: {operator} compares whole numbers, and the apiserver refuses pods with anything else there",
            "Write a whole number.",
        )
    seconds = one.get("tolerationSeconds")
    if seconds is not None and one.get("effect") != "NoExecute":
        yield Finding(
            "BadValues",
            (*path, "tolerationSeconds"),
            f"tolerationSeconds {seconds!s:.20} with effect {one.get('effect') or 'left out'}: only NoExecute takes a time,"
            " and the apiserver refuses pods with it elsewhere",
            "Write effect NoExecute, or leave tolerationSeconds out.",
        )


def _check_expression(one: Object, path: Path, language: _Language) -> Iterator[Finding]:
    """What the API does not take of one expression."""
    operator = one.get("operator")
    values = sequence(one, "values", path)
    if operator not in language.operators:
        yield _unknown(operator, values, (*path, "operator"), language)
        return
    place = (*path, "values")
    if any(type(value) is not str for value in values):
        yield Finding(
            "BadValues",
            place,
            f"{_listed(values)}: values are compared as texts, and the apiserver reads no others",
            f"Put them in quotes: [{', '.join(_quoted(value) for value in values)}].",
        )
    problem = _wrong_number_of_values(str(operator), len(values), language)
    if problem is not None:
        what, remedy = problem
        shown = f" {_listed(values)}" if values else " without values"
        yield Finding(
            "BadValues", place if values else path, f"{operator}{shown}: {what}, and the apiserver refuses pods with it", remedy
        )


def _wrong_number_of_values(operator: str, number: int, language: _Language) -> tuple[str, str] | None:
    """What is wrong with so many values, and the remedy; None where nothing is."""
    if operator in _BARE:
        if number:
            proper = "In" if operator == "Exists" else "NotIn"
            return f"{operator} takes none", f"Leave the values out, or write operator {proper} to compare with them."
    elif operator in _NUMERIC:
        if number != 1:
            return f"{operator} compares with one number", "Write one value, or an expression for each."
    elif not number:
        proper = "Exists" if operator == "In" else "DoesNotExist"
        return f"{operator} compares with some", f"Write the values, or operator {proper}."
    elif language is _FIELDS and number != 1:
        return f"{language.name} compares with one", "Write one name, or a term for each."
    return None


def _check_number(one: Object, path: Path, *, refuse: bool) -> Iterator[Finding]:
    """What ``Gt`` and ``Lt`` are given that is no whole number: the apiserver takes it, and the scheduler finds no node."""
    operator, values = one.get("operator"), sequence(one, "values", path)
    if operator not in _NUMERIC or len(values) != 1 or type(values[0]) is not str or _is_integer(values[0]):
        return
    yield Finding(
        "NoNumber",
        (*path, "values"),
        f"{operator} {values[0]:.40}: labels are compared as whole numbers, so no node ever meets this",
        _whole_number(str(one.get("key")), str(operator), values[0]),
        Level.DENY if refuse else Level.WARN,
    )


def _whole_number(key: str, operator: str, written: str) -> str:
    """What to write for a number that is not whole: those above 7.5 are those above 7, those below it those below 8."""
    try:
        amount = exact(written)
    except QuantityError:
        return "Write a whole number."
    in_memory = key == MEMORY and amount >= MIB
    if not in_memory and written[-1:].isalpha():
        return "Write a whole number."
    bound = amount / MIB if in_memory else amount
    number = math.floor(bound) if operator == "Gt" else math.ceil(bound)
    return f'Write "{number}"{f": {MEMORY} counts MiB" if in_memory else ""}.'


def _is_integer(value: object) -> bool:
    return type(value) is str and _INTEGER.fullmatch(value) is not None


def _unknown(operator: Any, values: Sequence[Any], path: Path, language: _Language) -> Finding:  # noqa: ANN401 - any JSON value
    if operator is None or operator == "":
        message = f"{language.name} without an operator: the apiserver refuses pods with it"
    else:
        shown = f" {_listed(values)}" if values else ""
        message = (
            f"{operator!s:.30}{shown}: {language.name} has no operator {operator!s:.30}, and the apiserver refuses pods with it"
        )
    return Finding("UnknownOperator", path, message, _proper(operator, values, language))


def _proper(operator: Any, values: Sequence[Any], language: _Language) -> str:  # noqa: ANN401 - any JSON value
    """What to write instead."""
    written = operator.strip().lower() if type(operator) is str else ""
    found, step = _SAME.get(written, (None, 0))
    found = closest_match(written, language.operators) if found is None else found
    found = next((one for one in (*language.operators, *_NODES.operators) if one.lower() == written), found)
    if language is _TAINTS:
        found = "Equal" if found == "In" else found
        known = found in language.operators and not step
        return f"Write operator {found}." if known else "Write operator Equal or Exists."
    if found not in language.operators:
        return f"Write one of {', '.join(sorted(language.operators))}."
    if found in _NUMERIC and len(values) == 1 and _is_integer(str(values[0])):
        return f'Write operator {found} with the value "{int(values[0]) + step}".'
    if step:
        return f"Write operator {found} with one whole number, {'below' if step < 0 else 'above'} the one meant by 1."
    return f"Write operator {found}{' without values' if found in _BARE and values else ''}."


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(_plain, values))[:_SHOWN]


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return str(value).lower() if type(value) is bool else str(value)


def _quoted(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return f'"{_plain(value):.60}"'
