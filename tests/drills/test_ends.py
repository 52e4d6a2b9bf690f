"""Replicas that end, or stall, under load."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from tests.drills.honest import TIMEOUT, honest
from tests.drills.replica import EXAMPLES, certificates, replica, until
from tests.drills.wire import ClosedError, Connection
from tests.shared.reviews import admission, overcommitted_pod, pod, well_formed

Adds = Callable[[str, str, str, str], None]
_CLIENTS = 16
_HELD = "held"
#: Seconds of load before and after the fault.
_LOAD = 3.0
#: Seconds between two probes of the stream, the timeout of one, and the longest review under way: what a fault may cost.
_NOTICED = 2 * 0.5 + TIMEOUT + 1.0


async def _until_the_end(port: int, context: object, answered: list[str], unanswered: list[str]) -> None:
    """Send reviews over kept-alive connections until the server accepts none; note the uids."""

    async def one(client: int) -> None:
        connection, number = Connection(port, context), 0  # type: ignore[arg-type]
        while True:
            number += 1
            uid = f"{client}-{number}"
            endpoint, obj = ("validate", overcommitted_pod()) if number % 2 else ("mutate", pod())
            request = connection.review(endpoint, orjson.dumps(admission(obj, uid=uid)))
            try:
                # Connect first: what is sent over an open connection has been accepted, unless nobody reads it.
                status, answer = await connection.ask(request)
            except (OSError, ClosedError):
                unanswered.append(uid)
                connection.close()
                return
            assert status == 200
            assert well_formed(answer)["uid"] == uid
            answered.append(uid)
            if connection.closed:
                connection.close()
                connection = Connection(port, context)  # type: ignore[arg-type]

    await asyncio.gather(*(one(client) for client in range(_CLIENTS)))


def test_on_sigterm_under_load_every_review_that_was_taken_is_answered(tmp_path: Path, row: Adds) -> None:
    answered: list[str] = []
    unanswered: list[str] = []
    with replica(tmp_path / "replica", *EXAMPLES, "--drain-delay=1") as running:

        async def drill() -> float:
            load = asyncio.create_task(_until_the_end(running.port, running.context(), answered, unanswered))
            while len(answered) < _CLIENTS:  # noqa: ASYNC110 - it shows in another process
                await asyncio.sleep(0.05)
            await asyncio.sleep(_LOAD)
            running.send(signal.SIGTERM)
            started = time.monotonic()
            await asyncio.to_thread(running.process.wait, 20)
            ended = time.monotonic() - started
            await load
            return ended

        seconds = asyncio.run(drill())
        assert running.process.returncode == 0
        decided = {line["uid"] for line in running.lines() if line["message"] == "review"}
        assert [line["message"] for line in running.lines()][-1] == "stopped"
        assert not running.tracebacks()
    lost = decided & set(unanswered)
    assert not lost
    assert set(answered) <= decided
    assert seconds < 5
    row(
        f"SIGTERM under {_CLIENTS} clients that send without a pause, with a drain delay of 1 s",
        "every review that was taken is answered, exit code 0",
        _HELD,
        f"{len(answered):,} answered, {len(lost)} taken and not answered, ended after {seconds:.1f} s",
    )


def test_after_kill_9_the_other_replica_answers(tmp_path: Path, row: Adds) -> None:
    tls = certificates(tmp_path)
    with replica(tmp_path / "a", *EXAMPLES, tls=tls) as first, replica(tmp_path / "b", *EXAMPLES, tls=tls) as second:
        with honest(first, second, reviews=5) as stream:
            time.sleep(_LOAD)
            killed = time.time()
            first.process.kill()
            first.process.wait()
            time.sleep(_LOAD + _NOTICED)
        result = stream.result
        assert any(sent.port == first.port for sent in result.those("right"))
        # Only the killed replica loses reviews, and only until its probe has failed.
        assert {sent.port for sent in result.bad} <= {first.port}, (first.port, result.bad)
        assert all(sent.outcome in {"lost", "refused"} for sent in result.bad), result.bad
        last = max((sent.at - killed for sent in result.bad), default=0.0)
        assert last < _NOTICED
        assert len([sent for sent in result.sent if sent.at > killed + _NOTICED and sent.outcome == "right"]) > 50
        assert not second.tracebacks()
    row(
        "kill -9 of one of two replicas under load",
        "the other one answers; only reviews on their way to the killed one are lost, until its readiness probe fails",
        _HELD,
        f"{len(result.bad)} of {len(result.sent)} lost, the last {last:.1f} s after; {result}",
    )


def test_a_stalled_replica_is_left_out_and_catches_up_when_it_goes_on(tmp_path: Path, row: Adds) -> None:
    tls = certificates(tmp_path)
    with replica(tmp_path / "a", *EXAMPLES, tls=tls) as first, replica(tmp_path / "b", *EXAMPLES, tls=tls) as second:
        with honest(first, second, reviews=5) as stream:
            time.sleep(_LOAD)
            stalled = time.time()
            first.send(signal.SIGSTOP)
            time.sleep(_LOAD + _NOTICED)
            resumed = time.time()
            first.send(signal.SIGCONT)
            # It answers again, reviews that came in its sleep as well, and is chosen again.
            until(lambda: any(line["time"] > resumed and line["message"] == "review" for line in first.lines()[-50:]), "it goes on")
            time.sleep(_LOAD)
        result = stream.result
        assert {sent.port for sent in result.bad} <= {first.port}, (first.port, result.bad)
        assert all(sent.outcome in {"late", "lost"} for sent in result.bad), result.bad
        last = max((sent.at - stalled for sent in result.bad), default=0.0)
        assert last < _NOTICED
        again = min(sent.at + sent.seconds for sent in result.those("right") if sent.port == first.port and sent.at > resumed)
        assert again - resumed < _NOTICED
        assert not first.tracebacks()
        assert not second.tracebacks()
    row(
        "SIGSTOP of one of two replicas under load, later SIGCONT",
        "reviews go to the other one as soon as its readiness probe fails; it takes part again after SIGCONT",
        _HELD,
        f"{len(result.bad)} of {len(result.sent)} late, the last sent {last:.1f} s after SIGSTOP; "
        f"takes part {again - resumed:.1f} s after SIGCONT",
    )
