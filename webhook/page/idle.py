"""What the page says of held devices and what is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpugate.policies.durations import lasting
from gpugate.webhook.audit.records import Audit
from gpugate.webhook.audit.usage import HeldSums, Line, held_by_owner, lines_of
from gpugate.webhook.audit.usage_text import usage_in_words


class Idle(NamedTuple):
    """The section's content.

    Attributes:
        words: utilisation against allocation, in one sentence.
        windows: the times over which figures are, in words.
        owners: what each team holds, the one with most idle devices first.
        lines: device by device, the idle ones first.
    """

    words: str
    windows: Sequence[str]
    owners: Sequence[tuple[str, HeldSums]]
    lines: Sequence[Line]


def idle_of(audit: Audit) -> Idle:
    """What monitoring told of ``audit``'s devices."""
    windows = audit.fleet.windows if audit.fleet else ()
    return Idle(usage_in_words(audit), [lasting(one) for one in windows], list(held_by_owner(audit).items()), lines_of(audit))
