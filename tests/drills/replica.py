"""A `gpugate serve` in a process of its own, which a drill may stall, kill or starve."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from gpugate.certs.store import ensure
from tests.e2e.controlplane.process import die_with
from tests.shared.reviews import CLUSTER, POLICY

#: Seconds that anything may take before a drill gives up on it.
PATIENCE: Final = 60.0
#: Options of a replica with the policies and facts of the examples.
EXAMPLES: Final = (f"--policy={POLICY}", f"--cluster={CLUSTER}")
_CLEAN: Final = {key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "FORCE_COLOR", "NO_COLOR"}}
_COMMAND: Final = (str(Path(sys.executable).with_name("gpugate")),)


def certificates(directory: Path) -> Path:
    """Issue a CA and a certificate for loopback in ``directory``, and return the directory."""
    ensure(directory, ["localhost", "127.0.0.1"], datetime.now(UTC))
    return directory


class Replica:
    """One running replica.

    Attributes:
        process: the process.
        port: where it listens.
        ca: PEM file of the CA of its certificate.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, tls: Path, log: Path | None) -> None:
        self.process, self.port, self.ca = process, port, tls / "ca.crt"
        self._log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def context(self) -> ssl.SSLContext:
        """Return a client context that trusts the CA of the replica."""
        return ssl.create_default_context(cafile=str(self.ca))

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the log so far."""
        assert self._log is not None, "the log of this replica goes elsewhere"
        raw = self._log.read_bytes()
        return [orjson.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]

    def tracebacks(self) -> Counter[str]:
        """Return the failures of gpugate itself in the log, each by the end of its traceback, and lines that are not JSON."""
        assert self._log is not None, "the log of this replica goes elsewhere"
        found: Counter[str] = Counter()
        for line in self._log.read_bytes().splitlines():
            if not line.startswith(b"{"):
                found[line.decode(errors="replace")] += 1
            elif b'"traceback"' in line:
                fields = orjson.loads(line)
                found[f"{fields['message']} {fields.get('rule', '')}\n{fields['traceback'][-600:]}"] += 1
        return found

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def memory(self) -> float:
        """Return the resident memory of the replica in MiB, all its processes summed."""
        return sum(_resident(pid) for pid in _family(self.pid))

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(process for child in children for process in _family(int(child)))]


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE) -> float:
    """Wait until ``holds``, and return the seconds that it took."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < seconds, f"not after {seconds:.0f} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - started


@contextmanager
def replica(
    directory: Path, *options: str, tls: Path | None = None, stderr: int | None = None, command: Sequence[str] = _COMMAND
) -> Iterator[Replica]:
    """Start a replica, with its log in ``directory`` unless ``stderr`` is given, and end it whatever happens."""
    directory.mkdir(exist_ok=True)
    tls = tls or certificates(directory / "tls")
    port, log = free_port(), directory / "log"
    arguments = [*command, "serve", f"--listen=127.0.0.1:{port}", f"--tls-dir={tls}", "--drain-delay=0", *options]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream if stderr is None else stderr,
            env=_CLEAN,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  two system calls, no lock taken
        )
    with process:
        running = Replica(process, port, tls, log if stderr is None else None)
        try:
            until(lambda: _listens(port) or not running.alive, "the replica listens")
            assert running.alive, log.read_text(encoding="utf-8")
            yield running
        finally:
            # A stopped process does not take SIGTERM.
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
