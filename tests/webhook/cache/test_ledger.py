"""The ledger: what was admitted counts until the watch shows it, its name comes again, or a time-out."""

from __future__ import annotations

import io
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.cluster.in_flight import Admitted, InFlight
from gpugate.policies.cluster.records.pod_groups import GroupKey
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.metrics import Metrics
from gpugate.webhook.cache.kinds import FACT_KINDS, reducer_for
from gpugate.webhook.cache.ledger import InFlightLedger
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.cache.store import SnapshotStore
from gpugate.webhook.runtime.log import Log
from tests.shared.reviews import admission, pod

KIND = {kind.resource: kind for kind in FACT_KINDS}
GROUP = GroupKey("Kueue", "llm")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def job(name: str, gpus: int = 8, queue: str = "train") -> Admitted:
    return Admitted("Job", "team-a", name, 1, queue, None, {"nvidia.com/gpu": gpus})


def member(name: str) -> Admitted:
    return Admitted("Pod", "team-a", name, 1, "", GROUP, {"nvidia.com/gpu": 8})


def in_queue(ledger: InFlightLedger) -> int:
    return ledger.in_flight.queue("team-a", "train").get("nvidia.com/gpu", 0)


def unconfirmed(ledger: InFlightLedger) -> int:
    assert ledger.in_flight.unconfirmed is not None
    return ledger.in_flight.unconfirmed.queue("team-a", "train").get("nvidia.com/gpu", 0)


def test_what_is_admitted_counts_in_its_queue_namespace_and_group() -> None:
    ledger = InFlightLedger()
    ledger.admit("1", job("a"))
    ledger.admit("2", job("b", gpus=4))
    ledger.admit("3", member("p-0"))
    assert in_queue(ledger) == 12
    assert ledger.in_flight.namespace("team-a") == {"nvidia.com/gpu": 20, "pods": 3}
    assert ledger.in_flight.members("team-a", GROUP) == 1
    assert ledger.in_flight.members("team-b", GROUP) == 0


def test_it_counts_no_longer_once_the_watch_shows_it() -> None:
    ledger = InFlightLedger()
    ledger.admit("1", job("a"))
    ledger.admit("2", member("p-0"))
    ledger.observe("1")
    ledger.observe_pod(("team-a", "p-0"), "2", "")
    assert (len(ledger), in_queue(ledger), ledger.in_flight.members("team-a", GROUP)) == (0, 0, 0)


def test_a_job_counts_no_longer_once_a_pod_of_it_shows() -> None:
    ledger = InFlightLedger()
    ledger.admit("1", job("a"))
    ledger.observe_pod(("team-a", "a-xyz"), "77", "1")
    assert in_queue(ledger) == 0


def test_it_counts_no_longer_after_the_time_out() -> None:
    clock = Clock()
    ledger = InFlightLedger(clock=clock, time_out=10)
    ledger.admit("1", job("a"))
    clock.now += 6
    ledger.admit("2", job("b"))
    clock.now += 5
    ledger.expire()
    assert in_queue(ledger) == 8
    clock.now += 5
    ledger.expire()
    assert in_queue(ledger) == 0


def test_an_object_of_the_same_name_takes_the_place_of_one_that_failed_later_in_the_chain() -> None:
    ledger = InFlightLedger()
    ledger.admit("1", job("a"))
    ledger.admit("2", job("a"))
    assert in_queue(ledger) == 8
    ledger.observe("2")
    assert in_queue(ledger) == 0


def test_a_pod_of_the_same_name_and_another_uid_shows_that_the_first_never_came_to_be() -> None:
    ledger = InFlightLedger()
    ledger.admit("1", member("p-0"))
    ledger.observe_pod(("team-a", "p-0"), "other", "")
    assert ledger.in_flight.members("team-a", GROUP) == 0


