"""Which PodGroup a gang needs, and what becomes of one that is there."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.records.pod_groups import pod_group_of
from gpugate.policies.engine.exemptions import bound_without_exemption
from gpugate.policies.gangs.gang import GANG_NAME
from gpugate.policies.rules.gangs.gang.pod_groups import (
    PodGroupOwner,
    PodGroupPlan,
    WantedPodGroup,
    correction,
    fits,
    is_ours,
    manifest,
    plan,
    plan_together,
)
from gpugate.policies.workloads.workload import Workload
from tests.shared.builders import bind, container, decided, opened, pod, templated

Object = dict[str, Any]


def _rules(scheduler: str = "Coscheduling", **more: Any) -> Any:
    return bind({"gang": {"mode": "Enforce", "scheduler": scheduler, **more}})


def _plan(workload: Workload, rules: Any) -> PodGroupPlan:
    return plan(workload, bound_without_exemption(workload, rules, "gang"))


def _plan_together(members: list[Workload], rules: Any) -> PodGroupPlan:
    return plan_together(members, bound_without_exemption(members[0], rules, "gang"))


def _job(size: int = 4, *, annotations: Object | None = None, **spec: Any) -> Object:
    made = templated("Job", container(gpus=8), parallelism=size, completions=size, **spec)
    made["metadata"] |= {"uid": "job-1", "annotations": {GANG_NAME: "w"} | (annotations or {})}
    return made


def _planned(root: Object, scheduler: str = "Coscheduling", **more: Any) -> PodGroupPlan:
    """The plan for ``root`` as the door leaves it."""
    rules = _rules(scheduler, **more)
    decided(root, rules)
    return _plan(opened(root), rules)


def _jobset(*replicated: Object) -> Object:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "namespace": "team-a", "uid": "set-1"},
        "spec": {"replicatedJobs": list(replicated)},
    }


def _replicated(name: str, size: int, *, gpus: int | None = 8, **more: Any) -> Object:
    pods = {"spec": {"containers": [container(gpus=gpus)]}}
    return {"name": name, "template": {"spec": {"parallelism": size, "completions": size, "template": pods}}, **more}


@pytest.mark.parametrize("system", ["Coscheduling", "Volcano", "Kubernetes"])
def test_a_job_of_four_needs_a_group_of_four_that_goes_with_it(system: str) -> None:
    owner = PodGroupOwner("batch/v1", "Job", "w", "job-1", controller=True)
    devices = (("nvidia.com/gpu", 32),)
    assert _planned(_job(), system) == PodGroupPlan(WantedPodGroup(system, "team-a", "w", 4, (owner,), devices))


@pytest.mark.parametrize("system", ["Kueue", "KAI", "None"])
def test_who_reads_no_pod_groups_gets_none(system: str) -> None:
    assert _planned(_job(), system) == PodGroupPlan()


def test_no_group_is_made_where_the_policy_leaves_them_to_others() -> None:
    assert _planned(_job(), podGroups="Leave") == PodGroupPlan()


def test_a_job_of_one_pod_needs_no_group() -> None:
    assert _planned(_job(1)) == PodGroupPlan()


def test_an_elastic_gang_waits_for_its_least_number_and_no_sum_of_devices() -> None:
    wanted = _planned(_job(annotations={"gpugate.io/gang-min-size": "2"})).wanted
    assert wanted is not None
    assert (wanted.minimum, wanted.devices) == (2, ())


def test_pods_without_accelerators_are_not_waited_for_whatever_size_is_declared() -> None:
    root = _jobset(_replicated("head", 1, gpus=None), _replicated("w", 4))
    root["metadata"]["annotations"] = {"gpugate.io/gang-size": "5"}
    wanted = _planned(root).wanted
    assert wanted is not None
    assert (wanted.name, wanted.minimum) == ("s", 4)


def test_pods_that_come_when_others_have_run_are_not_waited_for() -> None:
    wanted = _planned(_jobset(_replicated("a", 2), _replicated("b", 3, dependsOn=[{"name": "a"}]))).wanted
    assert wanted is not None
    assert wanted.minimum == 2


def test_an_operator_that_makes_pod_groups_itself_is_left_to_it() -> None:
    root = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "t", "namespace": "team-a", "uid": "u"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [container()]}}}}},
    }
    assert _planned(root).why_not == "the operator of PyTorchJob creates the PodGroups itself"


def test_several_gangs_of_one_template_get_none_and_it_is_said_why() -> None:
    root = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "l", "namespace": "team-a", "uid": "u"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": [container()]}}}},
    }
    found = _planned(root)
    assert found.wanted is None
    assert "their pods cannot name different groups" in found.why_not


def test_a_gang_whose_pods_name_no_group_gets_none_for_nobody_would_be_in_it() -> None:
    found = _plan(opened(_job()), _rules())
    assert found.wanted is None
    assert found.why_not == "its pods do not all name the same group of Coscheduling: they are older than the policy"


def test_in_dry_run_it_is_said_what_would_be_made_for_pods_that_carry_no_mark() -> None:
    found = _plan(opened(_job()), bind({"gang": {"mode": "DryRun", "scheduler": "Coscheduling"}}))
    assert found.dry_run
    assert found.wanted is not None
    assert (found.wanted.name, found.wanted.minimum) == ("w", 4)


def test_the_group_has_the_name_that_the_pods_carry() -> None:
    wanted = _planned(_job(annotations={"gpugate.io/gang-name": "llm"})).wanted
    assert wanted is not None
    assert wanted.name == "llm"


def test_an_exempt_gang_gets_none() -> None:
    exempt = {"gpugate.io/exempt": "gang", "gpugate.io/exempt-reason": "placed by hand"}
    rules = bind({"gang": {"mode": "Enforce", "scheduler": "Coscheduling"}}, exemptions={"rules": ["gang"]})
    root = _job(annotations=exempt)
    root["spec"]["template"]["metadata"] = {"labels": {"scheduling.x-k8s.io/pod-group": "w"}}
    assert _plan(opened(root), rules) == PodGroupPlan()
    del root["metadata"]["annotations"]
    assert _plan(opened(root), rules).wanted is not None


def test_a_gang_that_has_ended_gets_none() -> None:
    root = _job()
    rules = _rules()
    decided(root, rules)
    root["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert _plan(opened(root), rules) == PodGroupPlan()


def test_what_was_scaled_down_to_one_pod_no_longer_waits_for_the_others() -> None:
    root = _job()
    rules = _rules()
    decided(root, rules)
    root["spec"] |= {"parallelism": 1, "completions": 1}
    found = _plan(opened(root), rules)
    assert found.wanted is not None
    assert (found.wanted.minimum, found.create) == (1, False)


def _member(number: int, size: object = 2, **more: Any) -> Object:
    one = pod(container(gpus=8), annotations={"gpugate.io/gang-name": "g", "gpugate.io/gang-size": str(size)})
    one["metadata"] |= {"name": f"p-{number}", "uid": f"pod-{number}"} | more
    decided(one, _rules())
    return one


def test_plain_pods_own_their_group_together_and_none_alone() -> None:
    wanted = _plan_together([opened(_member(number)) for number in range(2)], _rules()).wanted
    assert wanted is not None
    assert (wanted.name, wanted.minimum) == ("g", 2)
    assert [(one.kind, one.name, one.uid, one.controller) for one in wanted.owners] == [
        ("Pod", "p-0", "pod-0", False),
        ("Pod", "p-1", "pod-1", False),
    ]


def test_plain_pods_that_disagree_about_their_size_get_none() -> None:
    found = _plan_together([opened(_member(0)), opened(_member(1, 3))], _rules())
    assert (found.wanted, found.why_not) == (None, "its pods state different sizes: [2, 3]")


def test_a_member_that_is_being_deleted_has_no_say_in_the_size() -> None:
    gone = _member(1, 3, deletionTimestamp="2026-01-01T10:00:00Z")
    wanted = _plan_together([opened(_member(0)), opened(gone)], _rules()).wanted
    assert wanted is not None
    assert wanted.minimum == 2


_JOB = PodGroupOwner("batch/v1", "Job", "w", "job-1", controller=True)
_DEVICES = (("nvidia.com/gpu", 32),)


@pytest.mark.parametrize(
    ("wanted", "version", "api_version", "spec"),
    [
        (
            WantedPodGroup("Coscheduling", "a", "g", 4, (_JOB,), _DEVICES, timeout=90),
            "v1alpha1",
            "scheduling.x-k8s.io/v1alpha1",
            {"minMember": 4, "scheduleTimeoutSeconds": 90},
        ),
        (
            WantedPodGroup("Volcano", "a", "g", 4, (_JOB,), _DEVICES, queue="research", priority="high"),
            "v1beta1",
            "scheduling.volcano.sh/v1beta1",
            {
                "minMember": 4,
                "queue": "research",
                "priorityClassName": "high",
                "minResources": {"nvidia.com/gpu": "32"},
            },
        ),
        (
            WantedPodGroup("Kubernetes", "a", "g", 4, (_JOB,), _DEVICES),
            "v1alpha2",
            "scheduling.k8s.io/v1alpha2",
            {"schedulingPolicy": {"gang": {"minCount": 4}}},
        ),
    ],
)
def test_the_object_is_what_each_scheduler_reads(wanted: WantedPodGroup, version: str, api_version: str, spec: Object) -> None:
    made = manifest(wanted, version)
    assert (made["apiVersion"], made["kind"], made["spec"]) == (api_version, "PodGroup", spec)
    assert made["metadata"] == {
        "name": "g",
        "namespace": "a",
        "labels": {"app.kubernetes.io/managed-by": "gpugate"},
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "w",
                "uid": "job-1",
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
    record = pod_group_of(made)
    assert is_ours(record, wanted)
    assert fits(record, wanted)


def test_the_queue_of_the_pods_goes_before_that_of_the_policy() -> None:
    named = _job()
    named["spec"]["template"]["metadata"] = {"annotations": {"scheduling.volcano.sh/queue-name": "theirs"}}
    for root, queue in ((named, "theirs"), (_job(), "research")):
        wanted = _planned(root, "Volcano", volcanoQueue="research").wanted
        assert wanted is not None
        assert wanted.queue == queue


_WANTED = WantedPodGroup("Volcano", "a", "g", 4, (_JOB,), _DEVICES)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {}},
        {"labels": {"app.kubernetes.io/managed-by": "somebody"}},
        {"ownerReferences": []},
        {"ownerReferences": [{"uid": "job-of-that-name-before"}]},
    ],
)
def test_neither_label_nor_owner_alone_makes_a_pod_group_gpugates_own(change: Object) -> None:
    made = manifest(_WANTED, "v1beta1")
    made["metadata"] |= change
    assert not is_ours(pod_group_of(made), _WANTED)


def _stored(**spec: Any) -> Object:
    made = manifest(_WANTED, "v1beta1")
    made["metadata"]["resourceVersion"] = "7"
    made["spec"] |= spec
    return made


def test_what_is_right_is_not_corrected_and_what_others_added_stays() -> None:
    assert correction(_stored(), _WANTED) is None
    assert correction(_stored(theirs="x"), _WANTED) is None


def test_another_size_is_corrected_with_the_sum_of_devices() -> None:
    smaller = _WANTED._replace(minimum=3, devices=(("nvidia.com/gpu", 24),))
    assert correction(_stored(), smaller) == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"minMember": 3, "minResources": {"nvidia.com/gpu": "24"}},
    }
    uncertain = _WANTED._replace(minimum=3, devices=())
    assert correction(_stored(), uncertain) == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"minMember": 3, "minResources": {"nvidia.com/gpu": None}},
    }


def test_an_owner_that_came_later_is_added_to_those_that_are_there() -> None:
    other = PodGroupOwner("v1", "Pod", "p-1", "pod-1", controller=False)
    patch = correction(_stored(), _WANTED._replace(owners=(_JOB, other)))
    assert patch is not None
    assert [one["uid"] for one in patch["metadata"]["ownerReferences"]] == ["job-1", "pod-1"]


def test_kubernetes_lets_nobody_change_the_policy_of_a_group() -> None:
    wanted = _WANTED._replace(system="Kubernetes", devices=())
    stored = manifest(wanted, "v1alpha2")
    assert correction(stored, wanted._replace(minimum=3)) is None
