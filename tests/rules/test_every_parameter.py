"""Every parameter of every rule is set by a golden case, and what comes of that case hangs on it."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from pydantic_core import PydanticUndefined

from gpugate.policies.kube.fields import clone
from gpugate.policies.policy.models import PolicyError
from gpugate.policies.rules.registry import BY_ID, RULES
from tests.shared import cases
from tests.shared.params import Parameter, parameters_of
from tests.shared.paths import ROOT

#: Parameters that no rule reads at the door, and the test of who does.
_READ_BY_THE_CONTROLLER = {("gang", "stuckAfter"): "tests/webhook/controller/test_gangs.py"}


_EVERY = [parameter for rule in RULES for parameter in parameters_of(rule)]


@cache
def _cases_of(rule: str) -> tuple[cases.Case, ...]:
    return tuple(case for case in cases.cases_of(rule) if case.content.get("params"))


def _places(value: Any, path: tuple[str, ...]) -> list[dict[str, Any]]:
    """The maps below ``value`` in which the last of ``path`` is stated."""
    if isinstance(value, list):
        return [place for one in value for place in _places(one, path)]
    if not isinstance(value, dict) or path[0] not in value:
        return []
    return [value] if len(path) == 1 else _places(value[path[0]], path[1:])


def _outcome(case: cases.Case) -> Any:
    root = case.given
    decision = case.decide(root)
    return root, decision.patch, decision.findings, case.pod_group(root)


def _hangs_on(case: cases.Case, parameter: Parameter) -> bool:
    """Whether ``case`` states the parameter, and comes to something else where it is left at its default."""
    params = clone(case.content["params"])
    places = _places(params, parameter.path)
    if not places or parameter.default is PydanticUndefined:
        return bool(places)
    for place in places:
        del place[parameter.path[-1]]
    without = replace(case, content={**case.content, "params": params})
    try:
        without.bound()
    except PolicyError:
        # One of several, of which one must be stated; else it is another parameter that rules this one's default out.
        return parameter.default is None
    return bool(_outcome(without) != _outcome(case))


@pytest.mark.parametrize("parameter", _EVERY, ids=str)
def test_a_golden_case_hangs_on_every_parameter(parameter: Parameter) -> None:
    hanging = any(_hangs_on(case, parameter) for case in _cases_of(parameter.rule.id))
    assert hanging != ((parameter.rule.id, *parameter.path) in _READ_BY_THE_CONTROLLER)


@pytest.mark.parametrize(("place", "test"), _READ_BY_THE_CONTROLLER.items())
def test_what_the_controller_reads_no_rule_does_and_a_test_of_its_own_sets_it(place: tuple[str, ...], test: str) -> None:
    (parameter,) = (one for one in _EVERY if (one.rule.id, *one.path) == place)
    for function in (BY_ID[place[0]].check, BY_ID[place[0]].mutate):
        module = inspect.getmodule(function)
        assert module is not None
        read = {node.attr for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Attribute)}
        assert parameter.name not in read
    assert parameter.path[-1] in (ROOT / test).read_text(encoding="utf-8")
