"""When the facts of a kind are out of date, and what a review then says."""

from __future__ import annotations

import io

import pytest

from gpugate.policies.cluster.snapshot import SyncState
from gpugate.webhook.cache.health import out_of_date, unreadable
from gpugate.webhook.cache.kinds import FACT_KINDS
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.types import KindState, WatchPhase
from gpugate.webhook.runtime.log import Log


@pytest.mark.parametrize(
    ("phase", "age", "minutes"),
    [
        ("failing", 59, None),
        ("failing", 60, 1),
        ("forbidden", 185, 3),
        ("synced", 359, None),
        ("synced", 360, 6),
        ("absent", 361, 6),
    ],
)
def test_a_broken_watch_is_out_of_date_soon_and_a_silent_one_later(phase: WatchPhase, age: float, minutes: int | None) -> None:
    state = KindState("Node", "nodes", phase=phase, last_sync_monotonic=1000.0)
    assert out_of_date([state], 1000.0 + age) == ({} if minutes is None else {"nodes": minutes})


def test_a_kind_that_was_never_read_is_pending_and_not_out_of_date() -> None:
    assert out_of_date([KindState("Node", "nodes", phase="failing")], 5000.0) == {}


def test_ages_come_into_the_facts_and_go_again() -> None:
    state = CurrentState()
    store = SnapshotStore(state, Log(io.StringIO()), FACT_KINDS)
    store.mark_stale({"nodes": 3})
    assert state.in_force.snapshot.stale == {"nodes": 3}
    before = state.in_force
    store.mark_stale({"nodes": 3})
    assert state.in_force is before
    store.mark_stale({})
    assert state.in_force.snapshot.stale == {}


@pytest.mark.parametrize(
    ("phase", "last", "found"),
    [("forbidden", None, True), ("failing", None, True), ("pending", None, False), ("forbidden", 9.0, False)],
)
def test_a_kind_that_is_served_and_was_never_read_is_unreadable(phase: WatchPhase, last: float | None, found: bool) -> None:
    state = KindState("Topology", "topologies", phase=phase, last_sync_monotonic=last)
    assert unreadable([state]) == ({"topologies"} if found else frozenset())


def test_a_kind_that_was_absent_and_cannot_be_read_now_is_no_longer_known_to_be_absent() -> None:
    state = CurrentState()
    store = SnapshotStore(state, Log(io.StringIO()), FACT_KINDS)
    for kind in FACT_KINDS:
        store.absent(kind)
    store.mark_stale({}, frozenset({"topologies"}))
    assert state.in_force.snapshot.sync_state("topologies") is SyncState.PENDING
    assert state.in_force.snapshot.sync_state("cohorts") is SyncState.ABSENT
    # The door stays open: whoever installs something new must not close it.
    assert state.not_ready == ""
    store.mark_stale({})
    assert state.in_force.snapshot.sync_state("topologies") is SyncState.ABSENT
