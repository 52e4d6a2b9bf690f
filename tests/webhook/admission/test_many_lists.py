"""Bodies of very many lists and maps: they are not read, and an object that an apiserver stores is."""

from __future__ import annotations

import gc
import time
from typing import Any

import orjson
import pytest

from benchmarks.costs import BUDGET, slowness
from gpugate.webhook.admission.admission_review import MOST_CONTAINERS, BadRequestError, parse
from gpugate.webhook.admission.overload.bodies import BODY_LIMIT
from tests.shared.reviews import InProcess, admission, overcommitted_pod, pod, policy

ENDPOINTS = ("mutate", "validate")
_LISTS: dict[str, Any] = {"x": [[]] * MOST_CONTAINERS}


def _review(**request: Any) -> bytes:
    return orjson.dumps(admission({**pod(), **_LISTS}, **request))


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("request_", [{}, {"operation": "UPDATE", "old": pod()}], ids=["CREATE", "UPDATE"])
def test_an_object_of_too_many_lists_is_refused_in_enforce(endpoint: str, request_: dict[str, Any]) -> None:
    door = InProcess([policy()])
    answer = door.ask(_review(**request_), endpoint)
    assert not answer["allowed"]
    assert "more than the 300,000 that are read" in answer["status"]["message"]
    assert door.lines[-1]["kind"] == "Pod"


def test_lists_of_the_old_object_count_too() -> None:
    answer = InProcess([policy()]).ask(orjson.dumps(admission(pod(), operation="UPDATE", old={**pod(), **_LISTS})), "validate")
    assert not answer["allowed"]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_it_passes_with_a_warning_where_nothing_is_enforced(endpoint: str) -> None:
    answer = InProcess([policy(mode="Warn")]).ask(_review(), endpoint)
    assert answer["allowed"]
    assert "more than the 300,000 that are read" in answer["warnings"][0]


def test_it_passes_where_it_is_not_reviewed_at_all() -> None:
    answer = InProcess([policy()]).ask(orjson.dumps(admission(_LISTS | {"apiVersion": "v1", "kind": "ConfigMap"})), "validate")
    assert answer["allowed"]
    assert "warnings" not in answer


def test_a_body_that_begins_with_its_objects_is_a_bad_request() -> None:
    review = admission(pod())
    with pytest.raises(BadRequestError, match="must be"):
        parse(orjson.dumps({**review, "request": {"object": _LISTS, **admission(_LISTS)["request"]}}))
    with pytest.raises(BadRequestError, match="lists and maps"):
        parse(orjson.dumps(_LISTS))


def test_the_largest_object_that_an_apiserver_stores_is_judged() -> None:
    root = overcommitted_pod()
    fields = {f"f:a{at}": {} for at in range(100_000)}
    root["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Apply", "fieldsV1": fields}]
    assert len(orjson.dumps(root)) > 1_200_000
    answer = InProcess([policy()]).ask(admission(root, operation="UPDATE", old={**root, "spec": pod()["spec"]}), "validate")
    assert "host-memory" in answer["status"]["message"]


@pytest.mark.parametrize("item", [b"[],", b"[[]],", b'{"a":1},'], ids=str)
def test_no_body_holds_the_event_loop_for_longer_than_the_budget(item: bytes) -> None:
    door = InProcess([policy()]).door
    head, tail = orjson.dumps(admission({**pod(), "x": ["here"]})).split(b'"here"')
    of_lists = item * (MOST_CONTAINERS // (item.count(b"[") + item.count(b"{")) - 100)
    full = head + item * ((BODY_LIMIT - 2000) // len(item)) + b"1" + tail
    most = head + of_lists + b"1," * ((BODY_LIMIT - 2000 - len(of_lists)) // 2) + b"1" + tail
    gc.collect()
    for body in (full, most):
        took = min(_seconds(door, body) for _ in range(3))
        assert 1e3 * took < BUDGET * slowness(), len(body)


def _seconds(door: Any, body: bytes) -> float:
    started = time.process_time()
    door.answer("validate", body)
    return time.process_time() - started
