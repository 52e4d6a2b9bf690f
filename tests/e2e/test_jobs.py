"""What the rule `jobs` writes, at a real apiserver: accepted, told from what is stated, and given back on UPDATE."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gpugate.policies.workloads.kinds import kind_of
from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import container, job, pod_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.access import ApiResponse
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e]

_ALL = {
    "ttlAfterFinished": "24h",
    "defaultDeadline": "12h",
    "backoffLimit": 3,
    "releaseAfterEnd": True,
    "gpuFaultExitCodes": [75, 74],
    "ignoreDisruptions": True,
}
_FAILURE_POLICY = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [74, 75]}},
    ]
}


@pytest.fixture(scope="module", autouse=True)
def asking_policy(gate: Gate) -> Iterator[None]:
    """A policy that asks for everything that the rule can write."""
    gate.set_policy({"mode": "Enforce", "rules": {"jobs": _ALL}})
    yield
    gate.set_policy({"mode": "Enforce"})


def _path(obj: dict[str, Any], namespace: str) -> str:
    kind = kind_of(obj["apiVersion"], obj["kind"])
    assert kind is not None
    return f"/apis/{obj['apiVersion']}/namespaces/{namespace}/{kind.resource}"


def _create(cluster: ControlPlane, obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    answer = cluster.request("POST", f"{_path(obj, namespace)}?fieldValidation=Strict", obj)
    assert answer.status == 201, answer.body
    body: dict[str, Any] = answer.body
    return body


def _replace(cluster: ControlPlane, obj: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The object as its manifest states it, put over the live one as a tool that replaces does."""

    def put() -> dict[str, Any]:
        answer = _put(cluster, obj, namespace)
        assert answer.status in {200, 409}, answer.body
        # Between reading and writing a controller may have written its status.
        return dict(answer.body) if answer.status == 200 else {}

    body: dict[str, Any] = wait_until(put, 20, "the object to be replaced")
    assert body["metadata"]["annotations"]["stage"] == "2"
    return body


def _put(cluster: ControlPlane, obj: dict[str, Any], namespace: str) -> ApiResponse:
    name = obj["metadata"]["name"]
    live = cluster.request("GET", f"{_path(obj, namespace)}/{name}").body
    sent = copy.deepcopy(obj)
    sent["metadata"] |= {"resourceVersion": live["metadata"]["resourceVersion"], "annotations": {"stage": "2"}}
    if obj["kind"] == "Job" and obj["apiVersion"] == "batch/v1":
        # What the apiserver generates, and lets nobody take out.
        sent["spec"]["selector"] = live["spec"]["selector"]
        sent["spec"]["template"]["metadata"] = live["spec"]["template"]["metadata"]
    return cluster.request("PUT", f"{_path(obj, namespace)}/{name}", sent)


def _written(spec: dict[str, Any]) -> dict[str, Any]:
    names = ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "podReplacementPolicy", "podFailurePolicy")
    return {name: spec[name] for name in names if name in spec}


