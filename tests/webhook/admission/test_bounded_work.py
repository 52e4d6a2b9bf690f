"""No object costs more CPU than its size explains: the worst ever found, as cases."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from benchmarks.bodies import Growth, grown, kinds
from benchmarks.cases import CASES, Case, body_of
from benchmarks.costs import BUDGET, RAISED, Cost, Reviews, is_superlinear, slowness

#: What the search found to cost most: the object's kind, and what has grown.
FOUND = (
    (
        "batch/v1 Job",
        "spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchExpressions",
        8192,
    ),
    ("apps/v1 StatefulSet", "spec.template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution", 1024),
    ("v1 Pod", "metadata.ownerReferences", 32_768),
    ("apps/v1 Deployment", "spec.template.spec.initContainers.0.resources.limits", 2048),
    ("v1 Pod", "spec.tolerations", 2048),
    ("v1 Pod", "spec.nodeSelector", 1024),
)
#: Cases by name, and numbers of entries far over the usual limits: the code alone bounds the cost.
_GROWN = {
    "600 init containers with a GPU each": 800,
    "300 containers with a GPU each": 800,
    "35,000 labels in a nodeSelector": 4096,
    "60,000 tolerations": 4096,
    "6,000 volumes in memory": 6_000,
    "15,000 images": 4096,
    "a Job of 20,000 containers": 1024,
    "7,000 replicatedJobs": 512,
    "7,000 workerGroupSpecs": 512,
    "1 MB of environment variables": 20_000,
}


@pytest.fixture(scope="module", autouse=True)
def _as_in_the_server() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.fixture(scope="module")
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture(scope="module")
def unlimited() -> Reviews:
    return Reviews(limits=RAISED)


def _within(budget: float, cost: Cost) -> bool:
    return cost.deciding < budget * slowness()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_measured_case_is_decided_within_the_budget(case: Case, reviews: Reviews) -> None:
    cost = reviews.cost(case.kind, body_of(case), [])
    assert _within(BUDGET, cost), cost


@pytest.mark.parametrize("case", [case for case in CASES if case.number > 300], ids=lambda case: case.name)
def test_an_update_that_makes_a_measured_case_small_is_decided_within_the_budget(case: Case, reviews: Reviews) -> None:
    cost = reviews.cost(case.kind, case.build(4), [], old=body_of(case))
    assert _within(BUDGET, cost), cost


@pytest.mark.parametrize(("kind", "place", "times"), FOUND, ids=lambda part: str(part).rpartition(".")[2])
def test_what_the_search_found_is_decided_within_the_budget(kind: str, place: str, times: int, reviews: Reviews) -> None:
    growths = [Growth(tuple(int(part) if part.isdecimal() else part for part in place.split(".")), times)]
    cost = reviews.cost(kind, grown(kinds()[kind], growths), growths)
    assert _within(BUDGET, cost), cost


@pytest.mark.parametrize("case", [case for case in CASES if case.name in _GROWN], ids=lambda case: case.name)
def test_with_every_limit_raised_a_cost_grows_no_faster_than_the_entries(case: Case, unlimited: Reviews) -> None:
    number = _GROWN[case.name]
    base = unlimited.cost(case.kind, case.build(1), []).deciding
    for _ in range(3):
        costs = [(some, unlimited.cost(case.kind, case.build(some), []).deciding) for some in (number // 4, number)]
        if not is_superlinear(costs, base, slowness()):
            return
    pytest.fail(f"{case.name}: {costs}")


def test_each_further_container_costs_at_most_25_microseconds(unlimited: Reviews) -> None:
    plain = next(case for case in CASES if case.name.startswith("5,000 containers"))
    for _ in range(3):
        few, many = (unlimited.cost(plain.kind, plain.build(number), []) for number in (24, 1024))
        each = (many.deciding - few.deciding) * 1000 / 1000
        assert many.judged
        if each < 25 * slowness():
            return
    pytest.fail(f"{each:.0f} microseconds for each further container")


def test_a_curve_is_judged_by_its_exponent() -> None:
    numbers = (64, 128, 256, 512, 1024)
    assert is_superlinear([(number, number**2 / 20_000) for number in numbers])
    assert not is_superlinear([(number, number / 10) for number in numbers])
    # Below the noise nothing is judged.
    assert not is_superlinear([(number, number**2 / 200_000) for number in numbers])
