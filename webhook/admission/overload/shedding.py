"""Reviews that are given up, and how the apiserver is told.

The answer is an HTTP error, not an AdmissionReview: then the webhook's ``failurePolicy`` decides, as for a replica that is down.
``Retry-After`` makes the apiserver send the review again, as long as its timeout allows.
"""

from collections import Counter
from typing import Final, Literal

Reason = Literal["queue", "deadline", "bytes", "gone"]

_TEXTS: Final[dict[str, str]] = {
    "queue": "gpugate has too many reviews to decide: this one was not decided",
    "bytes": "gpugate has too many bytes of reviews to read: this one was not decided",
    "deadline": "gpugate could not decide this review before the apiserver gives up",
    "gone": "the apiserver has given up",
}


class OverloadedError(Exception):
    """A review was not decided; ``reason`` is the reason for metrics."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(_TEXTS[reason])
        self.reason = reason


class Shedding:
    """Counts the reviews that are given up.

    Attributes:
        counts: number of reviews by reason.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def error(self, reason: Reason) -> OverloadedError:
        """Count a review that is given up, and return the error that says so."""
        self.counts[reason] += 1
        return OverloadedError(reason)