def test_a_job_gets_what_it_does_not_state_and_keeps_it_when_its_manifest_is_put_over_it(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    train = job("train", namespace)
    wanted = {
        "ttlSecondsAfterFinished": 86400,
        "activeDeadlineSeconds": 43200,
        "backoffLimit": 3,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": _FAILURE_POLICY,
    }
    assert _written(_create(control_plane, train, namespace)["spec"]) == wanted
    assert _written(_replace(control_plane, train, namespace)["spec"]) == wanted
    gate.set_policy({"mode": "Enforce", "rules": {"jobs": {"backoffLimit": 1, "ttlAfterFinished": "1h"}}})
    try:
        assert _written(_replace(control_plane, train, namespace)["spec"]) == wanted
    finally:
        gate.set_policy({"mode": "Enforce", "rules": {"jobs": _ALL}})


def _apply(cluster: ControlPlane, obj: dict[str, Any], *args: str) -> None:
    cluster.kubectl("apply", "-f", "-", *args, input=orjson.dumps(obj).decode())


@pytest.mark.parametrize("args", [(), ("--server-side",)], ids=["client-side", "server-side"])
@pytest.mark.parametrize("stated", [6, None], ids=["stated", "defaulted"])
def test_a_default_of_the_apiserver_is_told_from_the_same_number_stated(
    control_plane: ControlPlane, namespace: str, args: tuple[str, ...], stated: int | None
) -> None:
    train = job("train", namespace)
    # What the apiserver refuses beside a failure policy stays out of it, and in where it is stated.
    train["spec"] |= {} if stated is None else {"backoffLimit": stated, "podReplacementPolicy": "TerminatingOrFailed"}
    _apply(control_plane, train, *args)
    found = control_plane.kubectl_json("get", "job", "train", "-n", namespace)["spec"]
    assert found["backoffLimit"] == (3 if stated is None else 6)
    assert found["podReplacementPolicy"] == ("Failed" if stated is None else "TerminatingOrFailed")
    assert found.get("podFailurePolicy") == (_FAILURE_POLICY if stated is None else None)
    _apply(control_plane, train, *args)
    assert control_plane.kubectl_json("get", "job", "train", "-n", namespace)["spec"] == found


def test_a_job_whose_containers_restart_gets_no_failure_policy_and_its_maker_reads_why(
    control_plane: ControlPlane, namespace: str
) -> None:
    train = job("train", namespace, restartPolicy="OnFailure")
    answer = control_plane.request("POST", _path(train, namespace), train)
    assert answer.status == 201, answer.body
    assert "podFailurePolicy" not in answer.body["spec"]
    assert any("requires restartPolicy Never" in one for one in answer.warnings)


def _template() -> dict[str, Any]:
    return {"spec": pod_spec(container())}


def _of_other_kinds() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Objects of other kinds, and what becomes of their spec."""
    role = {"replicas": 2, "restartPolicy": "Never", "template": _template()}
    run_policy = {"ttlSecondsAfterFinished": 86400, "activeDeadlineSeconds": 43200}
    in_job = {"activeDeadlineSeconds": 43200, "podFailurePolicy": _FAILURE_POLICY}
    ray = {"rayStartParams": {}, "template": {"spec": {"containers": [container()]}}}
    return {
        "CronJob": (
            {"apiVersion": "batch/v1", "spec": {"schedule": "0 2 * * *", "jobTemplate": {"spec": {"template": _template()}}}},
            {"jobTemplate": {"spec": {**in_job, "backoffLimit": 3}}},
        ),
        "JobSet": (
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": {"template": _template()}}}]},
            },
            {"ttlSecondsAfterFinished": 86400, "replicatedJobs": [{"template": {"spec": in_job}}]},
        ),
        "PyTorchJob": (
            {"apiVersion": "kubeflow.org/v1", "spec": {"pytorchReplicaSpecs": {"Worker": role}}},
            {"runPolicy": run_policy},
        ),
        "MPIJob": (
            {
                "apiVersion": "kubeflow.org/v2beta1",
                "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": _template()}, "Worker": role}},
            },
            {"runPolicy": {**run_policy, "cleanPodPolicy": "Running"}},
        ),
        "RayJob": (
            {"apiVersion": "ray.io/v1", "spec": {"entrypoint": "python x.py", "rayClusterSpec": {"headGroupSpec": ray}}},
            {"activeDeadlineSeconds": 43200, "shutdownAfterJobFinishes": True},
        ),
        "Job": (
            {"apiVersion": "batch.volcano.sh/v1alpha1", "spec": {"tasks": [{"name": "w", "replicas": 2, "template": _template()}]}},
            {"ttlSecondsAfterFinished": 86400},
        ),
    }


def _holds(found: Any, wanted: Any) -> bool:
    """Whether ``found`` has all that ``wanted`` has."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(key in found and _holds(found[key], item) for key, item in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_holds, found, wanted))
    return bool(found == wanted)


@pytest.mark.parametrize("kind", _of_other_kinds())
def test_other_kinds_take_what_is_written_and_keep_it(control_plane: ControlPlane, namespace: str, kind: str) -> None:
    made, wanted = _of_other_kinds()[kind]
    obj = {**made, "kind": kind, "metadata": {"name": "train", "namespace": namespace}}
    created = _create(control_plane, obj, namespace)["spec"]
    assert _holds(created, wanted), created
    replaced = _replace(control_plane, obj, namespace)["spec"]
    assert _holds(replaced, wanted), replaced


@pytest.fixture
def runtime(control_plane: ControlPlane, namespace: str) -> str:
    """A runtime for TrainJobs in the namespace: Kueue's webhook refuses one that is not there."""
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    node = {"name": "node", "template": {"metadata": step, "spec": {"template": {"spec": {"containers": [container()]}}}}}
    control_plane.apply(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainingRuntime",
            "metadata": {"name": "torch", "namespace": namespace},
            "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}},
        }
    )
    return "torch"


def test_a_train_job_has_no_place_for_any_of_it_and_is_given_none(
    control_plane: ControlPlane, namespace: str, runtime: str
) -> None:
    spec = {
        "runtimeRef": {"name": runtime, "kind": "TrainingRuntime"},
        "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}},
    }
    obj: dict[str, Any] = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    created = _create(control_plane, {**obj, "metadata": {"name": "train", "namespace": namespace}, "spec": spec}, namespace)[
        "spec"
    ]
    assert _written(created) == {}
    # A field of later versions, which this one would refuse if gpugate wrote it.
    path = f"{_path(obj, namespace)}?dryRun=All&fieldValidation=Strict"
    later = {**obj, "metadata": {"name": "later", "namespace": namespace}, "spec": {**spec, "activeDeadlineSeconds": 3600}}
    answer = control_plane.request("POST", path, later)
    assert answer.status == 400, answer.body
    assert 'unknown field "spec.activeDeadlineSeconds"' in answer.body["message"]
