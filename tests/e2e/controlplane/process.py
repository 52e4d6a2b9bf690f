"""Child processes that log to a file and never outlive the process that started them."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from tests.e2e.controlplane.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from types import FrameType, TracebackType
    from typing import Self

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_running: dict[int, ManagedProcess] = {}


class ProcessFailed(RuntimeError):
    """A process ended, or did not become ready, when it should have run. The message shows the end of its log."""


class ManagedProcess:
    """A child process in a process group of its own.

    It is stopped by `stop`, by leaving the `with` block, when this process exits or gets SIGTERM or SIGHUP; and the
    kernel kills it when this process dies any other way. For the last, start it from a thread that lives on: to the
    kernel the parent is the thread.
    """

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, popen: subprocess.Popen[bytes]) -> None:
        """Wrap a process that already runs; use `start`."""
        self.name = name
        self.command = tuple(str(word) for word in command)
        self.log = log
        self._popen = popen

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> ManagedProcess:
        """Start `command`, its output appended to `log`. `env` is added to this process's environment."""
        _stop_on_signals()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            output.write(f"$ {shlex.join(str(word) for word in command)}\n".encode())
            output.flush()
            popen = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  two system calls, no lock taken
            )
        process = cls(name, command, log, popen)
        _running[popen.pid] = process
        return process

    @property
    def pid(self) -> int:
        """The process id, which is the id of its group too."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status (negative: the signal), or None while it runs. What it left in its group ends with it."""
        if self._ended():
            self._reap()
        return self._popen.returncode

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._ended()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, probe: Callable[[], bool], timeout: float = 60.0) -> None:
        """Wait until `probe` says yes (an OSError of it means not yet); fail at once if the process ends."""

        def ready_or_ended() -> bool:
            return self._ended() or probe()

        try:
            wait_until(ready_or_ended, timeout, f"{self.name} to be ready", retry_on=(OSError,))
        except AssertionError as error:
            raise ProcessFailed(f"{error}\n{self._explain()}") from error
        if self._ended():
            raise ProcessFailed(f"{self.name} ended with status {self.returncode}\n{self._explain()}")

    def send_signal(self, number: int) -> None:
        """Send a signal to the process alone, not to its group."""
        self._popen.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Wait for its end by itself and return the exit status."""
        wait_until(self._ended, timeout, f"{self.name} to end")
        self._reap()
        return self._popen.returncode

    def stop(self, grace: float = 5.0) -> None:
        """End the whole group: SIGTERM, and SIGKILL for what is left after `grace` seconds. Idempotent."""
        stop_all([self], grace)

    def __enter__(self) -> Self:
        """Nothing more to do: it runs already."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop it."""
        self.stop()

    def _ended(self) -> bool:
        """Whether it has ended, without collecting its status: a zombie keeps the group's id from being reused."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _send_group(self, number: signal.Signals) -> None:
        if self.pid in _running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _reap(self) -> None:
        self._send_group(signal.SIGKILL)
        _running.pop(self.pid, None)
        try:
            self._popen.wait(5)
        except subprocess.TimeoutExpired as error:
            raise ProcessFailed(f"{self.name} (pid {self.pid}) survives SIGKILL") from error

    def _explain(self) -> str:
        return f"command: {shlex.join(self.command)}\nlog {self.log}, its end:\n{self.log_tail()}"


def stop_all(processes: Iterable[ManagedProcess], grace: float = 5.0) -> None:
    """Stop processes in the reverse of the order given, one after the other: what is used ends after its users.

    Each has `grace` seconds between SIGTERM and SIGKILL.
    """
    for process in reversed([process for process in processes if process.pid in _running]):
        process._send_group(signal.SIGTERM)
        deadline = time.monotonic() + grace
        while not process._ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        process._reap()


def die_with(parent: int) -> Callable[[], None]:
    """What a child does between fork and exec, so that the kernel kills it when its parent dies."""

    def ask_kernel() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask_kernel


_signals_handled = False


def _stop_on_signals() -> None:
    """Stop every child when this process is told to end; then let the signal do what it did before."""
    global _signals_handled  # noqa: PLW0603  handlers belong to the process, so does the flag
    if _signals_handled or threading.current_thread() is not threading.main_thread():
        return
    _signals_handled = True
    atexit.register(lambda: stop_all(list(_running.values())))
    for number in (signal.SIGTERM, signal.SIGHUP):
        before = signal.getsignal(number)
        if before is not signal.SIG_IGN:
            signal.signal(number, _stop_then(before))


def _stop_then(
    before: Callable[[int, FrameType | None], object] | int | None,
) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        stop_all(list(_running.values()))
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    return handle
