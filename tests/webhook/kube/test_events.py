"""Events: what is said once, what is counted, what is dropped, and how little reaches the apiserver whatever is told."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.webhook.kube.errors import ApiError, ClusterError, NotServed
from gpugate.webhook.kube.event_series import cut_bytes
from gpugate.webhook.kube.events import Buckets, Limits, Recorder, Reference, TokenBucket, about_namespace
from gpugate.webhook.runtime.log import Log
from tests.shared.scripted_api import LOST, FakeTime, settle

JOB = Reference("batch/v1", "Job", "team-a", "train", "11111111-2222-3333-4444-555555555555")
BUSY = ApiError(429, "TooManyRequests", "try again")
FORBIDDEN = ApiError(403, "Forbidden", "events.events.k8s.io is forbidden")
GONE = ApiError(404, "NotFound", 'events "train.1" not found')
NO_NAMESPACE = ApiError(404, "NotFound", 'namespaces "team-a" not found')
CONFLICT = ApiError(409, "AlreadyExists", "there is one")


class Api:
    """Keeps Events as an apiserver would, or fails as it is told."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.errors: list[Exception | None] = []
        self.fails: Callable[[str], Exception | None] = lambda _path: None

    def _answer(self, verb: str, path: str) -> None:
        self.calls.append(f"{verb} {path}")
        error = self.errors.pop(0) if self.errors else self.fails(path)
        if error is not None:
            raise error

    async def create(self, path: str, item: dict[str, Any]) -> dict[str, Any]:
        self._answer("create", path)
        name = f"{path}/{item['metadata']['name']}"
        if name in self.events:
            raise CONFLICT
        self.events[name] = orjson.loads(orjson.dumps(item))
        return item

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self._answer("patch", path)
        if path not in self.events:
            raise GONE
        self.events[path] |= patch
        return self.events[path]


class World:
    """A recorder, the API that it talks to, and time."""

    def __init__(self, *, sleeps: int = 0, **limits: Any) -> None:
        self.api = Api()
        self.time = FakeTime(sleeps=sleeps)
        self.counts: Counter[str] = Counter()
        self._stream = io.StringIO()
        log = Log(self._stream)
        self.recorder = Recorder(
            self.api,
            log,
            instance="pod-1",
            count=lambda outcome: self.counts.update([outcome]),
            limits=Limits(**limits),
            timing=self.time.timing(),
            wall=lambda: 1_700_000_000.0 + self.time.now,
        )
        self._log = log

    def tell(self, regarding: Reference = JOB, message: str = "Pod refused", *, times: int = 1, **fields: Any) -> None:
        for _ in range(times):
            self.recorder.emit(regarding, **{"reason": "Refused", "message": message, "action": "Admit", **fields})

    async def send(self, *, sleeps: int | None = None) -> None:
        """Run until there is nothing to do, or that many sleeps are over."""
        if sleeps is not None:
            self.time.sleeps = len(self.time.slept) + sleeps
        task = asyncio.create_task(self.recorder.run())
        await settle()
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @property
    def lines(self) -> list[dict[str, Any]]:
        self._log.flush()
        return [orjson.loads(line) for line in self._stream.getvalue().splitlines()]

    @property
    def event(self) -> dict[str, Any]:
        (found,) = self.api.events.values()
        return found


@pytest.mark.asyncio
async def test_an_event_has_every_field_that_the_api_demands() -> None:
    world = World()
    world.tell()
    await world.send()
    event = world.event
    name = event["metadata"].pop("name")
    assert re.fullmatch(r"train\.[0-9a-f]{16}", name)
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "team-a"},
        "eventTime": "2023-11-14T22:30:00.000000Z",
        "reportingController": "gpugate.io/webhook",
        "reportingInstance": "pod-1",
        "action": "Admit",
        "reason": "Refused",
        "regarding": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team-a", "name": "train", "uid": JOB.uid},
        "note": "Pod refused",
        "type": "Warning",
    }
    assert world.api.calls == ["create /apis/events.k8s.io/v1/namespaces/team-a/events"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("regarding", "home"),
    [
        (Reference("gpugate.io/v1alpha1", "GPUPolicy", "", "default", "u"), "default"),
        (about_namespace("team-b"), "team-b"),
        (JOB, "team-a"),
    ],
    ids=["without a namespace", "a namespace", "in a namespace"],
)
async def test_an_event_lives_where_the_api_allows_it_and_those_concerned_look(regarding: Reference, home: str) -> None:
    world = World()
    world.tell(regarding)
    await world.send()
    assert world.api.calls == [f"create /apis/events.k8s.io/v1/namespaces/{home}/events"]
    assert world.event["metadata"]["namespace"] == home
    assert world.event["regarding"].get("namespace", "") == regarding.namespace


@pytest.mark.asyncio
async def test_an_event_about_a_name_that_no_event_may_have_gets_another() -> None:
    world = World()
    world.tell(JOB._replace(name="system:node"))
    world.tell(JOB._replace(name="a" * 253))
    await world.send()
    names = [event["metadata"]["name"] for event in world.api.events.values()]
    assert names[0].startswith("gpugate.")
    assert all(len(name) <= 253 for name in names)


