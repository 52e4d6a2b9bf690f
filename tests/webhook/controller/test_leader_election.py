"""Who leads: taking, renewing, losing and handing over the Lease, with time that passes only when told."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from gpugate.webhook.controller.leader_election import NAME, Elector, LeaseDurations
from gpugate.webhook.kube.errors import ApiError, ConnectionLostError
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log

pytestmark = pytest.mark.asyncio
COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/gpugate-system/leases"
LOST = ConnectionLostError("no route")


class Leases:
    """An apiserver that keeps one Lease, and a clock of its own for each who asks."""

    def __init__(self, spec: JsonObject | None = None) -> None:
        self.lease: JsonObject | None = None
        self.calls: list[str] = []
        self.errors: list[Exception] = []
        self.unreachable = False
        self.pass_time: Callable[[], object] = lambda: None
        self.before_write: Callable[[], object] = lambda: None
        self.after_write: Callable[[], object] = lambda: None
        self._version = 0
        if spec is not None:
            self.store({"metadata": {"name": NAME}, "spec": spec})

    @property
    def spec(self) -> JsonObject:
        assert self.lease is not None
        found: JsonObject = self.lease["spec"]
        return found

    def store(self, lease: JsonObject) -> JsonObject:
        self._version += 1
        self.lease = deepcopy({**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self._version)}})
        return deepcopy(self.lease)

    def touch(self, **spec: Any) -> None:
        """Somebody else writes the Lease."""
        assert self.lease is not None
        self.store({**self.lease, "spec": {**self.lease["spec"], **spec}})

    def _called(self, verb: str) -> None:
        self.calls.append(verb)
        self.pass_time()
        if self.unreachable:
            raise LOST
        if self.errors:
            raise self.errors.pop(0)

    async def get(self, path: str) -> JsonObject:
        assert path == f"{COLLECTION}/{NAME}"
        self._called("GET")
        if self.lease is None:
            raise ApiError(404, "NotFound", "no such lease")
        return deepcopy(self.lease)

    async def create(self, path: str, item: JsonObject) -> JsonObject:
        assert path == COLLECTION
        self._called("POST")
        self.before_write()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "there is one")
        return self.store(item)

    async def replace(self, path: str, item: JsonObject) -> JsonObject:
        assert path == f"{COLLECTION}/{NAME}"
        self._called("PUT")
        self.before_write()
        assert self.lease is not None
        if item["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        found = self.store(item)
        self.after_write()
        return found


class Candidate:
    """An elector with its own clock, and what it does while it leads."""

    def __init__(self, leases: Leases, identity: str = "me", durations: LeaseDurations | None = None) -> None:
        self.now = 1000.0
        self.began = self.ended = 0
        self.ended_at = 0.0
        self.fails: Exception | None = None
        self.text = io.StringIO()
        self.elector = Elector(
            leases, "gpugate-system", identity, Log(self.text), durations or LeaseDurations(retry=0.0), clock=lambda: self.now
        )

    async def lead(self) -> None:
        self.began += 1
        try:
            if self.fails is not None:
                raise self.fails
            await asyncio.Event().wait()
        finally:
            self.ended += 1
            self.ended_at = self.now

    async def tries(self, number: int = 1, *, after: float = 0.0) -> bool:
        """Try so often, each time a while later; says whether it leads then."""
        for _ in range(number):
            self.now += after
            await self.elector._try()
        return self.elector.leading

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.elector.run(self.lead))
        try:
            await turns()
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def turns(number: int = 200) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError


def held_by(identity: str, **more: Any) -> JsonObject:
    return {
        "holderIdentity": identity,
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 3,
        **more,
    }


async def test_who_finds_no_lease_makes_one_and_leads() -> None:
    leases = Leases()
    one = Candidate(leases)
    assert await one.tries()
    assert leases.calls == ["GET", "POST"]
    assert {**leases.spec, "acquireTime": "", "renewTime": ""} == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "",
        "renewTime": "",
        "leaseTransitions": 0,
    }
    assert leases.spec["acquireTime"] == leases.spec["renewTime"]
    written = datetime.strptime(leases.spec["renewTime"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert abs(written.timestamp() - time.time()) < 60
    assert one.elector.leader == "me"


async def test_a_leader_renews_and_keeps_when_it_began() -> None:
    leases = Leases()
    one = Candidate(leases)
    await one.tries()
    began = leases.spec
    await asyncio.sleep(0.001)
    assert await one.tries(after=2)
    assert leases.spec["acquireTime"] == began["acquireTime"]
    assert leases.spec["renewTime"] > began["renewTime"]
    assert leases.spec["leaseTransitions"] == 0


async def test_a_lease_is_taken_over_after_its_duration_as_observed_and_not_by_the_others_clock() -> None:
    leases = Leases(held_by("other"))  # renewed long ago, by its own clock
    one = Candidate(leases)
    assert not await one.tries()
    assert one.elector.leader == "other"
    assert not await one.tries(after=14.9)
    assert "PUT" not in leases.calls
    assert await one.tries(after=0.2)
    assert leases.spec["holderIdentity"] == "me"
    assert leases.spec["leaseTransitions"] == 4
    assert leases.spec["acquireTime"] != "2026-01-01T00:00:00.000000Z"


async def test_every_renewal_that_is_seen_starts_the_duration_anew() -> None:
    leases = Leases(held_by("other"))
    one = Candidate(leases)
    for at in range(5):
        leases.touch(renewTime=f"2026-01-01T00:00:0{at}.000000Z")
        assert not await one.tries(after=14)
    assert not await one.tries(after=14)
    assert await one.tries(after=14)


async def test_the_duration_of_the_holder_counts_and_not_ones_own() -> None:
    leases = Leases(held_by("other", leaseDurationSeconds=60))
    one = Candidate(leases)
    await one.tries()
    assert not await one.tries(after=59)
    assert await one.tries(after=2)


async def test_a_lease_that_was_released_is_taken_at_once_and_counts_as_a_transition() -> None:
    leases = Leases(held_by("", leaseDurationSeconds=1))
    assert await Candidate(leases).tries()
    assert leases.spec["leaseTransitions"] == 4
    assert leases.spec["leaseDurationSeconds"] == 15


async def test_of_two_who_want_it_at_once_one_gets_it() -> None:
    leases = Leases(held_by(""))
    one, two = Candidate(leases, "one"), Candidate(leases, "two")
    leases.before_write = lambda: (setattr(leases, "before_write", lambda: None), leases.touch(holderIdentity="two"))
    assert not await one.tries()
    assert await two.tries()
    assert not await one.tries()
    assert one.elector.leader == "two"


async def test_of_two_who_make_it_at_once_one_gets_it() -> None:
    leases = Leases()
    leases.before_write = lambda: leases.store({"metadata": {"name": NAME}, "spec": held_by("two")})
    one = Candidate(leases)
    assert not await one.tries()
    assert leases.spec["holderIdentity"] == "two"


async def test_a_leader_whose_lease_another_has_taken_leads_no_longer() -> None:
    leases = Leases()
    one = Candidate(leases)
    await one.tries()
    leases.touch(holderIdentity="two")
    assert not await one.tries()


async def test_a_leader_goes_on_when_somebody_else_only_touches_the_lease() -> None:
    leases = Leases()
    one = Candidate(leases)
    await one.tries()

    def annotate() -> None:
        leases.before_write = lambda: None
        leases.touch()

    leases.before_write = annotate
    assert await one.tries(after=2), "another resourceVersion is no other holder"
    assert await one.tries(after=2)
    assert leases.spec["leaseTransitions"] == 0


async def test_a_leader_that_cannot_renew_goes_on_until_its_deadline_and_no_longer() -> None:
    leases = Leases()
    one = Candidate(leases)
    await one.tries()
    leases.unreachable = True
    assert await one.tries(4, after=2)
    assert not await one.tries(after=2.1)
    leases.unreachable = False
    assert await one.tries(after=2)
    assert leases.spec["leaseTransitions"] == 0, "nobody led in between"


async def test_the_deadline_counts_from_before_the_renewal_was_sent() -> None:
    """The others count from when they see it: an answer that comes late must not make the leader stay longer."""
    leases = Leases()
    one = Candidate(leases)
    await one.tries()
    leases.after_write = lambda: setattr(one, "now", one.now + 9)
    assert await one.tries(after=2)
    leases.unreachable = True
    assert not await one.tries(after=2)


async def test_an_apiserver_that_does_not_answer_is_waited_for_no_longer_than_the_deadline() -> None:
    leases = Leases()
    one = Candidate(leases, durations=LeaseDurations(duration=15, deadline=0.05, retry=0.0))
    await one.tries()

    async def hang(_path: str) -> JsonObject:
        one.now += 1
        await asyncio.Event().wait()
        raise AssertionError

    leases.get = hang  # type: ignore[method-assign]
    async with asyncio.timeout(5):
        assert not await one.tries()


async def test_the_work_is_cancelled_before_another_may_take_over() -> None:
    leases = Leases()
    one, two = Candidate(leases, "one"), Candidate(leases, "two")
    async with one.running():
        await until(lambda: one.began == 1)
        await two.tries()
        leases.pass_time = lambda: (setattr(one, "now", one.now + 0.5), setattr(two, "now", two.now + 0.5))
        leases.unreachable = True
        lost_at = one.now
        await until(lambda: one.ended == 1)
        took = one.ended_at - lost_at
        leases.unreachable = False
        assert 9 < took < 12, "well before the fifteen seconds of the others"


async def test_who_leads_works_and_stops_and_works_again() -> None:
    leases = Leases()
    one = Candidate(leases)
    async with one.running():
        await until(lambda: one.began == 1)
        leases.touch(holderIdentity="two")
        await until(lambda: one.ended == 1)
        assert not one.elector.leading
        leases.touch(holderIdentity="")
        await until(lambda: one.began == 2)
        assert one.elector.leading


async def test_who_ends_in_order_stops_working_and_then_hands_over() -> None:
    leases = Leases()
    one = Candidate(leases)
    async with one.running():
        await until(lambda: one.began == 1)
        leases.before_write = lambda: leases.calls.append(f"ended {one.ended}")
    assert leases.calls[-1] == "ended 1"
    assert (leases.spec["holderIdentity"], leases.spec["leaseDurationSeconds"]) == ("", 1)
    assert await Candidate(leases, "two").tries()
    assert leases.spec["leaseTransitions"] == 1


async def test_who_ends_without_leading_leaves_the_lease_alone() -> None:
    leases = Leases(held_by("other"))
    async with Candidate(leases).running():
        pass
    assert "PUT" not in leases.calls


async def test_who_ends_after_another_has_taken_over_leaves_the_lease_alone() -> None:
    leases = Leases()
    one = Candidate(leases, durations=LeaseDurations(retry=30.0))
    async with one.running():
        await until(lambda: one.began == 1)
        leases.touch(holderIdentity="two")
    assert leases.spec["holderIdentity"] == "two"


async def test_who_ends_while_the_apiserver_is_gone_still_ends() -> None:
    leases = Leases()
    one = Candidate(leases, durations=LeaseDurations(retry=30.0))
    async with asyncio.timeout(5), one.running():
        await until(lambda: one.began == 1)
        leases.unreachable = True
    assert one.ended == 1


async def test_work_that_breaks_ends_the_election_with_its_error_and_hands_over() -> None:
    leases = Leases()
    one = Candidate(leases)
    one.fails = ValueError("a mistake")
    with pytest.raises(ValueError, match="a mistake"):
        async with asyncio.timeout(5):
            await one.elector.run(one.lead)
    assert leases.spec["holderIdentity"] == "", "another may lead at once"
    assert not one.elector.leading


async def test_work_that_ends_by_itself_is_an_error_and_no_loop_without_pause() -> None:
    async def nothing() -> None:
        pass

    with pytest.raises(RuntimeError, match="ended"):
        async with asyncio.timeout(5):
            await Candidate(Leases()).elector.run(nothing)


async def test_who_is_told_to_end_while_it_stops_its_work_ends() -> None:
    leases = Leases()
    one = Candidate(leases)
    stopping, go = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await go.wait()

    task = asyncio.create_task(one.elector.run(slow))
    await until(lambda: one.elector.leading)
    await turns()
    leases.touch(holderIdentity="two")
    await asyncio.wait_for(stopping.wait(), 5)
    task.cancel()
    await turns()
    go.set()
    done, _ = await asyncio.wait([task], timeout=5)
    if not done:
        task.cancel()
    assert task in done, "it went on to take part, though it was told to end"
    assert task.cancelled()


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"holderIdentity": None, "leaseDurationSeconds": None, "acquireTime": None, "renewTime": None, "leaseTransitions": None},
        {"holderIdentity": "", "leaseTransitions": "many"},
    ],
)
async def test_a_lease_that_says_nothing_is_free(spec: JsonObject | None) -> None:
    leases = Leases({})
    assert leases.lease is not None
    leases.lease["spec"] = spec
    one = Candidate(leases)
    assert await one.tries(2)
    assert leases.spec["leaseTransitions"] in {0, 1}


async def test_a_lease_of_a_stranger_without_times_or_duration_is_waited_for_by_ones_own() -> None:
    leases = Leases({"holderIdentity": "stranger", "leaseDurationSeconds": "long", "renewTime": None})
    one = Candidate(leases)
    assert not await one.tries()
    assert not await one.tries(after=14)
    assert await one.tries(after=2)


async def test_errors_of_the_apiserver_are_logged_and_tried_again() -> None:
    leases = Leases()
    leases.errors = [ApiError(403, "Forbidden", "leases are forbidden"), ApiError(500, "InternalError", "etcd")]
    one = Candidate(leases)
    assert not await one.tries(2)
    assert await one.tries()
    one.elector._log.flush()
    assert "leases are forbidden" in one.text.getvalue()
