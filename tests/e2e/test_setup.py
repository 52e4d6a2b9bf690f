"""What review says of quotas, queues and API versions is what the real apiserver and Kueue do with them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from gpugate.policies.lint import registry
from gpugate.policies.lint.api_versions import BUILT_IN, RETIRED
from gpugate.policies.lint.context import LintContext
from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import container, gpus, job, pod, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane

pytestmark = pytest.mark.e2e

_GROUPS_OF_THE_CLUSTER = ("kueue.x-k8s.io", "kubeflow.org", "jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "ray.io")


def _kinds(cluster: ControlPlane, api_version: str) -> set[str]:
    """The kinds that the apiserver serves in a version; none where it does not serve the version."""
    root = "/apis" if "/" in api_version else "/api"
    answer = cluster.request("GET", f"{root}/{api_version}")
    return {one["kind"] for one in answer.body["resources"]} if answer.status == 200 else set()


def _reasons(obj: dict[str, Any], *beside: dict[str, Any]) -> set[str]:
    return {one.finding.reason for one in registry.findings_of(obj, LintContext([obj, *beside]))}


def test_no_version_that_review_calls_gone_is_served_and_every_right_one_is(control_plane: ControlPlane) -> None:
    lines = [(*key, one) for key, one in BUILT_IN.items()]
    lines += [(*key, one) for key, one in RETIRED.items() if key[0].partition("/")[0] in _GROUPS_OF_THE_CLUSTER]
    assert len(lines) > 60
    served = {
        version: _kinds(control_plane, version) for api_version, _, one in lines for version in (api_version, one.right) if version
    }
    wrong = [(version, kind) for version, kind, one in lines if (kind in served[version]) != one.is_served]
    # MXJob and, in Kueue 0.15, nothing else of the table has no successor there.
    missing = [(one.right, kind) for _, kind, one in lines if one.right and kind not in served[one.right] and kind != "MXJob"]
    assert (wrong, missing) == ([], [])


def _quota(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"hard": {name: "1"}},
    }


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "limits.nvidia.com/gpu", "requests.nvidia.com/gpu"])
def test_only_a_quota_by_requests_is_counted(control_plane: ControlPlane, namespace: str, name: str) -> None:
    quota = _quota(namespace, name)
    control_plane.apply(quota)
    path = f"/api/v1/namespaces/{namespace}"

    def status() -> dict[str, Any]:
        found: dict[str, Any] = control_plane.request("GET", f"{path}/resourcequotas/gpus").body.get("status", {})
        return found

    wait_until(lambda: status().get("hard") == {name: "1"}, 30, "the quota controller to take the quota")
    answer = control_plane.request("POST", f"{path}/pods", pod("greedy", namespace, container(gpus(4))))
    counted = name.startswith("requests.")
    assert (answer.status == 403) == counted, answer.body
    assert ("exceeded quota" in answer.body.get("message", "")) == counted
    assert (_reasons(quota) == set()) == counted
    if not counted:
        assert status().get("used", {}).get(name, "0") == "0"


def _why_pending(cluster: ControlPlane, namespace: str) -> str:
    found = cluster.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", namespace)["items"]
    conditions = itertools.chain.from_iterable(one.get("status", {}).get("conditions", ()) for one in found)
    return " ".join(one["message"] for one in conditions if one["type"] == "QuotaReserved" and one["status"] == "False")


@pytest.fixture
def queued(control_plane: ControlPlane, namespace: str) -> Iterator[list[dict[str, Any]]]:
    """A queue of the namespace that admits 8 GPUs, not applied yet; all of it goes after the test."""
    objects = queue(namespace, "train", 8)
    yield objects
    for one in objects:
        if "namespace" not in one["metadata"]:
            control_plane.kubectl("delete", one["kind"].lower(), one["metadata"]["name"], "--ignore-not-found", "--wait=false")


def _submit(cluster: ControlPlane, namespace: str) -> None:
    cluster.apply(job("train", namespace, container(gpus(1)), labels={"kueue.x-k8s.io/queue-name": "train"}))


def _of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def test_a_queue_without_a_namespace_selector_admits_nothing(
    control_plane: ControlPlane, namespace: str, queued: list[dict[str, Any]]
) -> None:
    cluster_queue = _of_kind(queued, "ClusterQueue")
    assert "NoNamespaces" not in _reasons(cluster_queue, *queued)
    del cluster_queue["spec"]["namespaceSelector"]
    assert "NoNamespaces" in _reasons(cluster_queue, *queued)
    control_plane.apply(*queued)
    _submit(control_plane, namespace)
    wait_until(lambda: "namespace doesn't match" in _why_pending(control_plane, namespace), 30, "Kueue to leave the Job out")


def test_a_queue_for_gpus_alone_admits_no_workload_that_requests_memory(
    control_plane: ControlPlane, namespace: str, queued: list[dict[str, Any]]
) -> None:
    cluster_queue = _of_kind(queued, "ClusterQueue")
    assert "RequestsNotCovered" not in _reasons(cluster_queue, *queued)
    (group,) = cluster_queue["spec"]["resourceGroups"]
    group["coveredResources"] = ["nvidia.com/gpu"]
    for flavor in group["flavors"]:
        flavor["resources"] = [one for one in flavor["resources"] if one["name"] == "nvidia.com/gpu"]
    assert "RequestsNotCovered" in _reasons(cluster_queue, *queued)
    control_plane.apply(*queued)
    _submit(control_plane, namespace)
    wait_until(lambda: "unavailable in ClusterQueue" in _why_pending(control_plane, namespace), 30, "Kueue to leave the Job out")


def test_a_queue_whose_flavor_is_missing_is_inactive(control_plane: ControlPlane, queued: list[dict[str, Any]]) -> None:
    cluster_queue = _of_kind(queued, "ClusterQueue")
    others = [one for one in queued if one["kind"] != "ResourceFlavor"]
    assert "FlavorMissing" not in _reasons(cluster_queue, *queued)
    cluster_queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "nowhere"
    assert "FlavorMissing" in _reasons(cluster_queue, *others)
    control_plane.apply(*others)
    name = cluster_queue["metadata"]["name"]

    def reason() -> str:
        found = control_plane.kubectl_json("get", "clusterqueues.kueue.x-k8s.io", name)
        active = [
            one for one in found.get("status", {}).get("conditions", ()) if one["type"] == "Active" and one["status"] == "False"
        ]
        return active[0]["reason"] if active else ""

    wait_until(lambda: reason() == "FlavorNotFound", 30, "Kueue to call the queue inactive")
