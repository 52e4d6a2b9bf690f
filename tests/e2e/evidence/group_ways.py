"""Impossible for a pod by the group that it would join."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.e2e.evidence.impossible import Evidence, Impossible
from tests.e2e.evidence.quota_ways import gang, in_queue

if TYPE_CHECKING:
    from random import Random

    from tests.e2e.evidence.draft import Draft


def _company(rng: Random, name: str, count: int, says: int) -> Draft:
    found = gang(f"{name}c", "a100", count, 1)
    found.kind, found.says = "Group", says
    return in_queue(found, "ev-groups-" + rng.choice("123"))


def _joining(company: Draft, name: str, says: int) -> Draft:
    return replace(company, name=name, kind="Pod", count=1, joins=company.name, says=says)


def one_too_many(rng: Random, name: str) -> Impossible:
    """All members of the group are there, and run."""
    size = rng.choice((1, 2, 3))
    company = _company(rng, name, size, size)
    return Impossible(_joining(company, name, size), Evidence("controller", "Excess pod deleted"), company)


def other_size(rng: Random, name: str) -> Impossible:
    """It says that the group is smaller than the others say, who wait for one more."""
    size = rng.choice((3, 4))
    company = _company(rng, name, size - 1, size)
    evidence = Evidence("log", "has different 'kueue.x-k8s.io/pod-group-total-count' values")
    return Impossible(_joining(company, name, size - 1), evidence, company)
