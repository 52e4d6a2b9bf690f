"""Waiting for something to become true, with a deadline and a name for what was waited for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class WaitTimeout(AssertionError):
    """What was waited for did not happen in time."""


def wait_until(
    predicate: Callable[[], T],
    timeout: float,
    what: str,
    *,
    interval: float = 0.05,
    retry_on: tuple[type[Exception], ...] = (),
) -> T:
    """Ask `predicate` until its answer is truthy, and return that answer.

    `what` completes the sentence "waited for ...". Exceptions of the types in `retry_on` count as "not yet"; the last
    answer or exception is shown when the time is up.
    """
    deadline = time.monotonic() + timeout
    while True:
        cause: Exception | None = None
        try:
            answer = predicate()
        except retry_on as error:
            cause, seen = error, repr(error)
        else:
            if answer:
                return answer
            seen = repr(answer)
        if time.monotonic() >= deadline:
            raise WaitTimeout(f"waited {timeout:g} s for {what}; last seen: {seen[:2000]}") from cause
        time.sleep(interval)
