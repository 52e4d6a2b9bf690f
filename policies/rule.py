"""What a rule is: two pure functions, their parameters, and a declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from gpugate.policies.edits import Edit
from gpugate.policies.facts import Facts
from gpugate.policies.finding import Finding
from gpugate.policies.quantity import format_bytes, format_millicores, millicores, whole
from gpugate.policies.workload import Workload


class Params(BaseModel):
    """Base of every rule's parameters: frozen, named in camelCase in YAML, unknown names refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


_QUANTITY_SCHEMA: Final = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}

#: An amount of memory: a quantity in YAML (``16Gi``), bytes in Python.
Bytes: TypeAlias = Annotated[
    int, BeforeValidator(whole), PlainSerializer(format_bytes, when_used="json"), WithJsonSchema(_QUANTITY_SCHEMA), Field(gt=0)
]
#: An amount of CPU: a quantity in YAML (``500m``), millicores in Python.
Millicores: TypeAlias = Annotated[
    int,
    BeforeValidator(millicores),
    PlainSerializer(format_millicores, when_used="json"),
    WithJsonSchema(_QUANTITY_SCHEMA),
    Field(gt=0),
]

Mutate: TypeAlias = Callable[[Workload, Any, Facts], Iterable[Edit]]
Check: TypeAlias = Callable[[Workload, Any, Facts], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """The declaration that closes a rule's module.

    Attributes:
        id: its name in policies, findings and annotations.
        title: one line on what it sees to.
        since: the version of gpugate that brought it.
        params: its parameters.
        mutate: the edits that it wants on a workload.
        check: what it finds on the edited workload.
        needs: plural resource names of the facts that it reads.
        documentation: the docstring of its module, which becomes the reference.
        on_update: whether it edits a template that a user changed in an UPDATE, too.
    """

    id: str
    title: str
    since: str
    params: type[Params]
    mutate: Mutate
    check: Check
    needs: frozenset[str] = frozenset()
    documentation: str = ""
    on_update: bool = True


def no_edits(_workload: Workload, _params: Params, _facts: Facts) -> Iterable[Edit]:
    """The ``mutate`` of a rule that only checks."""
    return ()
