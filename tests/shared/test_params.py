"""Every parameter of every rule is drawn by the strategy that is derived from the rule's schema."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from pydantic import BaseModel, Field

from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.registry import RULES
from tests.shared.params import parameters_of, settings_of

_DRAWS = 200


def _stated(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """The places below ``value`` with what each holds; items of a list are at the place of the list."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield (*path, key), orjson.dumps(child)
            yield from _stated(child, (*path, key))
    if isinstance(value, list):
        for child in value:
            yield from _stated(child, path)


class _Inner(BaseModel):
    """A model of no rule."""

    key: Annotated[str, Field(pattern="^[0-9]{3}-[A-F]$")]
    least: Annotated[float, Field(ge=200, lt=300)] = 250


class _New(BaseModel):
    """The parameters of a rule that is not written yet."""

    mode: Literal["Deny", "Warn"] = "Deny"
    inner: _Inner | None = None
    several: Annotated[tuple[_Inner, ...], Field(max_length=2)] = ()
    counts: dict[str, int] = {}


def _drawn(model: type[BaseModel]) -> dict[tuple[str, ...], set[bytes]]:
    """What ``_DRAWS`` draws state of the model, by place."""
    values: dict[tuple[str, ...], set[bytes]] = defaultdict(set)

    @seed(1)
    @settings(max_examples=_DRAWS, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(settings_of(model))
    def collect(params: dict[str, Any]) -> None:
        model.model_validate(params)
        for path, value in _stated(params):
            values[path].add(value)

    collect()
    return values


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_parameter_of_a_rule_is_drawn_with_several_values(rule: Rule) -> None:
    drawn = _drawn(rule.params)
    values = {parameter.path: len(drawn[parameter.path]) for parameter in parameters_of(rule)}
    assert [path for path, count in values.items() if count < 2] == []


def test_parameters_of_a_rule_to_come_are_drawn_without_a_word_about_them() -> None:
    drawn = _drawn(_New)
    places = [("mode",), ("inner",), ("inner", "key"), ("inner", "least"), ("several", "key"), ("several", "least"), ("counts",)]
    assert [place for place in places if len(drawn[place]) < 2] == []
