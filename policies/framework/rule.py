"""What a rule is: two pure functions, their parameters, and a declaration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, NamedTuple, Self, TypeAlias, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Mode
from gpugate.policies.kube.cel import KEY, CelRule, not_above
from gpugate.policies.kube.quantity import QuantityError, format_bytes, format_millicores, millicores, whole
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.workload import Workload


class _Expected(NamedTuple):
    name: str
    types: tuple[type, ...]


_KINDS: Final[dict[type, _Expected]] = {
    bool: _Expected("boolean (true or false)", (bool,)),
    int: _Expected("integer", (int, float)),
    float: _Expected("number", (int, float)),
}


class Params(BaseModel):
    """Base of every rule's parameters: frozen, named in camelCase in YAML, unknown names refused.

    Attributes:
        in_order: pairs of fields of which the first must not be above the second.
        validations: what else the model's validators refuse, as the apiserver can check it.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

    in_order: ClassVar[tuple[tuple[str, str], ...]] = ()
    validations: ClassVar[tuple[CelRule, ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _as_the_api_takes_it(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - any JSON value
        """Refuse what the custom resource's schema refuses: a text or a boolean where a number belongs, and so on.

        Quantities read texts themselves, and say so by a validator of their own.
        """
        field = cls.model_fields[info.field_name or ""]
        expected = _expected(field)
        if expected is None or value is None or any(isinstance(one, BeforeValidator) for one in field.metadata):
            return value
        if type(value) not in expected.types:
            message = f"{value!r:.60} is no {expected.name}"
            raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for pair in self.in_order:
            low, high = (getattr(self, name) for name in pair)
            if low > high:
                (first, least), (second, most) = ((to_camel(name), self._written(name, getattr(self, name))) for name in pair)
                message = f"{first} {least} is above {second} {most}"
                raise ValueError(message)
        return self

    @classmethod
    def _written(cls, name: str, value: Any) -> str:  # noqa: ANN401 - a field's value
        """The value of a field as a policy writes it."""
        serializer = _serializer(cls.model_fields[name])
        return str(serializer.func(value)) if serializer else f"{value:g}"  # type: ignore[call-arg]

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        """The model's schema, with the expressions that the apiserver checks beside it."""
        made = handler.resolve_ref_schema(handler(core_schema))
        found = [*(cls._ordering(*pair) for pair in cls.in_order), *cls.validations]
        if found:
            made[KEY] = [one.as_json() for one in found]
        return made

    @classmethod
    def _ordering(cls, low: str, high: str) -> CelRule:
        fields = cls.model_fields
        defaults = (cls._written(low, fields[low].default), cls._written(high, fields[high].default))
        return not_above(to_camel(low), to_camel(high), defaults, quantities=_serializer(fields[low]) is not None)


def _expected(field: FieldInfo) -> _Expected | None:
    """What must stand in a field of a boolean or number, which may be left out."""
    options = [option for option in get_args(field.annotation) if option is not type(None)]
    wanted: Any = options[0] if len(options) == 1 else field.annotation
    if any(isinstance(one, BeforeValidator) for one in get_args(wanted)):
        # What may be left out has its validators inside.
        return None
    return _KINDS.get(get_args(wanted)[0] if get_origin(wanted) is Annotated else wanted)


def _serializer(field: FieldInfo) -> PlainSerializer | None:
    return next((one for one in field.metadata if isinstance(one, PlainSerializer)), None)


def _as_written(value: object) -> object:
    """``value``, where the apiserver takes it for a quantity that counts something: no sign, and no number with a point."""
    if isinstance(value, float) or (type(value) is str and value.startswith(("+", "-"))):
        message = f"{value!r:.60} is no amount (examples: 16Gi, 500m, 4)"
        raise QuantityError(message)
    return value


def _bytes(value: object) -> int:
    return whole(_as_written(value))


def _millicores(value: object) -> int:
    return millicores(_as_written(value))


_QUANTITY_SCHEMA: Final = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}

#: An amount of memory: a quantity in YAML (``16Gi``), bytes in Python.
Bytes: TypeAlias = Annotated[
    int, BeforeValidator(_bytes), PlainSerializer(format_bytes, when_used="json"), WithJsonSchema(_QUANTITY_SCHEMA), Field(gt=0)
]
#: An amount of CPU: a quantity in YAML (``500m``), millicores in Python.
Millicores: TypeAlias = Annotated[
    int,
    BeforeValidator(_millicores),
    PlainSerializer(format_millicores, when_used="json"),
    WithJsonSchema(_QUANTITY_SCHEMA),
    Field(gt=0),
]


#: The pattern of a duration as Go writes it, of whole numbers: ``90s``, ``10m``, ``1h30m``.
_DURATION: Final = "^[0-9]{1,6}(h([0-9]{1,6}m)?([0-9]{1,6}s)?|m([0-9]{1,6}s)?|s)$"
_UNITS: Final = {"h": 3600, "m": 60, "s": 1}


def _seconds(written: object) -> int:
    """The seconds of a duration."""
    if type(written) is not str or re.match(_DURATION, written) is None:
        message = f"{written!r:.60} is no duration, such as 90s, 10m or 1h30m"
        raise ValueError(message)
    return sum(int(count) * _UNITS[unit] for count, unit in re.findall("([0-9]+)([hms])", written))


def _written(seconds: int) -> str:
    hours, minutes, left = seconds // 3600, seconds // 60 % 60, seconds % 60
    return "".join(f"{count}{unit}" for count, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if count)


def show_seconds(seconds: int) -> str:
    """``seconds`` as a policy writes them: ``1h30m``."""
    return _written(seconds) or "0s"


#: A duration: ``10m`` in YAML, seconds in Python.
Seconds: TypeAlias = Annotated[
    int,
    BeforeValidator(_seconds),
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": _DURATION}),
    Field(gt=0),
]

Mutate: TypeAlias = Callable[[Workload, Any, ClusterSnapshot], Iterable[Edit]]
Check: TypeAlias = Callable[[Workload, Any, ClusterSnapshot], Iterable[Finding]]


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
        applied_at_pods: whether an edit withheld from a template is made on its pods at creation, so that checks may count on it.
        on_update: whether it edits a template that a user changed in an UPDATE, too.
        trigger_annotations: annotations that drive the rule. If an UPDATE changes one, the rule edits the template again.
        default_max_mode: the strongest mode that it has where a policy gives a mode to all rules and does not name this one.
        default_mode_reason: why that is not Enforce, a sentence for the reference.
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
    applied_at_pods: bool = False
    trigger_annotations: frozenset[str] = frozenset()
    default_max_mode: Mode = Mode.ENFORCE
    default_mode_reason: str = ""


def no_edits(_workload: Workload, _params: Params, _facts: ClusterSnapshot) -> Iterable[Edit]:
    """The ``mutate`` of a rule that only checks."""
    return ()
