"""What is written as YAML is read back as the same object, by the rules of YAML 1.1 and of YAML 1.2 alike."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gpugate.webhook.files.yaml import dump


class _Plain(yaml.SafeLoader):
    """PyYAML as it is: the rules of YAML 1.1."""


def read_back(text: str) -> list[Any]:
    """``text`` as PyYAML, and ruamel by either version of YAML, read it."""
    found = [yaml.load(text, _Plain)]  # noqa: S506 - a SafeLoader
    for version in ((1, 1), (1, 2)):
        reader = YAML(typ="safe", pure=True)
        reader.version = version  # type: ignore[assignment]
        found.append(reader.load(StringIO(text)))
    return found


def same(value: Any) -> None:
    text = dump(value)
    for found in read_back(text):
        assert found == value, text
        assert repr(found) == repr(value), text


AMBIGUOUS = [
    *("y", "Y", "yes", "Yes", "YES", "n", "N", "no", "on", "On", "off", "OFF", "true", "True", "FALSE", "null", "Null", "~", ""),
    *("1", "-1", "+1", "0", "007", "08", "0x1", "0o7", "0b1", "1_000", "1e3", "1E3", "-1e-3", "1.", ".5", "1.5", "+.5", "1.e3"),
    *(
        "12e03",
        "1.5e+3",
        ".inf",
        "-.INF",
        ".NaN",
        "1:30",
        "190:20:30",
        "190:20:30.15",
        "2026-01-01",
        "2026-1-1",
        "2026-01-01T10:00:00Z",
    ),
    *(
        "=",
        "<<",
        "-",
        "?",
        ":",
        "- a",
        "a: b",
        "a #b",
        "#a",
        "@a",
        "`a",
        "%a",
        "!a",
        "&a",
        "*a",
        "|",
        ">",
        "'",
        '"',
        "[",
        "{",
        "]",
        ",",
    ),
    *(
        "---",
        "...",
        "--- a",
        " a",
        "a ",
        "\ta",
        "a\t",
        "\n",
        "a\n",
        "a\n\n",
        "\na",
        " \n a",
        "a\n b\n  c",
        "  a\nb",
        "a \nb",
        "a\n ",
        "a\tb",
    ),
    *(
        "#!/bin/sh\nset -e\n\nexec train  \n",
        "a: b\nc: d",
        "- a\n- b\n",
        "%YAML\n",
        "---\na\n",
        "x" * 5000,
        "word " * 2000,
        "a\r\nb",
    ),
    *(
        "\x00",
        "\x07",
        "\x1b[31m",
        "\x7f",
        "\x85",
        "\xa0",
        "\u2028",
        "\ufeff",
        "\ufffe",
        "\N{GRINNING FACE}",
        "\N{LATIN SMALL LETTER E WITH ACUTE}\nb",
    ),
]


@pytest.mark.parametrize("text", AMBIGUOUS, ids=lambda text: repr(text[:24]))
def test_a_string_stays_the_string_that_it_is(text: str) -> None:
    same({"value": text, "list": [text, [text]], "nested": {"deeper": {"still": text}}})


@pytest.mark.parametrize("text", AMBIGUOUS, ids=lambda text: repr(text[:24]))
def test_a_key_stays_the_string_that_it_is(text: str) -> None:
    same({"labels": {text: "x"}})


@pytest.mark.parametrize(
    "value", [None, True, False, 0, -1, 2**63, 1.5, 1e300, 1e-7, -0.0, {}, [], [[]], [{}], {"a": {}}, [[1], [2]]]
)
def test_other_values_stay_what_they_are(value: Any) -> None:
    same({"value": value, "list": [value]})


@pytest.mark.parametrize("value", ["yes", "plain", 1, None, True, [], {}, [1, "on"]])
def test_a_document_may_be_anything(value: Any) -> None:
    same(value)


def test_several_lines_are_a_block_as_people_write_them() -> None:
    assert dump({"command": ["sh", "-c", "set -e\ntrain\n"]}) == "command:\n  - sh\n  - -c\n  - |\n    set -e\n    train\n"


def test_keys_keep_their_order() -> None:
    assert list(read_back(dump({"kind": 1, "apiVersion": 2, "a": 3}))[0]) == ["kind", "apiVersion", "a"]


def test_an_object_that_stands_in_two_places_is_written_twice_and_not_by_alias() -> None:
    shared = {"cpu": "4", "list": [1]}
    text = dump({"limits": shared, "requests": shared})
    assert "&" not in text
    assert "*" not in text
    same({"limits": shared, "requests": shared})


texts = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="yYnNoOeE0123456789_.:+-xX~ \n\t#'\"|>[]{}!&*%@`\\,?=<", max_size=12),
    st.sampled_from(AMBIGUOUS),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(json_values)
def test_any_json_is_read_back_as_it_was(value: Any) -> None:
    same({"value": value})
