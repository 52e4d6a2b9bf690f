"""The rounds of the audit: when there is one, what it judges, how fast, and by what."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.gpu_usage import place_of
from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.policy.models import Policy
from gpugate.webhook.audit.subjects import SUBJECT_KINDS, Subject
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.controller.audit_loop import AuditLoop, AuditSchedule, AuditSource
from gpugate.webhook.controller.informers import WorkloadInformer, observe_workload
from gpugate.webhook.runtime.log import Log
from tests.shared.audits import a_pod
from tests.shared.reviews import overcommitted_pod, policy

pytestmark = pytest.mark.asyncio
PODS = next(kind for kind in SUBJECT_KINDS if kind.name == "Pod")
FAST = AuditSchedule(interval=3600.0, gather=0.0, rate=1e6)


def bound(mode: str = "Enforce", *, generation: int = 1) -> Policy:
    return policy("p", generation=generation, mode=None, rules={"host-memory": {"mode": mode}})


class Stand:
    """Rounds over a feed, with a clock that tests may move."""

    def __init__(self, schedule: AuditSchedule = FAST, *, pods: int = 2) -> None:
        self.ahead = 0.0
        self.read = asyncio.Event()
        self.read.set()
        self.state = CurrentState(policies=[bound()])
        self.informer = WorkloadInformer()
        self.problems: dict[str, str] = {}
        log = Log(io.StringIO())
        source = AuditSource(
            self.state,
            SnapshotStore(CurrentState(), log, []),
            self.informer,
            self.read.wait,
            "tests",
            remarks=lambda: ("rayjobs cannot be read: no",),
            problems=lambda: self.problems,
        )
        self.wall = 0.0
        self.audit_loop = AuditLoop(source, schedule, log, clock=lambda: time.monotonic() + self.ahead, wall=lambda: self.wall)
        self.informer.replaced(PODS, [observe_workload(overcommitted_pod(f"pod-{at}", uid=f"u{at}")) for at in range(pods)])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.audit_loop.run())
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def next(self, number: int) -> None:
        async with asyncio.timeout(10):
            await self.audit_loop.after(number)

    @property
    def last(self) -> tuple[int, bool]:
        assert self.audit_loop.last is not None
        return (self.audit_loop.last.evaluated, self.audit_loop.last.full)

    @property
    def effects(self) -> list[str]:
        assert self.audit_loop.latest is not None
        return [one.outcome for one in self.audit_loop.latest.workloads]


async def test_the_first_round_waits_until_everything_was_read_and_goes_over_everything() -> None:
    stand = Stand()
    stand.read.clear()
    async with stand.running():
        await asyncio.sleep(0.01)
        assert stand.audit_loop.done == 0
        assert stand.audit_loop.latest is None
        stand.read.set()
        await stand.next(0)
        assert stand.last == (2, True)
        assert stand.effects == ["refuse", "refuse"]
        assert stand.audit_loop.latest is not None
        assert stand.audit_loop.latest.remarks == ("rayjobs cannot be read: no",)
        assert stand.audit_loop.latest.source == "tests"


async def test_what_stirs_is_judged_alone() -> None:
    stand = Stand()
    async with stand.running():
        await stand.next(0)
        stand.informer.changed(PODS, "ADDED", observe_workload(a_pod("new")))
        await stand.next(1)
        assert stand.last == (1, False)
        stand.informer.changed(PODS, "DELETED", observe_workload(a_pod("new")))
        await stand.next(2)
        assert stand.last == (0, False)
        assert stand.effects == ["refuse", "refuse"]


async def test_changes_are_gathered_for_a_while() -> None:
    stand = Stand(AuditSchedule(interval=3600.0, gather=0.05, rate=1e6))
    async with stand.running():
        await stand.next(0)
        for at in range(5):
            stand.informer.changed(PODS, "ADDED", observe_workload(a_pod(f"new-{at}")))
            await asyncio.sleep(0)
        await stand.next(1)
        assert stand.last == (5, False)


async def test_nothing_stirs_and_there_is_no_round() -> None:
    stand = Stand()
    async with stand.running():
        await stand.next(0)
        stand.informer.changed(PODS, "MODIFIED", observe_workload(overcommitted_pod("pod-0", uid="u0")))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await stand.audit_loop.after(1)


async def test_another_policy_is_cause_for_a_round_over_everything() -> None:
    stand = Stand()
    async with stand.running():
        await stand.next(0)
        stand.state.publish(policies=[bound("Disabled", generation=2)])
        await stand.next(1)
        assert stand.last == (2, True)
        assert stand.effects == ["clean", "clean"]


async def test_the_end_of_an_exemption_is_cause_for_a_round_over_everything() -> None:
    stand = Stand(pods=0)
    exemptions = {"rules": ["host-memory"]}
    stand.state.publish(policies=[policy("p", mode="Enforce", exemptions=exemptions)])
    plea = {
        "gpugate.io/exempt": "host-memory",
        "gpugate.io/exempt-reason": "moves house",
        "gpugate.io/exempt-until": "1970-01-01T00:10:00Z",
    }
    stand.informer.changed(PODS, "ADDED", observe_workload(overcommitted_pod("old", annotations=plea)))
    async with stand.running():
        await stand.next(0)
        assert "refuse" not in stand.effects
        stand.wall = 600.0
        await stand.next(1)
        assert stand.last == (1, True)
        assert stand.effects == ["refuse"]
        done = stand.audit_loop.done
        await asyncio.sleep(0.05)
        assert stand.audit_loop.done == done, "what has ended is no cause again"


async def test_nodes_that_come_are_cause_for_a_round_over_everything_after_a_while() -> None:
    stand = Stand(AuditSchedule(interval=1000.0, gather=0.0, slow_facts=60.0, rate=1e6))
    async with stand.running():
        await stand.next(0)
        stand.state.publish(snapshot_from_objects([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}]))
        stand.ahead += 50
        stand.informer.changed(PODS, "ADDED", observe_workload(a_pod("new")))
        await stand.next(1)
        assert stand.last == (1, False)
        stand.ahead += 20
        await stand.next(2)
        assert stand.last == (3, True)


async def test_other_facts_wait_for_the_interval() -> None:
    stand = Stand()
    async with stand.running():
        await stand.next(0)
        stand.state.publish(snapshot_from_objects([], {"nodes": SyncState.PENDING}))
        stand.informer.changed(PODS, "ADDED", observe_workload(a_pod("new")))
        await stand.next(1)
        assert stand.last == (1, False)


async def test_at_the_interval_everything_is_judged_again() -> None:
    stand = Stand(AuditSchedule(interval=100.0, gather=0.0, rate=1e6))
    async with stand.running():
        await stand.next(0)
        stand.ahead += 99
        stand.informer.changed(PODS, "ADDED", observe_workload(a_pod("new")))
        await stand.next(1)
        assert stand.last == (1, False)
        stand.ahead += 2
        await stand.next(2)
        assert stand.last == (3, True)


async def test_no_more_is_judged_in_a_second_than_the_rate() -> None:
    stand = Stand(AuditSchedule(interval=3600.0, gather=0.0, rate=1000.0), pods=201)
    started = time.monotonic()
    async with stand.running():
        await stand.next(0)
    assert stand.last == (201, True)
    assert time.monotonic() - started >= 0.2


async def during(stand: Stand, change: Callable[[], object]) -> None:
    """Do ``change`` in the midst of the first round."""
    evaluate = stand.informer.index.evaluate

    def evaluating(*arguments: object, **options: bool) -> object:
        for at, found in enumerate(evaluate(*arguments, **options)):  # type: ignore[arg-type]
            yield found
            if at == 0:
                change()
                stand.informer.index.evaluate = evaluate  # type: ignore[method-assign]

    stand.informer.index.evaluate = evaluating  # type: ignore[method-assign, assignment]


async def test_a_policy_that_comes_during_a_round_is_not_named_for_what_another_judged() -> None:
    stand = Stand()
    found = []
    await during(stand, lambda: stand.state.publish(policies=[bound("Mutate", generation=2)]))
    async with stand.running():
        await stand.next(0)
        assert stand.audit_loop.latest is not None
        found.append(stand.audit_loop.latest)
        await stand.next(1)
        found.append(stand.audit_loop.latest)
    for audit in found:
        named = {f"{line.name}@{line.generation}" for line in audit.policies}
        assert {item.policy for one in audit.workloads for item in one.items} == named
    assert stand.audit_loop.latest.policies[0].generation == 2
    assert stand.last == (2, True)


async def test_what_stirs_during_a_round_is_cause_for_the_next() -> None:
    stand = Stand()
    await during(stand, lambda: stand.informer.changed(PODS, "ADDED", observe_workload(a_pod("new"))))
    async with stand.running():
        await stand.next(1)
        assert stand.audit_loop.latest is not None
        assert len(stand.audit_loop.latest.workloads) == 3


async def test_a_workload_that_goes_during_a_round_is_gone_after_the_next() -> None:
    stand = Stand()
    gone = observe_workload(overcommitted_pod("pod-1", uid="u1"))
    assert isinstance(gone.subject, Subject)
    assert place_of(gone.subject) == gone.place
    await during(stand, lambda: stand.informer.changed(PODS, "DELETED", gone))
    async with stand.running():
        await stand.next(1)
        assert stand.audit_loop.latest is not None
        assert [one.name for one in stand.audit_loop.latest.workloads] == ["pod-0"]


async def test_a_policy_that_is_not_in_force_is_told_with_the_audit() -> None:
    stand = Stand()
    stand.problems["broken"] = "spec.mode: no"
    async with stand.running():
        await stand.next(0)
        assert stand.audit_loop.latest is not None
        assert [(line.name, line.problem) for line in stand.audit_loop.latest.policies] == [("p", ""), ("broken", "spec.mode: no")]


async def test_an_object_that_cannot_be_read_is_a_remark_and_no_end() -> None:
    stand = Stand()
    stand.informer.changed(PODS, "ADDED", observe_workload({**a_pod("broken"), "spec": []}))
    async with stand.running():
        await stand.next(0)
        assert stand.audit_loop.latest is not None
        assert [remark.split(":")[0] for remark in stand.audit_loop.latest.remarks] == [
            "Pod team-a/broken cannot be read",
            "rayjobs cannot be read",
        ]


async def test_after_a_round_that_broke_everything_is_judged_again_soon() -> None:
    stand = Stand()
    breaking = 0

    def problems() -> dict[str, str]:
        nonlocal breaking
        if breaking:
            breaking -= 1
            message = "unforeseen"
            raise RuntimeError(message)
        return {}

    stand.audit_loop._source.problems = problems
    async with stand.running():
        await stand.next(0)
        breaking = 2
        stand.state.publish(policies=[bound("DryRun", generation=2)])
        await stand.next(1)
        assert stand.last == (2, True)
        assert stand.audit_loop.latest is not None
        assert stand.audit_loop.latest.policies[0].generation == 2
        breaking = 1
        stand.informer.changed(PODS, "ADDED", observe_workload(a_pod("new")))
        await stand.next(2)
        assert len(stand.audit_loop.latest.workloads) == 3
    assert breaking == 0
