"""The specs that the models and the apiserver must agree on: what the models say. The end-to-end tests ask the apiserver."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gpugate.policies.kube.taints import _PREFIXES, _SUFFIXES, _WORDS, _WORDS_PATTERN, is_transient_taint
from gpugate.policies.policy.models import API_VERSION, KIND, PolicyError, parse_policy

CASES: dict[str, Any] = YAML(typ="safe").load(Path(__file__).with_name("gpupolicy_cases.yaml").read_text(encoding="utf-8"))


def _object(spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize("name", CASES["good"])
def test_a_good_policy_parses(name: str) -> None:
    assert parse_policy(_object(CASES["good"][name])).name == "p"


@pytest.mark.parametrize("name", CASES["bad"])
def test_a_bad_policy_is_refused_with_its_field(name: str) -> None:
    spec, says = CASES["bad"][name]
    with pytest.raises(PolicyError, match=re.escape(says)) as caught:
        parse_policy(_object(spec))
    assert "spec." in str(caught.value)


_WORD = st.sampled_from(sorted(_WORDS)).flatmap(lambda word: st.sampled_from([word, word.title(), word.upper(), word[:-1]]))
_PIECES = st.lists(st.one_of(_WORD, st.sampled_from(["a", "B", "-", "/", ".", "1", "ing", "Ed"])), max_size=6)


@settings(deadline=None)
@given(_PIECES.map("".join))
def test_the_apiserver_knows_a_taint_of_maintenance_by_the_same_words(text: str) -> None:
    if not text.startswith(_PREFIXES) and not text.endswith(_SUFFIXES):
        assert bool(re.search(_WORDS_PATTERN, text)) is is_transient_taint(text, "")
