"""The parameters of rules, and random values of them, derived from the schema of each rule's ``Params``.

A rule needs nothing here: its fields, their types, bounds and patterns come from the schema. What a schema cannot tell is which
strings mean something to the random workloads and clusters: those are in ``WORDS``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args

import orjson
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gpugate.policies.framework.rule import Rule
from tests.shared.maps import maps

Schema = dict[str, Any]

#: Words that the random workloads, nodes, queues and images have, or nearly have. A field takes those that its pattern allows.
WORDS = [
    *("zone", "rack", "sku", "gpu", "spot", "a", "q", "true", "owner", "team", "app", "nvidia.com/gpus", "kubernetes.io/hostname"),
    *("topology.kubernetes.io/NUMANode", "gpugate.io/numa-aligned", "gpugate.io/owner", "low", "high", "research", "nowhere"),
    *("mirror.example.com", "docker.io", "example.com", "latest", "*", "x*", "default/*", "team-a/runner", "/data", "/topo.xml"),
    *("NCCL_DEBUG", "NCCL_A", "NCCL_DEBUGS", "SYS_ADMIN", "CHOWN", "1s", "1h", "2h30m"),
]
#: Quantities of memory and of CPU; a schema shows them as integers or strings.
QUANTITIES = ["100M", "1Mi", "2Gi", "4Gi", "48Gi", "64Gi", "500m", "6", 3]
_NUMBERS = [-1, 0, 0.1, 0.5, 1, 1.1, 2, 3, 5, 10, 60, 74, 99.5, 1000]
_MOST_ITEMS = 3


class Parameter(NamedTuple):
    """A parameter of a rule.

    Attributes:
        rule: the rule.
        path: its place below the rule in a policy; for a field of a list, the place in each item.
        name: its name in Python.
        default: the value if it is not stated; undefined if it must be stated.
    """

    rule: Rule
    path: tuple[str, ...]
    name: str
    default: Any

    def __str__(self) -> str:
        return f"{self.rule.id}.{'.'.join(self.path)}"


def parameters_of(rule: Rule) -> list[Parameter]:
    """Return every parameter of the rule, those of nested models among them."""
    return list(_parameters_below(rule, rule.params))


def _parameters_below(rule: Rule, model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[Parameter]:
    for name, field in model.model_fields.items():
        path = (*above, field.alias or name)
        yield Parameter(rule, path, name, field.get_default(call_default_factory=True))
        for inner in _models(field.annotation):
            yield from _parameters_below(rule, inner, path)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that values of ``annotation`` hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


@cache
def params_of(rule: Rule) -> st.SearchStrategy[dict[str, Any]]:
    """Return random parameters of ``rule``, each stated or left out, that its model takes."""
    return settings_of(rule.params)


def settings_of(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    """Return what somebody may write for ``model``."""
    schema = model.model_json_schema(by_alias=True)

    def taken(drawn: dict[str, Any]) -> dict[str, Any]:
        """``drawn`` without the first fields, down to what fields that rule each other out leave."""
        for left_out in range(len(drawn)):
            settings = dict(itertools.islice(drawn.items(), left_out, None))
            try:
                model.model_validate(settings)
            except ValidationError:
                continue
            return settings
        return {}

    return _values(schema, schema.get("$defs", {})).map(taken)


def _values(schema: Schema, definitions: Schema) -> st.SearchStrategy[Any]:
    """Return values that ``schema`` allows."""
    if "$ref" in schema:
        return _values(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        types = [one.get("type") for one in schema["anyOf"]]
        if {"integer", "string"} <= set(types):
            return st.sampled_from(QUANTITIES)
        return st.one_of([_values(one, definitions) for one in schema["anyOf"] if one.get("type") != "null"])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    return _BY_TYPE[schema["type"]](schema, definitions)


def _objects(schema: Schema, definitions: Schema) -> st.SearchStrategy[Any]:
    fields = {name: _values(field, definitions) for name, field in schema.get("properties", {}).items()}
    if not fields:
        return st.dictionaries(_strings({}, {}), _values(schema["additionalProperties"], definitions), max_size=_MOST_ITEMS)
    required = schema.get("required", [])
    return maps({name: fields[name] for name in required}, {name: fields[name] for name in fields if name not in required})


def _arrays(schema: Schema, definitions: Schema) -> st.SearchStrategy[Any]:
    most = min(schema.get("maxItems", _MOST_ITEMS), _MOST_ITEMS)
    return st.lists(
        _values(schema["items"], definitions), min_size=schema.get("minItems", 0), max_size=most, unique_by=orjson.dumps
    )


def _strings(schema: Schema, _definitions: Schema) -> st.SearchStrategy[Any]:
    """Return the words that fit; any that fit the pattern where no word does."""
    pattern = schema.get("pattern", "")
    words = [word for word in WORDS if re.search(pattern, word) and _is_within(len(word), schema, "Length")]
    return st.sampled_from(words) if words else st.from_regex(pattern, fullmatch=True)


def _numbers(schema: Schema, _definitions: Schema) -> st.SearchStrategy[Any]:
    bounds = [schema[name] + step for name, step in (("minimum", 0), ("minimum", 1), ("maximum", 0)) if name in schema]
    kind = int if schema["type"] == "integer" else (int, float)
    numbers = [one for one in [*bounds, *_NUMBERS] if isinstance(one, kind) and _is_within(one, schema, "imum")]
    return st.sampled_from(sorted(set(numbers)))


def _is_within(value: float, schema: Schema, of: str) -> bool:
    """Return whether ``value`` is within the bounds of ``schema`` whose names end in ``of``."""
    within = schema.get(f"min{of}", value) <= value <= schema.get(f"max{of}", value)
    return within and schema.get("exclusiveMinimum", value - 1) < value < schema.get("exclusiveMaximum", value + 1)


_BY_TYPE = {
    "object": _objects,
    "array": _arrays,
    "string": _strings,
    "integer": _numbers,
    "number": _numbers,
    "boolean": lambda _schema, _definitions: st.booleans(),
}
