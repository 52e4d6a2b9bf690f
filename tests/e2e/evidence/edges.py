"""Pushing an object as far as it goes: one more of anything, and it could not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.evidence.queues import HOLDERS
from tests.e2e.evidence.sums import promises_too_much, short_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.e2e.evidence.draft import Box, Draft

#: More pods than this would only take time.
_MOST_PODS = 24
_COUNTED = ("Job", "Deployment", "StatefulSet", "Group")


def main_of(draft: Draft) -> Box:
    """The first container that is neither an init container nor a sidecar."""
    return next(box for box in draft.boxes if box.role == "main")


def state(box: Box, resource: str, amount: int) -> None:
    """Request so much, and allow no more."""
    box.requests[resource] = box.limits[resource] = amount


def least(low: int, high: int, is_enough: Callable[[int], bool]) -> int:
    """The least number between the two that is enough, where every larger one is, too; ``high`` where none is."""
    while low < high:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


def to_the_edge(rng: Random, draft: Draft) -> None:
    """Let it ask for as much memory or CPU, or have as many pods, as just run: exactly what a node, quota or bound leaves."""
    choices = ["count", "count"] if draft.kind in _COUNTED else []
    if not draft.pod_level:
        # What its queue does not cover is not stated.
        choices += [one for one in ("memory", "cpu") if draft.queue is None or one in HOLDERS[draft.queue].covered]
    if not choices:
        return
    what = rng.choice(choices)
    if what == "count":
        draft.count = _most(draft.count, _MOST_PODS, lambda count: _with_count(draft, count))
    else:
        box = main_of(draft)
        kept = dict(box.requests), dict(box.limits)
        now = box.asked(what, draft.default(what))
        state(box, what, now)
        if not _runs(draft):
            box.requests, box.limits = kept
            return
        _most(now, draft.pool.room[what], lambda amount: _with_amount(draft, box, what, amount))
    draft.traits = (*draft.traits, f"as much as goes: {what}")


def _runs(draft: Draft) -> bool:
    return not short_of(draft) and not promises_too_much(draft)


def _most(low: int, high: int, runs_with: Callable[[int], bool]) -> int:
    """The most with which it runs; it is left so."""
    found = least(low, high, lambda amount: not runs_with(amount + 1))
    runs_with(found)
    return found


def _with_count(draft: Draft, count: int) -> bool:
    draft.count = count
    return _runs(draft)


def _with_amount(draft: Draft, box: Box, resource: str, amount: int) -> bool:
    state(box, resource, amount)
    return _runs(draft)
