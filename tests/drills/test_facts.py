"""A replica that starts while the apiserver does not answer."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from ruamel.yaml import YAML

from benchmarks.apiserver import kubeconfig
from benchmarks.load import running as running_beside
from gpugate.policies.workloads.kinds import kind_of
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.files.inputs import load_facts, load_policies
from gpugate.webhook.runtime.log import Log
from tests.drills.replica import Replica, replica, until
from tests.drills.wire import Connection
from tests.shared.reviews import CLUSTER, POLICY, WORKLOADS, admission, patched, well_formed

Adds = Callable[[str, str, str, str], None]
#: Seconds that the apiserver is silent.
_SILENT = 5.0


class _Gate:
    """A port that takes connections, and forwards them only once it is open.

    Attributes:
        port: where it listens.
        taken: connections so far.
    """

    def __init__(self, target: int) -> None:
        self.port, self.taken = 0, 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._open, self._over = asyncio.Event(), asyncio.Event()

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self._open.set)

    @contextmanager
    def running(self) -> Iterator[_Gate]:
        started = threading.Event()
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run(started)), daemon=True)
        thread.start()
        assert started.wait(30)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join(30)

    async def _run(self, started: threading.Event) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._over.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.taken += 1
        await self._open.wait()
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(_copy(reader, onward_writer), _copy(onward_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def _allowed_examples() -> list[dict[str, Any]]:
    """Return the examples that are allowed, as they are or once completed, where all facts are known."""
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        handler = AdmissionHandler(CurrentState(load_facts([CLUSTER]), load_policies([POLICY])), Metrics(), Log(nowhere))
        allowed = []
        for path in sorted(WORKLOADS.glob("*.yaml")):
            for obj in YAML(typ="safe").load_all(path.read_text(encoding="utf-8")):
                if kind_of(str(obj.get("apiVersion")), str(obj.get("kind"))) is None:
                    continue
                first = well_formed(handler.answer("mutate", _review(obj)))
                if first["allowed"] and well_formed(handler.answer("validate", _review(patched(obj, first))))["allowed"]:
                    allowed.append(obj)
    return allowed


def _review(obj: dict[str, Any]) -> bytes:
    return orjson.dumps(admission(obj, namespace=obj["metadata"].get("namespace", "team-a")))


async def _through(server: Replica, objects: list[dict[str, Any]]) -> tuple[int, float]:
    """Send objects through both endpoints; return how many were allowed, and the slowest review in seconds."""
    connection, allowed, slowest = Connection(server.port, server.context()), 0, 0.0
    for obj in objects:
        now = obj
        for endpoint in ("mutate", "validate"):
            started = time.perf_counter()
            status, answer = await connection.ask(connection.review(endpoint, _review(now)))
            slowest = max(slowest, time.perf_counter() - started)
            assert status == 200
            response = well_formed(answer)
            assert response["allowed"], (obj["metadata"]["name"], response["status"]["message"])
            now = patched(now, response)
        allowed += 1
    connection.close()
    return allowed, slowest


async def _asked(server: Replica, path: str) -> tuple[int, str]:
    connection = Connection(server.port, server.context())
    status, body = await connection.ask(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    connection.close()
    return status, body.decode()


def test_a_replica_without_facts_is_not_ready_and_refuses_nothing_for_lack_of_them(tmp_path: Path, row: Adds) -> None:
    objects = _allowed_examples()
    assert len(objects) > 30
    play = [sys.executable, "-m", "benchmarks.apiserver", "--nodes=50", "--pods=500", f"--policy={POLICY}"]
    with running_beside(play, tmp_path / "apiserver.log") as played, _Gate(played.port).running() as gate:
        (tmp_path / "kubeconfig").write_text(kubeconfig(gate.port), encoding="utf-8")
        options = (f"--policy={POLICY}", f"--kubeconfig={tmp_path / 'kubeconfig'}")
        with replica(tmp_path / "replica", *options) as running:
            until(lambda: gate.taken > 0, "the replica asks the apiserver")
            ends = time.monotonic() + _SILENT
            slowest, rounds = 0.0, 0
            while time.monotonic() < ends:
                status, text = asyncio.run(_asked(running, "/readyz"))
                assert (status, text.partition(":")[0]) == (503, "not synced yet")
                assert asyncio.run(_asked(running, "/healthz"))[0] == 200
                allowed, slow = asyncio.run(_through(running, objects))
                assert allowed == len(objects)
                slowest, rounds = max(slowest, slow), rounds + 1
            gate.open()
            ready = until(lambda: asyncio.run(_asked(running, "/readyz"))[0] == 200, "the replica is ready")
            assert running.alive
            assert not running.tracebacks()
    row(
        f"a start while the apiserver takes connections and answers nothing for {_SILENT:.0f} s",
        "not ready, alive; every example that is allowed with facts is allowed without them; then ready",
        "held",
        f"{rounds * len(objects):,} allowed, none refused, slowest {1000 * slowest:.0f} ms; "
        f"ready {ready:.1f} s after the apiserver answers",
    )
