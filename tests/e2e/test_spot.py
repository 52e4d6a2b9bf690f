"""Spot capacity at the real scheduler: only what asks for it and keeps its work goes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import T4, wait_until
from tests.e2e.controlplane.nodes import GPU_TAINT
from tests.e2e.workloads import container, gpus, job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]

LABEL = "kubernetes.azure.com/scalesetpriority"
MARK = "kubernetes.azure.com/agentpool"
NODES = {"spot-t4": {LABEL: "spot", MARK: "cheap"}, "demand-t4": {MARK: "demand"}}
Object = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def pools(control_plane: ControlPlane, gate: Gate) -> Iterator[None]:
    """A spot node as AKS makes them and one on demand, and a policy that names the rule."""
    spot = {"key": LABEL, "value": "spot", "effect": "NoSchedule"}
    for name, labels in NODES.items():
        taints = [GPU_TAINT, spot] if LABEL in labels else [GPU_TAINT]
        control_plane.add_gpu_node(name, product=T4.product, labels=labels, taints=taints)
    gate.set_policy({"mode": "Enforce", "rules": {"spot": {}}})
    yield
    for name in NODES:
        control_plane.remove_node(name)


def a_run(name: str, namespace: str, spot: str, **said: str) -> Object:
    """A Job of one pod on a T4 that says this of spot capacity."""
    annotations = {"gpugate.io/gpu": "t4", "gpugate.io/spot": spot} | {f"gpugate.io/{key}": text for key, text in said.items()}
    return job(name, namespace, container(gpus(1, "8Gi", "2")), annotations=annotations)


def create(cluster: ControlPlane, obj: Object) -> tuple[int, Any]:
    """The apiserver's status and answer to a POST of a Job."""
    answer = cluster.request("POST", f"/apis/batch/v1/namespaces/{obj['metadata']['namespace']}/jobs", obj)
    return answer.status, answer.body


def node_of(cluster: ControlPlane, name: str, namespace: str) -> str:
    """The node on which the Job's pod was bound."""

    def bound() -> str:
        found = cluster.kubectl_json("get", "pods", "-n", namespace, "-l", f"batch.kubernetes.io/job-name={name}")["items"]
        return found[0]["spec"].get("nodeName", "") if found else ""

    return wait_until(bound, 60, f"the pod of {name} to be bound")


def test_a_run_with_a_checkpoint_goes_to_the_spot_node_and_tolerates_its_taint(control_plane: ControlPlane, namespace: str) -> None:
    status, stored = create(control_plane, a_run("cheap", namespace, "required", checkpoint="s3://runs/cheap"))
    assert status == 201, stored
    spec = stored["spec"]["template"]["spec"]
    assert {"key": LABEL, "operator": "Equal", "value": "spot", "effect": "NoSchedule"} in spec["tolerations"]
    assert node_of(control_plane, "cheap", namespace) == "spot-t4"


def test_a_run_that_must_not_be_interrupted_stays_off_it(control_plane: ControlPlane, namespace: str) -> None:
    status, stored = create(control_plane, a_run("dear", namespace, "never"))
    assert status == 201, stored
    assert node_of(control_plane, "dear", namespace) == "demand-t4"


def test_a_run_without_a_checkpoint_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    status, answer = create(control_plane, a_run("lost", namespace, "required"))
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert "spot" in answer["message"]
    assert "Write gpugate.io/checkpoint" in answer["message"]


def test_a_gang_on_both_capacities_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    gang = a_run("mixed", namespace, "preferred", checkpoint="s3://runs/mixed")
    gang["spec"] |= {"parallelism": 2, "completions": 2, "backoffLimit": 9}
    status, answer = create(control_plane, gang)
    assert status == 403
    assert "the gang of 2 pods may run on spot and on-demand nodes at once" in answer["message"]
