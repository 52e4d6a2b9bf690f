"""The store of watched facts: events in any order, and what is published of them when."""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Mode
from gpugate.webhook.cache.kinds import FACT_KINDS, POLICIES, Observed, reducer_for
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.kube.types import EventType, WatchedKind
from gpugate.webhook.runtime.log import Log

ALL = (*FACT_KINDS, POLICIES)
KIND = {kind.resource: kind for kind in ALL}
NODES, NAMESPACES, QUEUES = KIND["nodes"], KIND["namespaces"], KIND["localqueues"]


def node(name: str, *, gpus: int = 8, memory: str = "2Ti", version: str = "1", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "resourceVersion": version,
            "annotations": {"kubelet": "x"},
            "managedFields": [1],
        },
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpus), "memory": memory, "cpu": "96"},
            "conditions": [{"type": "Ready", "lastHeartbeatTime": version}],
            "images": [{"names": ["x"]}],
        },
    }


def policy(name: str = "default", *, generation: int = 1, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "generation": generation}, "spec": {"profile": "recommended", "mode": "Enforce", **spec}}


class Counting(CurrentState):
    """A state that counts what is published to it."""

    def __init__(self) -> None:
        super().__init__()
        self.published = 0

    def publish(self, *given_: Any, **named: Any) -> None:
        self.published += 1
        super().publish(*given_, **named)


class Feed:
    """Hands objects to a store as a watch does: each reduced to its record as it arrives."""

    def __init__(self, store: SnapshotStore) -> None:
        self.store = store

    def replaced(self, kind: WatchedKind, objects: list[dict[str, Any]]) -> None:
        self.store.replaced(kind, [reducer_for(kind)(one) for one in objects])

    def changed(self, kind: WatchedKind, event_type: EventType, item: dict[str, Any]) -> None:
        self.store.changed(kind, event_type, reducer_for(kind)(item))

    def absent(self, kind: WatchedKind) -> None:
        self.store.absent(kind)


class Fixture:
    """A store of these kinds, outside of any event loop: every change is published at once."""

    def __init__(self, *kinds: WatchedKind, fixed: ClusterSnapshot | None = None) -> None:
        self.state = Counting()
        self._stream = io.StringIO()
        self.store = Feed(SnapshotStore(self.state, Log(self._stream), kinds or ALL, fixed=fixed))
        self.before = self.state.published

    @property
    def published(self) -> int:
        """How often something was published since it was last asked."""
        since, self.before = self.state.published - self.before, self.state.published
        return since

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self._stream.getvalue().splitlines()]

    @property
    def snapshot(self) -> ClusterSnapshot:
        return self.state.in_force.snapshot

    def modes(self) -> dict[str, Mode | None]:
        return {one.name: one.spec.mode for one in self.state.in_force.policies.policies}

    def names(self) -> list[str]:
        return sorted(name for shape in self.snapshot.shapes for name in shape.nodes)


def test_it_is_not_ready_before_every_kind_was_listed_or_found_absent() -> None:
    made = Fixture(NODES, QUEUES, POLICIES)
    assert made.state.not_ready == "not synced yet: gpupolicies, localqueues, nodes"
    made.store.replaced(NODES, [])
    assert made.state.not_ready == "not synced yet: gpupolicies, localqueues"
    made.store.changed(QUEUES, "ADDED", {"metadata": {"name": "q", "namespace": "a"}, "spec": {}})
    assert "localqueues" in made.state.not_ready
    made.store.absent(QUEUES)
    made.store.replaced(POLICIES, [])
    assert made.state.not_ready == ""


def test_a_store_without_kinds_is_ready_at_once() -> None:
    state = CurrentState()
    SnapshotStore(state, Log(io.StringIO()), [])
    assert state.not_ready == ""


def test_readiness_once_reached_is_not_lost_when_a_kind_goes() -> None:
    made = Fixture(NODES)
    made.store.replaced(NODES, [node("a")])
    made.store.absent(NODES)
    assert made.state.not_ready == ""
    assert made.snapshot.sync_state("nodes") is SyncState.ABSENT
    assert made.names() == []


def test_facts_say_how_far_each_kind_is_known() -> None:
    made = Fixture(NODES, QUEUES)
    made.store.replaced(NODES, [])
    assert (made.snapshot.sync_state("nodes"), made.snapshot.sync_state("localqueues")) == (SyncState.SYNCED, SyncState.PENDING)
    assert made.snapshot.sync_state("namespaces") is SyncState.NOT_GIVEN


