"""A refusal that rests on facts alone is looked at twice: the watch lags behind what was made a moment ago."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import RawTestServer, TestClient

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.webhook.admission import app
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.runtime.log import Log
from tests.shared.reviews import admission, overcommitted_pod, pod

_QUEUE = {"kind": "LocalQueue", "metadata": {"name": "train", "namespace": "team-a"}, "spec": {"clusterQueue": "all"}}
_KUEUE = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "integrations": {"frameworks": ["pod"]}}
_RULES = {"queue": {"mode": "Enforce"}, "host-memory": {"mode": "Enforce"}}
_POLICIES = [
    parse_policy(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "p"}, "spec": {"profile": "recommended", "rules": _RULES}}
    )
]
_QUEUED = pod("train", memory="64Gi", uid="u1", labels={"kueue.x-k8s.io/queue-name": "train"})


def _facts(*objects: dict[str, Any]) -> ClusterSnapshot:
    return snapshot_from_objects([_KUEUE, *objects], {"localqueues": SyncState.SYNCED})


async def _validated(state: CurrentState, obj: dict[str, Any], ledger: InFlightLedger | None) -> dict[str, Any]:
    async with TestClient(RawTestServer(app.make_handler(state, Metrics(), Log(io.StringIO()), ledger=ledger))) as client:
        answer = await client.post("/validate", data=orjson.dumps(admission(obj)))
        response: dict[str, Any] = orjson.loads(await answer.read())["response"]
        return response


@pytest.mark.asyncio
async def test_an_object_whose_queue_shows_a_moment_later_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    state = CurrentState(_facts(), _POLICIES)
    waits = 0

    async def wait(_seconds: float) -> None:
        nonlocal waits
        waits += 1
        state.publish(_facts(_QUEUE))

    monkeypatch.setattr(app, "wait_for_the_watch", wait)
    response = await _validated(state, _QUEUED, InFlightLedger())
    assert (response["allowed"], waits) == (True, 1)


@pytest.mark.asyncio
async def test_what_is_still_missing_then_is_refused_and_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "wait_for_the_watch", lambda _seconds: asyncio.sleep(0))
    ledger = InFlightLedger()
    response = await _validated(CurrentState(_facts(), _POLICIES), _QUEUED, ledger)
    assert "has no LocalQueue train" in response["status"]["message"]
    assert len(ledger) == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("ledger", [InFlightLedger(), None], ids=["a fault that the object shows", "facts from files"])
async def test_nothing_else_is_waited_for(monkeypatch: pytest.MonkeyPatch, ledger: InFlightLedger | None) -> None:
    async def never(_seconds: float) -> None:
        await asyncio.sleep(0)
        pytest.fail("waited")

    monkeypatch.setattr(app, "wait_for_the_watch", never)
    refused = overcommitted_pod(uid="u1") if ledger is not None else _QUEUED
    response = await _validated(CurrentState(_facts(), _POLICIES), refused, ledger)
    assert response["allowed"] is False
