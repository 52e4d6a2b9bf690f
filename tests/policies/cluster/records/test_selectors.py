"""Label selectors against labels of any type: those in a custom resource's pod template are not validated."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.records.common import Expression, Selector


@pytest.mark.parametrize("value", [None, 1, True, [], {}, ["a"], {"a": 1}])
def test_a_label_that_is_no_string_has_none_of_the_values(value: Any) -> None:
    values = frozenset({"a"})
    assert not Selector((Expression("app", "In", values),)).matches({"app": value})
    assert Selector((Expression("app", "NotIn", values),)).matches({"app": value})
    assert Selector((Expression("app", "Exists", frozenset()),)).matches({"app": value})


def test_a_label_that_is_a_string_is_compared() -> None:
    values = frozenset({"a", "b"})
    assert Selector((Expression("app", "In", values),)).matches({"app": "b"})
    assert not Selector((Expression("app", "NotIn", values),)).matches({"app": "b"})
    assert not Selector((Expression("app", "In", values),)).matches({})
    assert Selector((Expression("app", "NotIn", values),)).matches({})