def test_events_add_change_and_delete() -> None:
    made = Fixture(NODES)
    made.store.replaced(NODES, [node("a")])
    made.store.changed(NODES, "ADDED", node("b"))
    assert made.names() == ["a", "b"]
    made.store.changed(NODES, "MODIFIED", node("b", gpus=4))
    assert {shape.devices["nvidia.com/gpu"] for shape in made.snapshot.shapes} == {4, 8}
    made.store.changed(NODES, "DELETED", node("a"))
    assert made.names() == ["b"]


def test_a_heartbeat_publishes_nothing() -> None:
    made = Fixture(NODES)
    made.store.replaced(NODES, [node("a")])
    snapshot = made.state.in_force
    assert made.published == 1
    for version in range(2, 50):
        made.store.changed(NODES, "MODIFIED", node("a", version=str(version)))
    assert made.published == 0
    assert made.state.in_force is snapshot


def test_a_repeated_list_publishes_nothing() -> None:
    made = Fixture(NODES)
    objects = [node(name) for name in "abc"]
    made.store.replaced(NODES, objects)
    assert made.published == 1
    made.store.replaced(NODES, list(reversed(deepcopy(objects))))
    assert made.published == 0
    made.store.replaced(NODES, objects[:2])
    assert made.published == 1


def test_deleting_what_is_not_there_publishes_nothing() -> None:
    made = Fixture(NODES)
    made.store.replaced(NODES, [])
    made.store.changed(NODES, "DELETED", node("ghost"))
    made.store.absent(NODES)
    made.store.absent(NODES)
    assert made.published == 2


def test_an_empty_first_list_is_published_because_it_is_knowledge() -> None:
    made = Fixture(NODES)
    made.store.replaced(NODES, [])
    assert made.published == 1
    assert made.snapshot.sync_state("nodes") is SyncState.SYNCED


def test_a_kind_that_comes_back_after_it_was_absent_is_taken_again() -> None:
    made = Fixture(NODES)
    made.store.absent(NODES)
    made.store.replaced(NODES, [node("a")])
    assert made.snapshot.sync_state("nodes") is SyncState.SYNCED
    assert made.names() == ["a"]


def test_a_malformed_object_is_left_out_logged_and_hides_no_other() -> None:
    made = Fixture(NODES)
    bad = {"metadata": {"name": "bad", "labels": ["x"]}}
    made.store.replaced(NODES, [node("a"), bad, node("b")])
    assert made.names() == ["a", "b"]
    (line,) = made.lines
    assert (line["level"], line["name"]) == ("warning", "bad")
    assert "metadata.labels" in line["error"]


def test_a_good_object_that_turns_bad_is_kept_as_it_last_was() -> None:
    made = Fixture(NODES)
    made.store.replaced(NODES, [node("a")])
    made.store.changed(NODES, "MODIFIED", {"metadata": {"name": "a"}, "status": "gone"})
    assert made.names() == ["a"]
    made.store.replaced(NODES, [{"metadata": {"name": "a"}, "status": "gone"}])
    assert made.names() == ["a"]
    made.store.changed(NODES, "DELETED", {"metadata": {"name": "a"}, "status": "gone"})
    assert made.names() == []


def test_objects_of_the_same_name_in_two_namespaces_are_two() -> None:
    made = Fixture(QUEUES)
    made.store.replaced(
        QUEUES, [{"metadata": {"name": "q", "namespace": space}, "spec": {"clusterQueue": "c"}} for space in ("a", "b")]
    )
    made.store.changed(QUEUES, "DELETED", {"metadata": {"name": "q", "namespace": "a"}})
    assert {space: [one.name for one in found] for space, found in made.snapshot.queues.items()} == {"b": ["q"]}


def test_labels_of_a_namespace_are_followed() -> None:
    made = Fixture(NAMESPACES)
    made.store.replaced(NAMESPACES, [{"metadata": {"name": "a", "labels": {"team": "x"}}}])
    made.store.changed(NAMESPACES, "MODIFIED", {"metadata": {"name": "a", "labels": {"team": "y"}}})
    assert made.snapshot.namespace_labels("a") == {"kubernetes.io/metadata.name": "a", "team": "y"}


