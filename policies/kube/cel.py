"""CEL validation rules of the custom resource definition, for what its schema cannot express.

Every check of a model needs its counterpart in CEL, here or beside the model: the API server must reject a policy that gpugate
cannot read. The API server limits the cost of an expression by the longest input that the schema allows, so every list, map and
string that an expression reads has a ``maxItems``, ``maxProperties`` or ``maxLength``.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar

from pydantic import AfterValidator, Field

_Item = TypeVar("_Item")

#: Schema key of the CEL rules.
KEY: Final = "x-kubernetes-validations"
#: Maximum number of elements of a list or map written by hand.
MOST: Final = 64
#: A label's value (``k8s.io/apimachinery/pkg/util/validation``, 1.36). Characters.
LONGEST_LABEL: Final = 63
#: A DNS name of 253 characters, a slash, and a name of 63. Characters.
LONGEST_KEY: Final = 317

_KEY_PATTERN: Final = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_LABEL_PATTERN: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
#: Patterns of label keys and values.
LABEL_PATTERNS: Final = frozenset({_KEY_PATTERN, _LABEL_PATTERN})


class CelRule(NamedTuple):
    """A CEL expression about ``self`` that must be true, and the error message if it is false."""

    rule: str
    message: str

    def as_json(self) -> dict[str, str]:
        """Return the entry of ``x-kubernetes-validations``."""
        return {"rule": self.rule, "message": self.message}


def _unique(values: tuple[_Item, ...]) -> tuple[_Item, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            message = f"{value!r:.60} stands there twice"
            raise ValueError(message)
    return values


def unique(most: int) -> tuple[Any, ...]:
    """Return the schema of a list of at most ``most`` unique elements (in the CRD: a list of type set)."""
    return (Field(max_length=most, json_schema_extra={"uniqueItems": True}), AfterValidator(_unique))


#: A list of unique elements.
UNIQUE: Final = unique(MOST)

#: A label's, annotation's, taint's or resource's name, such as ``nvidia.com/gpu``.
LabelKey: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_KEY, pattern=_KEY_PATTERN)]
#: A label's value; it may be empty.
LabelValue: TypeAlias = Annotated[str, Field(max_length=LONGEST_LABEL, pattern=_LABEL_PATTERN)]
#: A label's value that is not empty.
LabelName: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_LABEL, pattern=_LABEL_PATTERN)]
#: Pattern of environment variable names that shells and programs accept.
VARIABLE: Final = "[A-Za-z_][A-Za-z0-9_]*"
#: The name of an environment variable.
VariableName: TypeAlias = Annotated[str, Field(min_length=1, max_length=128, pattern=f"^{VARIABLE}$")]


def not_above(low: str, high: str, defaults: tuple[str, str], *, quantities: bool) -> CelRule:
    """Return the rule that field ``low`` is at most field ``high`` (quantities or numbers), with their ``defaults`` as in YAML."""
    # CEL distinguishes a double from an integer by its decimal point.
    form = "quantity(string(self.{0})) : quantity('{1}')" if quantities else "self.{0} : double({1})"
    left, right = (
        f"(has(self.{name}) ? {form.format(name, default)})" for name, default in zip((low, high), defaults, strict=True)
    )
    rule = f"{left}.compareTo({right}) <= 0" if quantities else f"{left} <= {right}"
    return CelRule(rule, f"{low} must not be above {high} (left out, they are {defaults[0]} and {defaults[1]})")


def literal(values: Sequence[Any]) -> str:
    """Return ``values`` (texts without quotes) as a CEL list."""
    return f"[{', '.join(repr(str(value)) for value in values)}]"
