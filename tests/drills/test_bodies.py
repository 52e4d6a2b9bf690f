"""Bodies that no apiserver sends: every one is answered, the same way twice, and honest reviews go on beside them."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop

from benchmarks.bodies import kinds, review
from tests.drills.honest import honest
from tests.drills.mutations import RAW, Body, Mutator
from tests.drills.replica import EXAMPLES, Replica, replica
from tests.drills.wire import Connection
from tests.shared.reviews import well_formed

Adds = Callable[[str, str, str, str], None]
_CONNECTIONS = 8
#: Measured in process with this mutator; 56,000 other mutations had held.
_BEFORE = "no 5xx; 251 tracebacks in 60,000: labels and field managers that are no strings broke rules"
#: One in so many bodies is sent twice.
_TWICE = 4


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Replica]:
    with replica(tmp_path / "replica", *EXAMPLES) as made:
        yield made


async def _send(server: Replica, bodies: Iterable[tuple[int, Body]], statuses: Counter[int], problems: list[str]) -> None:
    context, source = server.context(), iter(bodies)

    async def work() -> None:
        connection = Connection(server.port, context)
        for number, body in source:
            status, answer = await connection.ask(connection.review(body.endpoint, body.body))
            statuses[status] += 1
            if status not in {200, 400}:
                problems.append(f"{status} for {body.what}: {body.body[:2000]!r}")
            elif status == 200:
                well_formed(answer)
            if number % _TWICE == 0 and (status, answer) != await connection.ask(connection.review(body.endpoint, body.body)):
                problems.append(f"another answer the second time for {body.what}: {body.body[:2000]!r}")
        connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(_CONNECTIONS):
            group.create_task(work())


def _flood(server: Replica, bodies: Iterable[Body]) -> tuple[Counter[int], str]:
    """Send ``bodies`` with honest reviews beside them; return how often each status came, and what became of the honest ones."""
    statuses: Counter[int] = Counter()
    problems: list[str] = []
    with honest(server) as stream, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_send(server, enumerate(bodies), statuses, problems))
    assert problems == []
    assert server.alive
    assert not server.tracebacks(), "\n\n".join(f"{count} times {what}" for what, count in server.tracebacks().items())
    assert stream.result.bad == []
    return statuses, str(stream.result)


def test_mutated_bodies_get_no_server_error_and_equal_bodies_equal_answers(
    running: Replica, row: Adds, pytestconfig: pytest.Config
) -> None:
    number = pytestconfig.getoption("--bodies")
    statuses, beside = _flood(running, Mutator(20_26).bodies(number))
    # If nearly all were no reviews at all, the rules would not have been reached.
    assert statuses[200] > number / 2
    row(
        f"{number:,} reviews of every kind, mutated in structure; one in {_TWICE} sent twice",
        "200 or 400, no traceback, equal bytes for equal bodies; honest reviews beside it are answered right",
        _BEFORE,
        f"{statuses[200]:,} answered, {statuses[400]:,} bad requests, no 5xx, no traceback; honest: {beside}",
    )


def _numbers(root: Any) -> Iterator[tuple[Any, Any]]:
    """Return holder and key of every number and quantity in ``root``."""
    for key, value in list(root.items() if isinstance(root, dict) else enumerate(root)):
        if isinstance(value, dict | list):
            yield from _numbers(value)
        elif type(value) is int or (type(value) is str and value[:1].isdigit()):
            yield root, key


def _with_numbers() -> Iterator[Body]:
    """Return every number and quantity of every kind, replaced by each raw value in turn."""
    raws, endpoints = itertools.cycle(RAW), itertools.cycle(("mutate", "validate"))
    for name, obj in kinds().items():
        made = review(obj)
        for holder, key in _numbers(made["request"]["object"]):
            before, holder[key] = holder[key], "@raw@"
            text = orjson.dumps(made)
            holder[key] = before
            for raw in itertools.islice(raws, 12):
                yield Body(next(endpoints), text.replace(b'"@raw@"', raw.encode()), f"{raw[:30]} at {key} of {name}")


def test_nan_and_huge_numbers_at_every_number_of_every_kind_are_answered(running: Replica, row: Adds) -> None:
    statuses, beside = _flood(running, _with_numbers())
    assert statuses[200] > 500
    assert statuses[400] > 500
    row(
        f"NaN, Infinity, 1e400, 400 digits and {len(RAW) - 4} more at every number and quantity of every kind",
        "200 or 400, no traceback",
        "held",
        f"{statuses[200]:,} answered, {statuses[400]:,} bad requests, no 5xx, no traceback; honest: {beside}",
    )
