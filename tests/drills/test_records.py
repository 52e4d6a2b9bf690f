"""Forged `gpugate.io/mutations`: garbage, huge ones, and those of another object."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from gpugate.policies.kube.fields import clone
from gpugate.policies.workloads.recorded_edits import ANNOTATION
from tests.drills.honest import honest
from tests.drills.mutations import RAW
from tests.drills.replica import EXAMPLES, Replica, replica
from tests.drills.wire import Connection
from tests.shared.forged_records import RECORDS, deployment
from tests.shared.reviews import admission, patched, pod, well_formed

Adds = Callable[[str, str, str, str], None]
_MUTATED = 1_000
_ITEMS = 20_000
#: One review of 1.8 MB with the costliest of these records, before they were bounded.
_BEFORE = "30 s of CPU for one review of 1.8 MB, all others waiting"


def _garbage() -> Iterator[str]:
    """Return annotations that are no records."""
    yield from ("", "null", "{}", "[[]]", "[" * 30_000, "[" * 500 + "]" * 500, "\x00", "é" * 30_000, "a" * 250_000, '["add"]')
    yield from RAW
    yield orjson.dumps(
        [["add", path, 1] for path in ("", "/", "//", "/-", "/~", "/spec", "/metadata", "/metadata/labels", "x")]
    ).decode()


def _mutated(record: str, number: int) -> Iterator[str]:
    """Return honest records of which some parts are of another type, at another place, or gone; the same ones each time."""
    chosen = random.Random(3)  # noqa: S311 - the same records each time
    values: tuple[Any, ...] = (None, True, 0, -1, 1e300, "", "-", "/", [], {}, [[]], {"name": []}, "/spec/template/spec/volumes/-")
    for _ in range(number):
        operations = orjson.loads(record)
        for _ in range(chosen.choice((1, 2, 5))):
            operation = chosen.choice(operations)
            if type(operation) is not list or not operation:
                continue
            match chosen.randrange(4):
                case 0:
                    operation[chosen.randrange(len(operation))] = chosen.choice(values)
                case 1:
                    operation.pop()
                case 2:
                    operation[0] = chosen.choice(("add", "remove", "replace", "move", "test"))
                case _:
                    operations.append(clone(operation))
        yield orjson.dumps(operations).decode()


def _kept(sent: Any, got: Any) -> bool:
    """Return whether ``got`` still has everything that was sent; gpugate may have added to it."""
    if isinstance(sent, dict):
        return isinstance(got, dict) and all(key in got and _kept(value, got[key]) for key, value in sent.items())
    if isinstance(sent, list):
        return isinstance(got, list) and len(got) >= len(sent) and all(_kept(*both) for both in zip(sent, got, strict=False))
    return bool(sent == got)


async def _update(connection: Connection, old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Send an UPDATE through /mutate; return the object that comes of it, and the seconds."""
    body = orjson.dumps(admission(new, operation="UPDATE", old=old))
    started = time.perf_counter()
    status, answer = await connection.ask(connection.review("mutate", body))
    seconds = time.perf_counter() - started
    assert status == 200
    return patched(new, well_formed(answer)), seconds


def _annotated(record: str) -> dict[str, Any]:
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": pod()["spec"]},
    }
    metadata = {"name": "serve", "namespace": "team-a", "annotations": {ANNOTATION: record}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


async def _created(connection: Connection) -> dict[str, Any]:
    sent = _annotated("")
    del sent["metadata"]["annotations"]
    _, answer = await connection.ask(connection.review("mutate", orjson.dumps(admission(sent))))
    return patched(sent, well_formed(answer))


async def _drill(server: Replica) -> tuple[int, float]:
    connection = Connection(server.port, server.context())
    live = await _created(connection)
    honest_record = live["metadata"]["annotations"][ANNOTATION]
    count, slowest = 0, 0.0
    for record in [*_garbage(), honest_record, *_mutated(honest_record, _MUTATED)]:
        # On the object that was completed, and on one of another user that never was.
        for before in (live, _annotated(record)):
            old = clone(before)
            old["metadata"]["annotations"][ANNOTATION] = record
            new = _annotated(record)
            new["spec"]["template"]["spec"]["containers"][0]["args"] = ["changed"]
            after, seconds = await _update(connection, old, new)
            assert _kept(new["spec"], after["spec"]), record[:500]
            count, slowest = count + 1, max(slowest, seconds)
    for record in RECORDS.values():
        for left in (_ITEMS, 10):
            new = deployment(left, record)
            new["spec"]["template"]["spec"]["containers"][0]["args"] = ["changed"]
            after, seconds = await _update(connection, deployment(_ITEMS, record), new)
            assert _kept(new["spec"], after["spec"]), record[:500]
            count, slowest = count + 1, max(slowest, seconds)
    connection.close()
    return count, slowest


def test_forged_records_cost_little_and_take_no_field_of_the_user(tmp_path: Path, row: Adds) -> None:
    with replica(tmp_path / "replica", *EXAMPLES) as running:
        with honest(running) as stream:
            count, slowest = asyncio.run(_drill(running))
        assert running.alive
        assert not running.tracebacks()
    assert stream.result.bad == []
    row(
        f"{count:,} UPDATEs with a forged `gpugate.io/mutations`: garbage, mutated records, 64 KiB beside {_ITEMS:,} list entries",
        "no field that the user sends is removed or replaced; bounded",
        _BEFORE,
        f"all fields kept, slowest {1000 * slowest:.0f} ms; honest: {stream.result}",
    )
