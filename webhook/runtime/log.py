"""Structured logs: one JSON object per line, written in batches so that a review never waits for a pipe."""

import asyncio
import logging
import sys
import time
import traceback
from typing import Any, Final, TextIO

import orjson

from gpugate.webhook.runtime.log_writer import LogWriter

_OPTIONS: Final = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
#: Seconds that a line may stay in the buffer.
_DELAY: Final = 0.05
#: Largest buffer in bytes; above it lines are written at once.
_MOST: Final = 128 * 1024


class Log:
    """Writes JSON lines to a stream."""

    __slots__ = ("_scheduled", "_stream", "_waiting")

    def __init__(self, stream: TextIO | LogWriter | None = None) -> None:
        self._stream: TextIO | LogWriter = stream if stream is not None else sys.stderr
        # One buffer, not a list of lines: the memory of each line costs more than its formatting.
        self._waiting = bytearray()
        self._scheduled = False

    @property
    def writer(self) -> LogWriter | None:
        """Return the thread that writes, if there is one."""
        return self._stream if isinstance(self._stream, LogWriter) else None

    def review(self, fields: dict[str, Any]) -> None:
        """Write the line about a review."""
        self._write("info", "review", fields)

    def info(self, message: str, **fields: Any) -> None:  # noqa: ANN401 - any JSON value
        """Write an informational line."""
        self._write("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:  # noqa: ANN401 - any JSON value
        """Write a line about something to check."""
        self._write("warning", message, fields)

    def error(self, message: str, **fields: Any) -> None:  # noqa: ANN401 - any JSON value
        """Write a line about a failure."""
        self._write("error", message, fields)

    def _write(self, level: str, message: str, fields: dict[str, Any]) -> None:
        line = {"time": time.time_ns() // 1000 / 1e6, "level": level, "message": message, **fields}
        self._waiting += orjson.dumps(line, default=str, option=_OPTIONS)
        if len(self._waiting) >= _MOST:
            self.flush()
        elif not self._scheduled:
            try:
                asyncio.get_running_loop().call_later(_DELAY, self.flush)
            except RuntimeError:
                self.flush()
            else:
                self._scheduled = True

    def flush(self) -> None:
        """Write all buffered lines."""
        self._scheduled = False
        if not self._waiting:
            return
        text = self._waiting.decode("utf-8", "replace")
        self._waiting.clear()
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # The log reader is gone; the server goes on.
            return


class Bridge(logging.Handler):
    """Writes warnings and errors of libraries as lines of the same format."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, with its traceback unless a client caused it."""
        fields: dict[str, Any] = {"logger": record.name}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["error"] = f"{type(error).__name__}: {error}"
            # aiohttp's errors about bad requests carry the HTTP status.
            codes = [getattr(cause, "code", None) for cause in (error, error.__cause__)]
            is_bad_request = any(isinstance(code, int) and 400 <= code < 500 for code in codes)
            if not isinstance(error, ConnectionError) and not is_bad_request:
                fields["traceback"] = "".join(traceback.format_exception(error))
        write = self._log.error if record.levelno >= logging.ERROR and "traceback" in fields else self._log.warning
        write(record.getMessage(), **fields)
