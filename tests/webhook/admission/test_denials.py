"""What a refusal leaves behind at the door: an Event on whoever wonders, a count, a line in the log, an audit annotation."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.webhook.kube.event_series import Kind, Reference, cut_bytes
from gpugate.webhook.kube.events import EventSink
from tests.shared.reviews import InProcess, admission, overcommitted_pod, patched, pod, policy

UID = "0f7a3c1e-0000-4000-8000-000000000001"
OWNER_UID = "0f7a3c1e-0000-4000-8000-000000000002"
TEAM = Reference("v1", "Namespace", "team-a", "team-a")
JOB = Reference("batch/v1", "Job", "team-a", "train", OWNER_UID)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": OWNER_UID, "controller": True}


class Told(NamedTuple):
    regarding: Reference
    reason: str
    message: str
    action: str
    kind: str


class Listener(EventSink):
    def __init__(self) -> None:
        self.told: list[Told] = []

    def emit(self, regarding: Reference, *, reason: str, message: str, action: str, kind: Kind = "Warning") -> None:
        self.told.append(Told(regarding, reason, message, action, kind))


def told(
    *reviews: dict[str, Any], mode: str = "Enforce", endpoints: tuple[str, ...] = ("mutate", "validate"), **spec: Any
) -> list[Told]:
    """What is told of ``reviews``, each sent through the doors as an apiserver does: a refusal at the first is the end."""
    listener = Listener()
    door = InProcess([policy(mode=mode, **spec)], events=listener)
    for review in reviews:
        seen = review
        for endpoint in endpoints:
            answer = door.ask(seen, endpoint)
            if not answer["allowed"]:
                break
            seen = admission(**_passed_on(seen, answer))
    return listener.told


def _passed_on(review: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The request that the next door gets."""
    request = {key: value for key, value in review["request"].items() if key not in {"object", "oldObject"}}
    return {**request, "obj": patched(review["request"]["object"], answer), "old": review["request"]["oldObject"]}


def owned(name: str = "train-x1") -> dict[str, Any]:
    return overcommitted_pod(name, uid=UID, generateName="train-", ownerReferences=[OWNER])


