"""What the controller tells of gangs: once for each that is stuck, with what the apiserver said of pods that it refused."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gpugate.policies.cluster.builder import SnapshotBuilder
from gpugate.policies.cluster.records.pods import moment, pod_record_of
from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.policy.models import parse_policy
from gpugate.webhook.audit.evaluate import gangs_among
from gpugate.webhook.audit.subjects import SUBJECT_KINDS, Subject, subjects_in
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.controller.gangs import GangObserver
from gpugate.webhook.controller.informers import WorkloadInformer, observe_workload
from gpugate.webhook.controller.metrics import gang_families
from gpugate.webhook.runtime.log import Log
from tests.shared.audits import a_pod, deployment, named, owned, replica_set
from tests.shared.recorded_pod_groups import PodGroupApi, RecordedEvents

Object = dict[str, Any]
pytestmark = pytest.mark.asyncio
_PLACE = ("batch", "Job", "team-a", "w")
_TEN = moment("2026-01-01T10:00:00Z")
_TOLD = 'pods "w-1" is forbidden: exceeded quota: gpus'


class _ApiWithEvents(PodGroupApi):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[Object] = []

    async def list(self, path: str, *, limit: int, field_selector: str | None = None) -> Object:
        await super().list(path, limit=limit, field_selector=field_selector)
        assert field_selector == "involvedObject.uid=job-1,reason=FailedCreate"
        return {"items": self.events}


def _subject(item: Object) -> Subject:
    (found,) = subjects_in([item])
    assert isinstance(found, Subject)
    return found


def _job() -> Object:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "w",
            "namespace": "team-a",
            "uid": "job-1",
            "creationTimestamp": "2026-01-01T10:00:00Z",
            "annotations": {"gpugate.io/gang-size": "2"},
        },
        "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [container]}}},
    }


def _pod(number: int) -> Object:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "w", "uid": "job-1", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"w-{number}", "namespace": "team-a", "uid": f"pod-{number}", "ownerReferences": [owner]},
        "spec": {"nodeName": "n1", **_job()["spec"]["template"]["spec"]},
        "status": {"phase": "Running"},
    }


class _Stand:
    def __init__(self) -> None:
        self.now = _TEN
        self.api, self.events, self.state = _ApiWithEvents(), RecordedEvents(), CurrentState()
        rules = {"gang": {"mode": "Enforce", "scheduler": "None", "stuckAfter": "1m"}}
        policy = {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": "p"}, "spec": {"rules": rules}}
        self.state.publish(policies=[parse_policy(policy)])
        self.gangs = self.start()

    def start(self) -> GangObserver:
        gangs = GangObserver(self.api, self.state, self.events, Log(io.StringIO()), now=lambda: self.now)
        gangs.on_workload(_PLACE, _subject(_job()))
        return gangs

    async def observe(self, pods: int, later: float) -> str:
        """What a look at the gang with so many pods says, so many seconds later."""
        self.now += later
        builder = SnapshotBuilder()
        for number in range(pods):
            builder.put("pods", ("team-a", f"w-{number}"), pod_record_of(_pod(number)))
        self.state.publish(builder.snapshot({"pods": SyncState.SYNCED}))
        await self.gangs.observe_and_report()
        (found,) = self.gangs.states
        return found.state


async def test_a_stuck_gang_is_told_of_once_with_what_the_apiserver_said() -> None:
    stand = _Stand()
    stand.api.events = [
        {"message": "older", "lastTimestamp": "2026-01-01T10:00:01Z"},
        {"message": _TOLD, "lastTimestamp": "2026-01-01T10:00:02Z"},
    ]
    assert await stand.observe(1, 30) == "starting"
    assert stand.api.calls == []
    assert await stand.observe(1, 60) == "stuck"
    assert await stand.observe(1, 15) == "stuck"
    wanted = f"1 of 2 run and 8 accelerators are held meanwhile; 1 of 2 is not there: {_TOLD}"
    assert stand.events.told == [("Warning", "GangStuck", wanted)]
    families = {one.name: one.samples[0].value for one in gang_families(stand.gangs) if len(one.samples) == 1}
    assert families == {"gpugate_gangs_stuck": 1, "gpugate_gangs_stuck_accelerators": 8}


async def test_a_gang_that_was_healed_and_is_stuck_again_is_told_of_again_and_not_before_its_time() -> None:
    stand = _Stand()
    assert await stand.observe(1, 90) == "stuck"
    assert await stand.observe(2, 90) == "running"
    assert await stand.observe(1, 90) == "starting"
    assert await stand.observe(1, 90) == "stuck"
    assert len(stand.events.told) == 2


async def test_who_takes_over_knows_at_once_what_is_stuck() -> None:
    stand = _Stand()
    assert await stand.observe(1, 90) == "stuck"
    stand.gangs = stand.start()
    assert await stand.observe(1, 1) == "stuck"


async def test_events_that_cannot_be_read_do_not_keep_the_gang_from_being_told_of() -> None:
    stand = _Stand()
    stand.api.broken = 1
    assert await stand.observe(1, 90) == "stuck"
    assert [one[1] for one in stand.events.told] == ["GangStuck"]


async def test_a_job_that_has_ended_or_is_gone_is_no_gang_any_more() -> None:
    stand = _Stand()
    assert await stand.observe(1, 90) == "stuck"
    ended = _job() | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    stand.gangs.on_workload(_PLACE, _subject(ended))
    assert stand.gangs.observe() == []
    stand.gangs.on_workload(_PLACE, _subject(_job()))
    assert len(stand.gangs.observe()) == 1
    stand.gangs.on_workload(_PLACE, None)
    assert stand.gangs.observe() == []


@pytest.mark.parametrize("owner", [("x.example.com/v1", "Crew"), ("batch/v1", "Job")])
async def test_a_plain_pod_that_a_controller_adopts_is_of_no_gang_of_its_own_any_more(owner: tuple[str, str]) -> None:
    stand, informer = _Stand(), WorkloadInformer()
    informer.listeners.append(stand.gangs.on_workload)
    pods = next(one for one in SUBJECT_KINDS if one.name == "Pod")
    plain = a_pod("p", **{"nvidia.com/gpu": 1})
    plain["metadata"] |= {"namespace": "team-a", "labels": {"scheduling.x-k8s.io/pod-group": "crew"}}
    informer.changed(pods, "ADDED", observe_workload(plain))
    assert len(list(stand.gangs.reconciler._index.plans())) == 2, "the Job and the pods of that group"
    api_version, kind = owner
    informer.changed(pods, "MODIFIED", observe_workload(owned(plain, named(api_version, kind, "crew"))))
    assert [one.reference.kind for one in stand.gangs.reconciler._index.plans()] == ["Job"]


async def test_a_full_list_of_replica_sets_that_deployments_made_is_taken_whole() -> None:
    stand, informer = _Stand(), WorkloadInformer()
    informer.listeners.append(stand.gangs.on_workload)
    (kind,) = (one for one in SUBJECT_KINDS if one.name == "ReplicaSet")
    listed = [observe_workload(owned(replica_set(name), deployment())) for name in ("serve-1", "serve-2", "serve-3")]
    informer.replaced(kind, listed)
    assert informer.index.places() == [one.place for one in listed]
    assert await stand.observe(1, 30) == "starting", "they are no gangs of their own"


async def test_an_audit_of_files_says_the_same_as_the_controller() -> None:
    stand = _Stand()
    assert await stand.observe(1, 90) == "stuck"
    snapshot, policies = stand.state.in_force
    subjects = [*subjects_in([_job(), _pod(0)]), "a line about what could not be read"]
    assert gangs_among(subjects, snapshot, policies, stand.now) == stand.gangs.states


async def test_the_events_of_a_gang_that_stays_stuck_are_asked_for_now_and_then() -> None:
    stand = _Stand()
    stand.api.events = [{"message": _TOLD, "lastTimestamp": "2026-01-01T10:00:02Z"}]
    assert await stand.observe(1, 90) == "stuck"
    for _ in range(19):
        await stand.observe(1, 15)
    assert len(stand.api.calls) == 1
    assert _TOLD in stand.gangs.states[0].reason, "what was said is kept meanwhile"
    stand.api.events = []
    await stand.observe(1, 15)
    assert len(stand.api.calls) == 2
    assert _TOLD not in stand.gangs.states[0].reason
    assert await stand.observe(2, 15) == "running"
    assert await stand.observe(1, 15) == "starting"
    assert await stand.observe(1, 90) == "stuck"
    assert len(stand.api.calls) == 3, "it is another time that it is stuck"
