"""The word that somebody meant: slips, words cut short, and what is another word."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.kube.suggest import _apart, _is_one_edit, _words, closest_match, distance

_WORDS = st.text("abc/._1", max_size=8)
_SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)


@_SETTINGS
@given(_WORDS, _WORDS)
def test_the_way_back_is_as_long(one: str, other: str) -> None:
    assert distance(one, other, 9) == distance(other, one, 9)


@_SETTINGS
@given(_WORDS, _WORDS)
def test_only_equal_words_are_not_apart(one: str, other: str) -> None:
    assert (distance(one, other, 9) == 0) == (one == other)


@_SETTINGS
@given(_WORDS, _WORDS)
def test_words_are_no_further_apart_than_the_longer_is_long(one: str, other: str) -> None:
    assert abs(len(one) - len(other)) <= distance(one, other, 9) <= max(len(one), len(other))


@_SETTINGS
@given(_WORDS, _WORDS, st.integers(0, 8))
def test_a_bound_changes_nothing_below_it(one: str, other: str, most: int) -> None:
    assert distance(one, other, most) == min(distance(one, other, 9), most + 1)


@_SETTINGS
@given(_WORDS, _WORDS)
def test_one_slip_at_most_is_what_is_no_further_apart(one: str, other: str) -> None:
    assert _is_one_edit(one, other) == (distance(one, other, 1) <= 1)
    assert _is_one_edit(one, one + other[:1])
    assert _is_one_edit(f"{one}ab", f"{one}ba")


@_SETTINGS
@given(st.text(string.ascii_lowercase, min_size=1, max_size=12), st.data())
def test_one_slip_is_one_apart(word: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(word) - 1))
    slips = {word[:at] + word[at + 1 :], word[:at] + "#" + word[at:], word[:at] + "#" + word[at + 1 :]}
    if at and word[at] != word[at - 1]:
        slips.add(word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :])
    assert {distance(word, slip, 3) for slip in slips} == {1}


@_SETTINGS
@given(st.lists(st.sampled_from(["nvidia.com/gpu.memory", "NCCL_IB_HCA", "NCCL_IB_TC", "zone"])), _WORDS)
def test_what_is_named_is_known_and_is_another_word(known: list[str], word: str) -> None:
    found = closest_match(word, known)
    assert found is None or (found in known and found != word)


_KNOWN = frozenset(
    {
        *("nvidia.com/gpu", "nvidia.com/gpu.memory", "nvidia.com/gpu.product", "nvidia.com/gpu.count", "kubernetes.io/hostname"),
        *("NCCL_IB_HCA", "NCCL_IB_SL", "NCCL_IB_TC", "NCCL_TOPO_FILE", "network-layer-1"),
    }
)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("nvidia.com/gpu.memroy", "nvidia.com/gpu.memory"),
        ("nvidia.com/gpu.mem", "nvidia.com/gpu.memory"),
        ("nvidia.com/GPU.Product", "nvidia.com/gpu.product"),
        ("nvidia.com/gpu_count", "nvidia.com/gpu.count"),
        ("nvida.com/gpu.count", "nvidia.com/gpu.count"),
        ("kubernetes.io/host", "kubernetes.io/hostname"),
        ("NCCL_TOPOLOGY_FILE", "NCCL_TOPO_FILE"),
        ("NCCL_TOPO_FIEL", "NCCL_TOPO_FILE"),
        ("NCCL_IB_HCAS", "NCCL_IB_HCA"),
    ],
)
def test_a_slip_is_told_for_what_is_meant(word: str, meant: str) -> None:
    assert closest_match(word, _KNOWN) == meant


@pytest.mark.parametrize(
    "word",
    [
        "nvidia.com/gpu.count",
        "nvidia.com/new",
        "example.com/gpu",
        "network-layer-2",
        "NCCL_IB_ZZ",
        "NCCL_TOPO_DUMP_FILE",
        "gp",
        "",
        "x" * 1000,
    ],
)
def test_a_word_that_is_known_or_another_one_is_told_for_none(word: str) -> None:
    assert closest_match(word, _KNOWN) is None


@_SETTINGS
@given(st.text("ab./-1", min_size=1, max_size=8), st.lists(st.text("ab./-1", max_size=8), max_size=6))
def test_the_words_that_are_compared_are_all_that_are_close(word: str, known: list[str]) -> None:
    near = set(_words(frozenset(known)).near(word))
    assert {one for one in known if _apart(word, one) is not None} <= near
