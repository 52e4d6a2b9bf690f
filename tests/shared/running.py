"""A real `gpugate serve` in a process of its own, and clients for it."""

from __future__ import annotations

import http.client
import os
import queue
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, Protocol

import orjson

from tests.shared.forked import Forked

#: Seconds that anything may take before a test gives up on it; a slow machine needs a fraction.
PATIENCE = 30.0
_CLEAN = {key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "FORCE_COLOR", "NO_COLOR"}}


def run(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run gpugate to its end."""
    with TemporaryFile() as given, TemporaryFile() as stdout, TemporaryFile() as stderr:
        given.write(stdin)
        given.seek(0)
        running = Forked(arguments, [given.fileno(), stdout.fileno(), stderr.fileno()], {**_CLEAN, **environment})
        try:
            code = running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        for stream in (stdout, stderr):
            stream.seek(0)
        return subprocess.CompletedProcess(running.arguments, code, stdout.read().decode(), stderr.read().decode())


class Process(Protocol):
    """What a fork and a subprocess have in common."""

    def poll(self) -> int | None: ...
    def wait(self, timeout: float) -> int: ...
    def send_signal(self, number: signal.Signals, /) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Answer(NamedTuple):
    """One HTTP answer."""

    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def text(self) -> str:
        return self.body.decode()


class Server:
    """One running server.

    Attributes:
        process: the process.
        port: where it listens.
        directory: where its certificates are.
    """

    def __init__(self, process: Process, stderr: IO[bytes], directory: Path) -> None:
        self.process = process
        self.directory = directory
        self._stderr = stderr
        self._raw: list[bytes] = []
        self._arrived: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        address = str(self.logged(message="listening")["address"])
        self.port = int(address.rpartition(":")[2])

    def _read(self) -> None:
        for line in self._stderr:
            self._raw.append(line)
            self._arrived.put(line)
        self._arrived.put(None)

    @property
    def output(self) -> list[bytes]:
        """All that it wrote so far, a line each."""
        return list(self._raw)

    def logged(self, **fields: Any) -> dict[str, Any]:
        """Wait for the next line of the log that has these fields; lines before it are passed over."""
        while True:
            line = self._arrived.get(timeout=PATIENCE)
            assert line is not None, f"the server ended: {b''.join(self._raw).decode()}"
            try:
                found = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if all(found.get(key) == value for key, value in fields.items()):
                return dict(found)

    def context(self, **versions: ssl.TLSVersion) -> ssl.SSLContext:
        """A client context that trusts the server's own CA."""
        made = ssl.create_default_context(cafile=str(self.directory / "ca.crt"))
        for name, version in versions.items():
            setattr(made, f"{name}_version", version)
        return made

    def connection(self, context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context or self.context(), timeout=PATIENCE)

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, context: ssl.SSLContext | None = None, **headers: str
    ) -> Answer:
        """One request over a connection of its own."""
        connection = self.connection(context)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            return Answer(response.status, response.read(), response.headers)
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", path, body if isinstance(body, bytes) else orjson.dumps(body), **headers)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        self.join()
        return code

    def join(self) -> None:
        """Read the log to its end, once the process has ended."""
        self._reader.join(PATIENCE)


@contextmanager
def serving(directory: Path, *options: str, tls: Path | None = None, clock: Path | None = None) -> Iterator[Server]:
    """Start `gpugate serve` on a free port with a certificate of its own, or that of ``tls``, and stop it whatever happens.

    ``clock`` is a file with the seconds that the clock of the server is ahead.
    """
    certificate = f"--self-signed={directory}" if tls is None else f"--tls-dir={tls}"
    arguments = ["serve", "--listen", "127.0.0.1:0", certificate, "--drain-delay", "0", *options]
    reading, writing = os.pipe()
    with Path(os.devnull).open("r+b") as nothing, os.fdopen(reading, "rb") as stderr:
        process: Process
        if clock is None:
            process = Forked(arguments, [nothing.fileno(), nothing.fileno(), writing], _CLEAN)
        else:
            command = [sys.executable, "-m", "tests.shared.clocked", str(clock), *arguments]
            process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=writing, env=_CLEAN)
        os.close(writing)
        server = None
        try:
            server = Server(process, stderr, tls or directory)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(PATIENCE)
            if server is not None:
                server.join()
