"""An owner counts only if a controller wrote it, or the cluster shows it. Each bypass has an honest twin that passes."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.framework.decision import Decision, Phase
from gpugate.policies.kube.fields import clone
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds.owners import ServedKinds
from tests.shared.builders import bind, container, decided, pod, policy, reasons, templated

Root = dict[str, Any]

_ALICE = "alice"
_REPLICA_SETS = "system:serviceaccount:kube-system:replicaset-controller"
_DEPLOYMENTS = "system:serviceaccount:kube-system:deployment-controller"
_RAY = "system:serviceaccount:ray-system:kuberay-operator"
_SERVED = ServedKinds({"example.com": frozenset({"Robot"}), "ray.io": frozenset({"RayCluster"}), "broken.io": None})
_REQUIRED = {"queue": {"required": True}}
_KNOWN = {"localqueues": SyncState.SYNCED, "namespaces": SyncState.SYNCED, "workloads": SyncState.SYNCED}
_CLUSTER = snapshot_from_objects([], _KNOWN, served=_SERVED)


def _owned(root: Root, api_version: str, kind: str, uid: str = "1") -> Root:
    owner = {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": uid, "controller": True}
    root["metadata"]["ownerReferences"] = [owner]
    return root


def _as(
    user: str | None,
    root: Root,
    rules: Root = _REQUIRED,
    *,
    snapshot: ClusterSnapshot = _CLUSTER,
    old: Root | None = None,
    **spec: Any,
) -> Decision:
    bound = PolicySet([policy(rules=rules, **spec)]).bind({}, {})
    return decided(clone(root), bound, snapshot=snapshot, old=clone(old), user=user)


NO_OWNERS = [("v1", "ConfigMap"), ("v1", "Secret"), ("coordination.k8s.io/v1", "Lease"), ("nowhere.io/v1", "Ghost")]
NO_OWNERS += [("example.com/v1", "Ghost"), ("apps/v1", "Ghost"), ("v1", "Ghost")]


@pytest.mark.parametrize(("version", "kind"), NO_OWNERS)
def test_a_pod_of_a_kind_that_owns_no_pods_or_does_not_exist_is_a_pod_without_an_owner(version: str, kind: str) -> None:
    root = _owned(pod(container()), version, kind)
    assert reasons(_as(_ALICE, root)) == reasons(_as(_ALICE, pod(container()))) == [("queue", "QueueMissing", "deny")]


@pytest.mark.parametrize(("version", "kind"), NO_OWNERS)
def test_a_listed_controller_may_name_any_owner(version: str, kind: str) -> None:
    root = _owned(pod(container()), version, kind)
    for user in (_REPLICA_SETS, "system:kube-controller-manager"):
        assert not _as(user, root).findings


def test_a_controller_is_listed_by_the_policy() -> None:
    root = _owned(pod(container()), "v1", "ConfigMap")
    assert not _as(_RAY, root, controllerIdentities=[_RAY]).findings
    assert _as(_RAY, root).refused
    assert _as(_ALICE, root, controllerIdentities=[_RAY]).refused


def test_a_listed_namespace_lists_all_its_service_accounts() -> None:
    root, listed = _owned(pod(container()), "v1", "ConfigMap"), ["system:serviceaccount:ray-system:*"]
    assert not _as(_RAY, root, controllerIdentities=listed).findings
    assert _as("system:serviceaccount:ray-system-2:x", root, controllerIdentities=listed).refused


SERVED = [("example.com/v1", "Robot"), ("ray.io/v1", "RayCluster"), ("broken.io/v1", "Any"), ("v1", "Pod"), ("v1", "Service")]
SERVED += [("apps/v1", "ReplicaSet"), ("apps/v1", "Deployment")]


@pytest.mark.parametrize(("version", "kind"), SERVED)
def test_an_owner_of_a_served_kind_that_nobody_confirms_is_unknown_and_never_refused(version: str, kind: str) -> None:
    root = _owned(pod(container()), version, kind)
    rules = {"queue": {"required": True, "onUnknown": "Refuse"}}
    decision = _as(_ALICE, root, rules)
    assert not decision.refused
    assert reasons(decision) == [("queue", "QueueMissing", "unknown")]
    assert "controllerIdentities" in decision.findings[0].finding.remedy
    assert not decision.patch


def test_an_owner_of_a_served_kind_adds_no_finding_where_the_object_has_none_without_it() -> None:
    rules = {"queue": {"required": False}}
    assert not _as(_ALICE, _owned(pod(container()), "ray.io/v1", "RayCluster"), rules).findings


def test_an_owner_whose_workload_the_watch_shows_is_believed() -> None:
    shown = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "w",
            "namespace": "team-a",
            "ownerReferences": [{"kind": "RayCluster", "uid": "7", "controller": True}],
        },
    }
    cluster = snapshot_from_objects([shown], _KNOWN, served=_SERVED)
    assert not _as(_RAY, _owned(pod(container()), "ray.io/v1", "RayCluster", "7"), snapshot=cluster).findings
    assert _as(_RAY, _owned(pod(container()), "ray.io/v1", "RayCluster", "8"), snapshot=cluster).findings
    assert _as(_RAY, _owned(pod(container()), "v1", "ConfigMap", "7"), snapshot=cluster).refused


def test_without_discovery_or_a_caller_owners_are_believed() -> None:
    root = _owned(pod(container()), "v1", "ConfigMap")
    assert not _as(_ALICE, root, snapshot=snapshot_from_objects([], _KNOWN)).findings
    assert not _as(None, root).findings


def test_both_webhooks_believe_the_same() -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q", "namespace": "team-a"}}
    cluster = snapshot_from_objects([queue], _KNOWN, served=_SERVED)
    for version, kind, labels in (("v1", "ConfigMap", {"kueue.x-k8s.io/queue-name": "q"}), ("ray.io/v1", "RayCluster", {})):
        root = _owned(pod(container()), version, kind)
        decided(root, bind(_REQUIRED), snapshot=cluster, user=_ALICE, phase=Phase.MUTATE)
        assert root["metadata"].get("labels", {}) == labels
        assert not decided(root, bind(_REQUIRED), snapshot=cluster, user=_ALICE, phase=Phase.CHECK).refused


def test_a_job_that_names_an_owner_which_is_none_is_judged_as_a_whole() -> None:
    root = _owned(templated("Job", container()), "v1", "ConfigMap")
    assert _as(_ALICE, root).refused
    assert not _as("system:serviceaccount:kube-system:cronjob-controller", _owned(root, "batch/v1", "CronJob")).findings


def test_an_update_of_an_object_whose_owner_stays_is_not_questioned() -> None:
    root = _owned(pod(container()), "ray.io/v1", "RayCluster")
    changed = clone(root) | {"metadata": root["metadata"] | {"labels": {"a": "b"}}}
    assert not _as(_ALICE, changed, old=root).findings


def test_an_owner_that_is_added_later_hides_nothing() -> None:
    queued = pod(container())
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    cluster = snapshot_from_objects([], {**_KNOWN, "localqueues": SyncState.ABSENT}, served=_SERVED)
    changed = _owned(pod(container()), "v1", "ConfigMap")
    assert _as(_ALICE, changed, old=queued, snapshot=cluster).refused


def test_a_replica_set_whose_owner_is_none_is_judged_and_a_deployments_is_not() -> None:
    root = templated("ReplicaSet", container())
    assert _as(_ALICE, _owned(root, "v1", "ConfigMap")).refused
    assert not _as(_DEPLOYMENTS, _owned(root, "apps/v1", "Deployment")).findings


def test_the_replica_set_of_an_unconfirmed_owner_is_reported_and_neither_edited_nor_refused() -> None:
    root = _owned(templated("ReplicaSet", container(memory=None)), "example.com/v1", "Robot")
    decision = _as(_ALICE, root, mode="Enforce")
    assert reasons(decision) == [("queue", "QueueMissing", "unknown")]
    assert not decision.patch


def test_a_forged_daemon_set_takes_no_devices() -> None:
    exporter = container(
        gpus=None, image="nvcr.io/nvidia/k8s/dcgm-exporter:4", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    )
    root, rules = _owned(pod(exporter), "apps/v1", "DaemonSet"), {"visible-devices": {}}
    assert _as(_ALICE, root, rules).refused
    assert not _as("system:serviceaccount:kube-system:daemon-set-controller", root, rules).refused


def test_a_job_of_a_forged_job_set_keeps_its_refusals() -> None:
    rules = {"accelerator-names": {}}
    job = templated("Job", {"name": "main", "resources": {"limits": {"nvidia.com/gpus": 1}}})
    assert reasons(_as(_ALICE, job, rules))[0][2] == "deny"
    assert reasons(_as(_ALICE, _owned(job, "jobset.x-k8s.io/v1alpha2", "JobSet"), rules))[0][2] == "deny"
    served = snapshot_from_objects([], _KNOWN, served=ServedKinds({"jobset.x-k8s.io": frozenset({"JobSet"})}))
    assert reasons(_as(_ALICE, _owned(job, "jobset.x-k8s.io/v1alpha2", "JobSet"), rules, snapshot=served))[0][2] != "deny"
