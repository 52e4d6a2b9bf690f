"""Templates that Git keeps: what merges by key is edited, and what is left to the pods is no reason to refuse."""

from __future__ import annotations

from typing import Any

from gpugate.policies.framework.decision import Phase
from tests.shared.builders import bind, decided, reasons

Object = dict[str, Any]

_TRACKED = {"annotations": {"argocd.argoproj.io/tracking-id": "app:x/y:team-a/w"}}


def _worker(**limits: str) -> Object:
    return {"name": "worker", "image": "train:1", "resources": {"limits": {"nvidia.com/gpu": "1", **limits}}}


def _job_set(*, tracked: bool = True) -> Object:
    template = {"spec": {"parallelism": 1, "completions": 1, "template": {"spec": {"containers": [_worker(memory="64Gi")]}}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "w", "namespace": "team-a", **(_TRACKED if tracked else {})},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 1, "template": template}]},
    }


def _ray_cluster(worker: Object) -> Object:
    head = {"name": "head", "image": "ray:1", "resources": {"limits": {"cpu": "2", "memory": "4Gi"}}}
    group = {"groupName": "gpu", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "template": {"spec": {"containers": [worker]}}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "w", "namespace": "team-a", **_TRACKED},
        "spec": {"headGroupSpec": {"template": {"spec": {"containers": [head]}}}, "workerGroupSpecs": [group]},
    }


def _pods(job_set: Object) -> Object:
    found: Object = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return found


def test_a_job_set_in_git_is_edited_as_any_other_for_its_jobs_merge_by_name() -> None:
    tracked, untracked = _job_set(), _job_set(tracked=False)
    assert not decided(tracked, bind(mode="Enforce")).refused
    decided(untracked, bind(mode="Enforce"))
    assert _pods(tracked) == _pods(untracked)
    assert any(one["name"] == "gpugate-shm" for one in _pods(tracked)["volumes"])


def test_what_ray_keeps_in_a_list_that_git_owns_is_left_to_the_pods_and_warned_about() -> None:
    root = _ray_cluster(_worker())
    before = root["spec"]["workerGroupSpecs"]
    decision = decided(root, bind(mode="Enforce"))
    assert root["spec"]["workerGroupSpecs"] == before
    assert not decision.refused
    told = reasons(decision)
    assert ("shared-memory", "NotMounted", "warn") in told
    assert ("host-memory", "HeldBack", "warn") in told


def test_both_doors_say_the_same() -> None:
    decision = decided(_ray_cluster(_worker()), bind(mode="Enforce"), phase=Phase.CHECK)
    assert not decision.refused
    assert ("shared-memory", "NotMounted", "warn") in reasons(decision)


def test_what_no_edit_would_cure_is_refused_all_the_same() -> None:
    worker = _worker(memory="64Gi")
    worker["resources"]["requests"] = {"memory": "8Gi"}
    assert ("host-memory", "Overcommit", "deny") in reasons(decided(_ray_cluster(worker), bind(mode="Enforce")))


def test_a_policy_may_want_it_refused_until_it_is_committed() -> None:
    bound = bind({"shared-memory": {"onGitConflict": "Refuse"}}, mode="Enforce")
    assert ("shared-memory", "NotMounted", "deny") in reasons(decided(_ray_cluster(_worker()), bound))
