"""The thread that writes the log: nothing waits for a reader that does not read."""

from __future__ import annotations

import io
import os

import orjson

from gpugate.webhook.runtime.log import Log
from gpugate.webhook.runtime.log_writer import LogWriter


def read_all(descriptor: int) -> list[bytes]:
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read().splitlines()


def test_lines_are_written_in_order() -> None:
    reading, writing = os.pipe()
    with LogWriter(writing) as writer:
        log = Log(writer)
        for number in range(100):
            log.info("line", number=number)
        log.flush()
    os.close(writing)
    assert [orjson.loads(line)["number"] for line in read_all(reading)] == list(range(100))


def test_lines_above_the_limit_are_dropped_counted_and_told_of() -> None:
    reading, writing = os.pipe()
    line = "x" * 999 + "\n"
    with LogWriter(writing, most=200_000) as writer:
        # The pipe takes 64 KiB, and the rest waits: nobody reads.
        for _ in range(400):
            writer.write(line)
        dropped = writer.dropped
        taken = 400 - dropped
        assert 200 <= taken < 400
        while len(writer._waiting):
            os.read(reading, 65536)
        writer.write("the next\n")
        os.set_blocking(reading, False)
    os.close(writing)
    told = [orjson.loads(line) for line in read_all(reading) if line.startswith(b"{")]
    assert [(note["message"], note["lines"]) for note in told] == [("log lines dropped: nothing reads the log", dropped)]


def test_a_closed_pipe_ends_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with LogWriter(writing) as writer:
        writer.write("lost\nlost as well\n")
    os.close(writing)
    assert writer.dropped == 2


def test_a_log_to_a_stream_has_no_thread() -> None:
    assert Log(io.StringIO()).writer is None
