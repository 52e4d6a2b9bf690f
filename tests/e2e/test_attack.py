"""One user with ``edit`` sends the worst bodies in a loop: the GPU pods of others are admitted, edited and hardly later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.attack_bodies import DENSEST, WORST
from tests.e2e.attack import measure, opened, ratio
from tests.e2e.attack_bench import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.attack import Site

pytestmark = pytest.mark.e2e

#: How many times longer the p99 of a creation may take than under the webhook that allows everything. On two cores that the
#: apiserver, the attacker and the replica share it was 1.0 to 1.9: more than 2.5 is a fault. `make bench-attack` holds 1.3.
_AT_MOST = 2.5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster of its own, with one replica of gpugate and a webhook that allows everything."""
    with opened(tmp_path_factory.mktemp("attack"), dict.fromkeys((*WORST, *DENSEST))) as site:
        yield site


@pytest.mark.parametrize("densest", [False, True], ids=["costliest", "densest"])
def test_gpu_pods_of_others_are_admitted_in_time_while_one_user_sends_the_worst_bodies(site: Site, *, densest: bool) -> None:
    known = set(site.stored())
    phases = measure(site, densest=densest)
    print(f"\n{table(phases)}", flush=True)
    assert [one for phase in phases for one in phase.lost] == []
    stored = site.stored()
    created = {one.name: phase.door == "gpugate" for phase in phases for one in phase.created}
    assert {name: edited for name, edited in stored.items() if name not in known} == created
    for phase in phases:
        if phase.door == "gpugate":
            # Every pod is asked about twice; all beyond that is the attack, which must have got through.
            assert phase.sent > 0
            assert phase.reviews > 2 * len(phase.created)
            assert set().union(*(one.keys() for one in phase.answers.values())) & {"200", "403", "409", "422"}
    assert ratio(phases) <= _AT_MOST
