"""Writing down reviews and their answers, secrets left out, in a directory of bounded size; never in the way of a review."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import orjson

from gpugate.policies.findings import Judged
from gpugate.policies.framework.decision import Decision
from gpugate.policies.policy.models import Policy
from gpugate.webhook.admission.admission_review import AdmissionResponse
from gpugate.webhook.admission.redaction import Redactor
from gpugate.webhook.runtime.log import Log

SUFFIX: Final = ".jsonl"
_PREFIX: Final = "reviews-"
#: The key beside the request that holds what was answered.
RECORDED: Final = "recorded"
#: What waits to be written at the most. Reviews, and bytes of their bodies.
_MOST_WAITING: Final = 2_000
_MOST_BYTES: Final = 16 * 1024 * 1024
#: Bytes that are written at once.
_BATCH: Final = 256 * 1024
#: The limit is shared by so many files: the oldest makes room for a new one.
_FILES: Final = 8
#: Seconds between two lines in the log about the same trouble, and until it is tried again.
_SILENCE: Final = 60.0
_AGAIN: Final = 10.0
#: Seconds that a write under way may take at the end.
_LAST_WORDS: Final = 5.0

Outcome: TypeAlias = Literal["written", "dropped", "failed"]


class _Taken(NamedTuple):
    at: float
    endpoint: str
    body: bytes
    verdict: AdmissionResponse
    decision: Decision | None
    policies: Sequence[Policy]


def _uncounted(_outcome: Outcome, _number: int) -> None:
    """Count nothing."""


class ReviewRecorder:
    """Keeps reviews until `run` writes them."""

    __slots__ = (
        *("_bytes", "_count", "_directory", "_limit", "_lines", "_log"),
        *("_quiet_until", "_removed", "_stream", "_waiting", "_wake", "_writing"),
    )

    def __init__(self, directory: Path, limit: int, log: Log, *, count: Callable[[Outcome, int], None] = _uncounted) -> None:
        """Write into ``directory`` files of at most ``limit`` bytes in all."""
        self._directory = directory
        self._limit = limit
        self._log = log
        self._count = count
        self._waiting: deque[_Taken] = deque()
        self._bytes = 0
        self._stream: int | None = None
        self._quiet_until = float("-inf")
        self._lines: list[bytes] = []
        self._removed = 0
        self._writing: asyncio.Future[str] | None = None
        self._wake = asyncio.Event()

    def take(
        self, endpoint: str, body: bytes, verdict: AdmissionResponse, decision: Decision | None, policies: Sequence[Policy]
    ) -> None:
        """Have a review written down; what is more than can wait is dropped and counted."""
        if len(self._waiting) >= _MOST_WAITING or self._bytes + len(body) > _MOST_BYTES:
            self._count("dropped", 1)
            return
        self._waiting.append(_Taken(time.time(), endpoint, body, verdict, decision, policies))
        self._bytes += len(body)
        self._wake.set()

    async def run(self) -> None:
        """Write what is taken, until cancelled; then write what still waits."""
        try:
            while True:
                if not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
                size = 0
                while self._waiting and size < _BATCH:
                    self._lines.append(self._next())
                    size += len(self._lines[-1])
                    # A review that came meanwhile goes first.
                    await asyncio.sleep(0)
                # A disk may take its time; a thread may wait for it.
                self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._lines))
                if not self._report(await asyncio.shield(self._writing)):
                    await asyncio.sleep(_AGAIN)
        finally:
            await self._end()

    async def _end(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=_LAST_WORDS)
            if not self._writing.done():
                return
            self._report(self._writing.result())
        self._lines += [self._next() for _ in range(len(self._waiting))]
        self._report(self._write(self._lines))
        self._close()

    def _report(self, problem: str) -> bool:
        """Count the lines that were to be written, and say whether they are: where there was no ``problem``."""
        self._count("failed" if problem else "written", sum(1 for line in self._lines if line))
        self._lines, self._writing = [], None
        if self._removed:
            self._log.info("the oldest recordings made room", directory=str(self._directory), files=self._removed)
            self._removed = 0
        if problem:
            self._say("reviews cannot be recorded", problem)
        return not problem

    def _next(self) -> bytes:
        """The line of the review that waits for longest; empty where it cannot be made."""
        taken = self._waiting.popleft()
        self._bytes -= len(taken.body)
        try:
            line = line_of(taken)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is not written as it came
            return self._unmade(f"{type(error).__name__}: {error}")
        return line if len(line) <= self._limit // _FILES else self._unmade("it is too large")

    def _unmade(self, why: str) -> bytes:
        self._count("failed", 1)
        self._say("a review could not be recorded", why)
        return b""

    def _write(self, lines: Sequence[bytes]) -> str:
        """Put ``lines`` into a file; what stood in the way, or nothing. Runs in a thread, one call at a time."""
        text = b"".join(lines)
        try:
            if text:
                self._append(text)
        except Exception as error:  # noqa: BLE001 - recording must never end the server
            self._close()
            return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        return ""

    def _append(self, text: bytes) -> None:
        stream = self._open(len(text))
        size = os.fstat(stream).st_size
        try:
            rest = memoryview(text)
            while rest:
                rest = rest[os.write(stream, rest) :]
        except OSError:
            # Half a line would be in the way of the next one.
            os.ftruncate(stream, size)
            raise

    def _open(self, more: int) -> int:
        """The file to write ``more`` bytes to; a new one where the last is full, or was removed."""
        if self._stream is not None:
            status = os.fstat(self._stream)
            if status.st_nlink and status.st_size + more <= self._limit // _FILES:
                return self._stream
            self._close()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(max(more, self._limit // _FILES))
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        path = self._directory / f"{_PREFIX}{stamp}-{socket.gethostname()}{SUFFIX}"
        self._stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        return self._stream

    def _make_room(self, more: int) -> None:
        """Remove the oldest recordings, whoever wrote them, until ``more`` bytes fit."""
        found = sorted(self._directory.glob(f"{_PREFIX}*{SUFFIX}"))
        sizes = {path: path.lstat().st_size for path in found}
        total = sum(sizes.values())
        for path in found:
            if total + more <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= sizes[path]
            self._removed += 1

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(OSError):
                os.close(stream)

    def _say(self, message: str, error: str) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _SILENCE
            self._log.warning(message, directory=str(self._directory), error=error)


def line_of(taken: _Taken) -> bytes:
    """One line of JSON: the review without its secrets, and what was answered."""
    review = Redactor(os.urandom(16)).review(orjson.loads(taken.body))
    review[RECORDED] = _answer(taken)
    return orjson.dumps(review, option=orjson.OPT_APPEND_NEWLINE)


def _answer(taken: _Taken) -> dict[str, Any]:
    decision = taken.decision or Decision()
    return {
        "time": datetime.fromtimestamp(taken.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "endpoint": taken.endpoint,
        "allowed": taken.verdict.allowed,
        "changed": [change.rule for change in decision.changes] if taken.verdict.allowed else [],
        "wouldChange": [change.rule for change in decision.would_change],
        "findings": [_finding(one) for one in decision.findings],
        "policies": [f"{policy.name}@{policy.generation}" for policy in taken.policies],
    }


def _finding(one: Judged) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "reason": one.finding.reason,
        "severity": one.severity.value,
        **({"wouldRefuse": True} if one.would_refuse else {}),
    }
