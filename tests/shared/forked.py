"""gpugate in a process of its own, forked from one that has imported it.

Importing gpugate takes longer than most of its commands. A process of the tests imports it once, and each run is a fork of that
process with its own arguments, environment, standard streams and exit code.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import reduction
from pathlib import Path
from typing import Any

from gpugate.webhook.cli.main import main
from tests.shared.clocked import follow

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])


class _Descriptor:
    """A file descriptor that goes with the arguments of a process."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Any, ...]:
        return _detached, (reduction.DupFd(self._number),)


def _detached(duplicate: Any) -> int:
    return int(duplicate.detach())


def _run(
    arguments: Sequence[str], streams: Sequence[int], environment: Mapping[str, str], directory: str, clock: Path | None
) -> None:
    """What a fork does."""
    if clock is not None:
        follow(clock)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # multiprocessing gives forks no standard input.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the process ends with it
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = ["gpugate", *arguments]
    main()


class Forked:
    """A run of gpugate.

    Attributes:
        arguments: what it was started with.
    """

    def __init__(
        self, arguments: Sequence[str], streams: Sequence[int], environment: Mapping[str, str], clock: Path | None = None
    ) -> None:
        """Start it with descriptors for standard input, output and error, and with the clock of a file if one is given."""
        self.arguments = list(arguments)
        described = [_Descriptor(stream) for stream in streams]
        # A daemonic process ends with the tests, however they end.
        self._process = _FORKS.Process(
            target=_run, args=(self.arguments, described, dict(environment), str(Path.cwd()), clock), daemon=True
        )
        self._process.start()

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Return the exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: it runs on after ``timeout`` seconds.
        """
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.arguments, timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()
