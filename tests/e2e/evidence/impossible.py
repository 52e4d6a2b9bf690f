"""What makes an object impossible, and what the real components say of one that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.e2e.evidence.edges import least, state
from tests.e2e.evidence.feasible import draw_in, plain
from tests.e2e.evidence.world import GIB, GPU, POOLS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.e2e.evidence.draft import Box, Draft
    from tests.e2e.evidence.observe import Seen

_NEVER = "Preemption is not helpful for scheduling"
_TRIES = 300


class Evidence(NamedTuple):
    """What a real component says of an object that it can never run.

    Attributes:
        speaker: the scheduler (of a pod that no node could ever hold, or that finds no room now), Kueue (of a Workload
            without quota), an event of a controller (of pods that it could not make, or did away with), or Kueue's log.
        text: a part of what it says.
        alone: whether it says so for certain only while nobody else takes of the nodes or the quota.
    """

    speaker: Literal["scheduler, for ever", "scheduler", "kueue", "controller", "log"]
    text: str
    alone: bool = False

    def found_in(self, seen: Seen) -> bool:
        """Whether it is to be seen."""
        if self.speaker == "kueue":
            return any(self.text in one for one in seen.not_admitted())
        if self.speaker == "controller":
            return any(self.text in one for one in seen.events)
        if self.speaker == "log":
            return any(self.text in one for one in seen.log)
        for message in seen.unscheduled():
            available, _, preemption = message.partition("preemption: ")
            # Kubernetes' NodeResourcesFit tells what exceeds a node's allocatable from what exceeds its free room.
            for_ever = _NEVER in preemption and "victims" not in preemption
            if self.text in available and (for_ever or self.speaker == "scheduler"):
                return True
        return False


class Impossible(NamedTuple):
    """An object that can never run, and what shows it; ``company`` is there before it."""

    draft: Draft
    evidence: Evidence
    company: Draft | None = None


def for_ever(resource: str) -> Evidence:
    return Evidence("scheduler, for ever", f"Insufficient {resource}")


def base(rng: Random, name: str, settle: Callable[[Random, str], Draft] = plain) -> Draft:
    """An object that can run, also while nobody adds the toleration of GPU nodes."""
    for _ in range(_TRIES):
        draft = draw_in(settle, rng, name)
        tolerated = [one.get("key", GPU) for one in draft.spec.get("tolerations", [])]
        if GPU in tolerated and not (draft.pod_level or draft.runtime_class or draft.packed):
            draft.traits = ()
            return draft
    raise AssertionError(f"no base among {_TRIES}")


def widest(draft: Draft, resource: str) -> int:
    """The most of the resource that any node has which the object may land on."""
    return max(POOLS[name].room.get(resource, 0) for name in draft.reach)


def above(rng: Random, resource: str) -> int:
    """By how much: a hair, or a lot."""
    return rng.choice({"memory": (1, 512, 100 * GIB), "cpu": (1, 250, 64_000)}.get(resource, (1, 2, 8)))


def raise_to(draft: Draft, box: Box, resource: str, wanted: int) -> None:
    """Let the box ask for just so much that one pod comes to ``wanted``."""

    def reaches(amount: int) -> bool:
        state(box, resource, amount)
        return draft.demand(resource) >= wanted

    reaches(least(0, wanted, reaches))
