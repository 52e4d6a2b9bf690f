"""The reflector against a scripted apiserver that lists page by page: every failure it has to outlive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gpugate.webhook.kube.errors import ApiError
from gpugate.webhook.kube.reflector import Reflector, WatchedKind, run_all, wait_synced
from gpugate.webhook.kube.types import JsonObject
from tests.shared.scripted_api import (
    GONE,
    LOST,
    NODES,
    NOT_SERVED,
    QUEUES,
    FakeApi,
    FakeTime,
    Recorder,
    Refused,
    Step,
    event,
    follow,
    hang,
    node,
    page,
    settle,
)


@pytest.mark.asyncio
async def test_a_list_is_read_page_by_page_and_handed_over_whole() -> None:
    api = FakeApi([page(7, node("a"), more="t1"), page(7, node("b"), more="t2"), page(7)])
    calls, state = await follow(api)
    assert calls == [("replaced", "Node", "a", "b")]
    assert [call[1:3] for call in api.listed] == [(500, None), (500, "t1"), (500, "t2")]
    assert (state.phase, state.objects, state.synced) == ("synced", 2, True)
    assert state.last_sync_monotonic == pytest.approx(1000.0)


@pytest.mark.asyncio
async def test_the_watch_starts_where_the_list_ended_and_carries_the_selectors() -> None:
    api = FakeApi([page(7)], versions={"v1beta1"})
    await follow(api, kind=QUEUES)
    path = "/apis/kueue.x-k8s.io/v1beta1/clusterqueues"
    assert api.listed == [(path, 500, None, "metadata.name!=x", "team=a")]
    assert api.watched == [(path, "7", "metadata.name!=x", "team=a")]


@pytest.mark.asyncio
async def test_the_first_served_version_in_order_of_preference_is_read() -> None:
    api = FakeApi([page(1)], versions={"v1beta1", "v1beta2"})
    await follow(api, kind=QUEUES)
    assert api.listed[0][0] == "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"


def test_the_core_group_has_a_path_of_its_own() -> None:
    assert NODES.path("v1") == "/api/v1/nodes"


@pytest.mark.asyncio
async def test_items_of_a_list_get_the_type_that_events_carry() -> None:
    seen: list[JsonObject] = []

    class Keeper(Recorder):
        def replaced(self, kind: WatchedKind, objects: Sequence[Any]) -> None:
            super().replaced(kind, objects)
            seen.extend(objects)

    await follow(FakeApi([page(1, node("a"))]), sink=Keeper())
    assert [(item["apiVersion"], item["kind"]) for item in seen] == [("v1", "Node")]


@pytest.mark.asyncio
async def test_changes_reach_the_sink_in_order_duplicates_included_and_late_ones_left_out() -> None:
    script: list[Step] = [
        event("ADDED", "b", 8),
        event("ADDED", "b", 8),
        event("MODIFIED", "a", 10),
        event("MODIFIED", "a", 9),
        event("DELETED", "b", 11),
        hang,
    ]
    calls, state = await follow(FakeApi([page(7, node("a"))], [script]))
    assert calls[1:] == [
        ("ADDED", "Node", "b", 8),
        ("ADDED", "Node", "b", 8),
        ("MODIFIED", "Node", "a", 10),
        ("DELETED", "Node", "b", 11),
    ]
    assert state.objects == 1


@pytest.mark.asyncio
async def test_a_bookmark_moves_the_resource_version_and_reaches_nobody() -> None:
    api = FakeApi([page(7)], [[event("BOOKMARK", "", 50)]])
    calls, state = await follow(api, FakeTime(sleeps=1))
    assert calls == [("replaced", "Node")]
    assert api.resumed_from == ["7", "50"]
    assert state.last_event_monotonic == pytest.approx(1000.0)


@pytest.mark.asyncio
async def test_an_expired_watch_leads_to_a_new_list() -> None:
    api = FakeApi([page(7, node("a")), page(90, node("b"))], [[event("ADDED", "c", 8), GONE], [hang]])
    calls, state = await follow(api, FakeTime(sleeps=1))
    assert calls == [
        ("replaced", "Node", "a"),
        ("ADDED", "Node", "c", 8),
        ("replaced", "Node", "b"),
    ]
    assert api.resumed_from == ["7", "90"]
    assert (state.phase, state.relists, state.reconnects, state.objects) == ("synced", 1, 0, 1)


@pytest.mark.asyncio
async def test_a_watch_refused_as_expired_leads_to_a_new_list() -> None:
    api = FakeApi([page(7), page(90)], [Refused(GONE)])
    _, state = await follow(api, FakeTime(sleeps=1))
    assert api.resumed_from == ["7", "90"]
    assert state.relists == 1


@pytest.mark.asyncio
async def test_a_continue_token_that_expires_starts_the_list_over_in_one_page() -> None:
    api = FakeApi([page(7, node("old"), more="t1"), GONE, page(9, node("a")), page(20)], [[GONE]])
    calls, _ = await follow(api, FakeTime(sleeps=2))
    assert calls == [("replaced", "Node", "a"), ("replaced", "Node")]
    assert [call[1:3] for call in api.listed] == [(500, None), (500, "t1"), (0, None), (500, None)]


@pytest.mark.asyncio
@pytest.mark.parametrize("ending", [[], [LOST]], ids=["ended", "lost"])
async def test_a_stream_that_ends_is_resumed_after_its_last_event(ending: list[Step]) -> None:
    api = FakeApi([page(7)], [[event("ADDED", "a", 8), *ending], [event("ADDED", "b", 9), hang]])
    calls, state = await follow(api, FakeTime(sleeps=1))
    assert calls == [("replaced", "Node"), ("ADDED", "Node", "a", 8), ("ADDED", "Node", "b", 9)]
    assert api.resumed_from == ["7", "8"]
    assert (state.phase, state.relists, state.reconnects) == ("synced", 0, 1)


@pytest.mark.asyncio
async def test_reconnecting_backs_off_twofold_up_to_half_a_minute() -> None:
    time = FakeTime(sleeps=8)
    _, state = await follow(FakeApi([page(7)], [Refused(LOST)] * 9), time)
    assert time.slept == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30], abs=0.01)
    assert (state.phase, state.error, state.synced) == ("failing", "reset by peer", True)


@pytest.mark.asyncio
async def test_jitter_halves_the_backoff_at_most() -> None:
    time = FakeTime(sleeps=3)
    await follow(FakeApi([page(7)], [Refused(LOST)] * 4), timing=time.timing(jitter=0.0))
    assert time.slept == pytest.approx([0.5, 1, 2])


@pytest.mark.asyncio
async def test_streams_that_end_at_once_without_an_event_back_off_too() -> None:
    time = FakeTime(sleeps=3)
    await follow(FakeApi([page(7)], [[], [], []]), time)
    assert time.slept == pytest.approx([1, 2, 4], abs=0.01)


@pytest.mark.asyncio
async def test_an_event_resets_the_backoff() -> None:
    time = FakeTime(sleeps=4)
    lost = Refused(LOST)
    await follow(FakeApi([page(7)], [lost, lost, [event("ADDED", "a", 8), LOST], lost]), time)
    assert time.slept == pytest.approx([1, 2, 1, 2], abs=0.01)


@pytest.mark.asyncio
async def test_a_quiet_stream_that_lasted_resets_the_backoff() -> None:
    time = FakeTime(sleeps=3)
    await follow(FakeApi([page(7)], [Refused(LOST), Refused(LOST), [time.advance(120)]]), time)
    assert time.slept == pytest.approx([1, 2, 1], abs=0.01)


@pytest.mark.asyncio
async def test_a_reopened_watch_is_in_step_again_before_any_event() -> None:
    api = FakeApi([page(7)], [Refused(LOST), [hang]])
    _, state = await follow(api, FakeTime(sleeps=1))
    assert (state.phase, state.error) == ("synced", None)


@pytest.mark.asyncio
async def test_watches_last_between_once_and_twice_the_set_time() -> None:
    for jitter, expected in ((0.0, 120), (0.5, 180)):
        api = FakeApi([page(7)])
        await follow(api, timing=FakeTime().timing(jitter))
        assert api.timeouts == [expected]


@pytest.mark.asyncio
async def test_a_silent_watch_is_cut_and_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, now = asyncio.get_running_loop(), 0.0
    monkeypatch.setattr(loop, "time", lambda: now)
    api = FakeApi([page(7)], [[event("ADDED", "a", 8), hang], [hang]])
    time = FakeTime(sleeps=1)
    reflector = Reflector(api, NODES, Recorder(), timing=time.timing(jitter=0.0))
    task = asyncio.create_task(reflector.run())
    for now, watches in ((0.0, 1), (134.0, 1), (136.0, 2)):  # noqa: B007 - the clock reads it
        await settle()
        assert len(api.watched) == watches
    assert (api.resumed_from, api.closed) == (["7", "8"], 1)
    assert reflector.state.reconnects == 1
    task.cancel()


@pytest.mark.asyncio
async def test_any_event_puts_off_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, now = asyncio.get_running_loop(), 0.0
    monkeypatch.setattr(loop, "time", lambda: now)

    def later() -> None:
        nonlocal now
        now += 100.0

    bookmark = event("BOOKMARK", "", 8)
    api = FakeApi([page(7)], [[later, bookmark, later, bookmark, later, bookmark, hang]])
    _, state = await follow(api)
    assert now == pytest.approx(300.0)
    assert (len(api.watched), state.phase) == (1, "synced")


@pytest.mark.asyncio
async def test_a_kind_that_is_not_served_is_absent_and_synced() -> None:
    time = FakeTime(sleeps=3)
    calls, state = await follow(FakeApi(versions=set()), time, kind=QUEUES)
    assert calls == [("absent", "ClusterQueue")]
    assert time.slept == [5.0, 5.0, 5.0]
    assert (state.phase, state.synced, state.error) == ("absent", True, None)


@pytest.mark.asyncio
async def test_polling_for_an_absent_kind_makes_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="gpugate")
    await follow(FakeApi(versions=set()), FakeTime(sleeps=20), kind=QUEUES)
    assert [record.getMessage().strip() for record in caplog.records] == ["ClusterQueue: absent"]


@pytest.mark.asyncio
async def test_an_absent_kind_that_appears_is_listed() -> None:
    api = FakeApi([page(3, node("q"))], versions=set())
    time = FakeTime(sleeps=2, before={1: lambda: api.versions.add("v1beta1")})
    calls, state = await follow(api, time, kind=QUEUES)
    assert calls == [("absent", "ClusterQueue"), ("replaced", "ClusterQueue", "q")]
    assert (state.phase, state.objects) == ("synced", 1)


@pytest.mark.asyncio
async def test_a_kind_that_appeared_is_not_synced_before_it_is_listed() -> None:
    api = FakeApi([], versions=set())
    time = FakeTime(sleeps=1, before={0: lambda: api.versions.add("v1beta1")})
    _, state = await follow(api, time, kind=QUEUES)
    assert (state.phase, state.synced) == ("pending", False)


@pytest.mark.asyncio
async def test_an_absent_kind_stays_known_absent_while_discovery_fails() -> None:
    api = FakeApi(versions=set(), discovery_errors=[LOST, LOST])
    time = FakeTime(sleeps=5, before={2: lambda: api.discovery_errors.append(LOST)})
    calls, state = await follow(api, time, kind=QUEUES)
    assert calls == [("absent", "ClusterQueue")]
    assert time.slept == pytest.approx([1, 2, 5, 1, 5], abs=0.01)
    assert (state.phase, state.synced) == ("absent", True)


@pytest.mark.asyncio
async def test_a_kind_that_comes_and_goes_is_followed_every_time() -> None:
    api = FakeApi([page(3), page(5)], [[NOT_SERVED], [NOT_SERVED]], versions=set())
    install: Callable[[], None] = lambda: api.versions.add("v1beta1")  # noqa: E731
    remove = api.versions.clear
    time = FakeTime(sleeps=4, before={0: install, 1: remove, 2: install, 3: remove})
    calls, state = await follow(api, time, kind=QUEUES)
    assert [call[0] for call in calls] == ["absent", "replaced", "absent", "replaced", "absent"]
    assert (state.phase, state.relists) == ("absent", 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("script", [Refused(NOT_SERVED), [NOT_SERVED]], ids=["opening", "within"])
async def test_a_kind_removed_under_its_watch_is_absent(script: list[Step] | Refused) -> None:
    api = FakeApi([page(3, node("q"))], [script], versions={"v1beta1"})
    time = FakeTime(sleeps=2, before={0: api.versions.clear})
    calls, state = await follow(api, time, kind=QUEUES)
    assert calls == [("replaced", "ClusterQueue", "q"), ("absent", "ClusterQueue")]
    assert (state.phase, state.objects) == ("absent", 0)


@pytest.mark.asyncio
async def test_a_kind_removed_before_its_list_is_absent() -> None:
    api = FakeApi([NOT_SERVED], versions={"v1beta1"})
    time = FakeTime(sleeps=1, before={0: api.versions.clear})
    calls, state = await follow(api, time, kind=QUEUES)
    assert calls == [("absent", "ClusterQueue")]
    assert (state.phase, time.slept) == ("absent", [5.0])


@pytest.mark.asyncio
async def test_a_version_that_is_withdrawn_gives_way_to_the_next_one() -> None:
    api = FakeApi([page(3), page(5)], [Refused(NOT_SERVED), [hang]], versions={"v1beta2"})

    def upgrade() -> None:
        api.versions = {"v1beta1"}

    calls, _ = await follow(api, FakeTime(sleeps=1, before={0: upgrade}), kind=QUEUES)
    assert calls == [("replaced", "ClusterQueue")] * 2
    assert [str(call[0]).split("/")[3] for call in api.watched] == ["v1beta2", "v1beta1"]


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [401, 403])
async def test_a_forbidden_list_is_reported_and_tried_again(status: int) -> None:
    refused = ApiError(status, "Forbidden", 'cannot list resource "nodes"')
    time = FakeTime(sleeps=3)
    calls, state = await follow(FakeApi([refused] * 4), time)
    assert calls == []
    assert time.slept == pytest.approx([1, 2, 4], abs=0.01)
    assert (state.phase, state.synced) == ("forbidden", False)
    assert 'cannot list resource "nodes"' in str(state.error)


@pytest.mark.asyncio
async def test_a_forbidden_watch_keeps_its_place_until_it_is_allowed() -> None:
    refused = Refused(ApiError(403, "Forbidden", "no"))
    api = FakeApi([page(7)], [refused, refused, [hang]])
    _, state = await follow(api, FakeTime(sleeps=2))
    assert api.resumed_from == ["7", "7", "7"]
    assert (state.phase, state.error, state.relists) == ("synced", None, 0)


@pytest.mark.asyncio
async def test_a_busy_apiserver_is_asked_to_resume() -> None:
    api = FakeApi([page(7)], [Refused(ApiError(429, "TooManyRequests", "later")), [hang]])
    await follow(api, FakeTime(sleeps=1))
    assert api.resumed_from == ["7", "7"]


@pytest.mark.asyncio
async def test_a_resource_version_that_the_apiserver_dislikes_is_not_sent_again() -> None:
    api = FakeApi([page(7), page(8)], [Refused(ApiError(400, "BadRequest", "invalid")), [hang]])
    await follow(api, FakeTime(sleeps=1))
    assert api.resumed_from == ["7", "8"]


@pytest.mark.asyncio
async def test_a_list_that_fails_is_tried_again() -> None:
    api = FakeApi([LOST, ApiError(500, "InternalError", "etcd"), page(7, node("a"))])
    calls, state = await follow(api, FakeTime(sleeps=2))
    assert calls == [("replaced", "Node", "a")]
    assert (state.phase, state.relists) == ("synced", 0)


@pytest.mark.asyncio
async def test_an_older_list_never_replaces_newer_facts() -> None:
    stale = page(9, node("stale"))
    api = FakeApi([page(7), stale, page(12, node("a"))], [[event("ADDED", "b", 11), GONE]])
    calls, _ = await follow(api, FakeTime(sleeps=2))
    assert calls == [("replaced", "Node"), ("ADDED", "Node", "b", 11), ("replaced", "Node", "a")]


@pytest.mark.asyncio
async def test_a_restored_etcd_is_believed_when_it_says_so_twice() -> None:
    api = FakeApi([page(700), page(5, node("a")), page(6, node("a"))], [[GONE]])
    calls, state = await follow(api, FakeTime(sleeps=2))
    assert calls == [("replaced", "Node"), ("replaced", "Node", "a")]
    assert (api.resumed_from, state.phase) == (["700", "6"], "synced")


@pytest.mark.asyncio
async def test_a_sink_that_fails_on_one_object_is_counted_and_gets_the_next() -> None:
    sink = Recorder(failing_on={"bad"})
    script: list[Step] = [event("ADDED", "bad", 8), event("ADDED", "good", 9), hang]
    api = FakeApi([page(7)], [script])
    _, state = await follow(api, sink=sink)
    assert sink.calls[-1] == ("ADDED", "Node", "good", 9)
    assert (state.sink_errors, state.phase, len(api.watched)) == (1, "synced", 1)


@pytest.mark.asyncio
async def test_a_failing_sink_shows_one_traceback_only(caplog: pytest.LogCaptureFixture) -> None:
    script: list[Step] = [event("ADDED", "bad", 8), event("MODIFIED", "bad", 9), hang]
    await follow(FakeApi([page(7)], [script]), sink=Recorder(failing_on={"bad"}))
    assert [bool(record.exc_info) for record in caplog.records] == [True, False]


@pytest.mark.asyncio
async def test_a_sink_that_fails_on_a_list_is_not_taken_for_synced() -> None:
    sink = Recorder(failing_on={"replaced"})
    time = FakeTime(sleeps=2)
    _, state = await follow(FakeApi([page(7), page(8), page(9)]), time, sink=sink)
    assert (state.phase, state.synced, state.sink_errors) == ("failing", False, 3)
    assert time.slept == pytest.approx([1, 2], abs=0.01)


@pytest.mark.asyncio
async def test_a_sink_that_fails_to_forget_is_told_again() -> None:
    sink = Recorder(failing_on={"absent"})
    time = FakeTime(sleeps=2, before={1: sink.failing_on.clear})
    _, state = await follow(FakeApi(versions=set()), time, kind=QUEUES, sink=sink)
    assert sink.calls == [("absent", "ClusterQueue")] * 3
    assert (state.phase, state.sink_errors) == ("absent", 2)


@pytest.mark.asyncio
async def test_objects_are_stripped_on_arrival_and_one_that_cannot_be_is_left_out() -> None:
    def strip(item: JsonObject) -> JsonObject:
        return {"metadata": item["metadata"], "gpus": item["status"]["gpus"]}

    sink = Recorder()
    good = node("good") | {"status": {"gpus": 8}}
    api = FakeApi([page(7, node("bad"), good)], [[event("ADDED", "worse", 8), hang]])
    reflector = Reflector(api, NODES, sink, strip=strip, timing=FakeTime().timing())
    task = asyncio.create_task(reflector.run())
    await settle()
    task.cancel()
    assert sink.calls == [("replaced", "Node", "good")]
    assert reflector.state.sink_errors == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("broken", [{}, {"type": "ADDED"}, {"type": "ADDED", "object": {}}])
async def test_a_malformed_event_does_not_end_the_watcher(broken: JsonObject) -> None:
    calls, state = await follow(FakeApi([page(7), page(8)], [[broken]]), FakeTime(sleeps=1))
    assert calls == [("replaced", "Node")] * 2
    assert state.phase == "synced"


@pytest.mark.asyncio
async def test_a_malformed_list_does_not_end_the_watcher() -> None:
    calls, state = await follow(FakeApi([{}, page(8)]), FakeTime(sleeps=1))
    assert (calls, state.phase) == ([("replaced", "Node")], "synced")


@pytest.mark.asyncio
async def test_a_burst_of_events_lets_others_run_in_between() -> None:
    seen_by_other: list[int] = []
    sink = Recorder()
    burst: list[Step] = [event("ADDED", f"n{i}", 8 + i) for i in range(50)]
    api = FakeApi([page(7)], [[*burst, hang]])
    task = asyncio.create_task(Reflector(api, NODES, sink, timing=FakeTime().timing()).run())
    while len(sink.calls) < len(burst):
        seen_by_other.append(len(sink.calls))
        await asyncio.sleep(0)
    task.cancel()
    assert len(set(seen_by_other)) > len(burst) // 2


@pytest.mark.asyncio
async def test_cancelling_all_closes_the_streams_and_ends_every_watcher() -> None:
    nodes, queues = FakeApi([page(7)]), FakeApi(versions=set())
    reflectors = [
        Reflector(nodes, NODES, Recorder(), timing=FakeTime().timing()),
        Reflector(queues, QUEUES, Recorder(), timing=FakeTime().timing()),
    ]
    task = asyncio.create_task(run_all(reflectors))
    assert await wait_synced(reflectors, 10) == []
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert nodes.closed == 1
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.asyncio
async def test_waiting_for_sync_names_the_kinds_that_are_not() -> None:
    refused = ApiError(403, "Forbidden", "no")
    time = FakeTime()
    reflectors = [
        Reflector(FakeApi([page(7)]), NODES, Recorder(), timing=time.timing()),
        Reflector(FakeApi([refused], versions={"v1beta1"}), QUEUES, Recorder(), timing=time.timing()),
    ]
    task = asyncio.create_task(run_all(reflectors))
    await settle()
    lacking = await wait_synced(reflectors, 0)
    task.cancel()
    assert [(state.kind, state.phase) for state in lacking] == [("ClusterQueue", "forbidden")]


def test_a_state_is_pending_and_frozen_before_anything_ran() -> None:
    state = Reflector(FakeApi(), NODES, Recorder()).state
    assert (state.phase, state.synced, state.objects) == ("pending", False, 0)
    with pytest.raises(AttributeError):
        state.phase = "synced"  # type: ignore[misc]
