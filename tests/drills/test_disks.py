"""Logs and recordings that cannot be written: no review waits for them."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

from tests.drills.honest import honest
from tests.drills.replica import EXAMPLES, replica, until
from tests.shared.reviews import counted
from tests.shared.running import Answer

import http.client

Adds = Callable[[str, str, str, str], None]


def test_a_full_disk_for_logs_takes_no_answer_from_anybody(tmp_path: Path, row: Adds) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with replica(tmp_path / "replica", *EXAMPLES, stderr=full) as running:
            with honest(running, rate=300) as stream:
                time.sleep(5)
            assert running.alive
    finally:
        os.close(full)
    assert stream.result.bad == []
    row(
        "logs to a full disk (/dev/full)",
        "honest reviews are answered right",
        "held",
        f"{stream.result}",
    )


def test_a_log_that_nobody_reads_takes_no_answer_from_anybody(tmp_path: Path, row: Adds) -> None:
    reading, writing = os.pipe()
    try:
        with replica(tmp_path / "replica", *EXAMPLES, stderr=writing) as running:
            # A pipe takes 64 KiB: some 200 lines.
            with honest(running, rate=300) as stream:
                time.sleep(8)
            assert running.alive
            started = time.monotonic()
            running.process.terminate()
            assert running.process.wait(20) == 0
            ended = time.monotonic() - started
    finally:
        os.close(reading)
        os.close(writing)
    assert len(stream.result.sent) > 1_000
    assert stream.result.bad == []
    row(
        "logs to a pipe that nobody reads",
        "honest reviews are answered right, SIGTERM is obeyed",
        UNREAD_BEFORE,
        f"{stream.result}; ended {ended:.1f} s after SIGTERM",
    )


#: Measured before logs were dropped instead of waited for.
UNREAD_BEFORE = "-"


def test_a_full_disk_for_recordings_takes_no_answer_from_anybody(tmp_path: Path, row: Adds) -> None:
    reading, writing = os.pipe()
    recordings = tmp_path / "recordings"
    try:
        with replica(tmp_path / "replica", *EXAMPLES, f"--record={recordings}") as running:
            # No file may grow above 64 KiB, the log aside, which is below that until then: a disk that is full for recordings.
            resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (64 * 1024, resource.RLIM_INFINITY))
            with honest(running, rate=300) as stream:
                time.sleep(6)
            assert running.alive
    finally:
        os.close(reading)
        os.close(writing)
    assert stream.result.bad == []
