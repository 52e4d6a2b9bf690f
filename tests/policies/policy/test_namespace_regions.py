"""Regions of namespaces: each namespace in one of them, none closed that is not in the set, and few of them."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpugate.policies.policy.models import LabelSelector
from gpugate.policies.policy.namespace_regions import EVERYWHERE, NAME_LABEL, Clause, Division, NamespaceSelectors, Region

_KEYS = (NAME_LABEL, "team", "env", "gpu")
_VALUES = st.sampled_from(["a", "b", "c", ""])
_SOME = st.lists(_VALUES, min_size=1, max_size=3, unique=True)


def _expression(key: str) -> st.SearchStrategy[dict[str, Any]]:
    compared = st.builds(lambda operator, values: {"operator": operator, "values": values}, st.sampled_from(["In", "NotIn"]), _SOME)
    presence = st.sampled_from(["Exists", "DoesNotExist"]).map(lambda operator: {"operator": operator})
    return st.one_of(compared, presence).map(lambda stated: {"key": key, **stated})


_SELECTORS = st.builds(
    lambda labels, expressions: LabelSelector.model_validate({"matchLabels": labels, "matchExpressions": expressions}),
    st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=2),
    st.lists(st.sampled_from(_KEYS).flatmap(_expression), max_size=3),
)
#: What a namespace may have; every namespace has a name.
_LABELS = st.builds(
    lambda name, others: {NAME_LABEL: name, **others},
    st.sampled_from(["a", "b", "other"]),
    st.dictionaries(st.sampled_from(_KEYS[1:]), st.sampled_from(["a", "b", "c", "", "other"])),
)


@st.composite
def _sets(draw: st.DrawFn) -> tuple[list[LabelSelector], list[Clause]]:
    selectors = draw(st.lists(_SELECTORS, min_size=1, max_size=5))
    every = (1 << len(selectors)) - 1
    clause = st.builds(
        lambda at, others: Clause(at, others & ~(1 << at)), st.integers(0, len(selectors) - 1), st.integers(0, every)
    )
    return selectors, draw(st.lists(clause, max_size=4))


def _selector(**labels: str) -> LabelSelector:
    return LabelSelector(match_labels=labels)


def _region(division: Division, labels: dict[str, str]) -> Region:
    """The one region of a namespace with these labels."""
    (region,) = (region for region in division.regions if region.contains(labels))
    return region


@settings(max_examples=200, deadline=None)
@given(_sets(), st.lists(_LABELS, min_size=1, max_size=30), st.integers(1, 12))
@example(([_selector(team="a"), _selector(team="a", env="b")], [Clause(0, 0b10)]), [{NAME_LABEL: "a", "team": "a"}], 2)
def test_every_namespace_is_in_one_region_and_none_outside_the_set_is_in_one_inside(
    of: tuple[list[LabelSelector], list[Clause]], namespaces: list[dict[str, str]], most: int
) -> None:
    selectors, clauses = of
    of_labels = NamespaceSelectors(selectors)
    division = of_labels.divide(clauses, most)
    assert 1 <= len(division.regions) <= most
    for labels in namespaces:
        region = _region(division, labels)
        wanted = any(clause.holds(of_labels.selecting(labels)) for clause in clauses)
        assert wanted or not region.inside
        assert region.inside == wanted or not division.exact


@given(_sets())
def test_what_few_policies_select_is_expressed_exactly(of: tuple[list[LabelSelector], list[Clause]]) -> None:
    selectors, clauses = of
    assert NamespaceSelectors(selectors).divide(clauses, 1000).exact


@given(_SELECTORS)
def test_the_complement_of_one_selector_takes_a_region_for_each_label(selector: LabelSelector) -> None:
    # A label that a selector requires and whose values it excludes at once takes two.
    keys = {*selector.match_labels, *(expression.key for expression in selector.match_expressions)}
    division = NamespaceSelectors([selector]).divide([Clause(0)], 1 + 2 * len(keys))
    assert division.exact
    assert sum(region.inside for region in division.regions) <= 1


def test_the_values_of_one_label_are_two_regions_for_any_number_of_teams() -> None:
    teams = [_selector(team=f"team-{number:02}") for number in range(60)]
    division = NamespaceSelectors(teams).divide([Clause(at) for at in range(60)], 2)
    assert division.exact
    assert [region.inside for region in division.regions] == [True, False]


def test_a_set_without_a_clause_is_one_region_for_all_namespaces() -> None:
    assert NamespaceSelectors([_selector(team="a")]).divide([], 8) == Division((EVERYWHERE,), exact=True)
    assert NamespaceSelectors([_selector(team="a")]).divide([Clause(0, 1)], 8) == Division((EVERYWHERE,), exact=True)


def test_a_selector_of_everything_is_one_region_inside() -> None:
    assert NamespaceSelectors([LabelSelector()]).divide([Clause(0)], 1) == Division((Region((), inside=True),), exact=True)


def test_of_too_many_labels_the_first_policies_keep_their_namespaces() -> None:
    selectors = [_selector(**{f"team-{number}": "yes"}) for number in range(20)]
    division = NamespaceSelectors(selectors).divide([Clause(at) for at in range(20)], 8)
    assert (len(division.regions), division.exact) == (8, False)
    kept = [at for at in range(20) if _region(division, {NAME_LABEL: "n", f"team-{at}": "yes"}).inside]
    assert kept == list(range(7))


def test_policies_that_hold_the_answer_up_for_ever_end_in_bounded_work() -> None:
    pairs = [_selector(**{f"a{number}": "x", f"b{number}": "x"}) for number in range(64)]
    division = NamespaceSelectors(pairs).divide([Clause(at, (1 << at) - 1) for at in range(64)], 8)
    assert len(division.regions) <= 8
    assert not division.exact


def test_more_names_than_a_configuration_holds_are_left_outside() -> None:
    teams = [_selector(team=f"{number:063}") for number in range(400)]
    division = NamespaceSelectors(teams).divide([Clause(at) for at in range(400)], 8)
    assert division == Division((EVERYWHERE,), exact=False)
    assert NamespaceSelectors(teams[:100]).divide([Clause(at) for at in range(100)], 8).exact
