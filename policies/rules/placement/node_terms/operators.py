"""Check operators and values of node affinity, label selectors and tolerations (``validation.go``, Kubernetes 1.36)."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import Object, Path, mapping, mappings, sequence
from gpugate.policies.kube.quantity import MIB, QuantityError, exact
from gpugate.policies.kube.suggest import closest_match
from gpugate.policies.rules.placement.node_terms.node_labels import MEMORY
from gpugate.policies.rules.placement.node_terms.terms import NodeTerm, PodTerm
from gpugate.policies.workloads.pod_set import PodSet

_BARE: Final = ("Exists", "DoesNotExist")
_NUMERIC: Final = ("Gt", "Lt")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_INTEGER: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_SHOWN: Final = 60
_REJECTED: Final = "so the API server rejects the pods"

#: Operators by place.
_NODES: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_FIELDS: Final = ("In", "NotIn")
_PODS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
#: ``Gt`` and ``Lt`` need the feature gate TaintTolerationComparisonOperators (alpha in 1.35).
_TAINTS: Final = ("Equal", "Exists", "Gt", "Lt")
_NAMES: Final = {_NODES: "node affinity", _FIELDS: "matchFields", _PODS: "a label selector", _TAINTS: "a toleration"}

#: Wrong operators in lower case, each with the right one and the number to add to the value.
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
    """Yield findings for the expressions of a term; ``alone``: whether it is the only required one."""
    for field, operators in (("matchExpressions", _NODES), ("matchFields", _FIELDS)):
        for at, expression in enumerate(mappings(term.value, field, term.path)):
            path = (*term.path, field, at)
            yield from _check_expression(expression, path, operators)
            yield from _check_number(expression, path, refuse=alone and term.required)


def check_pod_term(term: PodTerm) -> Iterator[Finding]:
    """Yield findings for the label selectors of a spread constraint or a term of pod affinity."""
    for field in ("labelSelector", "namespaceSelector"):
        path = (*term.path, field)
        for at, expression in enumerate(mappings(mapping(term.value, field, term.path), "matchExpressions", path)):
            yield from _check_expression(expression, (*path, "matchExpressions", at), _PODS)


def check_tolerations(pods: PodSet) -> Iterator[Finding]:
    """Yield findings for operators, values and effects of tolerations that the API server rejects."""
    for at, toleration in enumerate(mappings(pods.spec, "tolerations", pods.field())):
        path = pods.field("tolerations", at)
        yield from _check_toleration(toleration, path)
        effect = toleration.get("effect")
        if type(effect) is str and effect and effect not in _EFFECTS:
            match = closest_match(effect, _EFFECTS)
            yield Finding(
                "UnknownEffect",
                (*path, "effect"),
                f"{effect:.30} is not an effect of taints, {_REJECTED}",
                f"Write {match}." if match else f"Write one of {', '.join(_EFFECTS)}.",
            )


def _check_toleration(toleration: Object, path: Path) -> Iterator[Finding]:
    operator, value, key = toleration.get("operator"), toleration.get("value"), toleration.get("key")
    if operator and operator not in _TAINTS:
        yield _unknown(operator, [value] if value else [], (*path, "operator"), _TAINTS)
    elif operator == "Exists" and value:
        yield Finding(
            "BadValues",
            (*path, "value"),
            f"Exists with the value {value!s:.40}: Exists matches only the key, {_REJECTED}",
            "Write operator Equal to match the value, or remove the value.",
        )
    elif operator != "Exists" and not key:
        yield Finding(
            "BadValues",
            (*path, "operator"),
            f"{operator or 'Equal'} without a key: only Exists may omit the key, to match all taints, {_REJECTED}",
            "Write the key of the taint, or operator Exists.",
        )
    elif operator in _NUMERIC and not _is_integer(value):
        yield Finding(
            "BadValues",
            (*path, "value"),
            f"{operator} {value!s:.40}: {operator} compares whole numbers, {_REJECTED}",
            "Write a whole number.",
        )
    seconds = toleration.get("tolerationSeconds")
    if seconds is not None and toleration.get("effect") != "NoExecute":
        effect = f"effect {toleration['effect']}" if toleration.get("effect") else "no effect"
        yield Finding(
            "BadValues",
            (*path, "tolerationSeconds"),
            f"tolerationSeconds {seconds!s:.20} with {effect}: only NoExecute allows a time, {_REJECTED}",
            "Write effect NoExecute, or remove tolerationSeconds.",
        )


def _check_expression(expression: Object, path: Path, operators: tuple[str, ...]) -> Iterator[Finding]:
    operator = expression.get("operator")
    values = sequence(expression, "values", path)
    if operator not in operators:
        yield _unknown(operator, values, (*path, "operator"), operators)
        return
    place = (*path, "values")
    if any(type(value) is not str for value in values):
        yield Finding(
            "BadValues",
            place,
            f"{_listed(values)}: values must be strings, {_REJECTED}",
            f"Put them in quotes: [{', '.join(_quoted(value) for value in values)}].",
        )
    problem = _wrong_number_of_values(str(operator), len(values), operators)
    if problem is not None:
        what, remedy = problem
        shown = f" {_listed(values)}" if values else " without values"
        yield Finding("BadValues", place if values else path, f"{operator}{shown}: {what}, {_REJECTED}", remedy)


def _wrong_number_of_values(operator: str, number: int, operators: tuple[str, ...]) -> tuple[str, str] | None:
    """Return the problem with so many values, and the remedy; None if there is none."""
    if operator in _BARE:
        if number:
            right = "In" if operator == "Exists" else "NotIn"
            return f"{operator} allows no values", f"Remove the values, or write operator {right} to compare with them."
    elif operator in _NUMERIC:
        if number != 1:
            return f"{operator} compares with one number", "Write one value, or one expression for each."
    elif not number:
        right = "Exists" if operator == "In" else "DoesNotExist"
        return f"{operator} needs values", f"Write the values, or operator {right}."
    elif operators is _FIELDS and number != 1:
        return f"{_NAMES[operators]} compares with one name", "Write one name, or one term for each."
    return None


def _check_number(expression: Object, path: Path, *, refuse: bool) -> Iterator[Finding]:
    """Yield a finding for ``Gt`` and ``Lt`` without a whole number: the API server accepts it, and no node matches."""
    operator, values = expression.get("operator"), sequence(expression, "values", path)
    if operator not in _NUMERIC or len(values) != 1 or type(values[0]) is not str or _is_integer(values[0]):
        return
    yield Finding(
        "NoNumber",
        (*path, "values"),
        f"{operator} {values[0]:.40}: labels are compared as whole numbers, so no node matches",
        _whole_number(str(expression.get("key")), str(operator), values[0]),
        Level.DENY if refuse else Level.WARN,
    )


def _whole_number(key: str, operator: str, written: str) -> str:
    """Return the remedy for a number that is not whole: Gt 7.5 is Gt 7, and Lt 7.5 is Lt 8."""
    try:
        amount = exact(written)
    except QuantityError:
        return "Write a whole number."
    in_memory = key == MEMORY and amount >= MIB
    if not in_memory and written[-1:].isalpha():
        return "Write a whole number."
    bound = amount / MIB if in_memory else amount
    number = math.floor(bound) if operator == "Gt" else math.ceil(bound)
    return f'Write "{number}"{f", since {MEMORY} is in MiB" if in_memory else ""}.'


def _is_integer(value: object) -> bool:
    return type(value) is str and _INTEGER.fullmatch(value) is not None


def _unknown(operator: Any, values: Sequence[Any], path: Path, operators: tuple[str, ...]) -> Finding:  # noqa: ANN401 - any JSON value
    name = _NAMES[operators]
    if operator is None or operator == "":
        message = f"{name} without an operator, {_REJECTED}"
    else:
        shown = f" {_listed(values)}" if values else ""
        message = f"{operator!s:.30}{shown}: {name} has no operator {operator!s:.30}, {_REJECTED}"
    return Finding("UnknownOperator", path, message, _right_operator(operator, values, operators))


def _right_operator(operator: Any, values: Sequence[Any], operators: tuple[str, ...]) -> str:  # noqa: ANN401 - any JSON value
    written = operator.strip().lower() if type(operator) is str else ""
    right, step = _SAME.get(written, (None, 0))
    right = closest_match(written, operators) if right is None else right
    right = next((name for name in (*operators, *_NODES) if name.lower() == written), right)
    if operators is _TAINTS:
        right = "Equal" if right == "In" else right
        return f"Write operator {right}." if right in operators and not step else "Write operator Equal or Exists."
    if right not in operators:
        return f"Write one of {', '.join(sorted(operators))}."
    if right in _NUMERIC and len(values) == 1 and _is_integer(str(values[0])):
        return f'Write operator {right} with the value "{int(values[0]) + step}".'
    if step:
        return f"Write operator {right} with a whole number that is 1 {'below' if step < 0 else 'above'} the bound."
    return f"Write operator {right}{' without values' if right in _BARE and values else ''}."


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(_plain, values))[:_SHOWN]


def _plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return str(value).lower() if type(value) is bool else str(value)


def _quoted(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return f'"{_plain(value):.60}"'
