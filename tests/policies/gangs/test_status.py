"""Where gangs stand: whether they run, wait as a whole, start, or are stuck with a part of their members missing."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import SnapshotBuilder, snapshot_from_objects
from gpugate.policies.cluster.records.pods import moment, pod_record_of
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.gangs.status import GangState, gang_states
from tests.shared.builders import container, node, opened, pod, templated

Object = dict[str, Any]

_MADE = "2026-01-01T10:00:00Z"
_NOON = moment("2026-01-01T12:00:00Z")
_SOON = moment("2026-01-01T10:05:00Z")


def _job(size: int = 4, *, status: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    made = templated("Job", container(gpus=8), parallelism=size, completions=size, **spec)
    declared = {"gpugate.io/gang-name": "w"} | (annotations or {})
    made["metadata"] |= {"uid": "job-1", "creationTimestamp": _MADE, "annotations": declared}
    return made | {"status": status or {}}


def _member(number: int, phase: str = "Running", *, owner: str = "job-1", machine: str = "n1", **more: Any) -> Object:
    one = pod(container(gpus=8))
    one["metadata"] |= {"name": f"w-{number}", "uid": f"pod-{number}", "creationTimestamp": "2026-01-01T10:00:05Z"}
    one["metadata"] |= more.pop("metadata", {})
    if owner:
        one["metadata"]["ownerReferences"] = [{"uid": owner, "controller": True, "kind": "Job", "name": "w"}]
    if phase == "Running" or machine != "n1":
        one["spec"]["nodeName"] = machine
    one["status"] = {"phase": phase, **more}
    return one


def _unschedulable(number: int, message: str = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", **more: Any) -> Object:
    placed = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return _member(number, "Pending", conditions=[placed], **more)


def _gated(number: int, **more: Any) -> Object:
    placed = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "waits for its gates"}
    return _member(number, "Pending", conditions=[placed], **more)


def _state(*objects: Object, subject: Object | None = None, now: float = _NOON, **more: Any) -> GangState:
    snapshot: ClusterSnapshot = snapshot_from_objects([*objects, node("n1"), pod(container(gpus=None))])
    found = gang_states(snapshot, [opened(subject or _job())], now, **more)
    assert len(found) == 1
    return found[0]


def test_a_gang_whose_members_all_run_runs() -> None:
    found = _state(*(_member(number) for number in range(4)))
    assert found == GangState("team-a", "Job", "w", "job-1", "", 4, 4, 0, 0, 0, 32, "running", None, "")


def test_a_gang_with_a_member_that_finds_no_node_is_stuck_since_that_member_was_made() -> None:
    found = _state(*(_member(number) for number in range(3)), _unschedulable(3))
    assert found.state == "stuck"
    assert (found.running, found.pending, found.missing, found.held) == (3, 1, 0, 24)
    assert found.since == moment("2026-01-01T10:00:05Z")
    assert found.reason == (
        "3 of 4 run and 24 accelerators are held meanwhile; 1 has no node: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    )


def test_a_gang_is_not_stuck_before_the_policys_time() -> None:
    members = [*(_member(number) for number in range(3)), _unschedulable(3)]
    assert _state(*members, now=_SOON).state == "starting"
    assert _state(*members, now=_SOON, stuck_after=lambda _namespace, _labels: 60.0).state == "stuck"
    assert _state(*members, now=_NOON, stuck_after=lambda _namespace, _labels: None).state == "starting"


def test_a_gang_whose_members_were_never_made_is_stuck_and_says_what_the_apiserver_said() -> None:
    told = 'pods "w-3" is forbidden: exceeded quota: gpus'
    found = _state(*(_member(number) for number in range(3)), refusals={"job-1": told})
    assert (found.state, found.missing, found.since) == ("stuck", 1, moment(_MADE))
    assert found.reason.endswith(f"; 1 of 4 is not there: {told}")


def test_a_member_that_went_without_a_trace_is_missing_since_that_was_noticed() -> None:
    members = [_member(number) for number in range(3)]
    noticed = {("team-a", "Job", "w"): _NOON - 30}
    assert _state(*members, noticed=noticed).state == "starting"
    assert _state(*members, noticed=noticed, now=_NOON + 600).state == "stuck"


def test_a_suspended_gang_of_which_nothing_runs_is_queued_however_long() -> None:
    job = _job(suspend=True)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    found = _state(subject=job)
    assert (found.state, found.system, found.held) == ("queued", "Kueue", 0)
    assert found.reason == "waits in queue research as a whole: nothing of it runs, and it holds nothing"


def test_gated_members_are_queued_while_none_runs_and_stuck_beside_one_that_runs() -> None:
    assert _state(*(_gated(number) for number in range(4))).state == "queued"
    assert _state(_member(0), *(_gated(number) for number in range(1, 4))).state == "stuck"


def test_a_gang_held_back_that_lacks_a_member_is_stuck_for_its_queue_waits_for_all_of_them() -> None:
    found = _state(*(_gated(number) for number in range(3)))
    assert (found.state, found.pending, found.missing) == ("stuck", 3, 1)


def test_a_member_on_a_node_that_does_not_answer_does_not_run() -> None:
    lost = node("n2", taints=[{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    found = _state(*(_member(number) for number in range(3)), _member(3, machine="n2", conditions=[unready]), lost)
    assert (found.state, found.running, found.failed, found.missing) == ("stuck", 3, 1, 0)
    assert found.since == moment("2026-01-01T11:00:00Z")
    assert "1 is on node n2, which does not answer" in found.reason


def test_a_member_whose_probe_fails_on_a_healthy_node_runs() -> None:
    unready = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    assert _state(*(_member(number) for number in range(3)), _member(3, conditions=[unready])).state == "running"


def test_a_member_that_cannot_pull_its_image_holds_its_devices() -> None:
    waiting = {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}}]}
    found = _state(*(_member(number) for number in range(3)), _member(3, "Pending", machine="n2", **waiting))
    assert (found.state, found.held) == ("stuck", 32)
    assert "1 cannot pull an image (n2): back-off" in found.reason


def test_a_gang_of_which_some_have_ended_well_is_not_said_to_miss_them() -> None:
    found = _state(_member(0), _member(1), subject=_job(status={"succeeded": 2}))
    assert (found.state, found.missing) == ("running", 0)


def test_a_gang_that_has_ended_is_done() -> None:
    over = {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 4}
    assert _state(subject=_job(status=over)).state == "done"


def test_an_elastic_gang_runs_with_its_least_number() -> None:
    job = _job(annotations={"gpugate.io/gang-min-size": "3"})
    members = [_member(number) for number in range(3)]
    assert _state(*members, _unschedulable(3), subject=job).state == "running"
    assert _state(*members[:2], _unschedulable(2), _unschedulable(3), subject=job).state == "stuck"


def test_pods_of_a_jobset_are_counted_with_it_though_its_jobs_made_them() -> None:
    template = {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [container(gpus=8)]}}}}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "namespace": "team-a", "uid": "set-1", "creationTimestamp": _MADE},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": template}]},
    }
    label = {"labels": {"jobset.sigs.k8s.io/jobset-name": "s"}}
    members = [_member(number, owner=f"job-{number // 2}", metadata=label) for number in range(3)]
    found = _state(*members, subject=jobset)
    assert (found.kind, found.size, found.running, found.missing, found.state) == ("JobSet", 4, 3, 1, "stuck")


def test_each_group_of_a_leaderworkerset_is_a_gang_of_its_own() -> None:
    workers = {"spec": {"containers": [container(gpus=8)]}}
    lws = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "l", "namespace": "team-a", "uid": "lws-1", "creationTimestamp": _MADE},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": workers}},
    }

    def member(number: int, group: int, phase: str = "Running") -> Object:
        labels = {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": str(group)}
        return _member(number, phase, owner="set", metadata={"labels": labels})

    snapshot = snapshot_from_objects([member(0, 0), member(1, 0), member(2, 1), member(3, 1, "Pending"), node("n1")])
    found = gang_states(snapshot, [opened(lws)], _NOON)
    assert [(one.name, one.size, one.state) for one in found] == [("l/0", 2, "running"), ("l/1", 2, "stuck")]


def test_plain_pods_of_a_group_are_one_gang_by_the_size_that_they_state() -> None:
    annotations = {"gpugate.io/gang-name": "g", "gpugate.io/gang-size": "3"}
    members = [_member(number, owner="", metadata={"annotations": annotations}) for number in range(2)]
    snapshot = snapshot_from_objects([*members, node("n1")])
    (found,) = gang_states(snapshot, [opened(one) for one in members], _NOON)
    assert (found.kind, found.name, found.system, found.size, found.missing) == ("Pod", "g", "gpugate", 3, 1)
    assert (found.state, found.since) == ("stuck", moment("2026-01-01T10:00:05Z"))


def test_stages_that_have_not_come_yet_are_not_missing() -> None:
    template = {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [container(gpus=8)]}}}}
    jobs = [{"name": "a", "template": template}, {"name": "b", "template": template, "dependsOn": [{"name": "a"}]}]
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "namespace": "team-a", "uid": "set-1", "creationTimestamp": _MADE},
        "spec": {"replicatedJobs": jobs},
    }
    label = {"labels": {"jobset.sigs.k8s.io/jobset-name": "s"}}
    found = _state(*(_member(number, metadata=label) for number in range(2)), subject=jobset)
    assert (found.state, found.missing) == ("running", 0)


def test_no_gang_is_judged_while_the_pods_are_not_known() -> None:
    assert gang_states(snapshot_from_objects([node("n1")]), [opened(_job())], _NOON) == []


@pytest.mark.parametrize("written", ["", None, "yesterday", "9999-99-99T00:00:00Z", 7])
def test_a_time_that_cannot_be_read_is_none(written: object) -> None:
    assert moment(written) == 0.0


def test_sums_kept_pod_by_pod_are_those_of_a_recount() -> None:
    members = [_member(0), _unschedulable(1), _gated(2), _member(3, "Pending", machine="n2")]
    grown, direct = SnapshotBuilder(), SnapshotBuilder()
    for one in members:
        grown.put("pods", ("team-a", one["metadata"]["name"]), pod_record_of(_member(9, "Pending")))
        grown.snapshot({})
    for one in members:
        for builder in (grown, direct):
            builder.put("pods", ("team-a", one["metadata"]["name"]), pod_record_of(one))
    assert grown.snapshot({}).pod_counts == direct.snapshot({}).pod_counts
    for builder in (grown, direct):
        for one in members:
            builder.put("pods", ("team-a", one["metadata"]["name"]), None)
    assert dict(grown.snapshot({}).pod_counts) == {}
