"""The shared look for absent kinds."""

from __future__ import annotations

import asyncio

import pytest

from gpugate.webhook.kube.errors import ConnectionLostError
from gpugate.webhook.kube.lister import Discovery
from gpugate.webhook.kube.reflector import Reflector
from gpugate.webhook.kube.types import WatchedKind
from tests.shared.scripted_api import LOST, NODES, QUEUES, FakeApi, FakeTime, Recorder

LOCAL_QUEUES = WatchedKind("LocalQueue", QUEUES.group, QUEUES.versions, "localqueues")
OTHERS = WatchedKind("Widget", "example.com", ("v1",), "widgets")


@pytest.mark.asyncio
async def test_a_kind_may_be_served_once_one_of_its_versions_is_offered() -> None:
    api = FakeApi(versions=set())
    time = FakeTime()
    discovery = Discovery(api, lambda: time.now)
    assert not await discovery.may_serve(QUEUES)
    api.versions.add("v1beta1")
    time.now += 5
    assert await discovery.may_serve(QUEUES)
    assert not await discovery.may_serve(OTHERS)


@pytest.mark.asyncio
async def test_another_version_of_the_group_is_no_reason_to_look() -> None:
    assert not await Discovery(FakeApi(versions={"v1alpha1"})).may_serve(QUEUES)


@pytest.mark.asyncio
async def test_the_core_group_is_always_worth_a_look() -> None:
    assert await Discovery(FakeApi(versions=set())).may_serve(NODES)


@pytest.mark.asyncio
async def test_all_who_ask_at_one_time_share_one_answer() -> None:
    api, time = FakeApi(versions={"v1beta1"}), FakeTime()
    discovery = Discovery(api, lambda: time.now)
    assert await asyncio.gather(*[discovery.may_serve(kind) for kind in (QUEUES, LOCAL_QUEUES, OTHERS)]) == [True, True, False]
    assert api.asked_for_groups == 1
    time.now += 5
    await discovery.may_serve(QUEUES)
    assert api.asked_for_groups == 2


@pytest.mark.asyncio
async def test_an_answer_that_did_not_come_is_shared_with_nobody() -> None:
    api = FakeApi(versions={"v1beta1"}, discovery_errors=[LOST])
    discovery = Discovery(api)
    with pytest.raises(ConnectionLostError):
        await discovery.may_serve(QUEUES)
    assert await discovery.may_serve(QUEUES)


@pytest.mark.asyncio
async def test_absent_kinds_together_ask_one_question_each_time_they_look() -> None:
    api, time = FakeApi(versions=set()), FakeTime()
    discovery = Discovery(api, lambda: time.now)
    reflectors = [Reflector(api, QUEUES, Recorder(), timing=time.timing(), discovery=discovery) for _ in range(4)]
    for _ in range(10):
        assert await asyncio.gather(*[reflector._cycle() for reflector in reflectors]) == [5.0] * 4
        time.now += 5.0
    assert [reflector.state.phase for reflector in reflectors] == ["absent"] * 4
    assert api.asked_for_groups == 9
