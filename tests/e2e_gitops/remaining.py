"""Waiting until nothing is left to wait for, and saying what is left where the time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.e2e.controlplane import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sized


class _Remaining:
    """True when nothing is left."""

    def __init__(self, left: Sized) -> None:
        self._left = left

    def __bool__(self) -> bool:
        return not len(self._left)

    def __repr__(self) -> str:
        return repr(self._left)


def wait_for_none(left: Callable[[], Sized], timeout: float, what: str, *, interval: float = 0.3) -> None:
    """Ask what is left until that is nothing; `what` completes the sentence "waited for ..."."""
    wait_until(lambda: _Remaining(left()), timeout, what, interval=interval)