def test_the_store_tells_the_ledger_what_the_watch_shows() -> None:
    ledger = InFlightLedger()
    store = SnapshotStore(CurrentState(), Log(io.StringIO()), FACT_KINDS, ledger=ledger)
    ledger.admit("job-uid", job("a"))
    ledger.admit("pod-uid", member("p-0"))
    assert in_queue(ledger) == 8
    owner = {"uid": "job-uid", "controller": True}
    workload = {"metadata": {"name": "job-a-1", "namespace": "team-a", "ownerReferences": [owner]}, "spec": {}}
    store.changed(KIND["workloads"], "ADDED", reducer_for(KIND["workloads"])(workload))
    assert in_queue(ledger) == 8, "a Workload that waits for quota shows in no ClusterQueue's status"
    workload["status"] = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    store.changed(KIND["workloads"], "MODIFIED", reducer_for(KIND["workloads"])(workload))
    assert in_queue(ledger) == 0
    shown = pod("p-0", uid="pod-uid")
    store.replaced(KIND["pods"], [reducer_for(KIND["pods"])(shown)])
    assert len(ledger) == 0


def _sent(obj: dict[str, Any], endpoint: str = "validate", **request: Any) -> InFlightLedger:
    ledger = InFlightLedger()
    AdmissionHandler(CurrentState(), Metrics(), Log(io.StringIO()), ledger).answer(
        endpoint, orjson.dumps(admission(obj, **request))
    )
    return ledger


def _stored(**metadata: Any) -> dict[str, Any]:
    return pod(gpus=4, memory="64Gi", uid="u1", **metadata)


def test_the_validating_door_counts_what_it_admits() -> None:
    ledger = _sent(_stored())
    assert ledger.in_flight.namespace("team-a") == {"nvidia.com/gpu": 4, "memory": 64 << 30, "pods": 1}


@pytest.mark.parametrize(
    ("obj", "endpoint", "request_"),
    [
        (_stored(), "mutate", {}),
        (_stored(), "validate", {"dryRun": True}),
        (_stored(), "validate", {"operation": "UPDATE", "old": _stored()}),
        (_stored(ownerReferences=[{"uid": "o", "controller": True}]), "validate", {}),
    ],
    ids=["the mutating door", "a dry run", "an update", "a pod whose owner was counted"],
)
def test_nothing_else_is_counted(obj: dict[str, Any], endpoint: str, request_: dict[str, Any]) -> None:
    assert len(_sent(obj, endpoint, **request_)) == 0


_ADMITTED = st.builds(
    Admitted,
    kind=st.sampled_from(["Pod", "Job"]),
    namespace=st.sampled_from(["a", "b"]),
    name=st.sampled_from(["x", "y", "z"]),
    pods=st.integers(1, 4),
    queue=st.sampled_from(["", "q"]),
    group=st.sampled_from([None, GROUP]),
    requests=st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 5)),
)


@given(st.lists(st.tuples(st.sampled_from("12345"), st.one_of(st.none(), _ADMITTED)), max_size=40))
def test_the_sums_are_those_of_a_recount(events: list[tuple[str, Admitted | None]]) -> None:
    kept, live = InFlight(), {}
    for uid, admitted in events:
        if admitted is None:
            kept.remove(uid)
            live.pop(uid, None)
        else:
            kept.add(uid, admitted)
            live[uid] = admitted
    again = InFlight()
    for uid, admitted in live.items():
        again.add(uid, admitted)
    for namespace in ("a", "b"):
        assert kept.namespace(namespace) == again.namespace(namespace)
        assert kept.queue(namespace, "q") == again.queue(namespace, "q")
        assert kept.members(namespace, GROUP) == again.members(namespace, GROUP)
    assert len(kept) == len(live)


def test_an_object_on_the_word_of_an_unknown_caller_counts_no_longer_than_its_request_could_last() -> None:
    clock = Clock()
    ledger = InFlightLedger(clock=clock, authenticated=False)
    ledger.admit("1", job("a"), timeout=30.0)
    ledger.admit("2", job("b"), timeout=3.0)
    assert unconfirmed(ledger) == 16
    clock.now += 3
    ledger.expire()
    assert unconfirmed(ledger) == 8, "the one with the longer timeout came first and holds up nobody"
    clock.now += 12
    ledger.expire()
    assert len(ledger) == 0
    trusted = InFlightLedger(clock=clock)
    trusted.admit("1", job("a"), timeout=3.0)
    clock.now += 3
    trusted.expire()
    assert in_queue(trusted) == 8


