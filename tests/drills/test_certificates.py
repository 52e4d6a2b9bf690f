"""The serving certificate and the clock go wrong under load, as `tests.webhook.admission.certificate_drills` does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.webhook.admission import certificate_drills
from tests.webhook.admission.certificate_drills import Figures

Adds = Callable[[str, str, str, str], None]


@pytest.mark.parametrize(
    ("drill", "done", "end", "before"),
    [
        (
            certificate_drills.corrupt_files,
            "certificate, key or CA bundle damaged, exchanged, expired or taken away under load",
            "the last good one stays in service, ready; a good pair is taken at once",
            "expired and foreign pairs were loaded, and `/readyz` said ok",
        ),
        (
            certificate_drills.jump_clock,
            "the clock set years ahead and back under load",
            "not ready while the certificate is not valid; reviews are answered all the same; ready again with the right clock",
            "`/readyz` said ok for ever",
        ),
    ],
    ids=["corrupt", "clock"],
)
def test_the_certificate_and_the_clock_go_wrong_under_load(
    drill: Callable[[Path], Figures], done: str, end: str, before: str, tmp_path: Path, row: Adds
) -> None:
    figures = drill(tmp_path)
    assert figures.load.failures == []
    row(
        f"{done}: {len(figures.cases)} ways",
        end,
        before,
        f"{figures.load.reviews:,} reviews and {figures.load.handshakes:,} handshakes without a failure, "
        f"slowest {1000 * figures.load.slowest:.0f} ms; repaired within {figures.slowest_repair:.1f} s",
    )
