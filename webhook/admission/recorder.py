"""Record reviews with their answers, without secrets, in a directory of limited size; reviews never wait for it."""

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
#: Key of the answer, beside the request.
RECORDED: Final = "recorded"
#: Limits of the queue: reviews, and bytes of their bodies.
_MOST_WAITING: Final = 2_000
_MOST_BYTES: Final = 16 * 1024 * 1024
#: Bytes per write.
_BATCH: Final = 256 * 1024
#: Number of files that share the limit: the oldest one is removed for a new one.
_FILES: Final = 8
#: Seconds between two log lines about the same problem, and until the next try.
_SILENCE: Final = 60.0
_RETRY: Final = 10.0
#: Timeout of a running write at the end. Seconds.
_FINAL_WRITE: Final = 5.0

Outcome: TypeAlias = Literal["written", "dropped", "failed"]


class _PendingReview(NamedTuple):
    at: float
    endpoint: str
    body: bytes
    response: AdmissionResponse
    decision: Decision | None
    policies: Sequence[Policy]


class ReviewRecorder:
    """Queues reviews until `run` writes them."""

    def __init__(
        self, directory: Path, limit: int, log: Log, *, count: Callable[[Outcome, int], None] = lambda _outcome, _number: None
    ) -> None:
        """Write files of at most ``limit`` bytes in total into ``directory``."""
        self._directory, self._limit, self._log, self._count = directory, limit, log, count
        self._waiting: deque[_PendingReview] = deque()
        self._bytes = 0
        self._stream: int | None = None
        self._quiet_until = float("-inf")
        self._lines: list[bytes] = []
        self._removed = 0
        self._writing: asyncio.Future[str] | None = None
        self._wake = asyncio.Event()

    def record(
        self, endpoint: str, body: bytes, response: AdmissionResponse, decision: Decision | None, policies: Sequence[Policy]
    ) -> None:
        """Queue a review; a review above the limits is dropped and counted."""
        if len(self._waiting) >= _MOST_WAITING or self._bytes + len(body) > _MOST_BYTES:
            self._count("dropped", 1)
            return
        self._waiting.append(_PendingReview(time.time(), endpoint, body, response, decision, policies))
        self._bytes += len(body)
        self._wake.set()

    async def run(self) -> None:
        """Write queued reviews until cancelled, and then the rest of the queue."""
        try:
            while True:
                if not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
                size = 0
                while self._waiting and size < _BATCH:
                    self._lines.append(self._next_line())
                    size += len(self._lines[-1])
                    # Let waiting reviews run first.
                    await asyncio.sleep(0)
                # A disk may be slow: write in a thread.
                self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._lines))
                if not self._report(await asyncio.shield(self._writing)):
                    await asyncio.sleep(_RETRY)
        finally:
            await self._finish()

    async def _finish(self) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing}, timeout=_FINAL_WRITE)
            if not self._writing.done():
                return
            self._report(self._writing.result())
        self._lines += [self._next_line() for _ in range(len(self._waiting))]
        self._report(self._write(self._lines))
        self._close()

    def _report(self, problem: str) -> bool:
        """Count the written lines; return whether writing succeeded."""
        self._count("failed" if problem else "written", sum(1 for line in self._lines if line))
        self._lines, self._writing = [], None
        if self._removed:
            self._log.info("removed the oldest recordings", directory=str(self._directory), files=self._removed)
            self._removed = 0
        if problem:
            self._warn_limited("cannot record reviews", problem)
        return not problem

    def _next_line(self) -> bytes:
        """Format the oldest queued review; return an empty line if that fails."""
        pending = self._waiting.popleft()
        self._bytes -= len(pending.body)
        try:
            line = line_of(pending)
        except Exception as error:  # noqa: BLE001 - never write an unredacted review
            return self._count_failed(f"{type(error).__name__}: {error}")
        return line if len(line) <= self._limit // _FILES else self._count_failed("it is too large")

    def _count_failed(self, reason: str) -> bytes:
        self._count("failed", 1)
        self._warn_limited("cannot record a review", reason)
        return b""

    def _write(self, lines: Sequence[bytes]) -> str:
        """Write ``lines``; return the problem, empty for none. Runs in a thread, one call at a time."""
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
            # Remove an incomplete line.
            os.ftruncate(stream, size)
            raise

    def _open(self, more: int) -> int:
        """Return the file for ``more`` bytes; a new one if the last is full or was removed."""
        if self._stream is not None:
            status = os.fstat(self._stream)
            if status.st_nlink and status.st_size + more <= self._limit // _FILES:
                return self._stream
            self._close()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_oldest(max(more, self._limit // _FILES))
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        path = self._directory / f"{_PREFIX}{stamp}-{socket.gethostname()}{SUFFIX}"
        self._stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        return self._stream

    def _remove_oldest(self, more: int) -> None:
        """Remove the oldest recordings of any process until ``more`` bytes fit."""
        sizes = {path: path.lstat().st_size for path in sorted(self._directory.glob(f"{_PREFIX}*{SUFFIX}"))}
        total = sum(sizes.values())
        for path, size in sizes.items():
            if total + more <= self._limit:
                return
            path.unlink(missing_ok=True)
            total -= size
            self._removed += 1

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(OSError):
                os.close(stream)

    def _warn_limited(self, message: str, error: str) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _SILENCE
            self._log.warning(message, directory=str(self._directory), error=error)


def line_of(pending: _PendingReview) -> bytes:
    """Format one line of JSON: the review without secrets, and its answer."""
    review = Redactor(os.urandom(16)).review(orjson.loads(pending.body))
    review[RECORDED] = _answer(pending)
    return orjson.dumps(review, option=orjson.OPT_APPEND_NEWLINE)


def _answer(pending: _PendingReview) -> dict[str, Any]:
    decision = pending.decision or Decision()
    return {
        "time": datetime.fromtimestamp(pending.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "endpoint": pending.endpoint,
        "allowed": pending.response.allowed,
        "changed": [change.rule for change in decision.changes] if pending.response.allowed else [],
        "wouldChange": [change.rule for change in decision.would_change],
        "findings": [_finding(finding) for finding in decision.findings],
        "policies": [f"{policy.name}@{policy.generation}" for policy in pending.policies],
    }


def _finding(judged: Judged) -> dict[str, Any]:
    return {
        "rule": judged.rule,
        "reason": judged.finding.reason,
        "severity": judged.severity.value,
        **({"wouldRefuse": True} if judged.would_refuse else {}),
    }