def test_an_object_that_is_sent_again_counts_from_then_on() -> None:
    clock = Clock()
    ledger = InFlightLedger(clock=clock, time_out=10)
    ledger.admit("1", job("a"))
    clock.now += 6
    ledger.admit("1", job("a"))
    clock.now += 6
    ledger.expire()
    assert in_queue(ledger) == 8
    clock.now += 4
    ledger.expire()
    assert in_queue(ledger) == 0


def test_forged_reviews_do_not_fill_the_memory() -> None:
    clock = Clock()
    ledger = InFlightLedger(clock=clock, authenticated=False)
    for number in range(5000):
        ledger.admit(str(number), job(f"forged-{number}"))
    assert len(ledger) == 4096
    clock.now += 15
    ledger.admit("honest", job("honest"))
    assert len(ledger) == 1


def test_the_timeout_of_the_apiserver_ends_what_it_was_asked_about() -> None:
    clock = Clock()
    ledger = InFlightLedger(clock=clock, authenticated=False)
    door = AdmissionHandler(CurrentState(), Metrics(), Log(io.StringIO()), ledger)
    door.answer("validate", orjson.dumps(admission(_stored())), timeout=2.0)
    assert ledger.in_flight.unconfirmed is not None
    assert ledger.in_flight.unconfirmed.namespace("team-a")["pods"] == 1
    assert ledger.in_flight.into_namespace("team-a")
    assert not ledger.in_flight.namespace("team-a")
    clock.now += 2
    ledger.expire()
    assert len(ledger) == 0


def _workload(event_type: Any, *, owner: str = "job-uid", namespace: str = "team-a") -> tuple[Any, Any]:
    ledger = InFlightLedger(authenticated=False)
    store = SnapshotStore(CurrentState(), Log(io.StringIO()), FACT_KINDS, ledger=ledger)
    ledger.admit("job-uid", job("a"))
    owners = [{"uid": owner, "controller": True}]
    workload = {"metadata": {"name": "job-a-1", "namespace": namespace, "ownerReferences": owners}, "spec": {}}
    store.changed(KIND["workloads"], event_type, reducer_for(KIND["workloads"])(workload))
    return ledger, store


def test_a_new_kueue_workload_confirms_its_job_which_then_counts_like_any_other() -> None:
    ledger, _ = _workload("ADDED")
    assert (in_queue(ledger), unconfirmed(ledger), len(ledger)) == (8, 0, 1)
    ledger.observe("job-uid")
    assert (in_queue(ledger), len(ledger)) == (0, 0)


def test_an_old_workload_another_one_or_one_elsewhere_confirms_nothing() -> None:
    for arguments in ({"event_type": "MODIFIED"}, {"event_type": "ADDED", "owner": "other"}):
        ledger, _ = _workload(**arguments)
        assert (in_queue(ledger), unconfirmed(ledger)) == (0, 8)
    ledger, _ = _workload("ADDED", namespace="team-b")
    assert (in_queue(ledger), unconfirmed(ledger), len(ledger)) == (0, 0, 0)


def test_what_is_confirmed_and_sent_again_with_other_amounts_is_unconfirmed_again() -> None:
    ledger, _ = _workload("ADDED")
    ledger.admit("job-uid", job("a", gpus=800))
    assert (in_queue(ledger), unconfirmed(ledger)) == (0, 800)


def test_what_is_confirmed_counts_until_the_time_out_and_not_only_that_of_its_request() -> None:
    clock = Clock()
    ledger = InFlightLedger(clock=clock, authenticated=False)
    ledger.admit("1", job("a"), timeout=2.0)
    ledger.confirm("1", "team-a")
    clock.now += 14
    ledger.expire()
    assert in_queue(ledger) == 8
    clock.now += 1
    ledger.expire()
    assert len(ledger) == 0


def test_one_uid_under_many_names_leaves_none_of_them_behind() -> None:
    ledger = InFlightLedger(authenticated=False)
    for name in ("a", "b", "c"):
        ledger.admit("forged", job(name))
    assert unconfirmed(ledger) == 8
    ledger.admit("honest", job("a"))
    assert unconfirmed(ledger) == 16, "the name was of another object, and is free again"
    ledger.observe("forged")
    ledger.observe("honest")
    assert (len(ledger), unconfirmed(ledger)) == (0, 0)
