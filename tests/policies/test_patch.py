"""Edits are applied in place, and the patch that they make gives the same object."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.kube.fields import MalformedError, clone, from_pointer, lookup, pointer
from gpugate.policies.patch import Edit, PatchBuilder


def test_nested_adds_become_one_operation() -> None:
    draft = PatchBuilder({"metadata": {}})
    draft.apply(Edit("set", ("metadata", "labels", "a"), "1"))
    draft.apply(Edit("set", ("metadata", "labels", "b"), "2"))
    assert draft.ops == [{"op": "add", "path": "/metadata/labels", "value": {"a": "1", "b": "2"}}]


def test_elements_of_a_list_that_was_absent_become_one_operation() -> None:
    draft = PatchBuilder({"spec": {}})
    draft.apply(Edit("append", ("spec", "tolerations"), {"key": "a"}))
    draft.apply(Edit("append", ("spec", "tolerations"), {"key": "b"}))
    draft.apply(Edit("set", ("spec", "tolerations", 1, "effect"), "NoSchedule"))
    assert draft.ops == [{"op": "add", "path": "/spec/tolerations", "value": [{"key": "a"}, {"key": "b", "effect": "NoSchedule"}]}]


def test_an_element_goes_to_the_end_of_a_list_that_is_there() -> None:
    draft = PatchBuilder({"list": [1]})
    draft.apply(Edit("append", ("list",), 2))
    assert draft.root == {"list": [1, 2]}
    assert draft.ops == [{"op": "add", "path": "/list/-", "value": 2}]


@pytest.mark.parametrize("op", ["set", "append"])
def test_null_on_the_way_is_replaced(op: Any) -> None:
    draft = PatchBuilder({"metadata": {"annotations": None}})
    draft.apply(Edit(op, ("metadata", "annotations", "a"), "1"))
    assert draft.ops[0]["op"] == "replace"
    assert draft.ops[0]["path"] == "/metadata/annotations"


def test_keys_with_slashes_and_tildes_are_escaped() -> None:
    draft = PatchBuilder({"limits": {}})
    draft.apply(Edit("set", ("limits", "nvidia.com/gpu~1"), 1))
    assert draft.ops == [{"op": "add", "path": "/limits/nvidia.com~1gpu~01", "value": 1}]


def test_what_is_as_wanted_makes_no_operation() -> None:
    draft = PatchBuilder({"a": {"b": "1"}, "list": ["x"]})
    assert not draft.apply(Edit("set", ("a", "b"), "1"))
    assert not draft.apply(Edit("set", ("list", 0), "x"))
    assert not draft.apply(Edit("remove", ("a", "absent")))
    assert not draft.apply(Edit("remove", ("no", "such", "way")))
    assert draft.ops == []


def test_a_number_is_not_the_text_that_looks_like_it_nor_a_boolean() -> None:
    draft = PatchBuilder({"a": 1})
    assert draft.apply(Edit("set", ("a",), "1"))
    assert PatchBuilder({"a": 1}).apply(Edit("set", ("a",), True))


def test_the_value_of_an_edit_is_never_edited_itself() -> None:
    value = {"list": [{"a": 1}]}
    draft = PatchBuilder({})
    draft.apply(Edit("set", ("x",), value))
    draft.apply(Edit("set", ("x", "list", 0, "a"), 2))
    assert value == {"list": [{"a": 1}]}


def test_what_was_added_in_this_review_is_removed_without_an_operation_of_its_own() -> None:
    draft = PatchBuilder({})
    draft.apply(Edit("set", ("x",), {"a": 1, "b": 2}))
    draft.apply(Edit("remove", ("x", "a")))
    assert draft.ops == [{"op": "add", "path": "/x", "value": {"b": 2}}]


@pytest.mark.parametrize(
    ("edit", "place"),
    [
        (Edit("set", ("text", "a"), 1), ("text",)),
        (Edit("append", ("text",), 1), ("text",)),
        (Edit("append", ("text", "a"), 1), ("text",)),
        (Edit("set", ("list", 5, "a"), 1), ("list", 5)),
        (Edit("set", ("list", 5), 1), ("list", 5)),
        (Edit("set", ("list", "key"), 1), ("list", "key")),
    ],
)
def test_a_way_that_leads_through_something_else_is_malformed_at_that_place(edit: Edit, place: tuple[str | int, ...]) -> None:
    draft = PatchBuilder({"text": "x", "list": [1]})
    with pytest.raises(MalformedError) as caught:
        draft.apply(edit)
    assert caught.value.path == place
    assert draft.ops == []
    assert draft.root == {"text": "x", "list": [1]}


@given(st.lists(st.one_of(st.text(), st.integers(0, 99)), max_size=5))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_pointer_leads_back_to_its_path(path: list[str | int]) -> None:
    # A key that looks like an index reads as one: JSON Pointer does not tell them apart.
    wanted = tuple(
        int(part) if isinstance(part, str) and part.isascii() and part.isdigit() and len(part) < 10 else part for part in path
    )
    assert from_pointer(pointer(tuple(path))) == wanted


_keys = st.sampled_from(["a", "b", "nvidia.com/gpu", "x~y", "0"])
_values = st.recursive(
    st.one_of(st.none(), st.integers(0, 3), st.text(max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_keys, inner, max_size=3)),
    max_leaves=6,
)
_edits = st.lists(
    st.builds(
        Edit,
        st.sampled_from(["set", "append", "remove"]),
        st.lists(st.one_of(_keys, st.integers(0, 2)), min_size=1, max_size=4).map(tuple),
        _values,
    ),
    max_size=8,
)


def _indexes_lists_alone(root: Any, path: tuple[str | int, ...]) -> bool:
    """Whether every index in ``path`` meets a list, as in the paths that the lens makes."""
    return all(isinstance(lookup(root, path[:depth]), list) for depth, part in enumerate(path) if isinstance(part, int))


@given(st.dictionaries(_keys, _values, max_size=4), _edits)
@settings(max_examples=600, deadline=None, derandomize=True)
def test_the_patch_gives_the_edited_object(root: dict[str, Any], edits: list[Edit]) -> None:
    before = clone(root)
    draft = PatchBuilder(root)
    for edit in edits:
        if not _indexes_lists_alone(root, edit.path):
            continue
        try:
            draft.apply(edit)
        except MalformedError:
            continue
    assert jsonpatch.apply_patch(before, draft.ops) == root


_SUBMITTED: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}, "annotations": None},
    "spec": {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "a"}],
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "env": [{"name": "A"}], "resources": {"limits": {"cpu": "4"}}}],
        "volumes": [],
        "affinity": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": []}, {}]}}},
    },
}
_MAIN = ("spec", "containers", 0)


@pytest.mark.parametrize(
    ("edit", "drifts"),
    [
        (Edit("set", ("metadata", "labels", "new"), "1"), False),
        (Edit("set", ("metadata", "labels", "app"), "y"), True),
        (Edit("set", ("metadata", "labels", "app"), "x"), False),
        (Edit("set", ("metadata", "annotations", "new"), "1"), False),
        (Edit("set", (*_MAIN, "resources", "limits", "memory"), "8Gi"), False),
        (Edit("set", (*_MAIN, "resources", "requests", "cpu"), "4"), False),
        (Edit("set", (*_MAIN, "resources", "limits", "cpu"), "8"), True),
        (Edit("remove", (*_MAIN, "resources", "limits", "cpu")), True),
        (Edit("append", (*_MAIN, "env"), {"name": "B"}), False),
        (Edit("append", (*_MAIN, "volumeMounts"), {"name": "v"}), False),
        (Edit("append", ("spec", "volumes"), {"name": "v"}), False),
        (Edit("append", ("spec", "tolerations"), {"key": "b"}), True),
        (Edit("append", ("spec", "topologySpreadConstraints"), {"topologyKey": "k"}), False),
        (Edit("set", ("spec", "nodeSelector", "gpu"), "h100"), True),
        (Edit("set", ("spec", "runtimeClassName"), "nvidia"), False),
        (Edit("set", ("spec", "schedulerName"), "volcano"), True),
        (Edit("set", ("spec", "schedulerName"), "volcano", defaulted=True), False),
        (Edit("append", ("spec", "affinity", "nodeAffinity", "required", "nodeSelectorTerms", 1, "matchExpressions"), {}), True),
    ],
    ids=lambda value: f"{value.op} {'.'.join(map(str, value.path))}" if isinstance(value, Edit) else str(value),
)
def test_an_edit_knows_whether_a_gitops_tool_would_show_it_as_drift(edit: Edit, drifts: bool) -> None:
    assert PatchBuilder(clone(_SUBMITTED)).drifts(edit) is drifts


def test_what_this_review_added_is_nobodys_statement() -> None:
    draft = PatchBuilder({"spec": {}})
    draft.apply(Edit("append", ("spec", "tolerations"), {"key": "a"}))
    draft.apply(Edit("set", ("spec", "nodeSelector", "a"), "1"))
    assert not draft.drifts(Edit("append", ("spec", "tolerations"), {"key": "b"}))
    assert not draft.drifts(Edit("set", ("spec", "nodeSelector", "b"), "1"))
    assert not draft.drifts(Edit("set", ("spec", "nodeSelector", "a"), "2"))
