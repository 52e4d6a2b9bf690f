"""Whether two pod templates say the same, however they are spelt.

Who reads a custom resource into its type and writes it back, as Kueue's webhooks and operators do, spells its quantities anew
(``1`` becomes ``"1"``, ``1024Mi`` becomes ``1Gi``) and states empty maps that nobody wrote. Whoever applies from Git sends the
old spelling again.
"""

from __future__ import annotations

from typing import Any, Final

from gpugate.policies.quantity import QuantityError, exact

#: Maps of quantities, and fields that hold one.
_AMOUNTS: Final = frozenset({"limits", "overhead", "requests"})
_AMOUNT: Final = frozenset({"sizeLimit"})
#: What says the same where it is empty and where it is not there.
_EMPTY_OR_NOT: Final = frozenset({"creationTimestamp", "limits", "metadata", "requests", "resources"})


def say_the_same(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Whether two templates, or parts of them, differ in nothing but their spelling."""
    if one == other:
        return True
    if type(one) is dict and type(other) is dict:
        return all(_fields_say_the_same(key, one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if type(one) is list and type(other) is list:
        return len(one) == len(other) and all(map(say_the_same, one, other))
    return False


def _fields_say_the_same(key: Any, one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    if one == other or (key in _EMPTY_OR_NOT and not one and not other):
        return True
    if key in _AMOUNT:
        return _are_one_amount(one, other)
    if key in _AMOUNTS and type(one) is dict and type(other) is dict:
        return one.keys() == other.keys() and all(_are_one_amount(one[name], other[name]) for name in one)
    return say_the_same(one, other)


def _are_one_amount(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    try:
        return bool(one == other) or exact(one) == exact(other)
    except QuantityError:
        return False
