"""Writing changes into manifests as text: what is put in looks like what is there, and all else stays."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import yaml

from gpugate.webhook.files.rewrite.layout import OverlapError, Splice, spliced
from gpugate.webhook.files.rewrite.rewrite import rewrite
from tests.shared.rewriting import GONE, documents, text_after, written

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a key goes behind the last one, before comments of what follows": (
        "a:\n  b: 1 # one\n  # of a\n# of c\nc: 1\n",
        {"a.d": 2},
        "a:\n  b: 1 # one\n  # of a\n  d: 2\n# of c\nc: 1\n",
    ),
    "blank lines stay where they are": ("a:\n  b: 1\n\n\nc: 1\n", {"a.d": 2}, "a:\n  b: 1\n  d: 2\n\n\nc: 1\n"),
    "an empty value is filled below its comment": (
        "a:\n  l:  # none\n  # x: y\nb: 1\n",
        {"a.l": {"k": "v"}},
        "a:\n  l:  # none\n    k: v\n  # x: y\nb: 1\n",
    ),
    "a null that is written is filled": ("a: ~\nb: 1\n", {"a": ["x"]}, "a:\n  - x\nb: 1\n"),
    "an empty value becomes a scalar": ("a:\n  b:\nc: 1\n", {"a.b": "v"}, "a:\n  b: v\nc: 1\n"),
    "empty brackets become a block": ("a: {}   # c\nb: []\n", {"a": {"x": 1}, "b": [1]}, "a:   # c\n  x: 1\nb:\n  - 1\n"),
    "empty brackets within brackets stay brackets": (
        "c: {a: {}, b: []}\n",
        {"c.a": {"x": 2}, "c.b": [1]},
        "c: {a: {x: 2}, b: [1]}\n",
    ),
    "brackets are kept": (
        "a: {x: 1, z: [q, r]}\n",
        {"a.k": {"m": "v, w"}, "a.z.-": "c"},
        'a: {x: 1, z: [q, r, c], k: {m: "v, w"}}\n',
    ),
    "spaces within brackets are kept": ("b: { x: {q: 1} }\n", {"b.k": {"m": 1}}, "b: { x: {q: 1}, k: { m: 1 } }\n"),
    "a comma behind the last element is kept": ("c: [a, b,]\n", {"c.-": "x"}, "c: [a, b, x,]\n"),
    "brackets over several lines": (
        "a: {\n  x: 1, # one\n  k: 2  # two\n}\nb: [\n  a,\n  c,  # cc\n]\n",
        {"a.z": 3, "b.-": "d"},
        "a: {\n  x: 1, # one\n  k: 2,  # two\n  z: 3\n}\nb: [\n  a,\n  c,  # cc\n  d,\n]\n",
    ),
    "a closing bracket behind the last element": ("c: [\n  a,\n  b]\n", {"c.-": "d"}, "c: [\n  a,\n  b,\n  d]\n"),
    "a comment within brackets that are empty": ("a: {  # why\n  }\n", {"a": {"b": 1}}, "a: {  # why\n  b: 1 }\n"),
    "elements that stand in brackets are followed by one that does": (
        "v:\n  - {name: a, path: /a}\n",
        {"v.-": {"name": "b", "path": "/b"}},
        "v:\n  - {name: a, path: /a}\n  - {name: b, path: /b}\n",
    ),
    "a list no deeper than its key": (
        "a:\n- x: 1\n  k: 2\n- x: 3\n# of b\nb: 1\n",
        {"a.-": {"x": {"q": 1}}, "a.0.z": [1]},
        "a:\n- x: 1\n  k: 2\n  z:\n  - 1\n- x: 3\n- x:\n    q: 1\n# of b\nb: 1\n",
    ),
    "comments within and behind lists": (
        "a:\n  - x: 1\n    # deep\n  # mid\n# low\nb: 1\n",
        {"a.-": 2, "a.0.z": 1},
        "a:\n  - x: 1\n    # deep\n    z: 1\n  # mid\n  - 2\n# low\nb: 1\n",
    ),
    "wide dashes and wide steps": (
        "a:\n-   x: 1\n    k: 2\nb:\n    c: 1\n",
        {"a.-": {"x": {"q": 1}}, "b.m": {"q": 1}},
        "a:\n-   x: 1\n    k: 2\n-   x:\n        q: 1\nb:\n    c: 1\n    m:\n        q: 1\n",
    ),
    "lists of lists": ("a:\n- - x\n  - k\n- b\n", {"a.0.-": "z", "a.-": "z"}, "a:\n- - x\n  - k\n  - z\n- b\n- z\n"),
    "an element that is nothing": ("a:\n- b\n-\n", {"a.-": "z"}, "a:\n- b\n-\n- z\n"),
    "Windows line breaks": (
        "a:\r\n  b: 1\r\n\r\nc: 2\r\n",
        {"a.m": {"z": [1]}},
        "a:\r\n  b: 1\r\n  m:\r\n    z:\r\n      - 1\r\n\r\nc: 2\r\n",
    ),
    "a last line without an end": ("a:\n  b: 1", {"a.c": 2, "d": 3}, "a:\n  b: 1\n  c: 2\nd: 3"),
    "a block of text at the end of the file": ("a:\n  s: |\n    text\n", {"a.m": 1}, "a:\n  s: |\n    text\n  m: 1\n"),
    "a block of text that the file breaks off": ("a:\n  s: |\n    text", {"a.m": 1}, "a:\n  s: |-\n    text\n  m: 1"),
    "a block of text that keeps its blank lines": (
        "a:\n  s: |+\n    text\n\n\n",
        {"a.m": 1},
        "a:\n  s: |+\n    text\n\n\n  m: 1\n",
    ),
    "a block of text before blank lines": (
        "a:\n  s: >-\n    text\n\n\nb: 1\n",
        {"a.m": 1},
        "a:\n  s: >-\n    text\n  m: 1\n\n\nb: 1\n",
    ),
    "several lines without quotes": ("a: this is\n  long\nb: 1\n", {"a": "short"}, "a: short\nb: 1\n"),
    "quotes are kept where a value changes": (
        "a: '1'\nb: \"2\"\nc: 3\n",
        {"a": "it's", "b": "x", "c": 4},
        "a: 'it''s'\nb: \"x\"\nc: 4\n",
    ),
    "quoted keys are followed by quoted keys": (
        '"a":\n  "x": "1"\n',
        {"a.z": {"k": "v"}},
        '"a":\n  "x": "1"\n  "z":\n    "k": "v"\n',
    ),
    "quoted elements are followed by quoted ones": ("a:\n  - 'x'\n  - 'z'\n", {"a.-": "v"}, "a:\n  - 'x'\n  - 'z'\n  - 'v'\n"),
    "the quotes that the file prefers": ("a: 'on'\nb: 'off'\n", {"c": "yes"}, "a: 'on'\nb: 'off'\nc: 'yes'\n"),
    "a renamed key keeps its comment": ("a:\n  old: 1 # c\n  b: 2\n", {"a.old": GONE, "a.new": 1}, "a:\n  new: 1 # c\n  b: 2\n"),
    "a key goes with its line": ("a:\n  x: 1 # c\n  b: 2\n", {"a.x": GONE}, "a:\n  b: 2\n"),
    "the first key of an element goes": ("a:\n  - x: 1 # c\n    b: 2\n", {"a.0.x": GONE}, "a:\n  - b: 2\n"),
    "a key in brackets goes": ("a: {x: 1, b: 2, c: 3}\n", {"a.b": GONE}, "a: {x: 1, c: 3}\n"),
    "the last key in brackets goes": ("a: {x: 1, b: 2}\n", {"a.b": GONE}, "a: {x: 1}\n"),
    "the only key goes": ("x: 1\na:\n  b: 1\n", {"a.b": GONE}, "x: 1\na: {}\n"),
    "another key takes the place of the only one": ("a:\n  b: 1\nx: 1\n", {"a.b": GONE, "a.c": 2}, "a:\n  c: 2\nx: 1\n"),
    "tabs where Kubernetes takes them": (
        "a:\t1\t# tab\nb:\n  c: 2 # x\ty\nd: 1\n",
        {"b.k": "v"},
        "a:\t1\t# tab\nb:\n  c: 2 # x\ty\n  k: v\nd: 1\n",
    ),
    "question marks before keys": (
        "? a\n: b: 1\n? c\n: \nd: 1\n",
        {"a.k": 1, "c": {"z": 1}},
        "? a\n: b: 1\n  k: 1\n? c\n: \n  z: 1\nd: 1\n",
    ),
    "keys that are no strings": ("2: a\nyes: b\n", {"c": 1}, "2: a\nyes: b\nc: 1\n"),
    "tags": ("a: !!str 8\nb: !!map\n  c: 1\n", {"a": "9", "b.d": 1}, 'a: "9"\nb: !!map\n  c: 1\n  d: 1\n'),
    "an anchor of empty brackets": ("a: &x {}\nb: *x\n", {"a.c": 1}, "a: &x {c: 1}\nb: {}\n"),
    "an alias on a line of its own within brackets": (
        "a: &x {c: 1}\nb: [\n  *x,\n  2 ]\n",
        {"b.0": {"c": 2}},
        "a: &x {c: 1}\nb: [\n  {c: 2},\n  2 ]\n",
    ),
    "an alias behind a dash": (
        "a: &x {c: 1}\nb:\n  - *x # c\n",
        {"b.0": {"c": 2, "d": 3}},
        "a: &x {c: 1}\nb:\n  - c: 2\n    d: 3 # c\n",
    ),
    "an alias of a scalar": ("a: &x 1\nb: *x\nc: [*x]\n", {"a": 2, "b": 2}, "a: &x 2\nb: *x\nc: [1]\n"),
    "a map with an anchor": ("a: &x\n  b: 1\nc: 2\n", {"a.d": 1}, "a: &x\n  b: 1\n  d: 1\nc: 2\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_looks_like_the_text_around_it(case: str) -> None:
    before, edits, after = CASES[case]
    assert text_after(before, edits) == after


@pytest.mark.parametrize("case", CASES)
def test_a_second_parser_reads_what_was_written(case: str) -> None:
    before, edits, after = CASES[case]
    # PyYAML knows no other keys as strings, and takes no tabs.
    if "keys that are no strings" not in case and "tabs" not in case:
        assert yaml.safe_load(after) == documents(text_after(before, edits))[1]


JSON_CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "pretty": (
        '{\n  "a": {"x": 1},\n  "b": {\n    "c": 1\n  },\n  "d": [\n    1\n  ],\n  "e": {}\n}\n',
        {"a.z": {"k": [1]}, "b.q": {"z": [1]}, "d.-": {"u": 1}, "e.f": "g"},
        (
            '{\n  "a": {"x": 1, "z": {"k": [1]}},\n  "b": {\n    "c": 1,\n'
            '    "q": {\n      "z": [\n        1\n      ]\n    }\n  },\n'
            '  "d": [\n    1,\n    {\n      "u": 1\n    }\n  ],\n  "e": {\n    "f": "g"\n  }\n}\n'
        ),
    ),
    "compact": ('{"a":{"x":1},"b":[1]}', {"a.z": {"k": [1, 2]}, "b.-": 2}, '{"a":{"x":1,"z":{"k":[1,2]}},"b":[1,2]}'),
    "tabs": ('{\n\t"a": {\n\t\t"x": 1\n\t}\n}\n', {"a.z": [1]}, '{\n\t"a": {\n\t\t"x": 1,\n\t\t"z": [\n\t\t\t1\n\t\t]\n\t}\n}\n'),
    "a key that is there twice": ('{"a": 1, "a": {"b": 1}}', {"a.c": 2}, '{"a": 1, "a": {"b": 1, "c": 2}}'),
    "escapes": ('{"a\\u0062": {"\\"": 1}}', {"ab.c": "\u00e9\n"}, '{"a\\u0062": {"\\"": 1, "c": "\u00e9\\n"}}'),
    "a renamed key": ('{"a": {"old": 1}}', {"a.old": GONE, "a.new": 1}, '{"a": {"new": 1}}'),
}


@pytest.mark.parametrize("case", JSON_CASES)
def test_json_stays_json_in_its_own_style(case: str) -> None:
    before, edits, after = JSON_CASES[case]
    assert text_after(before, edits) == after
    assert orjson.loads(after) == documents(after)[1]


def test_one_of_several_json_values_is_changed_alone() -> None:
    assert text_after('{"a": 1}\n{"b": 1}\n', {"c": 2}, number=2) == '{"a": 1}\n{"b": 1, "c": 2}\n'


@pytest.mark.parametrize(
    ("before", "number", "after"),
    [
        ("a: 1\n---\nb: 1\n---\nc: 1\n", 2, "a: 1\n---\nb: 1\nm: 1\n---\nc: 1\n"),
        (
            "%YAML 1.1\n---\na: 1\n...\n# c\n%YAML 1.1\n---\nb: 1\n",
            2,
            "%YAML 1.1\n---\na: 1\n...\n# c\n%YAML 1.1\n---\nb: 1\nm: 1\n",
        ),
        ("---\n---\nb: 1", 2, "---\n---\nb: 1\nm: 1"),
        ("a: |\n  ---\n--- # c\nb: 1\n", 2, "a: |\n  ---\n--- # c\nb: 1\nm: 1\n"),
        ("a: 1\n---\n# only a comment\n---\nc: 1\n---\n", 3, "a: 1\n---\n# only a comment\n---\nc: 1\nm: 1\n---\n"),
        ("# head\n\n--- # first\na: 1\n...\n", 1, "# head\n\n--- # first\na: 1\nm: 1\n...\n"),
        ("a: 1\n...\n---\nb: 1\n", 2, "a: 1\n...\n---\nb: 1\nm: 1\n"),
        ("--- {a: 1}\n--- {b: 1}\n", 2, "--- {a: 1}\n--- {b: 1, m: 1}\n"),
    ],
)
def test_documents_are_told_apart_and_keep_their_markers(before: str, number: int, after: str) -> None:
    assert text_after(before, {"m": 1}, number) == after


AMBIGUOUS = [
    *("on", "off", "y", "N", "yes", "True", "null", "~", "", "1e3", "0755", "0o7", "0x1F", "1_000", "1:20", "1.5", ".5", "-1"),
    *(
        "2024-01-01",
        "=",
        "<<",
        ".inf",
        "8",
        " a",
        "a ",
        "a: b",
        "a #b",
        "- a",
        "? a",
        "[a",
        "{a",
        "&a",
        "*a",
        "!a",
        "%a",
        "@a",
        "`a",
    ),
    *(
        "|",
        ">",
        "'",
        '"',
        "a\nb",
        "a\tb",
        "\u0085",
        "\u2028x",
        "\ufeffx",
        "\x7f",
        "---",
        "...",
        "a:",
        ":a",
        "#a",
        ",a",
        "a,b",
        "a]b",
    ),
]


@pytest.mark.parametrize("value", [*AMBIGUOUS, "64Gi", "nvidia.com/gpu", "/dev/shm", "500m", "a b", "s3://x/y", "$(VAR)", "^lo"])
@pytest.mark.parametrize("text", ["a: x\n", "a: {b: x}\n", "a: 'x'\n", '{"a": "x"}', "a: [x]\n", "- x\n"])
def test_a_string_is_a_string_to_every_parser(text: str, value: str) -> None:
    held = documents(text)[1]
    if isinstance(held, list):
        edits = {"0": value, "-": value}
    elif isinstance(held["a"], dict):
        edits = {"a.b": value, f"a.{value}" if value and "." not in value else "a.c": value}
    elif isinstance(held["a"], list):
        edits = {"a.0": value, "a.-": value}
    else:
        edits = {"a": value, "b": value}
    if any("".join(key.split(".")[-1:]).isdigit() for key in edits if key not in {"0", "a.0"}):
        edits = {key: item for key, item in edits.items() if key in {"a", "b", "a.b", "0", "-"}}
    after = text_after(text, edits)
    # PyYAML reads YAML 1.1 as it was made, the reader of the review as the Kubernetes clients do.
    assert yaml.safe_load(after) == documents(after)[1]
    strings = [one for one in _leaves(documents(after)[1]) if one != "x"]
    assert strings
    assert all(one == value for one in strings)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, list) else [value]


SHARED = "a: &r\n  x: 1\nb: *r # c\nc: {z: *r}\nd:\n  - *r\n"


def test_what_all_places_want_is_written_once_where_it_is_defined() -> None:
    both = {"x": 1, "k": 2}
    after = text_after(SHARED, {"a": both, "b": both, "c.z": both, "d.0": both})
    assert after == SHARED.replace("  x: 1\n", "  x: 1\n  k: 2\n")


def test_a_place_that_shares_its_text_gets_its_own_where_it_alone_changes() -> None:
    after = text_after(SHARED, {"b": {"x": 1, "k": 2}, "c.z": {"x": 1, "k": 2}, "d.0": {"x": 1, "k": 2}})
    assert after == "a: &r\n  x: 1\nb: # c\n  x: 1\n  k: 2\nc: {z: {x: 1, k: 2}}\nd:\n  - x: 1\n    k: 2\n"


def test_places_that_share_a_text_keep_what_they_say_where_its_definition_changes() -> None:
    after = text_after(SHARED, {"a": {"x": 1, "k": 2}})
    assert documents(after)[1]["b"] == {"x": 1}
    assert after == "a: &r\n  x: 1\n  k: 2\nb: # c\n  x: 1\nc: {z: {x: 1}}\nd:\n  - x: 1\n"


@pytest.mark.parametrize(
    ("edits", "after"),
    [
        ({"b.k": {"q": 2}}, "a: &r\n  x: 1\n  k: {q: 1}\nb:\n  <<: *r\n  z: 1\n  k:\n    q: 2\n"),
        ({"a.m": 1, "b.m": 1}, "a: &r\n  x: 1\n  k: {q: 1}\n  m: 1\nb:\n  <<: *r\n  z: 1\n"),
        ({"a.x": 2}, "a: &r\n  x: 2\n  k: {q: 1}\nb:\n  <<: *r\n  z: 1\n  x: 1\n"),
        ({"b.z": 2}, "a: &r\n  x: 1\n  k: {q: 1}\nb:\n  <<: *r\n  z: 2\n"),
    ],
)
def test_what_is_merged_in_is_overridden_beside_the_merge_key(edits: dict[str, Any], after: str) -> None:
    before = "a: &r\n  x: 1\n  k: {q: 1}\nb:\n  <<: *r\n  z: 1\n"
    assert text_after(before, edits) == after
    assert yaml.safe_load(after) == documents(after)[1]


@pytest.mark.parametrize(
    ("before", "edits", "line", "said"),
    [
        ("a: &r\n  x: 1\nb:\n  <<: *r\n  z: 1\n", {"a.m": 1}, 4, "b.m: comes from a merge key"),
        ("a: &r\n  x: 1\nb:\n  <<: *r\n  z: 1\n", {"b.x": GONE}, 4, "b.x: comes from a merge key"),
        ("a: [b: 1]\n", {"a.0.c": 1}, 1, "a[0]: has no brackets"),
        ("b: 1\n", {"b": GONE, "c": 2}, 1, "cannot be replaced as a whole"),
        ("? [a, b]\n: 1\n", {"c": 1}, 1, "has a key that is not a scalar"),
        ("x: &k a\n*k : 1\n", {"c": 1}, 2, "has an alias as a key"),
    ],
)
def test_what_cannot_be_written_leaves_the_text_alone_and_says_where(
    before: str, edits: dict[str, Any], line: int, said: str
) -> None:
    result = written(before, edits)
    assert result.text == before
    assert result.failures[1].line == line
    assert said in result.failures[1].problem


def test_a_document_that_cannot_be_written_does_not_keep_the_others_from_it() -> None:
    text = "a: [b: 1]\n---\na: 1\n"
    held = documents(text)
    result = rewrite(text, held, {1: {"a": [{"b": 2, "c": 1}]}, 2: {"a": 2}})
    assert list(result.failures) == [1]
    assert result.text == "a: [b: 1]\n---\na: 2\n"


def test_what_reads_back_as_something_else_is_not_written() -> None:
    # A document that does not hold what the caller believes: no edit of it can be right.
    result = rewrite("a: 1\nb: 2\n", {1: {"a": 1, "b": 3}}, {1: {"a": 2, "b": 3}})
    assert result.text == "a: 1\nb: 2\n"
    assert "does not read back" in result.failures[1].problem


def test_two_changes_of_the_same_characters_are_an_error() -> None:
    with pytest.raises(OverlapError):
        spliced("abcd", [Splice(0, 3, ""), Splice(2, 4, "")])


def test_insertions_at_one_place_keep_their_order() -> None:
    assert spliced("ab", [Splice(1, 1, "1"), Splice(1, 1, "2"), Splice(1, 2, "")]) == "a12"
