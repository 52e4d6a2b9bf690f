"""Callers whose reviews take long wait for others, and nobody waits in another one's place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import orjson
import pytest
from aiohttp import web

from gpugate.webhook.admission.overload.bodies import Bodies
from gpugate.webhook.admission.overload.callers import Callers, caller_of
from gpugate.webhook.admission.overload.reviews import ReviewQueue
from gpugate.webhook.admission.overload.shedding import Shedding

_CONNECTED = cast("web.BaseRequest", SimpleNamespace(transport=object()))


def body(namespace: str, user: str, **request: object) -> bytes:
    """A review with its fields in the order in which an apiserver writes them."""
    fields = {
        "uid": "1",
        "name": "a",
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": user, "groups": ["g"]},
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {**fields, **request}})


def test_a_caller_is_a_user_in_a_namespace() -> None:
    assert caller_of(body("team", "alice")) == b"team/alice"
    assert len({caller_of(body(namespace, user)) for namespace in ("a", "b") for user in ("alice", "bob")}) == 4
    assert caller_of(body("team", "alice", operation="UPDATE")) == caller_of(body("team", "alice"))


def test_no_object_pretends_to_another_caller() -> None:
    forged = '"namespace":"team","userInfo":{"username":"alice"'
    obj = {"metadata": {"annotations": {"a": forged}}, "namespace": "team", "userInfo": {"username": "alice"}}
    assert caller_of(body("attacker", "mallory", object=obj)) == b"attacker/mallory"
    assert caller_of(body("attacker", f'mallory"{forged}', object=obj)).startswith(b"attacker/mallory\\")


@pytest.mark.parametrize("broken", [b"", b"{}", b'"userInfo":{"username":"', b'"namespace":"', b"\xff" * 10])
def test_what_is_no_review_has_some_caller(broken: bytes) -> None:
    assert isinstance(caller_of(broken), bytes)


def test_time_is_forgotten() -> None:
    callers = Callers()
    callers.add(b"a", 1.0, 10.0)
    assert callers.spent(b"a", 10.0) == 1.0
    assert 0.3 < callers.spent(b"a", 12.0) < 0.4
    callers.add(b"a", 1.0, 12.0)
    assert 1.3 < callers.spent(b"a", 12.0) < 1.4
    assert callers.spent(b"b", 12.0) == 0.0
    callers.add(b"b", 1.0, 12.0)
    for other in (b"c", b"d"):
        assert callers.spent(other, 60.0) == 0.0
    assert not callers


def test_many_callers_take_no_more_room() -> None:
    callers = Callers()
    for number in range(1000):
        callers.add(b"%d" % number, 1.0, 0.0)
    assert sum(callers.spent(b"%d" % number, 0.0) > 0 for number in range(1000)) == 256
    assert callers.spent(b"999", 0.0) == 1.0


async def _answer(queue: ReviewQueue, decide: Callable[[], bytes], sent: bytes) -> bytes | None:
    return await queue.answer(decide, sent, time.monotonic() + 60, _CONNECTED)


@pytest.mark.asyncio
async def test_who_had_long_reviews_waits_for_others_that_come_later() -> None:
    shedding = Shedding()
    queue, decided = ReviewQueue(Bodies(shedding), shedding), list[str]()
    busy, other = body("attacker", "mallory"), body("team", "alice")

    def decide(name: str, seconds: float = 0.0) -> bytes:
        decided.append(name)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            pass
        return b""

    def ask(name: str, sent: bytes, seconds: float = 0.0) -> asyncio.Task[bytes | None]:
        return asyncio.create_task(_answer(queue, lambda: decide(name, seconds), sent))

    await ask("long", busy, 0.05)
    await asyncio.gather(ask("again", busy), ask("small", other), ask("small too", other))
    assert decided == ["long", "small", "small too", "again"]
