"""Who asks for what: whom workloads belong to, and for how many hours they ask for accelerators."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.webhook.audit.model import AuditedWorkload, Run
from gpugate.webhook.audit.output.text import print_audit
from gpugate.webhook.audit.ownership import divisions_of, so_far, until_end
from tests.shared import audits
from tests.shared.reviews import policy

Json = dict[str, Any]
MADE = "2026-01-01T00:00:00Z"
BEGUN = "2026-01-01T06:00:00Z"
NOON = 1767268800
HOUR = 3600


def stamped(obj: Json, **status: Any) -> Json:
    """``obj`` as an apiserver keeps it, made at midnight."""
    return {**obj, "metadata": {**obj["metadata"], "creationTimestamp": MADE}, "status": status}


def one(obj: Json, **lens: Any) -> AuditedWorkload:
    (found,) = audits.audited(obj, **lens)
    return found


def device_hours(obj: Json) -> tuple[float | None, float | None]:
    """Device-hours of ``obj`` up to noon, and from start to stated end."""
    found = one(obj)
    past, end = so_far(found, NOON), until_end(found)
    return (None if past is None else past / HOUR, None if end is None else end / HOUR)


def test_a_job_asks_since_its_pods_began() -> None:
    assert device_hours(stamped(audits.job(gpus=4), startTime=BEGUN)) == (24, None)


def test_a_job_that_has_not_begun_or_is_suspended_has_asked_for_no_hours() -> None:
    assert device_hours(stamped(audits.job())) == (0, None)
    assert device_hours(stamped(audits.job(suspend=True), startTime=BEGUN)) == (0, None)


def test_a_deployment_asks_since_it_was_made() -> None:
    assert device_hours(stamped(audits.deployment(replicas=3))) == (36, None)


def test_a_jobset_asks_since_it_was_suspended_no_longer() -> None:
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": BEGUN}
    assert device_hours(stamped(audits.job_set(), conditions=[resumed])) == (6, None)
    assert device_hours(stamped(audits.job_set(), conditions=[{**resumed, "status": "True"}, "odd"])) == (12, None)


def test_a_manifest_and_a_cronjob_tell_no_start() -> None:
    assert device_hours(audits.job()) == (None, None)
    assert device_hours(stamped(audits.cron_job())) == (None, None)


def test_a_time_that_is_none_is_not_told() -> None:
    odd = stamped(audits.deployment())
    odd["metadata"]["creationTimestamp"] = "yesterday"
    assert device_hours(odd) == (None, None)


def test_a_pending_pod_has_asked_for_no_hours_and_a_running_one_since_its_kubelet_took_it() -> None:
    assert device_hours(stamped(audits.a_pod(), phase="Pending")) == (0, None)
    assert device_hours(stamped(audits.a_pod(), phase="Running", startTime=BEGUN)) == (6, None)


@pytest.mark.parametrize(
    ("obj", "wanted"),
    [
        (audits.job(gpus=4, activeDeadlineSeconds=2 * HOUR), 8),
        (audits.job(gpus=4, parallelism=2, completions=6, activeDeadlineSeconds=HOUR), 8),
        (audits.job_set(replicas=2, activeDeadlineSeconds=HOUR), 2),
        (audits.job(activeDeadlineSeconds=0), None),
        (audits.job(activeDeadlineSeconds="1h"), None),
        (audits.deployment(), None),
    ],
)
def test_the_end_that_is_stated_bounds_the_hours_of_all_its_devices(obj: Json, wanted: float | None) -> None:
    assert device_hours(obj)[1] == wanted


def test_the_deadline_of_each_pod_holds_for_those_that_come_one_after_the_other() -> None:
    obj = audits.job(gpus=4, parallelism=2, completions=6)
    obj["spec"]["template"]["spec"]["activeDeadlineSeconds"] = HOUR
    assert device_hours(obj)[1] == 24
    obj["spec"]["activeDeadlineSeconds"] = HOUR
    assert device_hours(obj)[1] == 8


def test_kubeflows_run_policy_and_kueues_label_state_an_end() -> None:
    workers = {"replicas": 2, "template": audits.job(gpus=4)["spec"]["template"]}
    obj = audits.named("kubeflow.org/v1", "PyTorchJob", "train")
    obj["spec"] = {"runPolicy": {"activeDeadlineSeconds": 2 * HOUR}, "pytorchReplicaSpecs": {"Worker": workers}}
    assert device_hours(obj)[1] == 16
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/max-exec-time-seconds": "3600"}
    assert device_hours(obj)[1] == 8


def test_pods_of_an_unknown_owner_are_counted_together() -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "Flow", "metadata": {"name": "f", "uid": "u"}}
    pods = [audits.owned(stamped(audits.a_pod(name), phase="Running", startTime=BEGUN), owner) for name in ("a", "b")]
    large = audits.owned(stamped(audits.a_pod("c", gpus=4), phase="Running", startTime=BEGUN), owner)
    (found,) = audits.audited(*pods, large)
    assert sorted(run.devices for run in found.runs) == [2, 4]
    assert so_far(found, NOON) == 6 * 6 * HOUR


def test_a_workload_belongs_to_whom_it_or_its_namespace_names() -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "annotations": {"cost-center": "4711"}}}
    obj = audits.job()
    obj["metadata"]["annotations"] = {"owner": "data-science-squad"}
    found = one(obj, snapshot=snapshot_from_objects([space]))
    assert dict(found.belongs) == {"owner": "data-science-squad", "cost-center": "4711"}


def test_the_keys_of_the_policy_that_binds_the_workload_count_even_in_dry_run() -> None:
    keys = [{"what": "unit", "name": "acme.com/unit"}]
    chosen = policy("p", rules={"attribution": {"mode": "DryRun", "keys": keys}})
    obj = audits.job()
    obj["metadata"]["labels"] = {"acme.com/unit": "u1", "owner": "x"}
    assert one(obj, policies=[chosen], team_labels=()).belongs == (("unit", "u1"),)


def test_the_team_stands_for_an_owner_whom_nobody_names_otherwise() -> None:
    obj = audits.job()
    obj["metadata"]["labels"] = {"squad": "vision"}
    assert one(obj, team_labels=("squad",)).belongs == (("owner", "vision"),)


def test_shares_add_up_and_say_what_is_not_told() -> None:
    told = (("owner", "vision"),)
    found = audits.audit(
        audits.workload("a", belongs=told, runs=(Run(2, NOON - HOUR, 2 * HOUR),), devices=(("nvidia.com/gpu", 2),)),
        audits.workload("b", belongs=told, runs=(Run(1, None, None),)),
        audits.workload("c", belongs=told, runs=(Run(8, None, None, waits=True),)),
        audits.workload("d", runs=(Run(1, NOON + HOUR, 5),)),
        at="2026-01-01T12:00:00Z",
    )
    (owners,) = divisions_of(found)
    (vision, first), (nobody, second) = owners.shares
    assert (vision, nobody) == ("vision", "")
    assert (first.workloads, first.accelerators, first.so_far, first.without_start) == (3, 4, 2 * HOUR, 1)
    assert (first.until_end, first.without_end) == (2 * HOUR, 2)
    assert (second.so_far, second.until_end) == (0, 5)


def test_without_workloads_there_is_nothing_to_divide() -> None:
    assert divisions_of(audits.audit()) == []


def test_the_terminal_shows_a_table_for_each_thing_told() -> None:
    workload = audits.workload("a", belongs=(("owner", "vision"), ("project", "x\ny")), runs=(Run(2, NOON - HOUR, 3600),))
    stream = StringIO()
    print_audit(audits.audit(workload, at="2026-01-01T12:00:00Z"), Console(file=stream, width=120))
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert ["vision", "1", "1", "2.0", "1.0", "-"] in lines
    assert ["x", "y", "1", "1", "2.0", "1.0", "-"] in lines
