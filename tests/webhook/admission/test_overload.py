"""The real server under floods: what it holds is bounded, and probes, small reviews and SIGTERM are answered meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.load import memory_mib
from tests.shared.forked import Forked
from tests.shared.reviews import CLUSTER, POLICY, admission, counted, pod, well_formed
from tests.shared.running import _CLEAN, PATIENCE, Server, serving

FACTS = ("--policy", str(POLICY), "--cluster", str(CLUSTER))
BODY = 4 * 1024 * 1024 - 1024
UNFINISHED = 120


def head(length: int, timeout: str = "30s") -> bytes:
    lines = [f"POST /validate?timeout={timeout} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def heavy_review() -> bytes:
    """A review whose decision takes many times that of a usual one."""
    made = pod()
    container = made["spec"]["containers"][0]
    made["spec"]["containers"] = [
        {**container, "name": f"worker-{number}", "env": [{"name": f"V{key}", "value": "x" * 50} for key in range(400)]}
        for number in range(100)
    ]
    return orjson.dumps(admission(made))


@contextmanager
def flooding(server: Server, body: bytes, clients: int) -> Iterator[list[bytes]]:
    """Clients that send ``body`` over and over; the first bytes of what they are answered."""
    ended, answers = threading.Event(), list[bytes]()

    def send() -> None:
        with suppress(OSError), ExitStack() as closing:
            while not ended.is_set():
                plain = closing.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
                secured = closing.enter_context(server.context().wrap_socket(plain, server_hostname="127.0.0.1"))
                with suppress(OSError):
                    while not ended.is_set():
                        secured.sendall(head(len(body), "3s") + body)
                        answer = secured.recv(65536)
                        if not answer:
                            break
                        answers.append(answer[:12])

    threads = [threading.Thread(target=send, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        ended.set()
        for thread in threads:
            thread.join(PATIENCE)


def until(holds: Callable[[], Any], what: str) -> None:
    """Look until ``holds``."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path, *FACTS, "--drain-timeout", "1") as running:
        yield running


def pid_of(server: Server) -> int:
    number = server.process._process.pid
    assert number is not None
    return number


def test_unfinished_bodies_take_bounded_memory_and_small_reviews_pass(server: Server) -> None:
    context = server.context()
    with ExitStack() as closing:
        streams = []
        for _ in range(UNFINISHED):
            plain = closing.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
            streams.append(closing.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1")))
        for stream in streams:
            # The server may have closed it for the room of others.
            with suppress(OSError):
                stream.sendall(head(BODY) + b" " * (BODY - 1000))
        assert well_formed(server.post("/mutate", admission(pod())).body)["allowed"]
        metrics = server.ask("GET", "/metrics").text
        assert counted(metrics, 'gpugate_shed_reviews_total{reason="bytes"}') > UNFINISHED / 2
        assert 0 < counted(metrics, "gpugate_body_bytes") <= 32 * 1024 * 1024
        assert memory_mib(pid_of(server), "VmHWM") < 256
    until(lambda: counted(server.ask("GET", "/metrics").text, "gpugate_body_bytes") == 0, "the bytes are still counted")


def test_a_body_that_says_it_is_too_large_is_answered_before_it_comes(server: Server) -> None:
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as plain,
        server.context().wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        secured.sendall(head(1 << 40))
        assert secured.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_probes_are_answered_however_many_connections_stand_open(server: Server) -> None:
    with ExitStack() as closing:
        for _ in range(600):
            closing.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
        assert server.ask("GET", "/healthz").status == 200
        metrics = server.ask("GET", "/metrics").text
        assert counted(metrics, "gpugate_connections") <= 512
        assert counted(metrics, 'gpugate_closed_connections_total{reason="evicted"}') > 50


def test_exhausted_descriptors_are_logged_and_recovered_from(server: Server) -> None:
    assert server.ask("GET", "/healthz").status == 200
    _, most = resource.prlimit(pid_of(server), resource.RLIMIT_NOFILE)
    open_now = len(list(Path(f"/proc/{pid_of(server)}/fd").iterdir()))
    resource.prlimit(pid_of(server), resource.RLIMIT_NOFILE, (open_now + 5, most))
    with ExitStack() as closing:
        for _ in range(20):
            closing.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
        line = server.logged(message="cannot accept connections")
        assert (line["level"], line["error"]) == ("error", "Too many open files")
        # Those that never asked make room.
        assert server.ask("GET", "/healthz").status == 200
    assert well_formed(server.post("/mutate", admission(pod())).body)["allowed"]


def test_probes_are_answered_while_reviews_flood(server: Server) -> None:
    with flooding(server, heavy_review(), 16) as answers:
        until(lambda: answers, "no review was answered")
        assert {server.ask("GET", path).status for path in ("/healthz", "/readyz", "/metrics")} == {200}
        assert well_formed(server.post("/mutate?timeout=30s", admission(pod())).body)["allowed"]
    assert set(answers) <= {b"HTTP/1.1 200", b"HTTP/1.1 429", b"HTTP/1.1 503"}


def test_sigterm_ends_the_server_in_the_midst_of_a_flood(server: Server) -> None:
    with flooding(server, heavy_review(), 16) as answers:
        until(lambda: answers, "no review was answered")
        started = time.monotonic()
        server.terminate()
        assert server.wait() == 0
        # The drain takes at most twice --drain-timeout; the rest is for a slow machine.
        assert time.monotonic() - started < 12
    messages = [orjson.loads(line)["message"] for line in server.output]
    assert messages[-1] == "stopped"
    assert not [line for line in server.output if b"traceback" in line]


def test_a_log_that_nobody_reads_stops_no_answer_and_not_the_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with Path(os.devnull).open("r+b") as nothing, os.fdopen(reading, "rb", buffering=0) as stderr:
        arguments = ["serve", "--listen", "127.0.0.1:0", "--self-signed", str(tmp_path), "--drain-delay", "0", *FACTS]
        process = Forked(arguments, [nothing.fileno(), nothing.fileno(), writing], _CLEAN)
        os.close(writing)
        try:
            port = 0
            while not port:
                line = orjson.loads(stderr.readline())
                if line["message"] == "listening":
                    port = int(str(line["address"]).rpartition(":")[2])
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
            body = orjson.dumps(admission(pod("greedy", memory="48Gi", request="4Gi")))
            with (
                socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
            ):
                # A line about each refusal has about a kilobyte; the pipe takes 64.
                for _ in range(300):
                    secured.sendall(head(len(body)) + body)
                    assert secured.recv(65536).startswith(b"HTTP/1.1 200 ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            if process.poll() is None:
                process.kill()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE)
