"""Logs and recordings that cannot be written: no review waits for them."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.drills.honest import honest
from tests.drills.replica import EXAMPLES, replica

Adds = Callable[[str, str, str, str], None]
#: Reviews a second, enough to fill a pipe of 64 KiB in a second.
_RATE = 300.0
_LOAD = 6.0
#: Bytes that a file may have where the disk of recordings is full.
_FULL = 64 * 1024
#: Measured before lines were dropped instead of waited for.
_UNREAD_BEFORE = "143 reviews answered, then none; SIGTERM not obeyed"


def test_a_full_disk_for_logs_takes_no_answer_from_anybody(tmp_path: Path, row: Adds) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        with replica(tmp_path / "replica", *EXAMPLES, stderr=full) as running:
            with honest(running, rate=_RATE) as stream:
                time.sleep(_LOAD)
            assert running.alive
            running.process.terminate()
            assert running.process.wait(20) == 0
    finally:
        os.close(full)
    assert stream.result.bad == []
    row("logs to a full disk (`/dev/full`)", "reviews are answered right, SIGTERM is obeyed", "held", f"{stream.result}")


def test_a_log_that_nobody_reads_takes_no_answer_from_anybody(tmp_path: Path, row: Adds) -> None:
    reading, writing = os.pipe()
    try:
        with replica(tmp_path / "replica", *EXAMPLES, stderr=writing) as running:
            with honest(running, rate=_RATE) as stream:
                time.sleep(_LOAD)
            assert running.alive
            started = time.monotonic()
            running.process.terminate()
            assert running.process.wait(20) == 0
            ended = time.monotonic() - started
    finally:
        os.close(reading)
        os.close(writing)
    assert stream.result.bad == []
    row(
        "logs to a pipe that nobody reads",
        "reviews are answered right, SIGTERM is obeyed",
        _UNREAD_BEFORE,
        f"{stream.result}; ended {ended:.1f} s after SIGTERM",
    )


@contextmanager
def _reader() -> Iterator[tuple[int, list[bytes]]]:
    """Give the end of a pipe to write to, and the lines that come out of it."""
    reading, writing = os.pipe()
    lines: list[bytes] = []
    with os.fdopen(reading, "rb") as stream:
        thread = Thread(target=lambda: lines.extend(stream), daemon=True)
        thread.start()
        try:
            yield writing, lines
        finally:
            os.close(writing)
            thread.join(20)


def test_a_full_disk_for_recordings_takes_no_answer_from_anybody(tmp_path: Path, row: Adds) -> None:
    recordings = tmp_path / "recordings"
    options = (*EXAMPLES, f"--record={recordings}")
    with _reader() as (writing, lines), replica(tmp_path / "replica", *options, stderr=writing) as running:
        resource.prlimit(running.pid, resource.RLIMIT_FSIZE, (_FULL, resource.RLIM_INFINITY))
        with honest(running, rate=_RATE) as stream:
            time.sleep(_LOAD)
        assert running.alive
    assert stream.result.bad == []
    assert any(b"cannot record reviews" in line for line in lines)
    assert not [line for line in lines if b"raceback" in line]
    row(
        "recordings (`--record`) to a full disk",
        "reviews are answered right; the log says that recordings are missing",
        "held",
        f"{stream.result}",
    )
