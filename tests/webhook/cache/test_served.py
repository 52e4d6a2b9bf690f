"""The kinds that the cluster serves are read at the start, when a review asks for them, and again after an error."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.workloads.kinds.owners import ServedKinds
from gpugate.webhook.cache import served
from gpugate.webhook.cache.served import follow_served_kinds
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.kube.errors import ApiError
from gpugate.webhook.runtime.lifecycle import cancelled
from gpugate.webhook.runtime.log import Log

_SOME, _MORE = ServedKinds({"ray.io": None}), ServedKinds({"ray.io": None, "example.com": None})


class _Cluster:
    """An apiserver with scripted answers; ``read`` ends the script by waiting for ever."""

    def __init__(self, *answers: ServedKinds | Exception) -> None:
        self.answers = list(answers)
        self.exhausted = asyncio.Event()
        self.on_read: Callable[[int], None] = lambda _left: None

    async def read(self) -> ServedKinds:
        self.on_read(len(self.answers))
        if not self.answers:
            self.exhausted.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def _followed(cluster: _Cluster, state: CurrentState, log: io.StringIO) -> list[ServedKinds]:
    published: list[ServedKinds] = []
    now = iter(range(100))
    lines = Log(log)
    task = asyncio.create_task(follow_served_kinds(cluster.read, state, published.append, lines, lambda: next(now)))
    async with asyncio.timeout(10):
        await cluster.exhausted.wait()
    await cancelled([task])
    lines.flush()
    return published


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("_SPACING", "_PERIOD", "_RETRY"):
        monkeypatch.setattr(served, pause, 0.0)


@pytest.mark.asyncio
async def test_only_news_is_published_and_the_time_of_the_question_is_kept() -> None:
    state, log = CurrentState(), io.StringIO()
    assert await _followed(_Cluster(_SOME, _SOME, _MORE), state, log) == [_SOME, _MORE]
    assert state.discovered_at == 2
    assert not log.getvalue()


@pytest.mark.asyncio
async def test_an_error_is_logged_once_and_makes_nothing_look_recent() -> None:
    state, log = CurrentState(), io.StringIO()
    error = ApiError(503, "ServiceUnavailable", "try later")
    assert await _followed(_Cluster(_SOME, error, error), state, log) == [_SOME]
    assert state.discovered_at == 0
    assert log.getvalue().count("cannot read which kinds the cluster serves") == 1


@pytest.mark.asyncio
async def test_a_review_that_asks_does_not_wait_for_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_PERIOD", 3600.0)
    cluster, state = _Cluster(_SOME, _MORE), CurrentState()
    # The question comes while the answer before it is on its way.
    cluster.on_read = lambda _left: state.rediscover()
    assert await _followed(cluster, state, io.StringIO()) == [_SOME, _MORE]


@pytest.mark.asyncio
async def test_a_review_waits_for_the_answer_to_its_own_question_and_no_other() -> None:
    state, waited = CurrentState(), asyncio.Event()
    cluster = _Cluster(_SOME, _MORE)

    async def wait() -> None:
        await state.rediscovered()
        assert state.in_force.snapshot.served == _MORE
        waited.set()

    def on_read(left: int) -> None:
        if left == 2:
            state.rediscover()
            waiting.append(asyncio.create_task(wait()))

    waiting: list[asyncio.Task[None]] = []
    cluster.on_read = on_read

    def publish(kinds: ServedKinds) -> None:
        state.publish(snapshot_from_objects([], served=kinds))

    following = asyncio.create_task(follow_served_kinds(cluster.read, state, publish, Log(io.StringIO())))
    async with asyncio.timeout(10):
        await waited.wait()
    await cancelled([following, *waiting])


@pytest.mark.asyncio
async def test_a_review_does_not_wait_long_for_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_LONGEST_WAIT", 0.01)
    cluster, state = _Cluster(), CurrentState()
    following = asyncio.create_task(follow_served_kinds(cluster.read, state, lambda _kinds: None, Log(io.StringIO())))
    async with asyncio.timeout(10):
        await cluster.exhausted.wait()
        state.rediscover()
        await state.rediscovered()
    assert state.discovered_at == float("-inf")
    await cancelled([following])
