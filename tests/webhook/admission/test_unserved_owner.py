"""An owner of a kind that the cluster does not serve counts as none, once the cluster has been asked again."""

from __future__ import annotations

import asyncio
import io
import time
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import RawTestServer, TestClient

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.policies.workloads.kinds.owners import ServedKinds
from gpugate.webhook.admission import app
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log
from tests.shared.reviews import admission, pod

_RULES = {"queue": {"mode": "Enforce", "required": True}}
_POLICIES = [
    parse_policy(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "p"}, "spec": {"profile": "recommended", "rules": _RULES}}
    )
]
_GHOST = {"apiVersion": "example.com/v1", "kind": "Robot", "name": "r", "uid": "1", "controller": True}


def _cluster(*kinds: str) -> ClusterSnapshot:
    known = {"localqueues": SyncState.SYNCED, "namespaces": SyncState.SYNCED}
    return snapshot_from_objects([], known, served=ServedKinds({"example.com": frozenset(kinds)}))


def _owned() -> dict[str, Any]:
    root = pod("train", memory="64Gi", uid="u1")
    root["metadata"]["ownerReferences"] = [_GHOST]
    return root


async def _answered(state: CurrentState, endpoint: str = "validate") -> dict[str, Any]:
    async with TestClient(RawTestServer(app.make_handler(state, Metrics(), Log(io.StringIO()), ledger=InFlightLedger()))) as client:
        review = admission(_owned())
        review["request"]["userInfo"] = {"username": "alice"}
        answer = await client.post(f"/{endpoint}", data=orjson.dumps(review))
        response: dict[str, Any] = orjson.loads(await answer.read())["response"]
        return response


def _asked_again(state: CurrentState, monkeypatch: pytest.MonkeyPatch, *kinds: str, answers: bool = True) -> list[str]:
    """Let the cluster serve ``kinds`` by the time at which it is asked again; return what happened in what order."""
    events: list[str] = []
    state.rediscover = lambda: events.append("asked")

    async def wait(_seconds: float) -> None:
        await asyncio.sleep(0)
        events.append("waited")
        if answers:
            state.publish(_cluster(*kinds))
            state.discovered_at = time.monotonic()

    monkeypatch.setattr(app, "wait_for_the_watch", wait)
    return events


@pytest.mark.asyncio
@pytest.mark.parametrize("endpoint", ["mutate", "validate"])
async def test_a_kind_that_came_a_moment_ago_is_an_owner(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state = CurrentState(_cluster(), _POLICIES)
    events = _asked_again(state, monkeypatch, "Robot")
    response = await _answered(state, endpoint)
    assert response["allowed"] is True
    assert events == ["asked", "waited"]


@pytest.mark.asyncio
async def test_a_kind_that_is_still_missing_is_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    state = CurrentState(_cluster(), _POLICIES)
    _asked_again(state, monkeypatch)
    assert "requires a queue" in (await _answered(state))["status"]["message"]


@pytest.mark.asyncio
async def test_what_was_asked_just_now_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state = CurrentState(_cluster(), _POLICIES)
    state.discovered_at = time.monotonic() + 60
    monkeypatch.setattr(app, "wait_for_the_watch", lambda _seconds: asyncio.sleep(0))
    state.rediscover = lambda: pytest.fail("asked again")
    assert (await _answered(state))["allowed"] is False


@pytest.mark.asyncio
async def test_nothing_is_refused_while_the_cluster_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    state = CurrentState(_cluster(), _POLICIES)
    events = _asked_again(state, monkeypatch, answers=False)
    assert (await _answered(state))["allowed"] is True
    assert events == ["asked", "waited", "asked"]


@pytest.mark.asyncio
async def test_the_second_look_at_a_refusal_counts_what_the_first_one_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    state = CurrentState(_cluster(), _POLICIES)
    state.discovered_at = time.monotonic()
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        await asyncio.sleep(0)
        waits.append(seconds)

    monkeypatch.setattr(app, "wait_for_the_watch", wait)
    assert (await _answered(state))["allowed"] is False
    assert len(waits) == 1
