"""Whatever style a manifest is written in: what is written back is what was meant, and all else stays byte for byte."""

from __future__ import annotations

import difflib
import json
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.findings import Mode
from gpugate.policies.kube.fields import clone
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import default_policy
from gpugate.webhook.files.documents import Document, FileText, expand_lists, parse
from gpugate.webhook.files.rewrite.rewrite import rewrite
from gpugate.webhook.review.fix import Opened, fix
from tests.shared.rewriting import documents
from tests.shared.yaml_styles import texts

_NAMES = st.sampled_from(["a", "limits", "nvidia.com/gpu", "on", "1", "x y", "true"])
_LEAVES = st.one_of(
    st.integers(-5, 300),
    st.booleans(),
    st.none(),
    st.sampled_from(["", "64Gi", "on", "1e3", "0755", "a/b", "it is, {so}", "1:20", "#x"]),
)
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3), max_leaves=8
)
_MAPS = st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=4)


@st.composite
def _edited(draw: st.DrawFn, value: Any, depth: int = 0) -> Any:
    """``value`` with the kinds of changes that rules make, at random places."""
    if isinstance(value, dict):
        made = {key: draw(_edited(item, depth + 1)) for key, item in value.items()}
        if depth and len(made) > 1 and draw(st.integers(0, 9)) == 0:
            del made[draw(st.sampled_from(sorted(made)))]
        if draw(st.integers(0, 3)) == 0:
            made[draw(st.sampled_from(["new", "memory", "off", "k/l"]))] = draw(_VALUES)
        return made
    if isinstance(value, list):
        made_items = [draw(_edited(item, depth + 1)) for item in value]
        return [*made_items, draw(_VALUES)] if draw(st.integers(0, 3)) == 0 else made_items
    return draw(_LEAVES) if draw(st.integers(0, 7)) == 0 else value


_TEXTS = texts(st.lists(_MAPS, min_size=1, max_size=3))


@settings(max_examples=80, deadline=None)
@given(_TEXTS)
def test_the_generated_texts_hold_what_they_should(made: tuple[str, list[Any]]) -> None:
    text, values = made
    assert list(documents(text).values()) == values


@settings(max_examples=80, deadline=None)
@given(_TEXTS)
def test_a_text_in_which_nothing_changes_stays_as_it_is(made: tuple[str, list[Any]]) -> None:
    text, _ = made
    held = documents(text)
    assert rewrite(text, held, clone(held)) == (text, {})


@settings(max_examples=250, deadline=None)
@given(_TEXTS, st.data())
def test_every_change_reads_back_and_is_written_in_any_style(made: tuple[str, list[Any]], data: st.DataObject) -> None:
    text, _ = made
    held = documents(text)
    number = data.draw(st.sampled_from(sorted(held)))
    wanted = data.draw(_edited(held[number]))
    result = rewrite(text, held, {number: wanted})
    assert result.failures == {}
    assert documents(result.text) == {**held, number: wanted}
    # What stands in other documents is not touched, nor the line breaks.
    assert ("\r\n" in result.text) == ("\r\n" in text) or "\n" not in text
    assert rewrite(result.text, documents(result.text), {number: wanted}).text == result.text


@settings(max_examples=80, deadline=None)
@given(_MAPS, st.data(), st.sampled_from([None, 2, 4]))
def test_json_is_written_back_as_json(value: dict[str, Any], data: st.DataObject, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    wanted = data.draw(_edited(value))
    result = rewrite(text, {1: value}, {1: wanted})
    assert result.failures == {}
    assert orjson.loads(result.text) == wanted


_AMOUNTS = st.fixed_dictionaries(
    {},
    optional={"nvidia.com/gpu": st.sampled_from([1, 2, "4", 8]), "memory": st.sampled_from(["64Gi", "96Gi"]), "cpu": st.just("8")},
)
_CONTAINERS = st.builds(
    lambda name, limits, requests, more: {
        "name": name,
        "image": "registry.example/train:1",
        "resources": {"limits": {"nvidia.com/gpu": 1, **limits}, **({"requests": requests} if requests else {})},
        **more,
    },
    st.sampled_from(["main", "side-car"]),
    _AMOUNTS,
    _AMOUNTS,
    st.fixed_dictionaries(
        {},
        optional={
            "env": st.just([{"name": "NCCL_DEBUG", "value": "1"}]),
            "volumeMounts": st.sampled_from([[], [{"name": "data", "mountPath": "/data"}], None]),
        },
    ),
)
_SPECS = st.builds(
    lambda container, more: {"containers": [container], **more},
    _CONTAINERS,
    st.fixed_dictionaries(
        {},
        optional={
            "tolerations": st.sampled_from([[], None, [{"key": "spot", "operator": "Exists"}]]),
            "volumes": st.sampled_from([[], None, [{"name": "data", "emptyDir": {}}]]),
            "nodeSelector": st.sampled_from([{}, {"a": "b"}]),
        },
    ),
)
_METADATA = st.fixed_dictionaries(
    {"name": st.just("w")},
    optional={"labels": st.sampled_from([{}, None, {"app": "w"}]), "annotations": st.sampled_from([{}, None])},
)
_WORKLOADS = st.one_of(
    st.builds(lambda meta, spec: {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, _METADATA, _SPECS),
    st.builds(
        lambda meta, spec: {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": spec}}},
        _METADATA,
        _SPECS,
    ),
)
_POLICIES = PolicySet([default_policy(Mode.ENFORCE)])


@settings(max_examples=80, deadline=None)
@given(texts(st.lists(_WORKLOADS, min_size=1, max_size=2)))
def test_a_workload_in_any_style_is_fixed_and_then_left_alone(made: tuple[str, list[Any]]) -> None:
    text, _ = made

    def fixed(now: str) -> Any:
        wholes = [one for one in parse("-", now) if isinstance(one, Document)]
        return next(iter(fix([Opened(FileText("-", now.encode(), now), wholes)], _POLICIES, EMPTY_SNAPSHOT)))

    first = fixed(text)
    assert first.unwritten == 0
    assert fixed(first.after).after == first.after
    wanted = [entry.after for entry in first.entries]
    assert [one.value for one in expand_lists(parse("-", first.after)) if isinstance(one, Document)] == wanted


@settings(max_examples=80, deadline=None)
@given(texts(st.lists(_WORKLOADS, min_size=2, max_size=3)), st.data())
def test_only_the_document_that_changes_has_other_lines(made: tuple[str, list[Any]], data: st.DataObject) -> None:
    text, _ = made
    held = documents(text)
    number = data.draw(st.sampled_from(sorted(held)))
    wanted = clone(held[number])
    wanted["metadata"]["finalizers"] = ["gpugate.io/mark"]
    after = rewrite(text, held, {number: wanted}).text
    changed = [line for line in difflib.ndiff(text.splitlines(), after.splitlines()) if line[:2] in {"- ", "+ "}]
    gone = [line for line in changed if line.startswith("- ")]
    # A map in brackets is one line; below a key nothing but lines is added.
    assert len(gone) <= 1
    assert len(changed) <= 3
