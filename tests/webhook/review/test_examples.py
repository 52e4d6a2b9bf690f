"""Every rule acts in an example whose row in the table of examples names it, and what that page counts is so."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.rules.registry import BY_ID
from gpugate.webhook.files.documents import read_all
from gpugate.webhook.files.inputs import load_facts, load_policies, objects_in
from gpugate.webhook.review.entry import ReviewEntry
from gpugate.webhook.review.review import review
from tests.shared.reviews import CLUSTER, EXAMPLES, POLICY, WORKLOADS

#: What no manifest here has: what monitoring has seen, and hundreds of entries.
_WITHOUT_EXAMPLE = {"idle": {"usage"}, "object-size": set()}
_PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")
#: The namespaces that the second policy selects.
_OF_THEIR_OWN = {"research", "sandbox"}


@cache
def _entries(*policies: str) -> list[ReviewEntry]:
    """The examples, each judged by those of the policies that are named."""
    chosen = [one for one in load_policies([POLICY]) if one.name in policies]
    assert len(chosen) == len(policies)
    return list(review(read_all([str(WORKLOADS)]), PolicySet(chosen), load_facts([CLUSTER])))


def _acts(rule: str, entry: ReviewEntry) -> bool:
    return rule in {one.rule for one in entry.changes} | {one.rule for one in entry.findings}


@pytest.mark.parametrize("rule", sorted(BY_ID))
def test_every_rule_acts_in_an_example_whose_row_names_it(rule: str) -> None:
    rows = dict(re.findall(r"^\| `([^`]+)` \| [^|]* \| [^|]+ \| ([^|]*) \|$", _PAGE, re.MULTILINE))
    acting = {Path(entry.file).stem for entry in _entries("default", "research") if _acts(rule, entry)}
    named = {stem for stem in acting if re.search(rf"(?<![\w-]){rule}(?![\w-])", rows[stem])}
    assert bool(named) is (rule not in _WITHOUT_EXAMPLE)


@pytest.mark.parametrize("rule", sorted(_WITHOUT_EXAMPLE))
def test_what_has_no_example_needs_what_no_file_has(rule: str) -> None:
    assert BY_ID[rule].needs == _WITHOUT_EXAMPLE[rule]
    assert f"`{rule}`, which needs" in _PAGE


def test_the_policy_for_two_namespaces_changes_nothing_in_the_others() -> None:
    pairs = list(zip(_entries("default"), _entries("default", "research"), strict=True))
    elsewhere = [pair for pair in pairs if pair[0].namespace not in _OF_THEIR_OWN]
    assert 0 < len(elsewhere) < len(pairs)
    for alone, both in elsewhere:
        assert (both.outcome, both.patch, both.findings) == (alone.outcome, alone.patch, alone.findings), both.title


def test_the_page_counts_the_manifests_the_nodes_and_the_namespaces() -> None:
    kinds = [one["kind"] for one in objects_in([str(CLUSTER)])]
    assert f"\n{len(list(WORKLOADS.glob('*.yaml')))} manifests as teams write them" in _PAGE
    assert f"`cluster.yaml`: {kinds.count('Node')} nodes" in _PAGE
    assert f"{['no', 'one', 'two', 'three', 'four', 'five', 'six'][kinds.count('Namespace')]} namespaces" in _PAGE