def job(**resources: Any) -> dict[str, Any]:
    made = overcommitted_pod() if not resources else pod(**resources)
    spec = {"parallelism": 1, "template": {"spec": {**made["spec"], "restartPolicy": "Never"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "team-a", "uid": UID},
        "spec": spec,
    }


def test_a_refused_pod_is_told_to_the_controller_that_wants_it_without_its_own_name() -> None:
    first, second = told(admission(owned("train-x1")), admission(owned("train-x2")))
    assert first == second
    assert first.regarding == JOB
    assert (first.reason, first.action, first.kind) == ("Refused", "Create", "Warning")
    assert first.message.startswith("gpugate refuses its Pods: host-memory: spec.containers[0].resources.limits.memory: ")
    assert "48Gi" in first.message
    assert "train-x" not in first.message


def test_a_refused_object_that_nobody_made_is_told_to_its_namespace_by_its_name() -> None:
    (found,) = told(admission(job()))
    assert found.regarding == TEAM
    assert found.message.startswith("gpugate refuses Job train: host-memory: ")


def test_a_refused_object_whose_name_is_generated_is_told_by_what_it_is_generated_from() -> None:
    (found,) = told(admission(overcommitted_pod("run-abcde", generateName="run-"), name="run-abcde"))
    assert found.message.startswith("gpugate refuses Pod run-*: ")


def test_a_refused_update_is_told_to_the_object_itself() -> None:
    (found,) = told(admission(overcommitted_pod(uid=UID), operation="UPDATE", old=pod("greedy", memory="48Gi", uid=UID)))
    assert found.regarding == Reference("v1", "Pod", "team-a", "greedy", UID)
    assert found.action == "Update"
    assert found.message.startswith("gpugate refuses this UPDATE: host-memory: ")


@pytest.mark.parametrize(
    "owners",
    [
        7,
        [7],
        [{**OWNER, "controller": False}],
        [{**OWNER, "controller": "true"}],
        [{**OWNER, "uid": 7}],
        [{key: value for key, value in OWNER.items() if key != "kind"}],
        [{**OWNER, "name": ""}],
    ],
    ids=str,
)
def test_an_owner_that_is_no_controller_or_cannot_be_named_is_told_nothing(owners: Any) -> None:
    found = told(admission(overcommitted_pod(uid=UID, ownerReferences=owners)), endpoints=("validate",))
    assert [one.regarding for one in found] == [TEAM]


@pytest.mark.parametrize("mode", ["Enforce", "DryRun"])
def test_a_dry_run_request_leaves_nothing(mode: str) -> None:
    assert told(admission(owned(), dryRun=True), admission(job(), dryRun=True), mode=mode) == []


@pytest.mark.parametrize("mode", ["Enforce", "DryRun"])
def test_no_review_is_told_twice_though_both_doors_see_it(mode: str) -> None:
    assert len(told(admission(owned()), mode=mode)) == 1


def test_what_a_rule_in_dryrun_would_refuse_is_told_as_such_and_asks_nobody_to_act() -> None:
    (found,) = told(admission(owned()), mode="DryRun")
    assert found.regarding == JOB
    assert (found.reason, found.kind) == ("WouldRefuse", "Normal")
    assert found.message.startswith("dry run: gpugate would refuse its Pods: host-memory: ")
    (alone,) = told(admission(overcommitted_pod(uid=UID)), mode="DryRun")
    assert alone.regarding == Reference("v1", "Pod", "team-a", "greedy", UID)
    (nameless,) = told(admission(overcommitted_pod()), mode="DryRun")
    assert nameless.regarding == TEAM


def test_what_only_warns_or_changes_is_no_event() -> None:
    assert told(admission(owned()), mode="Mutate") == []
    assert told(admission(pod(uid=UID))) == []
    assert told(admission(pod(uid=UID)), mode="DryRun") == []


def test_an_object_refused_by_one_rule_is_told_what_another_in_dryrun_would_have_refused_too() -> None:
    both = overcommitted_pod(ownerReferences=[OWNER])
    both["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g5gb"] = 1
    found = told(admission(both), rules={"accelerator-names": {"mode": "DryRun"}})
    assert {one.reason for one in found} == {"Refused", "WouldRefuse"}
    assert {one.regarding for one in found} == {JOB}


def test_the_mutating_door_tells_what_it_refuses_itself() -> None:
    """Which is why both configurations declare that a review may leave something."""
    new, old = job(), job(gpus=1, memory="48Gi")
    found = told(admission(new, operation="UPDATE", old=old), endpoints=("mutate",))
    assert [(one.regarding.kind, one.regarding.uid, one.reason) for one in found] == [("Job", UID, "Refused")]
    git = pod(memory="64Gi", request="32Gi", annotations={"argocd.argoproj.io/tracking-id": "app:/Pod:team-a/train"})
    found = told(admission(git), rules={"numa": {"onGitConflict": "Refuse"}}, endpoints=("mutate",))
    assert [(one.regarding, one.reason) for one in found] == [(TEAM, "Refused")]
    assert "HeldBack" not in found[0].message
    broken = pod()
    broken["spec"]["containers"] = 7
    found = told(admission(broken), endpoints=("mutate",))
    assert [one.regarding for one in found] == [TEAM]
    assert "spec.containers: must be a list" in found[0].message


def test_many_reasons_are_cut_so_that_the_first_of_them_can_be_read() -> None:
    obj = overcommitted_pod()
    container = obj["spec"]["containers"][0]
    obj["spec"]["containers"] = [{**container, "name": f"c{number}"} for number in range(20)]
    (found,) = told(admission(obj))
    assert found.message.count("host-memory: ") == 3
    assert found.message.endswith("; and 17 more")
    assert len(found.message.encode()) <= 1024


@given(st.text(max_size=300))
def test_no_note_carries_control_characters_or_words_that_delete(name: str) -> None:
    obj = overcommitted_pod()
    obj["spec"]["containers"][0]["name"] = f"{name} is immutable"
    for one in told(admission(obj), endpoints=("validate",)):
        assert one.message.isprintable() or not any(ord(letter) < 32 for letter in one.message)
        assert "is immutable" not in one.message
        assert len(cut_bytes(one.message).encode()) <= 1024


def test_refusals_are_counted_by_rule_and_by_whether_they_happened() -> None:
    door = InProcess([policy()])
    for review in (admission(owned()), admission(owned()), admission(owned(), dryRun=True)):
        door.ask(review, "validate")
    assert door.count('gpugate_refusals_total{dry_run="false",mode="Enforce",rule="host-memory"}') == 2
    assert door.count('gpugate_refusals_total{dry_run="true",mode="Enforce",rule="host-memory"}') == 1
    door = InProcess([policy(mode="DryRun")])
    for endpoint in ("mutate", "validate"):
        door.ask(admission(owned()), endpoint)
        door.ask(admission(pod()), endpoint)
    assert door.count('gpugate_refusals_total{dry_run="false",mode="DryRun",rule="host-memory"}') == 1
    assert door.metrics.text().decode().count("\ngpugate_refusals_total{") == 1


@pytest.mark.parametrize(("on_unknown", "expected"), [("Warn", []), ("Refuse", ["WouldRefuse"])])
def test_what_is_not_known_would_be_refused_only_where_the_policy_refuses_it(on_unknown: str, expected: list[str]) -> None:
    listener = Listener()
    known = ClusterSnapshot(known={"nodes": SyncState.PENDING})
    rules = {"host-memory": {"mode": "DryRun", "onUnknown": on_unknown}}
    door = InProcess([policy(mode=None, rules=rules)], known, events=listener)
    answer = door.ask(admission(pod(memory="64Gi", request="64Gi", uid=UID)), "validate")
    assert [one.reason for one in listener.told] == expected
    # Without an answer that speaks of it, nothing above would be seen.
    assert any("NodesUnknown" in text for text in answer["auditAnnotations"].values())


@pytest.mark.parametrize(("mode", "field"), [("Enforce", "denied"), ("DryRun", "wouldDeny")])
def test_the_log_says_rule_reason_and_sums_of_denials_and_of_would_be_denials(mode: str, field: str) -> None:
    door = InProcess([policy(mode=None, rules={"host-memory": {"mode": mode}})])
    door.ask(admission(owned()), "validate")
    (text,) = door.lines[-1][field]
    assert text.startswith("host-memory/Overcommit: ")
    assert "48Gi" in text
    assert "4Gi" in text


@pytest.mark.parametrize(("mode", "key"), [("Enforce", "host-memory.deny"), ("DryRun", "host-memory.dryrun-deny")])
def test_the_audit_annotation_says_reason_place_and_sums_of_denials_and_of_would_be_denials(mode: str, key: str) -> None:
    annotations = InProcess([policy(mode=mode)]).ask(admission(owned()), "validate")["auditAnnotations"]
    assert annotations[key].startswith("Overcommit at spec.containers[0].resources.limits.memory: ")
    assert "48Gi" in annotations[key]


def test_without_a_cluster_nothing_is_told_and_all_is_counted() -> None:
    door = InProcess([policy()])
    assert not door.ask(admission(owned()), "validate")["allowed"]
    assert door.count('gpugate_refusals_total{dry_run="false",mode="Enforce",rule="host-memory"}') == 1
