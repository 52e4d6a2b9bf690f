"""Impossible objects: what gpugate says of them when it enforces, and whether they stay where they are when it does not."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.e2e.evidence.observe import look
from tests.e2e.evidence.runner import Disagreement, send_all

if TYPE_CHECKING:
    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.access import ApiResponse
    from tests.e2e.evidence.impossible import Impossible
    from tests.e2e.evidence.observe import Seen
    from tests.e2e.evidence.ways import Way

#: Seconds without any change after which no more evidence is expected.
_STALLED = 20.0
#: Seconds after which gpugate must have heard of what was made before.
_LEARNT = 10.0


@dataclass
class Tally:
    """How the objects of one way were answered, and how many of them a real component holds back."""

    refused: int = 0
    warned: int = 0
    passed: int = 0
    stuck: int = 0


@dataclass
class Outcome:
    """What came of all of them."""

    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    disagreements: list[Disagreement] = field(default_factory=list)


def answer_of(response: ApiResponse) -> tuple[str, str]:
    """What gpugate says: refused, warned or passed, and its words."""
    if response.status == 403 and "gpugate refuses" in str(response.body.get("message")):
        return "refused", str(response.body["message"])
    if response.status != 201:
        return "not taken by the apiserver", str(response.body.get("message", response.body))
    # What is changed is no warning about the object.
    warnings = [warning for warning in response.warnings if not warning.startswith("gpugate changed ")]
    return ("warned" if warnings else "passed"), " | ".join(warnings)


def is_wanted(way: Way, said: tuple[str, str]) -> bool:
    """Whether gpugate says what it must of an object of this way."""
    return said[0] == way.answer.kind and f"{way.answer.rule}:" in said[1] and way.answer.text in said[1]


def ask(cluster: ControlPlane, seed: int, drawn: list[tuple[Way, Impossible]], outcome: Outcome) -> dict[str, tuple[str, str]]:
    """Rehearse the creation of every object while all rules are enforced; what gpugate says of each."""
    said: dict[str, tuple[str, str]] = {}
    asked, until = drawn, time.monotonic() + _LEARNT
    while asked:
        responses = send_all(cluster, [one.draft for _, one in asked], dry_run=True)
        said |= {name: answer_of(response) for name, response in responses.items()}
        # What has company is asked about again until gpugate has heard of that.
        asked = [(way, one) for way, one in asked if one.company and not is_wanted(way, said[one.draft.name])]
        asked = asked if time.monotonic() < until else []
    for way, one in drawn:
        mine = said[one.draft.name]
        tally = outcome.tallies[way.name]
        tally.refused += mine[0] == "refused"
        tally.warned += mine[0] == "warned"
        tally.passed += mine[0] == "passed"
        if not is_wanted(way, mine):
            wanted = f"wanted {way.answer.kind} by {way.answer.rule} with '{way.answer.text}'"
            outcome.disagreements.append(Disagreement(seed, wanted, one.draft, ": ".join(mine), "not tried"))
    return said


def hold(
    cluster: ControlPlane, seed: int, drawn: list[tuple[Way, Impossible]], said: dict[str, tuple[str, str]], outcome: Outcome
) -> None:
    """Create every object while gpugate changes and refuses nothing; wait until something real says why it does not run."""
    drafts = [one.draft for _, one in drawn]
    responses = send_all(cluster, drafts)
    waiting = {one.draft.name: (way, one) for way, one in drawn if responses[one.draft.name].status == 201}
    for way, one in drawn:
        if one.draft.name not in waiting:
            message = str(responses[one.draft.name].body.get("message"))
            what = f"{way.name}: the apiserver does not take it"
            outcome.disagreements.append(Disagreement(seed, what, one.draft, ": ".join(said[one.draft.name]), message))
    created = dict(waiting)
    state, since = "", time.monotonic()
    ran: dict[str, Seen] = {}
    while waiting and time.monotonic() - since < _STALLED:
        seen = look(cluster, drafts)
        ran |= {name: seen[name] for name, (_, one) in created.items() if seen[name].running >= one.draft.count}
        waiting = {name: one for name, one in waiting.items() if name not in ran and not one[1].evidence.found_in(seen[name])}
        now = " ".join(waiting)
        if now != state:
            state, since = now, time.monotonic()
        time.sleep(0.2)
    last = look(cluster, drafts)
    for name, (way, one) in created.items():
        if name in ran or last[name].running >= one.draft.count:
            what = f"{way.name}: it runs"
        elif name in waiting:
            what = f"{way.name}: nothing real says that it can't run; wanted from {one.evidence.speaker}: {one.evidence.text}"
        else:
            outcome.tallies[way.name].stuck += 1
            continue
        outcome.disagreements.append(Disagreement(seed, what, one.draft, ": ".join(said[name]), last[name].story()))
