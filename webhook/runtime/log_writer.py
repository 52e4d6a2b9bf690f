"""Write log lines from a thread, so that a reader that does not read, or a slow disk, never blocks the event loop."""

import os
import threading
from collections import deque
from typing import Final, Self

import orjson

#: Bytes that wait for the reader; lines above it are dropped.
MOST_WAITING: Final = 4 * 1024 * 1024
#: Seconds that the end of the program waits for the reader.
_END: Final = 2.0


class LogWriter:
    """Takes text like a stream, and writes it to a file descriptor from a thread of its own.

    Attributes:
        dropped: number of lines that were dropped because the reader did not read.
    """

    def __init__(self, descriptor: int = 2, most: int = MOST_WAITING) -> None:
        """Write to ``descriptor``, by default standard error; keep at most ``most`` bytes for its reader."""
        self._descriptor, self._most = descriptor, most
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._untold = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ending = False
        self.dropped = 0

    def write(self, text: str) -> None:
        """Queue ``text``, which are whole lines; drop it if too much waits."""
        data = text.encode("utf-8", "replace")
        with self._changed:
            if self._bytes + len(data) > self._most:
                lines = text.count("\n")
                self.dropped += lines
                self._untold += lines
                return
            if self._untold:
                note = {"level": "warning", "message": "log lines dropped: nothing reads the log", "lines": self._untold}
                data = orjson.dumps(note, option=orjson.OPT_APPEND_NEWLINE) + data
                self._untold = 0
            self._waiting.append(data)
            self._bytes += len(data)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log", daemon=True)
            self._thread.start()

    def flush(self) -> None:
        """Do nothing: the thread writes at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Wait for the reader a moment, then leave what it has not read."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_END)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._ending:
                        return
                    self._changed.wait()
                data = self._waiting.popleft()
            self._write(data)
            with self._changed:
                self._bytes -= len(data)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            # The reader is gone or the disk is full; the server goes on.
            with self._changed:
                self.dropped += bytes(rest).count(b"\n")
