"""The keeper of PodGroups: makes what lacks, puts right what it owns, leaves alone what it does not."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import orjson
import pytest

from gpugate.policies.cluster.builder import SnapshotBuilder
from gpugate.policies.cluster.records.pod_groups import GroupKey, pod_group_of
from gpugate.policies.cluster.records.pods import pod_record_of
from gpugate.policies.cluster.snapshot import SyncState
from gpugate.policies.policy.models import parse_policy
from gpugate.policies.rules.gangs.gang.pod_groups import PodGroupPlan
from gpugate.webhook.cache.state import CurrentState
from gpugate.webhook.controller.gang_index import GangIndex
from gpugate.webhook.controller.pod_groups import PodGroupReconciler
from gpugate.webhook.kube.event_series import Reference
from gpugate.webhook.kube.reflector import Backoff
from gpugate.webhook.runtime.log import Log
from tests.shared.recorded_pod_groups import PATH, PodGroupApi, RecordedEvents

Object = dict[str, Any]
pytestmark = pytest.mark.asyncio
_RESOURCE = "podgroups.scheduling.x-k8s.io"
_PLACE = ("batch", "Job", "team-a", "w")


class _Stand:
    """A keeper, with a clock that only tests move, and facts that show what the test lets them show."""

    def __init__(self, mode: str = "Enforce") -> None:
        self.now = 1000.0
        self.api, self.events, self.text = PodGroupApi(), RecordedEvents(), io.StringIO()
        self.log = Log(self.text)
        self.state = CurrentState()
        self.known = SyncState.SYNCED
        self.pods: list[Object] = []
        self.set_policy(mode)
        self.index = GangIndex(self.state)
        self.reconciler = self.start()
        self.show()

    def start(self) -> PodGroupReconciler:
        async def sleep(seconds: float) -> None:
            self.now += seconds

        timing = Backoff(clock=lambda: self.now, sleep=sleep, jitter=lambda: 0.0)
        return PodGroupReconciler(self.api, self.index, self.state, self.events, self.log, timing)

    def set_policy(self, mode: str) -> None:
        spec = {"rules": {"gang": {"mode": mode, "scheduler": "Coscheduling"}}}
        policy = parse_policy(
            {
                "apiVersion": "gpugate.io/v1alpha1",
                "kind": "GPUPolicy",
                "metadata": {"name": "p"},
                "spec": {"profile": "recommended", **spec},
            }
        )
        self.state.publish(policies=[policy])

    def show(self) -> None:
        """Let the facts show what is stored."""
        builder = SnapshotBuilder()
        for item in self.api.stored.values():
            record = pod_group_of(item)
            builder.put(_RESOURCE, (record.namespace, record.name), record)
        for one in self.pods:
            builder.put("pods", ("team-a", one["metadata"]["name"]), pod_record_of(one))
        self.state.publish(builder.snapshot({_RESOURCE: self.known, "pods": SyncState.SYNCED}))

    async def observe(self) -> None:
        """One look, a while after the one before, with facts up to date."""
        self.show()
        self.now += 60
        await self.reconciler.reconcile_all()

    @property
    def group(self) -> Object | None:
        return self.api.stored.get(f"{PATH}/w")


def _job(size: int = 4, *, group: str = "w", uid: str = "job-1") -> Object:
    limits = {"nvidia.com/gpu": 8}
    template = {
        "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": group} if group else {}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "w", "namespace": "team-a", "uid": uid},
        "spec": {"parallelism": size, "completions": size, "template": template},
    }


def _foreign(minimum: int = 4) -> Object:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "w", "namespace": "team-a", "uid": "theirs", "resourceVersion": "7"},
        "spec": {"minMember": minimum},
    }


async def test_what_lacks_is_made_once() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    assert stand.group is not None
    assert stand.group["spec"] == {"minMember": 4}
    assert [one[:2] for one in stand.events.told] == [("Normal", "PodGroupCreated")]
    for _ in range(3):
        await stand.observe()
    assert stand.api.writes == ["POST"]
    assert stand.reconciler.states == {"owned": 1}


async def test_what_was_made_is_touched_once_a_moment_later_for_a_scheduler_that_missed_it() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    await stand.reconciler.touch()
    assert stand.api.writes == ["POST"]
    for _ in range(2):
        stand.now += 3
        await stand.reconciler.touch()
    assert stand.api.writes == ["POST", "PATCH"]
    assert stand.group is not None
    assert stand.group["metadata"]["annotations"] == {"gpugate.io/touched": "true"}
    assert stand.group["spec"] == {"minMember": 4}


async def test_what_somebody_else_put_in_its_place_is_not_touched() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    stand.api.stored[f"{PATH}/w"] = _foreign()
    stand.now += 3
    await stand.reconciler.touch()
    assert stand.group == _foreign()
    assert stand.reconciler.written["touched"] == 0


async def test_facts_that_do_not_show_yet_what_was_made_cause_nothing() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    await stand.reconciler.reconcile_all()
    assert stand.api.calls == [("POST", PATH)]


async def test_a_new_leader_finds_what_the_one_before_made_and_makes_nothing_again() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    stand.reconciler = stand.start()
    # Its facts are late: the create is answered with a conflict, and what is there is its own.
    stand.now += 60
    await stand.reconciler.reconcile_all()
    assert stand.api.writes == ["POST", "POST"]
    assert len(stand.api.stored) == 1
    assert stand.reconciler.states == {"owned": 1}


async def test_a_size_that_changed_is_put_right() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    stand.index.update(_PLACE, _job(6))
    await stand.observe()
    assert stand.group is not None
    assert stand.group["spec"] == {"minMember": 6}
    await stand.observe()
    assert stand.api.writes == ["POST", "PATCH"]


@pytest.mark.parametrize(("minimum", "kind"), [(4, "Normal"), (3, "Warning")])
async def test_a_pod_group_of_somebody_else_is_never_written_and_told_of_once(minimum: int, kind: str) -> None:
    stand = _Stand()
    stand.api.stored[f"{PATH}/w"] = _foreign(minimum)
    before = orjson.dumps(stand.api.stored)
    stand.index.update(_PLACE, _job())
    for _ in range(3):
        await stand.observe()
    assert orjson.dumps(stand.api.stored) == before
    assert stand.api.calls == []
    assert [one[:2] for one in stand.events.told] == [(kind, "PodGroupNotOwned")]
    assert stand.reconciler.states == {"foreign": 1}


async def test_one_that_the_facts_do_not_show_yet_is_found_out_by_the_conflict_and_left_alone() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    stand.show()
    stand.api.stored[f"{PATH}/w"] = _foreign()
    await stand.reconciler.reconcile_all()
    assert stand.api.calls == [("POST", PATH), ("GET", f"{PATH}/w")]
    assert stand.group == _foreign()


async def test_the_pod_group_of_a_job_of_that_name_before_is_not_its_own() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    stand.index.update(_PLACE, _job(6, uid="job-2"))
    await stand.observe()
    assert stand.api.writes == ["POST"]
    # The garbage collector takes it away.
    del stand.api.stored[f"{PATH}/w"]
    await stand.observe()
    assert stand.group is not None
    assert stand.group["metadata"]["ownerReferences"][0]["uid"] == "job-2"


async def test_in_dry_run_nothing_is_made_and_it_is_said_once() -> None:
    stand = _Stand("DryRun")
    declared = _job(group="")
    declared["metadata"]["annotations"] = {"gpugate.io/gang-size": "4"}
    stand.index.update(_PLACE, declared)
    for _ in range(2):
        await stand.observe()
    assert stand.api.calls == []
    assert stand.reconciler.states == {"would create": 1}
    stand.log.flush()
    assert stand.text.getvalue().count("would create a PodGroup") == 1
    stand.set_policy("Enforce")
    stand.index.update(_PLACE, _job())
    await stand.observe()
    assert stand.group is not None


async def test_warn_makes_it_and_disabled_does_not() -> None:
    for mode, writes in (("Mutate", ["POST"]), ("Disabled", [])):
        stand = _Stand(mode)
        stand.index.update(_PLACE, _job())
        await stand.observe()
        assert stand.api.writes == writes


async def test_a_kind_that_is_not_served_yet_is_waited_for() -> None:
    stand = _Stand()
    stand.known, stand.api.is_served = SyncState.ABSENT, False
    stand.index.update(_PLACE, _job())
    await stand.observe()
    assert stand.api.calls == []
    assert stand.reconciler.states == {"not served": 1}
    stand.known, stand.api.is_served = SyncState.SYNCED, True
    await stand.observe()
    assert stand.reconciler.states == {"owned": 1}


async def test_a_call_that_fails_is_tried_again_later_and_others_are_not_kept_waiting() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    other = _job(group="other", uid="job-2")
    other["metadata"]["name"] = "other"
    stand.index.update(("batch", "Job", "team-a", "other"), other)
    stand.api.broken = 1
    await stand.observe()
    assert stand.reconciler.states == {"not made": 1, "owned": 1}
    assert stand.reconciler.written["failed"] == 1
    calls = len(stand.api.calls)
    await stand.reconciler.reconcile_all()
    assert len(stand.api.calls) == calls
    await stand.observe()
    assert stand.reconciler.states == {"owned": 2}


async def test_what_no_pod_names_any_more_is_deleted_once_its_pods_are_gone() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    stand.index.update(_PLACE, _job(group="another"))
    member = {
        "metadata": {"name": "w-0", "namespace": "team-a", "labels": {"scheduling.x-k8s.io/pod-group": "w"}},
        "spec": {},
        "status": {"phase": "Running"},
    }
    stand.pods = [member]
    await stand.observe()
    assert set(stand.api.stored) == {f"{PATH}/w", f"{PATH}/another"}
    stand.pods = []
    await stand.observe()
    assert set(stand.api.stored) == {f"{PATH}/another"}


async def test_a_pod_group_whose_label_somebody_took_away_is_not_deleted() -> None:
    stand = _Stand()
    stand.index.update(_PLACE, _job())
    await stand.observe()
    stand.index.update(_PLACE, _job(group="another"))
    stand.show()
    assert stand.group is not None
    stand.group["metadata"]["labels"] = {}
    stand.now += 60
    await stand.reconciler.reconcile_all()
    assert stand.group is not None


async def test_a_workload_that_is_gone_leaves_nothing_in_the_book() -> None:
    stand = _Stand()
    assert stand.index.update(_PLACE, _job())
    assert not stand.index.update(_PLACE, _job())
    assert stand.index.remove(_PLACE)
    assert not stand.index.remove(_PLACE)
    await stand.observe()
    assert stand.api.calls == []
    assert list(stand.index.workloads()) == []


async def test_a_second_plain_pod_becomes_an_owner_of_the_group_that_the_first_has() -> None:
    stand = _Stand()

    def pod(number: int) -> Object:
        annotations = {"gpugate.io/gang-size": "2", "gpugate.io/gang-name": "w"}
        metadata = {"name": f"p-{number}", "namespace": "team-a", "uid": f"pod-{number}", "annotations": annotations}
        labels = {"labels": {"scheduling.x-k8s.io/pod-group": "w"}}
        containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8}}}]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | labels, "spec": {"containers": containers}}

    stand.index.update(("", "Pod", "team-a", "p-0"), pod(0))
    await stand.observe()
    stand.index.update(("", "Pod", "team-a", "p-1"), pod(1))
    await stand.observe()
    assert stand.group is not None
    assert [one["uid"] for one in stand.group["metadata"]["ownerReferences"]] == ["pod-0", "pod-1"]
    await stand.observe()
    assert stand.api.writes == ["POST", "PATCH"]


class _Counted(NamedTuple):
    """A plan that counts how often it is asked whom it is about."""

    plan: PodGroupPlan
    place: int
    named: frozenset[GroupKey]
    asked: list[int]

    @property
    def reference(self) -> Reference:
        self.asked.append(self.place)
        return Reference("batch/v1", "Job", "team-a", f"w-{self.place}", f"uid-{self.place}")


async def test_a_look_at_many_gangs_takes_no_more_for_each_than_one_at_few() -> None:
    stand, asked_of = _Stand("DryRun"), list[int]()
    number = 200
    plans = [_Counted(PodGroupPlan(why_not="it says nothing of its size"), place, frozenset(), asked_of) for place in range(number)]
    stand.index.plans = lambda: iter(plans)  # type: ignore[method-assign, assignment, return-value]
    await stand.observe()
    asked_of.clear()
    await stand.observe()
    assert len(asked_of) <= 10 * number


async def test_nothing_is_kept_of_gangs_that_are_gone() -> None:
    stand = _Stand()
    for number in range(5):
        place = ("batch", "Job", "team-a", f"w{number}")
        stand.index.update(place, _job(uid=f"job-{number}", group=f"w{number}"))
        await stand.observe()
        stand.index.remove(place)
        stand.api.stored.clear()
    await stand.observe()
    assert not stand.reconciler._delays
    assert not stand.reconciler._reported


async def test_a_workload_whose_insides_nobody_checked_keeps_no_other_from_its_pod_group() -> None:
    # Within the templates of an AppWrapper the apiserver takes whatever it is given.
    template = {"metadata": {"labels": "none"}, "spec": _job()["spec"]["template"]["spec"]}
    wrapped = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "v"}}
    workers = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}}}
    unread = {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "a", "namespace": "team-a", "uid": "wrapper-1"},
        "spec": {"components": [{"template": {**wrapped, "spec": workers}}]},
    }
    stand = _Stand()
    stand.index.update(("workload.codeflare.dev", "AppWrapper", "team-a", "a"), unread)
    stand.index.update(_PLACE, _job())
    await stand.observe()
    assert stand.group is not None
