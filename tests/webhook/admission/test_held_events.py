"""Events on the word of a caller without a client certificate: the watch has to show the pod first."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.webhook.admission.denials import DenialReporter
from gpugate.webhook.admission.handler import AdmissionHandler
from gpugate.webhook.admission.held_events import HeldEvents
from gpugate.webhook.kube.event_series import Kind, Reference
from gpugate.webhook.kube.events import EventSink
from tests.shared.reviews import InProcess, admission, overcommitted_pod, pod, policy

UID, OWNER_UID = "0f7a3c1e-0000-4000-8000-000000000001", "0f7a3c1e-0000-4000-8000-000000000002"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": OWNER_UID, "controller": True}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Listener(EventSink):
    def __init__(self) -> None:
        self.told: list[tuple[Reference, str]] = []

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: Kind = "Warning") -> None:
        del message, action, kind
        self.told.append((regarding, reason))


class Door(InProcess):
    """A server without a client CA, its clock, and what it tells."""

    def __init__(self, mode: str, **limits: Any) -> None:
        super().__init__([policy(mode=mode)])
        self.listener, self.clock = Listener(), Clock()
        self.held = HeldEvents(lambda: self.metrics.event("unconfirmed"), clock=self.clock, **limits)
        denials = DenialReporter(self.metrics, self.listener, held=self.held)
        self.door = AdmissionHandler(self.state, self.metrics, self.log, denials=denials)

    @property
    def unconfirmed(self) -> float:
        return self.count('gpugate_events_total{outcome="unconfirmed"}')


def owned(uid: str = UID) -> dict[str, Any]:
    return overcommitted_pod("train-x1", uid=uid, ownerReferences=[OWNER])


REFUSED = {
    "a pod of a controller": admission(owned()),
    "a pod of nobody": admission(overcommitted_pod(uid=UID)),
    "an update": admission(overcommitted_pod(uid=UID), operation="UPDATE", old=pod("greedy", memory="48Gi", uid=UID)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_leaves_nothing_to_confirm_it_and_is_counted_instead_of_told(case: str) -> None:
    door = Door("Enforce")
    assert not door.ask(REFUSED[case], "validate")["allowed"]
    door.held.added(UID, "team-a", OWNER_UID)
    assert door.listener.told == []
    assert door.unconfirmed == 1


def test_what_would_be_refused_is_told_once_the_watch_shows_the_new_pod() -> None:
    door = Door("DryRun")
    assert door.ask(admission(owned()), "validate")["allowed"]
    assert door.listener.told == []
    door.held.added("0f7a3c1e-0000-4000-8000-000000000009", "team-a", OWNER_UID)
    assert door.listener.told == []
    door.held.added(UID, "team-a", OWNER_UID)
    assert door.listener.told == [(Reference("batch/v1", "Job", "team-a", "train", OWNER_UID), "WouldRefuse")]
    door.held.added(UID, "team-a", OWNER_UID)
    assert len(door.listener.told) == 1
    assert door.unconfirmed == 0


def test_a_pod_of_nobody_is_told_of_itself() -> None:
    door = Door("DryRun")
    door.ask(admission(overcommitted_pod(uid=UID)), "validate")
    door.held.added(UID, "team-a", "")
    assert door.listener.told == [(Reference("v1", "Pod", "team-a", "greedy", UID), "WouldRefuse")]


@pytest.mark.parametrize(("namespace", "owner"), [("team-b", OWNER_UID), ("team-a", ""), ("team-a", UID)])
def test_a_pod_of_that_uid_in_another_namespace_or_of_another_owner_confirms_nothing(namespace: str, owner: str) -> None:
    door = Door("DryRun")
    door.ask(admission(owned()), "validate")
    door.held.added(UID, namespace, owner)
    assert door.listener.told == []
    assert door.unconfirmed == 1


@pytest.mark.parametrize(
    "request_",
    [
        admission(owned(), operation="UPDATE", old=pod("train-x1", memory="48Gi", uid=UID)),
        admission(overcommitted_pod()),
        admission(overcommitted_pod(uid=7)),
        admission(owned(), subResource="resize"),
    ],
    ids=["an update", "without a uid", "a uid that is none", "a subresource"],
)
def test_what_no_new_pod_can_confirm_is_never_told(request_: dict[str, Any]) -> None:
    door = Door("DryRun")
    door.ask(request_, "validate")
    assert len(door.held) == 0
    assert door.listener.told == []
    assert door.unconfirmed == 1


def test_a_pod_that_the_watch_never_shows_is_forgotten_after_the_longest_timeout() -> None:
    door = Door("DryRun")
    door.ask(admission(owned()), "validate")
    door.clock.now += 30.0
    door.held.added(UID, "team-a", OWNER_UID)
    assert door.listener.told == []
    assert door.unconfirmed == 1


def test_forged_reviews_hold_no_more_than_a_bounded_number_and_those_in_time() -> None:
    door = Door("DryRun", most=3)
    for number in range(10):
        door.ask(admission(owned(uid=f"forged-{number}")), "validate")
    assert len(door.held) == 3
    assert door.unconfirmed == 7
    door.clock.now += 30.0
    door.ask(admission(owned()), "validate")
    assert len(door.held) == 1


def test_the_same_uid_twice_is_told_once() -> None:
    door = Door("DryRun")
    for _ in range(2):
        door.ask(admission(owned()), "validate")
    door.held.added(UID, "team-a", OWNER_UID)
    assert len(door.listener.told) == 1