@pytest.mark.asyncio
async def test_what_is_told_again_is_a_higher_count_and_no_other_event() -> None:
    world = World(sleeps=1000)
    world.tell()
    await world.send(sleeps=0)
    assert "series" not in world.event
    world.time.now += 1
    world.tell(times=499)
    await world.send(sleeps=2)
    assert world.event["series"] == {"count": 500, "lastObservedTime": "2023-11-14T22:30:01.000000Z"}
    assert [call.split()[0] for call in world.api.calls] == ["create", "patch"]
    assert world.counts == {"created": 1, "updated": 1, "aggregated": 499}


@pytest.mark.asyncio
async def test_what_was_told_often_before_it_was_sent_is_one_call() -> None:
    world = World()
    world.tell(times=3)
    await world.send()
    assert world.event["series"]["count"] == 3
    assert len(world.api.calls) == 1


@pytest.mark.asyncio
async def test_counts_are_sent_at_ever_longer_intervals_while_the_same_goes_on() -> None:
    world = World()
    world.tell()
    await world.send()
    for _ in range(3600):
        world.time.now += 1
        world.tell()
        await world.send(sleeps=0)
    # After 2, 4, 8, 16, 32 seconds and then every minute.
    assert 60 < len(world.api.calls) <= 1 + 5 + 60
    assert world.event["series"]["count"] > 3500
    assert len(world.api.events) == 1


