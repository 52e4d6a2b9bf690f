"""What a custom resource's schema cannot say, in the apiserver's own language for it (CEL), beside what the models check.

Whoever adds a check to a model adds the same in CEL here or beside the model: a policy that gpugate cannot read must not get
into the cluster. The apiserver bounds what an expression may cost by the longest input that the schema allows, so whatever an
expression walks has a ``maxItems``, ``maxProperties`` or ``maxLength``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

from pydantic import AfterValidator, Field

_Item = TypeVar("_Item")

#: The key under which a schema carries its expressions.
KEY: Final = "x-kubernetes-validations"
#: Elements of a list, and entries of a map, that somebody writes by hand.
MOST: Final = 64
#: A label's value (``k8s.io/apimachinery/pkg/util/validation``, 1.36). Characters.
LONGEST_LABEL: Final = 63
#: A DNS name of 253 characters, a slash, and a name of 63. Characters.
LONGEST_KEY: Final = 317

_KEY_PATTERN: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_PATTERN: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
#: The patterns of what stands in a label.
LABEL_PATTERNS: Final = frozenset({_KEY_PATTERN, _LABEL_PATTERN})


class CelRule(NamedTuple):
    """One expression about a value, which is called ``self`` in it.

    Attributes:
        rule: what must be true.
        message: what is said where it is not.
    """

    rule: str
    message: str

    def as_json(self) -> dict[str, str]:
        """The entry of ``x-kubernetes-validations``."""
        return {"rule": self.rule, "message": self.message}


def _unique(values: tuple[_Item, ...]) -> tuple[_Item, ...]:
    for at, value in enumerate(values):
        if value in values[:at]:
            message = f"{value!r:.60} stands there twice"
            raise ValueError(message)
    return values


def unique(most: int) -> tuple[Any, ...]:
    """What marks a list of at most ``most`` elements, none twice; ``uniqueItems`` in its schema becomes a list of type set."""
    return (Field(max_length=most, json_schema_extra={"uniqueItems": True}), AfterValidator(_unique))


#: A list of which no element may be there twice.
UNIQUE: Final = unique(MOST)

#: A label's, annotation's, taint's or resource's name, such as ``nvidia.com/gpu``.
LabelKey: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_KEY, pattern=_KEY_PATTERN)]
#: A label's value; it may be empty.
LabelValue: TypeAlias = Annotated[str, Field(max_length=LONGEST_LABEL, pattern=_LABEL_PATTERN)]
#: A label's value that names something.
LabelName: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=_LABEL_PATTERN)]
#: What the name of an environment variable is made of, as shells and programs take it.
VARIABLE: Final = "[A-Za-z_][A-Za-z0-9_]*"
#: The name of an environment variable.
VariableName: TypeAlias = Annotated[str, Field(min_length=1, max_length=128, pattern=f"^{VARIABLE}$")]
#: Any text, but none at all.
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=1024)]


def not_above(low: str, high: str, defaults: tuple[str, str], *, quantities: bool) -> CelRule:
    """``low`` must not be above ``high``, whichever of the two is left out.

    Args:
        low: one field as YAML has it.
        high: the other.
        defaults: what holds where they are left out, as YAML has it.
        quantities: whether they are quantities, or else numbers.
    """
    sides = [_side(name, default, quantities=quantities) for name, default in zip((low, high), defaults, strict=True)]
    rule = f"{sides[0]}.compareTo({sides[1]}) <= 0" if quantities else f"{sides[0]} <= {sides[1]}"
    return CelRule(rule, f"{low} must not be above {high} (left out, they are {defaults[0]} and {defaults[1]})")


def _side(name: str, default: str, *, quantities: bool) -> str:
    if quantities:
        return f"(has(self.{name}) ? quantity(string(self.{name})) : quantity('{default}'))"
    # CEL tells a double from an integer by its point.
    return f"(has(self.{name}) ? self.{name} : double({default}))"


def literal(values: Sequence[Any]) -> str:
    """``values``, texts without quotes in them, as a list in CEL."""
    return f"[{', '.join(repr(str(value)) for value in values)}]"
