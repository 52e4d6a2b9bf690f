"""Which objects Kueue manages: by the kinds and the namespaces of its Configuration."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.queueing.managed import is_managed, why_unmanaged
from gpugate.policies.workloads.kinds import KINDS
from gpugate.policies.workloads.open import open_workload

Json = dict[str, Any]
NAMESPACES = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": {"kueue": "yes"}}},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}},
]


def managed(kind: str, namespace: str = "team-a", **configuration: Any) -> bool | None:
    (entry,) = [entry for entry in KINDS if entry.kind == kind and entry.group != "batch.volcano.sh"]
    facts = list(NAMESPACES)
    if configuration:
        facts.append({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **configuration})
    snapshot = snapshot_from_objects(facts)
    return is_managed(open_workload(entry, {"metadata": {"name": "w"}}, snapshot, namespace=namespace), snapshot)


@pytest.mark.parametrize(
    ("kind", "frameworks", "wanted"),
    [
        ("Job", ["batch/job"], True),
        ("CronJob", ["batch/job"], True),
        ("JobSet", ["batch/job"], False),
        ("Job", [], True),
        ("JobSet", [], False),
        ("Pod", ["batch/job"], False),
        ("Pod", ["pod"], True),
        ("ReplicaSet", ["deployment"], True),
        ("Pod", ["statefulset"], True),
        ("Pod", ["leaderworkerset.x-k8s.io/leaderworkerset"], True),
        ("Deployment", ["pod"], False),
        ("DaemonSet", ["pod"], False),
    ],
)
def test_a_kind_is_managed_if_its_integration_is_on(kind: str, frameworks: list[str], wanted: bool) -> None:
    assert managed(kind, integrations={"frameworks": frameworks}) is wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("JobSet.v1alpha2.jobset.x-k8s.io", True),
        ("JobSet.v1alpha2.example.com", False),
        ("TrainJob.v1alpha1.jobset.x-k8s.io", False),
        ("JobSet", False),
        ("", False),
    ],
)
def test_so_is_a_kind_that_another_controller_manages_for_kueue(name: str, wanted: bool) -> None:
    assert managed("JobSet", integrations={"frameworks": ["batch/job"], "externalFrameworks": [name]}) is wanted


@pytest.mark.parametrize(("namespace", "wanted"), [("team-a", True), ("team-b", False), ("unknown", None), ("kube-system", None)])
def test_only_in_the_namespaces_that_the_configuration_selects(namespace: str, wanted: bool | None) -> None:
    selector = {"matchExpressions": [{"key": "kueue", "operator": "Exists"}]}
    assert managed("Job", namespace, managedJobsNamespaceSelector=selector) is wanted


@pytest.mark.parametrize(("namespace", "wanted"), [("team-b", True), ("unknown", True), ("kube-system", False)])
def test_without_a_selector_in_all_but_those_of_the_control_plane(namespace: str, wanted: bool) -> None:
    assert managed("Job", namespace, integrations={"frameworks": ["batch/job"]}) is wanted


@pytest.mark.parametrize(("kind", "wanted"), [("Job", True), ("JobSet", None), ("Deployment", None), ("DaemonSet", False)])
def test_without_the_configuration_jobs_alone_are_certain(kind: str, wanted: bool | None) -> None:
    assert managed(kind) is wanted


def test_a_pod_that_kueue_leaves_out_runs_and_a_job_is_suspended() -> None:
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": ["pod"]},
    }
    jobs = {"integrations": {"frameworks": ["batch/job", "pod"]}, "managedJobsNamespaceSelector": {"matchLabels": {"kueue": "yes"}}}
    snapshot = snapshot_from_objects([*NAMESPACES, {**configuration, **jobs}])
    suspended = {}
    for kind in ("Pod", "Job"):
        (entry,) = [entry for entry in KINDS if entry.kind == kind and entry.group != "batch.volcano.sh"]
        found = why_unmanaged(open_workload(entry, {"metadata": {"name": "w"}}, snapshot, namespace="team-b"), snapshot)
        assert found is not None
        suspended[kind] = found.suspends
    assert suspended == {"Pod": False, "Job": True}