@pytest.mark.asyncio
async def test_after_a_silence_the_same_words_are_a_new_event() -> None:
    world = World(window=900)
    world.tell()
    await world.send()
    world.time.now += 901
    world.tell()
    await world.send()
    assert len(world.api.events) == 2
    assert world.counts == {"created": 2}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "other",
    [
        {"regarding": JOB._replace(uid="other")},
        {"message": "else"},
        {"reason": "WouldRefuse"},
        {"kind": "Normal"},
        {"action": "Move"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_what_differs_in_anything_is_another_event(other: dict[str, Any]) -> None:
    world = World()
    world.tell()
    world.tell(**other)
    await world.send()
    assert len(world.api.events) == 2


@pytest.mark.asyncio
async def test_one_object_gets_a_few_events_and_then_one_a_minute_whatever_is_told_of_it() -> None:
    world = World(object_burst=10, object_every=60, queue=1000)
    for number in range(100):
        world.tell(message=f"reason {number}")
    world.tell(JOB._replace(name="other"))
    await world.send()
    assert world.counts == {"created": 11, "limited": 90}
    world.time.now += 125
    for number in range(100, 200):
        world.tell(message=f"reason {number}")
    await world.send()
    assert world.counts["created"] == 13


@pytest.mark.asyncio
async def test_a_flood_of_ten_thousand_denials_costs_bounded_memory_and_bounded_calls() -> None:
    limits = Limits()
    world = World()
    note = "x" * 4000
    for number in range(10_000):
        world.tell(JOB._replace(namespace=f"ns-{number}", uid=str(number)), message=f"{number} {note}")
        world.time.now += 0.0001
    recorder = world.recorder
    assert len(recorder._queue) == limits.queue
    assert len(recorder._known) <= limits.series
    assert len(recorder._buckets) <= limits.series
    held = sum(sys.getsizeof(series.key.note) for series in recorder._known.values())
    assert held < limits.series * 1100
    assert world.counts == {"overflow": 10_000 - limits.queue}
    await world.send(sleeps=0)
    assert len(world.api.calls) == limits.burst
    begun = world.time.now
    await world.send(sleeps=10)
    assert len(world.api.calls) <= limits.burst + limits.rate * (world.time.now - begun) + 1
    await world.send(sleeps=1000)
    assert len(world.api.calls) == limits.queue
    # Forty seconds and not one, since calls have a rate.
    assert world.time.now - begun == pytest.approx((limits.queue - limits.burst) / limits.rate, abs=1)


@pytest.mark.asyncio
async def test_a_flood_over_hours_is_bounded_by_the_rate_of_calls() -> None:
    world = World(series=64, queue=16)
    for second in range(2000):
        for number in range(20):
            world.tell(JOB._replace(uid=f"{second}-{number}"))
        world.time.now += 1
        await world.send(sleeps=0)
    recorder = world.recorder
    assert max(len(recorder._known), len(recorder._buckets), len(recorder._changed)) <= 64
    assert len(world.api.calls) <= Limits().burst + Limits().rate * 2000


@pytest.mark.asyncio
async def test_new_events_do_not_wait_for_counts_that_are_not_due() -> None:
    world = World()
    world.tell()
    await world.send()
    world.tell()
    world.tell(message="something new")
    await world.send()
    assert [call.split()[0] for call in world.api.calls] == ["create", "create"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error", [LOST, BUSY, ApiError(503, "ServiceUnavailable", "down"), TimeoutError(), ClusterError("no way")], ids=repr
)
async def test_it_backs_off_while_the_apiserver_fails_and_then_sends_what_waited(error: Exception) -> None:
    world = World()
    world.api.errors = [error] * 4
    world.tell()
    await world.send(sleeps=4)
    assert len(world.api.events) == 1
    assert [round(slept) for slept in world.time.slept] == [1, 2, 4, 8]
    assert world.counts == {"created": 1}


@pytest.mark.asyncio
async def test_what_is_too_old_is_forgotten_while_the_apiserver_fails() -> None:
    world = World(expires=300)
    world.api.fails = lambda _path: LOST
    world.tell()
    await world.send(sleeps=30)
    assert world.counts == {"expired": 1}
    calls = len(world.api.calls)
    await world.send(sleeps=30)
    assert len(world.api.calls) == calls
    world.api.fails = lambda _path: None
    world.tell()
    await world.send()
    assert world.counts == {"expired": 1, "created": 1}


@pytest.mark.asyncio
async def test_a_count_that_cannot_be_sent_is_forgotten_in_the_end() -> None:
    world = World(expires=300)
    world.tell()
    await world.send()
    world.tell()
    world.api.fails = lambda _path: LOST
    await world.send(sleeps=60)
    assert world.counts == {"created": 1, "aggregated": 1, "expired": 1}


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [FORBIDDEN, NO_NAMESPACE, NotServed(404, "NotFound", "404 page not found")], ids=repr)
async def test_where_the_api_takes_none_it_gives_up_with_one_line_in_the_log(error: ApiError) -> None:
    world = World()
    world.api.fails = lambda path: error if "team-a" in path else None
    for number in range(5):
        world.tell(JOB._replace(uid=str(number)))
    world.tell(JOB._replace(namespace="team-b"))
    await world.send()
    assert world.counts == {"refused": 5, "created": 1}
    (line,) = world.lines
    assert (line["level"], line["message"], line["namespace"]) == ("warning", "the apiserver rejects an Event", "team-a")
    assert str(error.status) in line["error"]
    world.time.now += 61
    world.tell()
    await world.send()
    assert [line["likewise"] for line in world.lines] == [0, 4]


@pytest.mark.asyncio
async def test_an_event_whose_answer_got_lost_is_not_made_twice() -> None:
    world = World()
    world.api.errors = [LOST, CONFLICT]
    world.tell()
    await world.send(sleeps=1)
    assert world.counts == {"created": 1}


@pytest.mark.asyncio
async def test_an_event_that_has_gone_is_made_again_with_its_count() -> None:
    world = World()
    world.tell()
    await world.send()
    world.api.events.clear()
    world.time.now += 10
    world.tell(times=4)
    await world.send()
    assert world.event["series"]["count"] == 5
    assert world.counts == {"created": 2, "aggregated": 4}


@pytest.mark.asyncio
async def test_sending_goes_on_after_it_was_cancelled_in_the_middle_of_a_call() -> None:
    world = World()
    asked = asyncio.Event()
    create = world.api.create

    async def hang(path: str, item: dict[str, Any]) -> dict[str, Any]:
        await create(path, item)
        asked.set()
        return await asyncio.Future()

    world.api.create = hang  # type: ignore[method-assign]
    world.tell()
    task = asyncio.create_task(world.recorder.run())
    await asked.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    world.api.create = create  # type: ignore[method-assign]
    world.tell(message="more")
    await world.send()
    assert len(world.api.events) == 2
    assert world.counts == {"created": 2}


@pytest.mark.asyncio
async def test_an_error_of_its_own_costs_one_event_and_not_the_loop() -> None:
    world = World()
    world.api.errors = [KeyError("bug")]
    world.tell()
    world.tell(message="else")
    await world.send()
    assert world.counts == {"failed": 1, "created": 1}
    assert "KeyError" in world.lines[0]["error"]


def test_telling_raises_nothing_and_needs_no_loop() -> None:
    world = World()
    world.tell(message="\ud800 half a character")
    world.tell(message=None)
    assert world.counts == {"failed": 1}
    assert len(world.recorder._queue) == 1


@given(st.text(max_size=3000))
def test_a_note_is_never_longer_than_the_api_takes(text: str) -> None:
    note = cut_bytes(text)
    assert len(note.encode()) <= 1024
    assert note == text or note.endswith("...")


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(3, 0.5, 0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait(0.0) == 2.0
    assert bucket.take(2.0)
    assert not bucket.take(2.0)
    assert [bucket.take(1e6) for _ in range(4)] == [True, True, True, False]


def test_buckets_forget_those_used_longest_ago() -> None:
    buckets = Buckets(1, 0.001, 2)
    assert buckets.take("a", 0.0)
    assert buckets.take("b", 0.0)
    assert not buckets.take("a", 0.0)
    assert buckets.take("c", 0.0)
    assert len(buckets) == 2
    assert not buckets.take("a", 0.0)
    assert buckets.take("b", 0.0)
