"""A steady stream of honest reviews, sent as an apiserver sends them, from a process of its own.

Each answer is compared with the one that gpugate gives in process. A connection that the replica closed while it was idle is opened
once more, as Go's HTTP client does. Replicas are chosen as a Service does: those whose last readiness probe succeeded.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import uvloop

from gpugate.policies.policy.models import Policy
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.files.inputs import load_facts, load_policies
from gpugate.webhook.runtime.log import Log
from tests.drills.replica import Replica
from tests.drills.wire import ClosedError, Connection
from tests.shared.paths import ROOT
from tests.shared.reviews import CLUSTER, POLICY, admission, cpu_pod, overcommitted_pod, patch_of, patched, pod, well_formed

#: Timeout of the webhooks in `manifests/base`. Seconds.
TIMEOUT: Final = 3.0
_CONNECTIONS: Final = 4
#: Reviews a second, all connections together.
RATE: Final = 100.0
#: Reviews before those that count.
_WARM: Final = 10
#: Seconds between two readiness probes, and their timeout; a kubelet takes 3 and 2.
_PERIOD: Final = 0.5
_UID: Final = b"705ab4f5-6393-11e8-b7cc-42010a800002"


class Sent(NamedTuple):
    """One honest review.

    Attributes:
        at: when it was sent, in seconds since the epoch.
        port: which replica it was sent to.
        outcome: ``right``, ``wrong``, ``late``, ``lost`` or ``refused`` (the connection, not the object).
        seconds: until the answer, or until it was given up.
        detail: what was wrong.
    """

    at: float
    port: int
    outcome: str
    seconds: float
    detail: str


class Result:
    """What came of a stream."""

    def __init__(self, sent: Sequence[Sent]) -> None:
        self.sent = sent

    def those(self, *outcomes: str) -> list[Sent]:
        return [review for review in self.sent if review.outcome in outcomes]

    @property
    def bad(self) -> list[Sent]:
        return [review for review in self.sent if review.outcome != "right"]

    def milliseconds(self, share: float) -> float:
        """Return the given quantile of the times of right answers."""
        times = sorted(review.seconds for review in self.those("right"))
        return 1000 * times[min(len(times) - 1, int(len(times) * share))] if times else float("inf")

    def __str__(self) -> str:
        return f"{len(self.those('right'))} of {len(self.sent)} right, p99 {self.milliseconds(0.99):.0f} ms"


class Stream:
    """A stream under way; `result` is there once its block has ended."""

    result: Result


def _job() -> dict[str, Any]:
    made = pod("pretrain", gpus=8)
    template = {"spec": {**made["spec"], "restartPolicy": "Never"}}
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": made["metadata"], "spec": spec}


def pairs(policies: Sequence[Policy] | None = None) -> list[tuple[str, bytes, bytes]]:
    """Return endpoint, body and answer of the honest reviews: completed, allowed, refused and not changed."""
    state = CurrentState(load_facts([CLUSTER]), load_policies([POLICY]) if policies is None else policies)
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        handler = AdmissionHandler(state, Metrics(), Log(nowhere))
        made = []
        for obj in (pod(), _job()):
            body = orjson.dumps(admission(obj))
            answer = handler.answer("mutate", body)
            assert patch_of(well_formed(answer))
            checked = orjson.dumps(admission(patched(obj, well_formed(answer))))
            made += [("mutate", body, answer), ("validate", checked, handler.answer("validate", checked))]
            assert well_formed(made[-1][2])["allowed"]
        for endpoint, obj in (("validate", overcommitted_pod()), ("mutate", cpu_pod())):
            body = orjson.dumps(admission(obj))
            made.append((endpoint, body, handler.answer(endpoint, body)))
        assert not well_formed(made[-2][2])["allowed"]
        assert not patch_of(well_formed(made[-1][2]))
    return made


@contextmanager
def honest(*replicas: Replica, rate: float = RATE, reviews: int = 0) -> Iterator[Stream]:
    """Send honest reviews to ``replicas`` while the block runs, at most ``reviews`` over one connection if that is not 0."""
    options = {
        "ports": [replica.port for replica in replicas],
        "ca": str(replicas[0].ca),
        "rate": rate,
        "reviews": reviews,
        "pairs": [(endpoint, body.decode(), answer.decode()) for endpoint, body, answer in pairs()],
    }
    stream = Stream()
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, cwd=ROOT
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(orjson.dumps(options) + b"\n")
            process.stdin.flush()
            # The first line says that every replica has answered.
            assert process.stdout.readline() == b"ready\n", _text(output)
            yield stream
            process.stdin.close()
            answer = process.stdout.read()
            assert answer, _text(output)
            stream.result = Result([Sent(*sent) for sent in orjson.loads(answer)])
        finally:
            if process.poll() is None:
                process.kill()


def _text(output: Any) -> str:
    output.seek(0)
    return str(output.read().decode())


class _Client:
    """Sends reviews until it is told to stop."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._context = ssl.create_default_context(cafile=options["ca"])
        self._ports: list[int] = options["ports"]
        self._ready = set(self._ports)
        self._every = _CONNECTIONS / options["rate"]
        self._most = options["reviews"]
        self._pairs = [(endpoint, body.encode(), answer.encode()) for endpoint, body, answer in options["pairs"]]
        self._number = 0
        self._random = random.Random(1)  # noqa: S311
        self.warm, self.ending = asyncio.Event(), asyncio.Event()
        self.sent: list[Sent] = []

    async def probe(self, port: int) -> None:
        """Probe one replica until cancelled; with one replica alone the Service has nowhere else to go."""
        connection = Connection(port, self._context)
        while True:
            try:
                async with asyncio.timeout(_PERIOD):
                    status, _ = await connection.ask(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            except (OSError, TimeoutError, ClosedError):
                status = 0
            connection.close()
            (self._ready.add if status == 200 else self._ready.discard)(port)
            await asyncio.sleep(_PERIOD)

    async def work(self) -> None:
        """Send a review every so often over one connection."""
        connection: Connection | None = None
        used = 0
        due = time.perf_counter() + self._every * self._random.random()
        while not self.ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - time.perf_counter())):
                    await self.ending.wait()
                    break
            due = max(due + self._every, time.perf_counter())
            # A kept-alive connection stays with its replica: the Service chooses for new connections alone.
            if connection is not None and used == self._most > 0:
                connection.close()
                connection = None
            if connection is None:
                connection = Connection(self._random.choice(sorted(self._ready) or self._ports), self._context)
                used = 0
            used += 1
            if not await self._one(connection):
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    async def _one(self, connection: Connection) -> bool:
        """Send one review; return whether the connection can be used again."""
        self._number += 1
        endpoint, body, wanted = self._pairs[self._number % len(self._pairs)]
        uid = b"honest-%d" % self._number
        request = connection.review(endpoint, body.replace(_UID, uid), timeout=TIMEOUT)
        at, started = time.time(), time.perf_counter()
        outcome, detail = "right", ""
        try:
            async with asyncio.timeout(TIMEOUT):
                status, answer = await connection.ask(request)
            if status != 200 or answer != wanted.replace(_UID, uid):
                outcome, detail = "wrong", f"{status} {answer.decode(errors='replace')[:300]}"
        except TimeoutError:
            outcome = "late"
        except ConnectionRefusedError:
            outcome = "refused"
        except (OSError, ClosedError) as error:
            outcome, detail = "lost", f"{type(error).__name__}: {error}"
        seconds = time.perf_counter() - started
        self.sent.append(Sent(at, connection.port, outcome, seconds, detail))
        if self._number > _WARM and outcome == "right":
            self.warm.set()
        return outcome in {"right", "wrong"} and not connection.closed


async def _run() -> None:
    line = await asyncio.to_thread(sys.stdin.readline)
    client = _Client(json.loads(line))
    probes = [asyncio.create_task(client.probe(port)) for port in client._ports] if len(client._ports) > 1 else []
    workers = [asyncio.create_task(client.work()) for _ in range(_CONNECTIONS)]
    await client.warm.wait()
    client.sent.clear()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    client.ending.set()
    await asyncio.gather(*workers)
    for probe in probes:
        probe.cancel()
    sys.stdout.buffer.write(orjson.dumps([tuple(sent) for sent in client.sent]))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run())
