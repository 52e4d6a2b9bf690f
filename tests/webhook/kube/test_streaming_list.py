"""The reflector against a scripted apiserver that streams the list ahead of the watch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from gpugate.webhook.kube.errors import ApiError
from gpugate.webhook.kube.reflector import Reflector, WatchedKind
from gpugate.webhook.kube.types import EventType, JsonObject
from tests.shared.scripted_api import (
    GONE,
    LOST,
    NODES,
    NOT_SERVED,
    QUEUES,
    UNSUPPORTED,
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


def end(version: int) -> JsonObject:
    """The bookmark behind the last object of a streamed list."""
    metadata = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return {"type": "BOOKMARK", "object": {"kind": "Node", "apiVersion": "v1", "metadata": metadata}}


@pytest.mark.asyncio
async def test_a_streamed_list_is_handed_over_whole_and_the_same_stream_is_the_watch() -> None:
    stream: list[Step] = [event("ADDED", "a", 3), event("ADDED", "b", 5), end(7), event("MODIFIED", "a", 8), hang]
    api = FakeApi(streams=[stream])
    calls, state = await follow(api)
    assert calls == [("replaced", "Node", "a", "b"), ("MODIFIED", "Node", "a", 8)]
    assert (api.streamed, api.listed, api.watched) == (1, [], [])
    assert (state.phase, state.objects, state.relists, state.reconnects) == ("synced", 2, 0, 0)


@pytest.mark.asyncio
async def test_nothing_is_handed_over_before_the_list_is_whole() -> None:
    other = event("BOOKMARK", "", 6)
    calls, state = await follow(FakeApi(streams=[[event("ADDED", "a", 3), other, hang]]))
    assert calls == []
    assert (state.phase, state.synced, state.age(1000.0)) == ("pending", False, None)


@pytest.mark.asyncio
async def test_an_empty_streamed_list_is_a_list() -> None:
    calls, state = await follow(FakeApi(streams=[[end(7), hang]]))
    assert calls == [("replaced", "Node")]
    assert (state.phase, state.objects) == ("synced", 0)


@pytest.mark.asyncio
async def test_changes_amid_a_streamed_list_are_part_of_it() -> None:
    stream = [event("ADDED", "a", 3), event("ADDED", "b", 4), event("MODIFIED", "a", 8), event("DELETED", "b", 9), end(9), hang]
    seen: list[Any] = []

    class Keeper(Recorder):
        def replaced(self, kind: WatchedKind, objects: Sequence[Any]) -> None:
            super().replaced(kind, objects)
            seen.extend(objects)

    _, state = await follow(FakeApi(streams=[stream]), sink=Keeper())
    assert [(one["metadata"]["name"], one["metadata"]["resourceVersion"]) for one in seen] == [("a", "8")]
    assert state.objects == 1


@pytest.mark.asyncio
async def test_a_stream_that_ends_after_its_list_is_resumed_without_a_list() -> None:
    api = FakeApi(streams=[[event("ADDED", "a", 3), end(7), event("ADDED", "b", 8)]])
    calls, state = await follow(api, FakeTime(sleeps=1))
    assert calls == [("replaced", "Node", "a"), ("ADDED", "Node", "b", 8)]
    assert (api.resumed_from, api.streamed, state.reconnects, state.relists) == (["8"], 1, 1, 0)


@pytest.mark.asyncio
async def test_an_expired_watch_leads_to_a_new_streamed_list() -> None:
    api = FakeApi(streams=[[event("ADDED", "a", 3), end(7), GONE], [event("ADDED", "b", 80), end(90), hang]])
    calls, state = await follow(api, FakeTime(sleeps=1))
    assert calls == [("replaced", "Node", "a"), ("replaced", "Node", "b")]
    assert (state.phase, state.relists, state.objects, api.listed) == ("synced", 1, 1, [])


@pytest.mark.asyncio
@pytest.mark.parametrize("breaking", [[], [LOST], [{"type": "ADDED"}]], ids=["ended", "lost", "malformed"])
async def test_half_a_list_is_thrown_away_and_streamed_again(breaking: list[Step]) -> None:
    api = FakeApi(streams=[[event("ADDED", "old", 3), *breaking], [event("ADDED", "a", 8), end(9), hang]])
    calls, state = await follow(api, FakeTime(sleeps=1))
    assert calls == [("replaced", "Node", "a")]
    assert (api.streamed, api.listed, state.phase, state.error) == (2, [], "synced", None)


@pytest.mark.asyncio
async def test_a_list_that_breaks_twice_while_streamed_is_read_page_by_page_and_the_next_one_streamed() -> None:
    half: list[Step] = [event("ADDED", "old", 3), LOST]
    api = FakeApi([page(7, node("a"))], [[GONE]], streams=[half, half, [event("ADDED", "b", 8), end(9), hang]])
    calls, _ = await follow(api, FakeTime(sleeps=3))
    assert calls == [("replaced", "Node", "a"), ("replaced", "Node", "b")]
    assert (api.streamed, len(api.listed)) == (3, 1)


@pytest.mark.asyncio
async def test_an_apiserver_that_is_away_does_not_count_as_one_that_breaks_streams() -> None:
    api = FakeApi(streams=[Refused(LOST)] * 4 + [[end(9), hang]])
    calls, _ = await follow(api, FakeTime(sleeps=4))
    assert (calls, api.streamed, api.listed) == ([("replaced", "Node")], 5, [])


@pytest.mark.asyncio
@pytest.mark.parametrize("refusal", [UNSUPPORTED, ApiError(400, "BadRequest", "resourceVersionMatch is forbidden for watch")])
async def test_an_apiserver_that_streams_no_list_is_asked_for_one_once(refusal: ApiError) -> None:
    api = FakeApi([page(7, node("a")), page(90, node("b"))], [[GONE], [hang]], streams=[Refused(refusal)])
    time = FakeTime(sleeps=1)
    calls, state = await follow(api, time)
    assert calls == [("replaced", "Node", "a"), ("replaced", "Node", "b")]
    assert (api.streamed, state.phase, state.sink_errors) == (1, "synced", 0)


@pytest.mark.asyncio
async def test_the_change_to_pages_takes_no_time() -> None:
    time = FakeTime(sleeps=0)
    calls, _ = await follow(FakeApi([page(7)], streams=[Refused(UNSUPPORTED)]), time)
    assert (calls, time.slept) == ([("replaced", "Node")], [])


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [403, 429, 500, 503])
async def test_other_refusals_do_not_end_streaming(status: int) -> None:
    api = FakeApi(streams=[Refused(ApiError(status, "No", "no")), [end(9), hang]])
    _, state = await follow(api, FakeTime(sleeps=1))
    assert (api.streamed, api.listed, state.phase) == (2, [], "synced")


@pytest.mark.asyncio
async def test_a_watch_refused_after_a_streamed_list_does_not_end_streaming() -> None:
    api = FakeApi(streams=[[end(7), UNSUPPORTED], [end(9), hang]])
    calls, _ = await follow(api, FakeTime(sleeps=1))
    assert (calls, api.streamed, api.listed) == ([("replaced", "Node")] * 2, 2, [])


@pytest.mark.asyncio
async def test_an_older_streamed_list_never_replaces_newer_facts() -> None:
    stale: list[Step] = [event("ADDED", "stale", 2), end(9)]
    first: list[Step] = [end(7), event("ADDED", "b", 11), GONE]
    api = FakeApi(streams=[first, stale, [event("ADDED", "a", 11), end(12), hang]])
    calls, _ = await follow(api, FakeTime(sleeps=2))
    assert calls == [("replaced", "Node"), ("ADDED", "Node", "b", 11), ("replaced", "Node", "a")]


@pytest.mark.asyncio
async def test_a_version_that_answers_not_found_in_spite_of_discovery_gives_way_to_the_next_one() -> None:
    api = FakeApi(versions={"v1beta1", "v1beta2"}, streams=[Refused(NOT_SERVED), [event("ADDED", "q", 3), end(7), hang]])
    calls, state = await follow(api, kind=QUEUES)
    assert calls == [("replaced", "ClusterQueue", "q")]
    assert state.phase == "synced"


@pytest.mark.asyncio
async def test_a_kind_removed_under_the_stream_of_its_list_is_absent() -> None:
    api = FakeApi(versions={"v1beta1"}, streams=[[event("ADDED", "q", 3), end(7)]], watches=[Refused(NOT_SERVED)])
    time = FakeTime(sleeps=2, before={1: api.versions.clear})
    calls, state = await follow(api, time, kind=QUEUES)
    assert calls == [("replaced", "ClusterQueue", "q"), ("absent", "ClusterQueue")]
    assert (state.phase, state.objects) == ("absent", 0)


@pytest.mark.asyncio
async def test_a_silent_list_is_cut_sooner_than_a_silent_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, now = asyncio.get_running_loop(), 0.0
    monkeypatch.setattr(loop, "time", lambda: now)
    api = FakeApi(streams=[[event("ADDED", "a", 3), hang], [end(7), hang]])
    reflector = Reflector(api, NODES, Recorder(), timing=FakeTime(sleeps=1).timing(jitter=0.0))
    task = asyncio.create_task(reflector.run())
    for now, streams, closed in ((0.0, 1, 0), (59.0, 1, 0), (61.0, 2, 1), (195.0, 2, 1), (197.0, 2, 2)):  # noqa: B007
        await settle()
        assert (api.streamed, api.closed) == (streams, closed)
    assert api.resumed_from == []
    task.cancel()


@dataclass(frozen=True)
class Record:
    """What a sink may be given in place of an object: nothing of it can be looked up as in JSON."""

    gpus: int


class RecordSink:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def replaced(self, _kind: WatchedKind, objects: Sequence[Any]) -> None:
        self.calls.append(list(objects))

    def changed(self, _kind: WatchedKind, event_type: EventType, item: Any) -> None:
        self.calls.append((event_type, item))

    def absent(self, _kind: WatchedKind) -> None:
        self.calls.append("absent")


@pytest.mark.asyncio
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "in pages"])
async def test_the_sink_may_be_given_records_instead_of_objects(streamed: bool) -> None:
    sink = RecordSink()
    deletion = event("DELETED", "a", 8)
    stream: list[Step] = [event("ADDED", "a", 3), event("ADDED", "bb", 4), end(7), deletion]
    api = FakeApi(streams=[stream]) if streamed else FakeApi([page(7, node("a"), node("bb"))], [[deletion]])
    _, state = await follow(api, FakeTime(sleeps=1), sink=sink, strip=lambda item: Record(len(item["metadata"]["name"])))
    assert sink.calls == [[Record(1), Record(2)], ("DELETED", Record(1))]
    assert api.resumed_from[-1] == "8"
    assert (state.objects, state.sink_errors) == (1, 0)


@pytest.mark.asyncio
async def test_an_object_that_cannot_be_stripped_is_left_out_of_a_streamed_list() -> None:
    bad = node("bad") | {"spec": {}}
    good = node("good") | {"spec": {"gpus": 8}}
    stream: list[Step] = [{"type": "ADDED", "object": bad}, {"type": "ADDED", "object": good}, end(7), hang]
    sink = RecordSink()
    _, state = await follow(FakeApi(streams=[stream]), sink=sink, strip=lambda item: Record(item["spec"]["gpus"]))
    assert (sink.calls, state.sink_errors, state.phase) == ([[Record(8)]], 1, "synced")


@pytest.mark.asyncio
async def test_an_object_that_cannot_be_stripped_is_counted_neither_when_it_comes_nor_when_it_goes() -> None:
    def strip(item: JsonObject) -> Record:
        return Record({"good": 8}[item["metadata"]["name"]])

    stream: list[Step] = [event("ADDED", "bad", 3), event("ADDED", "good", 4), end(7), event("DELETED", "bad", 8)]
    _, state = await follow(FakeApi(streams=[[*stream, event("ADDED", "bad", 9), hang]]), sink=RecordSink(), strip=strip)
    assert (state.objects, state.sink_errors) == (1, 3)


@pytest.mark.asyncio
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "in pages"])
async def test_others_get_their_turn_between_any_two_objects_of_a_list(streamed: bool) -> None:
    names = [f"n{number}" for number in range(200)]
    stripped: list[str] = []
    turns: list[int] = []

    def strip(item: JsonObject) -> JsonObject:
        stripped.append(item["metadata"]["name"])
        return item

    stream: list[Step] = [*(event("ADDED", name, 3) for name in names), end(7), hang]
    api = FakeApi([page(7, *map(node, names))], streams=[stream] if streamed else [])
    task = asyncio.create_task(Reflector(api, NODES, Recorder(), strip=strip, timing=FakeTime().timing()).run())
    while len(stripped) < len(names):
        turns.append(len(stripped))
        await asyncio.sleep(0)
    task.cancel()
    assert max(later - earlier for earlier, later in pairwise(turns)) == 1
    assert stripped == names


@pytest.mark.asyncio
async def test_the_age_of_facts_counts_from_the_last_proof_of_them() -> None:
    time = FakeTime()
    stream: list[Step] = [event("ADDED", "a", 3), end(7), time.advance(30), event("BOOKMARK", "", 9), time.advance(12), hang]
    _, state = await follow(FakeApi(streams=[stream]), time)
    assert state.age(time.now) == pytest.approx(12.0)


@pytest.mark.asyncio
@pytest.mark.parametrize(("lasted", "age"), [(239, 1), (100, 101)], ids=["in due time", "early"])
async def test_only_a_watch_that_lasts_as_long_as_it_was_meant_to_proves_the_facts_by_its_end(lasted: float, age: float) -> None:
    time = FakeTime(sleeps=1)
    _, state = await follow(FakeApi(streams=[[end(7), time.advance(lasted)]]), time)
    assert state.age(time.now) == pytest.approx(age, abs=0.01)


@pytest.mark.asyncio
async def test_facts_age_while_the_apiserver_is_away() -> None:
    time = FakeTime(sleeps=3)
    _, state = await follow(FakeApi(streams=[[end(7)]], watches=[Refused(LOST)] * 9), time)
    assert (state.phase, state.age(time.now)) == ("failing", pytest.approx(sum(time.slept)))


@pytest.mark.asyncio
async def test_absence_is_fresh_as_long_as_it_is_looked_for() -> None:
    time = FakeTime(sleeps=9)
    _, state = await follow(FakeApi(versions=set()), time, kind=QUEUES)
    assert (time.now, state.age(time.now)) == (pytest.approx(1045.0), 0.0)
