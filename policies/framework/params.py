"""The base of rule parameters, and the types of their quantities and durations."""

import re
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, get_args, get_origin

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

from gpugate.policies.kube.cel import KEY, CelRule, not_above
from gpugate.policies.kube.quantity import QuantityError, format_bytes, format_millicores, millicores, whole

#: The name and the JSON types of each type of field whose type is checked.
_KINDS: Final[dict[type, tuple[str, tuple[type, ...]]]] = {
    bool: ("boolean (true or false)", (bool,)),
    int: ("integer", (int, float)),
    float: ("number", (int, float)),
}


class Params(BaseModel):
    """Base of the parameters of every rule: frozen, camelCase in YAML, unknown names are errors.

    Attributes:
        in_order: pairs of fields (low, high): a low value above the high one is an error.
        validations: CEL rules for the CRD, one for each other check of the model's validators.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )

    in_order: ClassVar[tuple[tuple[str, str], ...]] = ()
    validations: ClassVar[tuple[CelRule, ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _check_type(cls, value: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 - any JSON value
        """Raise ``ValueError`` for a JSON type that the CRD schema refuses: a string or a boolean for a number.

        Quantities accept strings: their own validator parses them.
        """
        field = cls.model_fields[info.field_name or ""]
        expected = _expected(field)
        if expected is None or value is None or any(isinstance(item, BeforeValidator) for item in field.metadata):
            return value
        name, types = expected
        if type(value) not in types:
            message = f"{value!r:.60} is no {name}"
            raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for pair in self.in_order:
            low, high = (getattr(self, name) for name in pair)
            if low > high:
                message = " is above ".join(f"{to_camel(name)} {self._written(name, getattr(self, name))}" for name in pair)
                raise ValueError(message)
        return self

    @classmethod
    def _written(cls, name: str, value: Any) -> str:  # noqa: ANN401 - a field's value
        """Format the value of a field as a policy writes it."""
        serializer = _serializer(cls.model_fields[name])
        return str(serializer.func(value)) if serializer else f"{value:g}"  # type: ignore[call-arg]

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:  # noqa: ANN401 - pydantic's own
        """Return the schema of the model with its CEL rules (``x-kubernetes-validations``)."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        rules = [*(cls._ordering(*pair) for pair in cls.in_order), *cls.validations]
        if rules:
            schema[KEY] = [rule.as_json() for rule in rules]
        return schema

    @classmethod
    def _ordering(cls, low: str, high: str) -> CelRule:
        fields = cls.model_fields
        defaults = (cls._written(low, fields[low].default), cls._written(high, fields[high].default))
        return not_above(to_camel(low), to_camel(high), defaults, quantities=_serializer(fields[low]) is not None)


def _expected(field: FieldInfo) -> tuple[str, tuple[type, ...]] | None:
    """Return the JSON type that a boolean or number field (or ``None``) accepts; None for all other fields."""
    options = [option for option in get_args(field.annotation) if option is not type(None)]
    annotation: Any = options[0] if len(options) == 1 else field.annotation
    if any(isinstance(item, BeforeValidator) for item in get_args(annotation)):
        # An optional quantity carries its validator inside the union.
        return None
    return _KINDS.get(get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation)


def _serializer(field: FieldInfo) -> PlainSerializer | None:
    return next((item for item in field.metadata if isinstance(item, PlainSerializer)), None)


def _as_written(value: object) -> object:
    """Return ``value``; raise ``QuantityError`` for what the CRD schema refuses as a quantity: a sign, or a float."""
    if isinstance(value, float) or (type(value) is str and value.startswith(("+", "-"))):
        message = f"{value!r:.60} is no amount (examples: 16Gi, 500m, 4)"
        raise QuantityError(message)
    return value


_QUANTITY_SCHEMA: Final = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}

#: An amount of memory: a quantity in YAML (``16Gi``), bytes in Python.
Bytes: TypeAlias = Annotated[
    int,
    BeforeValidator(lambda value: whole(_as_written(value))),
    PlainSerializer(format_bytes, when_used="json"),
    WithJsonSchema(_QUANTITY_SCHEMA),
    Field(gt=0),
]
#: An amount of CPU: a quantity in YAML (``500m``), millicores in Python.
Millicores: TypeAlias = Annotated[
    int,
    BeforeValidator(lambda value: millicores(_as_written(value))),
    PlainSerializer(format_millicores, when_used="json"),
    WithJsonSchema(_QUANTITY_SCHEMA),
    Field(gt=0),
]


#: A duration in the format of Go, with whole numbers: ``90s``, ``10m``, ``1h30m``.
_DURATION: Final = "^[0-9]{1,6}(h([0-9]{1,6}m)?([0-9]{1,6}s)?|m([0-9]{1,6}s)?|s)$"
_UNITS: Final = {"h": 3600, "m": 60, "s": 1}


def _seconds(written: object) -> int:
    """Parse a duration into seconds."""
    if type(written) is not str or re.match(_DURATION, written) is None:
        message = f"{written!r:.60} is no duration, such as 90s, 10m or 1h30m"
        raise ValueError(message)
    return sum(int(count) * _UNITS[unit] for count, unit in re.findall("([0-9]+)([hms])", written))


def show_seconds(seconds: int) -> str:
    """Format ``seconds`` as a policy writes a duration: ``1h30m``."""
    hours, minutes, left = seconds // 3600, seconds // 60 % 60, seconds % 60
    return "".join(f"{count}{unit}" for count, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if count) or "0s"


#: A duration: ``10m`` in YAML, seconds in Python.
Seconds: TypeAlias = Annotated[
    int,
    BeforeValidator(_seconds),
    PlainSerializer(show_seconds, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": _DURATION}),
    Field(gt=0),
]