def test_without_any_policy_the_default_holds_in_dryrun() -> None:
    made = Fixture(POLICIES)
    assert made.modes() == {"default": Mode.DRY_RUN}
    made.store.replaced(POLICIES, [])
    assert made.modes() == {"default": Mode.DRY_RUN}
    made.store.changed(POLICIES, "ADDED", policy("mine"))
    assert made.modes() == {"mine": Mode.ENFORCE}
    made.store.changed(POLICIES, "DELETED", policy("mine"))
    assert made.modes() == {"default": Mode.DRY_RUN}
    made.store.absent(POLICIES)
    assert made.modes() == {"default": Mode.DRY_RUN}


def test_a_policy_that_turns_bad_keeps_its_last_good_self_in_force() -> None:
    made = Fixture(POLICIES)
    made.store.replaced(POLICIES, [policy("mine", mode="Mutate"), policy("other")])
    made.store.changed(POLICIES, "MODIFIED", policy("mine", generation=2, mode="Loud"))
    assert made.modes() == {"mine": Mode.MUTATE, "other": Mode.ENFORCE}
    (line,) = made.lines
    assert line["level"] == "error"
    assert line["last"] is True
    assert "spec.mode" in line["error"]
    made.store.changed(POLICIES, "MODIFIED", policy("mine", generation=3, mode="DryRun"))
    assert made.modes()["mine"] is Mode.DRY_RUN


def test_a_bad_policy_survives_a_relist_as_its_last_good_self() -> None:
    made = Fixture(POLICIES)
    made.store.replaced(POLICIES, [policy("mine", mode="Mutate")])
    made.store.replaced(POLICIES, [policy("mine", mode="Loud")])
    made.store.replaced(POLICIES, [policy("mine", mode="Louder")])
    assert made.modes() == {"mine": Mode.MUTATE}


def test_a_policy_that_was_never_good_is_no_policy_and_stops_no_other() -> None:
    made = Fixture(POLICIES)
    made.store.replaced(POLICIES, [policy("bad", rules={"numma": {}}), policy("good", mode="Mutate")])
    assert made.modes() == {"good": Mode.MUTATE}
    (line,) = made.lines
    assert (line["level"], line["last"]) == ("error", False)
    assert made.state.not_ready == ""
    made.store.changed(POLICIES, "DELETED", policy("good"))
    assert made.modes() == {"default": Mode.DRY_RUN}
    made.store.changed(POLICIES, "DELETED", policy("bad"))
    made.store.changed(POLICIES, "ADDED", policy("bad", mode="Mutate"))
    assert made.modes() == {"bad": Mode.MUTATE}


def test_a_policy_without_a_usable_name_harms_nobody() -> None:
    made = Fixture(POLICIES)
    for metadata in ({}, {"name": 7}, {"name": ""}):
        made.store.changed(POLICIES, "ADDED", {"metadata": metadata, "spec": {}})
    assert made.modes() == {"default": Mode.DRY_RUN}


def test_a_policy_whose_status_alone_changes_publishes_nothing() -> None:
    made = Fixture(POLICIES)
    made.store.replaced(POLICIES, [policy("mine")])
    assert made.published == 1
    written = {**policy("mine"), "status": {"conditions": [{"type": "Ready"}]}}
    written["metadata"]["resourceVersion"] = "2"
    made.store.changed(POLICIES, "MODIFIED", written)
    assert made.published == 0


def test_facts_from_files_are_published_in_place_of_watched_ones() -> None:
    fixed = snapshot_from_objects([{**node("from-file"), "kind": "Node"}])
    made = Fixture(POLICIES, fixed=fixed)
    assert made.snapshot is fixed
    made.store.replaced(POLICIES, [policy("mine")])
    assert made.snapshot is fixed


def test_policies_from_files_are_left_alone_when_only_facts_are_watched() -> None:
    made = Fixture(NODES)
    policies = made.state.in_force.policies
    made.store.replaced(NODES, [node("a")])
    assert made.state.in_force.policies is policies


