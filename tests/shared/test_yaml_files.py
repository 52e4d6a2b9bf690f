"""The files of the tests are read as YAML 1.2, which is also how gpugate reads manifests."""

from __future__ import annotations

import pytest
import yaml
from ruamel.yaml import YAML

from tests.shared.yaml_files import loaded

_TEXT = """
text: [yes, no, on, "1", 'true', 1:30, 0x, 1_000, 2026-01-01, 8000m, 1.2.3, .]
numbers: [0, 1, -7, 1.5, -0.5, 1e3, 1.5E-2, .5, 2147483648]
words: [true, false, null, ~, ]
empty:
folded: >-
  one
  line
"""


def test_scalars_mean_what_they_mean_in_a_manifest() -> None:
    mine, ruamels = loaded(_TEXT), YAML(typ="safe").load(_TEXT)
    assert mine.pop("text") == ["yes", "no", "on", "1", "true", "1:30", "0x", "1_000", "2026-01-01", "8000m", "1.2.3", "."]
    del ruamels["text"]
    assert mine == ruamels
    assert [type(value) for value in mine["numbers"]] == [type(value) for value in ruamels["numbers"]]


def test_a_key_twice_is_an_error() -> None:
    with pytest.raises(yaml.YAMLError, match="twice"):
        loaded("a: {b: 1, c: 2, b: 3}")
