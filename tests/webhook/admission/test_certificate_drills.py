"""No corrupted certificate and no jump of the clock costs a review."""

from __future__ import annotations

from pathlib import Path

from tests.webhook.admission.certificate_drills import Figures, corrupt_files, jump_clock


def _no_review_was_lost(figures: Figures) -> None:
    load = figures.load
    assert load.failures == []
    assert load.reviews > 20 * len(figures.cases)
    assert load.handshakes > 4 * len(figures.cases)


def test_no_corruption_of_the_files_costs_a_review_and_each_is_repaired_without_a_restart(tmp_path: Path) -> None:
    figures = corrupt_files(tmp_path)
    assert len(figures.cases) >= 12
    _no_review_was_lost(figures)


def test_no_jump_of_the_clock_costs_a_review_and_readiness_follows_the_clock(tmp_path: Path) -> None:
    _no_review_was_lost(jump_clock(tmp_path))