@pytest.mark.asyncio
async def test_a_burst_of_events_is_published_once() -> None:
    state = Counting()
    store = Feed(SnapshotStore(state, Log(io.StringIO()), [NODES], gather=0.001))
    before = state.published
    done = asyncio.Event()
    publish = state.publish

    def tell(*given_: Any, **named: Any) -> None:
        publish(*given_, **named)
        done.set()

    state.publish = tell  # type: ignore[method-assign]
    store.replaced(NODES, [])
    for number in range(100):
        store.changed(NODES, "ADDED", node(f"n{number}"))
    assert state.published == before
    assert state.not_ready
    async with asyncio.timeout(5):
        await done.wait()
    assert state.published == before + 1
    assert state.not_ready == ""
    assert sum(len(shape.nodes) for shape in state.in_force.snapshot.shapes) == 100


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.sampled_from("abcd"), st.integers(1, 3)),
        st.tuples(st.just("LIST"), st.sets(st.sampled_from("abcd")), st.integers(1, 3)),
        st.tuples(st.just("ABSENT"), st.none(), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(STEPS)
def test_any_order_of_events_gives_the_facts_of_what_is_left(steps: list[Any]) -> None:
    made = Fixture(NODES)
    left: dict[str, dict[str, Any]] = {}
    for step, names, gpus in steps:
        if step == "LIST":
            left = {name: node(name, gpus=gpus) for name in names}
            objects = list(left.values())
            random.Random(gpus).shuffle(objects)  # noqa: S311 - an order, no secret
            made.store.replaced(NODES, objects)
        elif step == "ABSENT":
            left = {}
            made.store.absent(NODES)
        elif step == "DELETED":
            left.pop(names, None)
            made.store.changed(NODES, step, node(names))
        else:
            left[names] = node(names, gpus=gpus)
            made.store.changed(NODES, step, left[names])
    wanted = snapshot_from_objects([{**item, "kind": "Node"} for item in left.values()])
    assert made.snapshot.shapes == wanted.shapes


def _long_list(count: int) -> list[Observed]:
    return [reducer_for(NODES)(node(f"n-{at:04}")) for at in range(count)]


async def _turns_until(reached: Callable[[], bool]) -> int:
    """How often others had their turn before this was so."""
    turn, latest = 0, time.monotonic() + 10
    while not reached():
        assert time.monotonic() < latest, "never"
        turn += 1
        await asyncio.sleep(0)
    return turn


@pytest.mark.asyncio
async def test_a_long_list_lets_others_have_their_turn_and_is_not_synced_before_its_end() -> None:
    state = CurrentState()
    store = SnapshotStore(state, Log(io.StringIO()), [NODES], gather=0.0)
    store.replaced(NODES, _long_list(2000))
    assert state.not_ready == "not synced yet: nodes"
    assert await _turns_until(lambda: not state.not_ready) >= 10
    assert sum(len(shape.nodes) for shape in state.in_force.snapshot.shapes) == 2000


@pytest.mark.asyncio
async def test_what_comes_behind_a_long_list_is_taken_behind_it() -> None:
    state = CurrentState()
    store = SnapshotStore(state, Log(io.StringIO()), [NODES, QUEUES], gather=0.0)
    listed = _long_list(1000)
    store.replaced(NODES, listed)
    store.changed(NODES, "DELETED", listed[999])
    store.changed(NODES, "ADDED", reducer_for(NODES)(node("z-new")))
    store.absent(QUEUES)
    await _turns_until(lambda: not state.not_ready)
    names = [name for shape in state.in_force.snapshot.shapes for name in shape.nodes]
    assert (len(names), "n-0999" in names, "z-new" in names) == (1000, False, True)


@pytest.mark.asyncio
async def test_a_second_long_list_is_taken_whole_behind_the_first() -> None:
    state = CurrentState()
    store = SnapshotStore(state, Log(io.StringIO()), [NODES], gather=0.0)
    store.replaced(NODES, _long_list(1000))
    store.replaced(NODES, _long_list(500))
    await _turns_until(lambda: sum(len(shape.nodes) for shape in state.in_force.snapshot.shapes) == 500)
    assert state.not_ready == ""


@pytest.mark.asyncio
async def test_a_list_that_cannot_be_taken_keeps_none_behind_it_from_being_taken() -> None:
    stream, state = io.StringIO(), CurrentState()
    log = Log(stream)
    store = SnapshotStore(state, log, [NODES, QUEUES], gather=0.0)
    broken: Any = [*_long_list(500), None]
    store.replaced(NODES, broken)
    store.absent(QUEUES)
    await _turns_until(lambda: state.not_ready == "not synced yet: nodes")
    log.flush()
    assert "cannot add objects to the snapshot" in stream.getvalue()


def test_a_long_list_outside_of_any_event_loop_is_taken_at_once() -> None:
    state = CurrentState()
    SnapshotStore(state, Log(io.StringIO()), [NODES]).replaced(NODES, _long_list(50_000))
    assert state.not_ready == ""
