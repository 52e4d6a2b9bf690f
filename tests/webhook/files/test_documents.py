"""Reading manifests: every shape that people put into files, and every way in which a file can be broken."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.webhook.files import documents
from gpugate.webhook.files.documents import Document, UnreadableInput, files_of, read_all


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write_one(content: str | bytes, name: str = "manifest.yaml") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write_one


def values(file: str) -> list[Any]:
    """What the documents of a file hold, all of them readable."""
    found = list(read_all([file]))
    assert all(isinstance(one, Document) for one in found), found
    return [one.value for one in found if isinstance(one, Document)]


def problem(file: str) -> str:
    """What is wrong with a file of which nothing can be read."""
    (only,) = read_all([file])
    assert isinstance(only, UnreadableInput), only
    assert only.file == file
    assert "\n" not in only.problem
    return only.problem


def test_documents_are_numbered_from_one(write: Any) -> None:
    found = list(read_all([write("a: 1\n---\nb: 2\n---\nc: 3\n")]))
    assert [(one.number, one.value) for one in found if isinstance(one, Document)] == [(1, {"a": 1}), (2, {"b": 2}), (3, {"c": 3})]


def test_empty_documents_are_left_out_and_still_counted(write: Any) -> None:
    found = list(read_all([write("---\n# nothing\n---\na: 1\n---\n---\nb: 2\n...\n")]))
    assert [(one.number, one.value) for one in found if isinstance(one, Document)] == [(2, {"a": 1}), (4, {"b": 2})]


@pytest.mark.parametrize("content", ["", "\n\n", "# only a comment\n", "---\n", "---\n---\n", "null\n", "\ufeff"])
def test_a_file_without_content_has_no_documents(write: Any, content: str) -> None:
    assert list(read_all([write(content)])) == []


@pytest.mark.parametrize(
    "content", ['{"a": [1, 2.5, "x", null, true]}', '  \n{"a": [1, 2.5, "x", null, true]}\n', '\ufeff{"a":[1,2.5,"x",null,true]}']
)
def test_json_is_read(write: Any, content: str) -> None:
    assert values(write(content, "manifest.json")) == [{"a": [1, 2.5, "x", None, True]}]


@pytest.mark.parametrize("content", ['{"a": 1}\n{"b": 2}\n', '{"a": 1}{"b": 2}', ' {"a":1}\r\n\r\n{"b":2} '])
def test_json_documents_one_after_the_other_are_read(write: Any, content: str) -> None:
    found = list(read_all([write(content, "stream.json")]))
    assert [(one.number, one.value) for one in found if isinstance(one, Document)] == [(1, {"a": 1}), (2, {"b": 2})]


def test_flow_style_yaml_is_no_broken_json(write: Any) -> None:
    assert values(write("{a: 1, b: [p, q]}\n---\n{c: 2}\n")) == [{"a": 1, "b": ["p", "q"]}, {"c": 2}]


def test_broken_json_gives_line_and_column(write: Any) -> None:
    assert problem(write('{"a": 1,\n "b" 2, c}}\n', "broken.json")).startswith("line 2, column ")


def test_a_list_is_taken_apart_and_so_are_lists_in_lists(write: Any) -> None:
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}} for name in "abc"]
    inner = {"apiVersion": "v1", "kind": "List", "items": pods[1:]}
    outer = {"apiVersion": "v1", "kind": "List", "items": [pods[0], inner, {"kind": "List", "items": []}]}
    file = write(orjson.dumps(outer), "list.json")
    assert [(one.number, one.value) for one in read_all([file]) if isinstance(one, Document)] == [(1, one) for one in pods]


def test_the_elements_of_a_typed_list_get_the_kind_that_the_list_states(write: Any) -> None:
    content = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- {kind: Pod, apiVersion: v2, metadata: {name: b}}\n"
    assert values(write(content)) == [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
        {"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "b"}},
    ]


@pytest.mark.parametrize("content", ["kind: PodList\nitems: {}\n", "kind: List\n", "kind: [List]\nitems: []\n", "items: [a]\n"])
def test_what_only_looks_like_a_list_stays_one_document(write: Any, content: str) -> None:
    assert len(values(write(content))) == 1


def test_the_elements_of_a_list_may_be_anything(write: Any) -> None:
    assert values(write("kind: List\nitems: [1, null, [x], {a: b}]\n")) == [1, None, ["x"], {"a": "b"}]


def test_standard_input_is_read_once_and_called_by_its_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a: 1\n---\nb: 2\n")))
    assert [(one.file, one.number) for one in read_all(["-", "-"])] == [("-", 1), ("-", 2)]


def test_a_standard_input_that_is_closed_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert list(read_all(["-"])) == []


def test_a_directory_gives_its_manifests_sorted_and_without_hidden_ones(write: Any, tmp_path: Path) -> None:
    for name in (
        "b.yaml",
        "a.yml",
        "sub/c.json",
        "sub/.hidden.yaml",
        ".git/d.yaml",
        "notes.txt",
        "kustomization",
        "A.yaml",
        "z.YAML",
    ):
        write("a: 1\n", name)
    found = [str(Path(one).relative_to(tmp_path)) for one in files_of([str(tmp_path)]) if isinstance(one, str)]
    assert found == ["A.yaml", "a.yml", "b.yaml", "sub/c.json"]


def test_a_directory_that_is_itself_hidden_is_read_when_it_is_named(write: Any, tmp_path: Path) -> None:
    file = write("a: 1\n", ".hidden/a.yaml")
    assert list(files_of([str(tmp_path / ".hidden")])) == [file]


def test_a_directory_without_manifests_is_a_problem(tmp_path: Path) -> None:
    (only,) = files_of([str(tmp_path)])
    assert isinstance(only, UnreadableInput)
    assert ".yaml" in only.problem


def test_the_same_file_named_twice_is_read_twice(write: Any) -> None:
    file = write("a: 1\n")
    assert [one.file for one in read_all([file, file])] == [file, file]


@pytest.mark.parametrize("name", ["nowhere.yaml", "nowhere/x.yaml", "a\0b.yaml", "x" * 5000, ""])
def test_a_path_that_leads_nowhere_is_a_problem_and_the_others_are_read(write: Any, name: str, tmp_path: Path) -> None:
    if not name:
        name = str(tmp_path / "manifest.yaml" / "below")
    file = write("a: 1\n")
    first, second = read_all([name, file])
    assert isinstance(first, UnreadableInput)
    assert (first.file, first.number) == (name, 0)
    assert isinstance(second, Document)


def test_links_that_lead_in_circles_end(write: Any, tmp_path: Path) -> None:
    file = write("a: 1\n", "real.yaml")
    (tmp_path / "round").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "self.yaml").symlink_to(tmp_path / "self.yaml")
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "gone")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "real.yaml")
    assert list(files_of([str(tmp_path)])) == [str(tmp_path / "link.yaml"), file]
    (only,) = read_all([str(tmp_path / "self.yaml")])
    assert isinstance(only, UnreadableInput)


def test_a_fifo_is_read_when_it_is_named_and_left_out_of_a_directory(write: Any, tmp_path: Path) -> None:
    file, fifo = write("a: 1\n"), tmp_path / "pipe.yaml"
    os.mkfifo(fifo)
    assert list(files_of([str(tmp_path)])) == [file]
    writer = threading.Thread(target=fifo.write_text, args=("b: 2\n",))
    writer.start()
    assert values(str(fifo)) == [{"b": 2}]
    writer.join()


def test_a_directory_in_place_of_a_file_inside_read_is_a_problem(tmp_path: Path) -> None:
    assert "cannot be read" in documents.load(str(tmp_path)).problem


def test_a_file_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LARGEST", 1 << 20)
    assert problem("/dev/zero") == "is larger than 1 MiB"


def test_a_file_of_exactly_the_largest_size_is_read(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "a: 1\n"
    monkeypatch.setattr(documents, "_LARGEST", len(content))
    assert values(write(content)) == [{"a": 1}]
    monkeypatch.setattr(documents, "_LARGEST", len(content) - 1)
    assert "larger" in problem(write(content))


@pytest.mark.parametrize("content", [b"\xff\xfea\x00", b"a: \xe4\n", b"\x80"])
def test_what_is_not_utf_8_is_a_problem(write: Any, content: bytes) -> None:
    assert "UTF-8" in problem(write(content))


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(write: Any) -> None:
    assert values(write("\ufeffa: 1\r\n---\r\nb: |\r\n  x\r\n  y\r\n")) == [{"a": 1}, {"b": "x\ny\n"}]


BROKEN = {
    "a: b: c\n": "line 1, column 5: ",
    "a: 1\n\tb: 2\n": "line 2, column 1: ",
    "a: 1\nb: [1, 2\nc: 3\n": "line 3, column ",
    "a: 'x\n": "line 2, column 1: ",
    "a: 1\na: 2\n": 'line 2, column 1: found duplicate key "a"',
    "a: *nobody\n": "line 1, column 4: found undefined alias",
    "a: !Ref x\n": "line 1, column 4: ",
    "a: !!python/object/apply:os.system [id]\n": "line 1, column 4: ",
    "a: !!bool maybe\n": "line 1, column 4: 'maybe' is not a bool",
    "a: !!int ''\n": "line 1, column 4: '' is not a int",
    "a: !!float ''\n": "line 1, column 4: '' is not a float",
    "? [1, 2]\n: x\n? {a: b}\n: y\n": "line 3, column 3: found unhashable key",
    "%YAML 3.0\n---\na: 1\n": "line 1, column 1: ",
    "ok: 1\n---\nx: \x01\n": "line 3, column 4: the character U+0001 is not allowed",
    "a: " + "[" * 900 + "]" * 900 + "\n": "is nested deeper than 256 levels",
    "a: " + "[" * 300 + "]" * 300 + "\n": "is nested ",
    "a: " + "9" * 400 + "\n": "contains an integer of 1329 bits",
    "a: " + "9" * 5000 + "\n": "line 1, column 4: ",
    "&a [*a, *a, *a]\n": "is nested deeper than 256 levels",
    "&a {b: *a}\n": "is nested deeper than 256 levels",
}


@pytest.mark.parametrize("content", BROKEN, ids=lambda content: repr(content[:30]))
def test_broken_yaml_says_where(write: Any, content: str) -> None:
    assert problem(write(content)).startswith(BROKEN[content])


def test_the_documents_before_a_broken_one_are_read_and_the_other_files_too(write: Any) -> None:
    broken, whole = write("a: 1\n---\nb: 2\n---\nc: d: e\n---\nf: 3\n"), write("g: 4\n", "other.yaml")
    found = list(read_all([broken, whole]))
    assert [one.value for one in found if isinstance(one, Document)] == [{"a": 1}, {"b": 2}, {"g": 4}]
    (bad,) = [one for one in found if isinstance(one, UnreadableInput)]
    assert (bad.file, bad.number) == (broken, 3)
    assert bad.problem.startswith("line 5, column 5: ")


def test_a_billion_laughs_end_soon(write: Any) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "aliases" in problem(write("\n".join(lines)))


def test_aliases_become_values_of_their_own(write: Any) -> None:
    (value,) = values(write("base: &b {x: [1]}\ncopy: *b\nmerged: {<<: *b, z: 2}\noverridden: {<<: *b, x: 3}\n"))
    assert value == {"base": {"x": [1]}, "copy": {"x": [1]}, "merged": {"x": [1], "z": 2}, "overridden": {"x": 3}}
    value["copy"]["x"].append(2)
    assert value["base"] == {"x": [1]}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *[(word, True) for word in ("y", "Y", "yes", "on", "On", "true", "TRUE")],
        *[(word, False) for word in ("n", "N", "no", "off", "Off", "false")],
        *[(word, None) for word in ("~", "null", "Null", "")],
        *[(word, word) for word in ("2026-01-01", "2026-01-01T10:00:00Z", "2026-13-45", "1.2.3", "1Gi", "500m", "'yes'", '"on"')],
        ("0o17", "0o17"),
        ("017", 15),
        ("0x1F", 31),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("!!str 1", "1"),
        ("!!str yes", "yes"),
        ("!!binary aGVsbG8=", "hello"),
        ("!!set {a}", ["a"]),
        (str(2**64 - 1), 2**64 - 1),
        (str(2**64), float(2**64)),
        (str(-(2**63) - 1), float(-(2**63) - 1)),
        (r'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        (r'"\ud800x"', "\N{REPLACEMENT CHARACTER}x"),
        ("\N{GRINNING FACE}\N{LATIN SMALL LETTER E WITH ACUTE}", "\N{GRINNING FACE}\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ],
)
def test_scalars_are_read_as_the_kubernetes_clients_read_them(write: Any, written: str, meant: Any) -> None:
    (value,) = values(write(f"a: {written}\n"))
    wanted = meant.strip("'\"") if isinstance(meant, str) else meant
    assert value["a"] == wanted
    assert type(value["a"]) is type(wanted)
    orjson.dumps(value)


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("1", "1"),
        ("yes", "true"),
        ("null", "null"),
        ("1.5", "1.5"),
        ("2026-01-01", "2026-01-01"),
        (str(2**70), "1.1805916207174113e+21"),
    ],
)
def test_keys_are_strings(write: Any, written: str, key: str) -> None:
    assert values(write(f"{written}: x\n")) == [{key: "x"}]


def test_json_beyond_the_deepest_is_a_problem_and_just_within_it_is_read(write: Any) -> None:
    def nested(levels: int) -> str:
        return '{"a":' * levels + "1" + "}" * levels

    assert problem(write(nested(258), "deep.json")) == "is nested deeper than 256 levels"
    assert len(values(write(nested(256), "deep.json"))) == 1
    assert "nested" in problem(write(nested(100_000), "deeper.json"))


def test_lists_in_lists_without_end_are_a_problem(write: Any) -> None:
    levels = 400
    assert "nested" in problem(write('{"kind":"List","items":[' * levels + "1" + "]}" * levels, "lists.json"))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(st.binary(max_size=60), st.text(alphabet="ab:-?[]{}&*!|>'\"%@`#,\n \t<~0_x.eyn\\", max_size=40).map(str.encode)))
def test_any_file_gives_documents_or_one_problem_at_the_end(content: bytes) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(documents, "_bytes", lambda _: content)
        found = list(read_all(["-"]))
    for one in found[:-1]:
        assert isinstance(one, Document)
    for one in found:
        if isinstance(one, Document):
            orjson.dumps(one.value)
        else:
            assert one.problem
            assert "\n" not in one.problem
