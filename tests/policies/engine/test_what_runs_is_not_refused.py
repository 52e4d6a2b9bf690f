"""Objects that run as they are sent are not refused, whatever gpugate cannot see: pools at zero, claims, parked pods."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Severity
from gpugate.policies.framework.decision import Decision
from tests.shared.builders import bind, container, decided, every_rule, node, pod, templated

Object = dict[str, Any]
_SMALL = node("small", **{"nvidia.com/gpu": "1"})
_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {"extendedResourceName": "nvidia.com/gpu"},
}
_QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "gpus", "namespace": "team-a"},
    "spec": {"hard": {"requests.nvidia.com/gpu": "4"}},
}


def _large(**more: Any) -> Object:
    return pod(container(gpus=8, memory="64Gi") | {"resources": _resources(8)}, **more)


def _resources(gpus: int) -> Object:
    amounts = {"cpu": "8", "memory": "64Gi"}
    return {"requests": dict(amounts), "limits": {"nvidia.com/gpu": gpus, **amounts}}


def _main(gpus: int) -> Object:
    return {"name": "main", "image": "example.com/train:1", "resources": _resources(gpus)}


def _denied(decision: Decision) -> set[str]:
    return {judged.finding.reason for judged in decision.findings if judged.severity is Severity.DENY}


def _warned(decision: Decision) -> set[str]:
    return {judged.finding.reason for judged in decision.findings if judged.severity is Severity.WARN}


def _cluster(*objects: Object) -> ClusterSnapshot:
    return snapshot_from_objects(list(objects))


def test_a_pod_that_no_node_of_a_fixed_cluster_holds_is_refused() -> None:
    assert "NeverFits" in _denied(decided(_large(), bind({"host-memory": {}}, mode="Enforce"), snapshot=_cluster(_SMALL)))


@pytest.mark.parametrize(
    "sign",
    [
        {"metadata": {"labels": {"karpenter.sh/nodepool": "cpu"}}},
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}},
        {"spec": {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]}},
    ],
    ids=["karpenter", "annotation", "taint"],
)
def test_a_pool_at_zero_is_unseen_where_any_node_is_autoscaled(sign: Object) -> None:
    other = node("cpu-1")
    del other["status"]["allocatable"]["nvidia.com/gpu"]
    for key, values in sign.items():
        other[key] |= values
    decision = decided(_large(), every_rule(), snapshot=_cluster(_SMALL, other))
    assert not _denied(decision)
    assert "NeverFits" in _warned(decision)


@pytest.mark.parametrize(("autoscaler", "refused"), [("Detect", False), ("Present", False), ("Absent", True)])
def test_the_policy_says_whether_nodes_may_be_added(autoscaler: str, refused: bool) -> None:
    nodes = _cluster(node("small", labels={"karpenter.sh/nodepool": "gpus"}, **{"nvidia.com/gpu": "1"}))
    bound = bind({"host-memory": {}}, mode="Enforce", autoscaler=autoscaler)
    assert ("NeverFits" in _denied(decided(_large(), bound, snapshot=nodes))) is refused


def test_a_policy_may_say_that_nodes_are_added_where_none_shows_it() -> None:
    bound = bind({"host-memory": {}}, mode="Enforce", autoscaler="Present")
    assert not _denied(decided(_large(), bound, snapshot=_cluster(_SMALL)))


def test_devices_that_a_deviceclass_serves_are_not_counted_on_nodes() -> None:
    large = pod(_main(4))
    assert "NeverFits" in _denied(decided(pod(_main(4)), every_rule(), snapshot=_cluster(_SMALL)))
    decision = decided(large, every_rule(), snapshot=_cluster(_SMALL, _CLASS))
    assert not _denied(decision)
    assert "NeverFits" not in _warned(decision)


def test_a_gang_of_devices_that_a_deviceclass_serves_fits_no_count_of_nodes() -> None:
    job = templated("Job", _main(4), parallelism=4, completions=4)
    job["metadata"]["annotations"] = {"gpugate.io/gang-size": "4"}
    assert not _denied(decided(job, every_rule(), snapshot=_cluster(_SMALL, _CLASS)))


def test_a_device_that_only_a_deviceclass_serves_is_offered() -> None:
    plain = node("plain")
    del plain["status"]["allocatable"]["nvidia.com/gpu"]
    decision = decided(pod(_main(1)), bind({"accelerator-names": {}}, mode="Enforce"), snapshot=_cluster(plain, _CLASS))
    assert decision.findings == []


@pytest.mark.parametrize(
    ("kind", "parked", "started"),
    [
        ("Deployment", {"replicas": 0}, {"replicas": 2}),
        ("StatefulSet", {"replicas": 0}, {"replicas": 1}),
        ("Job", {"parallelism": 0}, {"parallelism": 2}),
        ("Job", {"suspend": True}, {}),
    ],
)
def test_pods_that_are_not_created_now_are_not_refused_for_the_cluster(kind: str, parked: Object, started: Object) -> None:
    facts = _cluster(_SMALL, _QUOTA)
    bound = bind({"host-memory": {}, "namespace-limits": {}}, mode="Enforce")
    decision = decided(templated(kind, _main(8), **parked), bound, snapshot=facts)
    assert not _denied(decision)
    assert "NeverFits" in _warned(decision)
    assert {"NeverFits", "QuotaNeverFits"} <= _denied(decided(templated(kind, _main(8), **started), bound, snapshot=facts))


def test_a_parked_deployment_that_is_scaled_up_is_judged_like_a_new_one() -> None:
    bound, facts = bind({"host-memory": {}}, mode="Enforce"), _cluster(_SMALL)
    old, new = (templated("Deployment", _main(8), replicas=count) for count in (0, 2))
    assert "NeverFits" in _denied(decided(new, bound, snapshot=facts, old=old))


def test_a_suspended_job_in_a_queue_is_judged_as_kueue_would_start_it() -> None:
    job = templated("Job", _main(8), suspend=True)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    assert "NeverFits" in _denied(decided(job, bind({"host-memory": {}}, mode="Enforce"), snapshot=_cluster(_SMALL)))


def test_a_suspended_cronjob_creates_no_pods() -> None:
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "team-a"},
        "spec": {"schedule": "0 2 * * *", "suspend": True, "jobTemplate": {"spec": templated("Job", _main(8))["spec"]}},
    }
    assert not _denied(decided(cron, bind({"host-memory": {}}, mode="Enforce"), snapshot=_cluster(_SMALL)))


def test_what_the_object_itself_has_wrong_is_refused_though_it_is_parked() -> None:
    parked = templated("Deployment", _main(1) | {"securityContext": {"privileged": True}}, replicas=0)
    running = templated("Deployment", _main(1) | {"securityContext": {"privileged": True}}, replicas=1)
    bound = bind({"isolation": {}}, mode="Enforce")
    assert _denied(decided(parked, bound)) == _denied(decided(running, bound)) != set()


def test_a_sweep_is_refused_by_no_rule_beside_a_quota_and_a_pool_for_a_part_of_it() -> None:
    sweep = templated("Job", _main(1), parallelism=16, completions=1000, completionMode="Indexed", backoffLimit=3)
    sweep["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "2"}
    decision = decided(sweep, every_rule(), snapshot=_cluster(node("large"), _QUOTA))
    assert not _denied(decision)
    assert {"PoolTooSmall", "QuotaNeverFits"} <= _warned(decision)


def test_six_of_eight_devices_are_refused_only_where_the_policy_says_so() -> None:
    for fragments, denied in (("Allow", set()), ("Warn", set()), ("Deny", {"Fragments"})):
        job = templated("Job", _main(6), parallelism=2, completions=2)
        job["metadata"]["annotations"] = {"gpugate.io/gang-size": "2"}
        bound = bind({"gang": {"fragments": fragments}}, mode="Enforce")
        assert _denied(decided(job, bound, snapshot=_cluster(node("a"), node("b")))) == denied
