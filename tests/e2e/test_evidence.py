"""gpugate against the real scheduler and Kueue: what it refuses can never run, and what can run it does not refuse."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from tests.e2e.evidence import stage
from tests.e2e.evidence.feasible import draw
from tests.e2e.evidence.homes import PLAIN
from tests.e2e.evidence.runner import batches, clear, feasible_disagreements, run, run_untouched
from tests.e2e.evidence.verdicts import Outcome, ask, hold
from tests.e2e.evidence.ways import WAYS
from tests.e2e.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.evidence.impossible import Impossible
    from tests.e2e.evidence.ways import Way

pytestmark = pytest.mark.e2e

SEED = int(os.environ.get("GPUGATE_EVIDENCE_SEED", "20250"))
COUNT = int(os.environ.get("GPUGATE_EVIDENCE_COUNT", "300"))


@pytest.fixture(scope="module")
def door(control_plane: ControlPlane) -> Iterator[Gate]:
    """gpugate before the world of the evidence, all rules enforced."""
    found = Gate(control_plane)
    try:
        found.install()
        stage.build(control_plane)
        found.start()
        found.register()
        found.set_policy(stage.POLICY)
        found.wait_in_force(PLAIN)
        yield found
    finally:
        found.unregister()
        found.stop()
        clear(control_plane)
        stage.remove(control_plane)


def report(text: str) -> None:
    print(f"evidence: {text}", flush=True)


def test_no_object_that_can_run_is_refused_and_all_of_them_run(control_plane: ControlPlane, door: Gate) -> None:
    door.set_policy(stage.POLICY)
    begun = time.monotonic()
    rng = random.Random(SEED)  # noqa: S311  to be drawn again by its seed
    report(f"seed {SEED}, {COUNT} feasible objects")
    drafts = [draw(rng, f"f{number:04d}") for number in range(COUNT)]
    found = feasible_disagreements(control_plane, SEED, drafts, report)
    door.set_policy({"mode": "DryRun"})
    run_untouched(control_plane, found)
    report(f"{COUNT} feasible objects in {time.monotonic() - begun:.0f} s, {len(found)} disagreements")
    assert not found, "\n\n".join([f"{len(found)} of {COUNT}:", *(one.text() for one in found)])


def _drawn() -> list[tuple[Way, Impossible]]:
    """Impossible objects, as many of every way that must be refused as make the count, and as many of the others."""
    rng = random.Random(SEED + 1)  # noqa: S311  to be drawn again by its seed
    each = -(-COUNT // sum(way.answer.kind == "refused" for way in WAYS))
    ways = [way for way in WAYS for _ in range(each)]
    return [(way, way.draw(rng, f"i{number:04d}")) for number, way in enumerate(ways)]


def test_every_object_that_is_refused_would_never_have_run(control_plane: ControlPlane, door: Gate) -> None:
    begun = time.monotonic()
    outcome, drawn = Outcome(), _drawn()
    report(f"seed {SEED + 1}, {len(drawn)} impossible objects")
    door.set_policy({"mode": "DryRun"})
    run(control_plane, [one.company for _, one in drawn if one.company])
    door.set_policy(stage.POLICY)
    said = ask(control_plane, SEED + 1, drawn, outcome)
    report(f"asked after {time.monotonic() - begun:.0f} s")
    door.set_policy({"mode": "DryRun"})
    by_name = {one.draft.name: (way, one) for way, one in drawn}
    hold(control_plane, SEED + 1, [one for one in drawn if not one[1].evidence.alone], said, outcome)
    report(f"held back after {time.monotonic() - begun:.0f} s")
    clear(control_plane)
    # What starts in part takes room, or quota, from others: these come when they are in nobody's way.
    formed = batches(one.draft for _, one in drawn if one.evidence.alone)
    report(f"cleared after {time.monotonic() - begun:.0f} s, {len(formed)} batches left")
    for batch in formed:
        hold(control_plane, SEED + 1, [by_name[draft.name] for draft in batch.drafts], said, outcome)
        clear(control_plane)
    for name, tally in outcome.tallies.items():
        report(
            f"{name}: {tally.refused} refused, {tally.warned} warned, {tally.passed} passed;"
            f" {tally.stuck} held back by a real component"
        )
    found = outcome.disagreements
    report(f"{len(drawn)} impossible objects in {time.monotonic() - begun:.0f} s, {len(found)} disagreements")
    assert sum(outcome.tallies[way.name].refused for way in WAYS if way.answer.kind == "refused") >= COUNT
    assert not found, "\n\n".join([f"{len(found)} of {len(drawn)}:", *(one.text() for one in found)])
