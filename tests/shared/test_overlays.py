"""What an overlay of a golden case makes of its base, and what a case may state."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gpugate.policies.kube.fields import clone
from tests.shared.cases import SHARED_BASES, expanded
from tests.shared.overlays import overlaid
from tests.shared.paths import ROOT
from tests.shared.yaml_files import loaded, read

_POD: dict[str, Any] = {"kind": "Pod", "spec": {"containers": [{"name": "main", "image": "a:1"}], "tolerations": [{"key": "gpu"}]}}
_BASES = {"pod": _POD}


@pytest.mark.parametrize(
    ("overlay", "wanted"),
    [
        ({}, {}),
        ({"kind": "Job"}, {"kind": "Job"}),
        ({"metadata": {"name": "p"}}, {"metadata": {"name": "p"}}),
        ({"metadata": {"name": None}}, {"metadata": {"name": None}}),
        ({"spec": {"tolerations": None}}, {"spec": {"containers": _POD["spec"]["containers"]}}),
        ({"spec": {"tolerations": [{"key": "spot"}]}}, {"spec": {**_POD["spec"], "tolerations": [{"key": "spot"}]}}),
        ({"spec": 7}, {"spec": 7}),
    ],
)
def test_an_overlay_replaces_adds_and_removes_keys(overlay: dict[str, Any], wanted: dict[str, Any]) -> None:
    before = clone(_POD)
    assert overlaid(_POD, overlay) == {**_POD, **wanted}
    assert before == _POD


def test_lists_of_maps_with_names_are_merged_by_name_and_what_is_new_comes_last() -> None:
    base = [{"name": "a", "n": 1}, {"name": "b", "n": 2}]
    assert overlaid(base, [{"name": "c"}, {"name": "b", "n": None, "m": 3}]) == [
        {"name": "a", "n": 1},
        {"name": "b", "m": 3},
        {"name": "c"},
    ]


@pytest.mark.parametrize("overlay", [[], [{"name": "c"}, {"key": "d"}], [{"name": "a"}, {"name": "a"}], ["a"]])
def test_any_other_list_replaces_the_list(overlay: list[Any]) -> None:
    assert overlaid([{"name": "a", "n": 1}], overlay) == overlay


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ({"metadata": None}, "removes metadata, which"),
        ({"spec": {"containers": [{"name": "main", "env": None}]}}, r"removes spec\.containers\[main\]\.env, which"),
    ],
)
def test_what_is_not_there_cannot_be_removed(overlay: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        overlaid(_POD, overlay)


def test_what_was_merged_shares_nothing_with_base_or_overlay() -> None:
    overlay: dict[str, Any] = {"spec": {"volumes": [{"name": "v"}]}, "metadata": {"labels": {}}}
    merged = overlaid(_POD, overlay)
    merged["spec"]["containers"][0]["image"] = "b:2"
    merged["spec"]["volumes"][0]["name"] = merged["metadata"]["labels"]["x"] = "y"
    assert _POD["spec"]["containers"][0]["image"] == "a:1"
    assert overlay == {"spec": {"volumes": [{"name": "v"}]}, "metadata": {"labels": {}}}


def test_an_update_goes_from_the_base_to_its_overlay_and_changes_are_those_of_the_new_object() -> None:
    stated = {"with": {"kind": "Job"}, "update": {"spec": {"tolerations": None}}, "wanted": {"changes": {"kind": "CronJob"}}}
    case = expanded(stated, {"base": "pod", "params": {"on": True}}, _BASES)
    job = {**_POD, "kind": "Job"}
    new = {"kind": "Job", "spec": {"containers": _POD["spec"]["containers"]}}
    assert case == {"params": {"on": True}, "old": job, "given": new, "wanted": {"changed": {**new, "kind": "CronJob"}}}


def test_findings_alone_want_the_object_as_it_was_given() -> None:
    wanted = ["clean", [{"deny": "TooMany at spec.replicas", "message": "3 > 2"}], {"clean": True, "findings": [{"warn": "Idle"}]}]
    assert [expanded({"base": "pod", "wanted": one}, {}, _BASES)["wanted"] for one in wanted] == [
        {"clean": True},
        {"clean": True, "findings": [{"severity": "deny", "reason": "TooMany", "path": "spec.replicas", "message": "3 > 2"}]},
        {"clean": True, "findings": [{"severity": "warn", "reason": "Idle", "path": ""}]},
    ]


def test_operations_of_a_patch_are_named_by_what_they_do() -> None:
    patch = [{"add": "/a", "value": None}, {"remove": "/b"}]
    case = expanded({"base": "pod", "wanted": {"patch": patch}}, {}, _BASES)
    assert case["wanted"] == {"patch": [{"op": "add", "path": "/a", "value": None}, {"op": "remove", "path": "/b"}]}


@pytest.mark.parametrize(
    ("stated", "defaults"),
    [
        ({"base": "pod", "wanted": {"clean": True, "patch": []}}, {}),
        ({"base": "pod", "wanted": {"findings": [{"deny": "A at b"}]}}, {}),
        ({"base": "pod", "wanted": []}, {}),
        ({"base": "pod", "wanted": [{"deny": "A at b", "warn": "A at b"}]}, {}),
        ({"base": "pod", "wanted": [{"deny": "A at b", "has": "c"}]}, {}),
        ({"base": "pod", "wanted": {"patch": [{"add": "/a"}]}}, {}),
        ({"base": "pod", "wanted": {"patch": [{"remove": "/a", "value": 1}]}}, {}),
        ({"base": "pods", "wanted": "clean"}, {}),
        ({"base": "pod", "given": {}, "wanted": "clean"}, {}),
        ({"given": {}, "with": {}, "wanted": "clean"}, {}),
        ({"given": {}, "update": {}, "wanted": "clean"}, {}),
        ({"old": {}, "wanted": "clean"}, {}),
        ({"base": "pod", "parameters": {}, "wanted": "clean"}, {}),
        ({"wanted": "clean"}, {"base": "pod", "with": {}}),
        ({"wanted": "clean"}, {}),
    ],
)
def test_a_case_that_states_too_much_or_too_little_is_refused(stated: dict[str, Any], defaults: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        expanded(stated, defaults, _BASES)


def test_the_cases_of_the_readme_can_be_written_so() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "tests" / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    listed = loaded(block)
    defaults = listed.pop("defaults")
    contents = [expanded(stated, defaults, read(SHARED_BASES)) for stated in listed.values()]
    assert [len(content["wanted"].get("findings", [])) for content in contents] == [1, 1, 0]
    assert [content["given"]["kind"] for content in contents] == ["Job", "Job", "Pod"]
    assert [content.get("old", {}).get("spec", {}).get("parallelism") for content in contents] == [None, 30, None]
