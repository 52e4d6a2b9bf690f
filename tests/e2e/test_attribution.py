"""Owner, project and cost centre at the real apiserver: what the namespace says reaches the pods, and starts no rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.test_door import get, send, wait_running
from tests.e2e.workloads import container, deployment, gpus, job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate", "asked")]


@pytest.fixture
def asked(gate: Gate) -> Iterator[None]:
    """A policy that asks for the owner and the project."""
    keys = [
        {"what": "owner", "name": "gpugate.io/owner", "aliases": ["owner", "team"]},
        {"what": "project", "name": "gpugate.io/project", "namespaceKeys": ["kubernetes.io/metadata.name"]},
    ]
    gate.set_policy({"mode": "Enforce", "rules": {"attribution": {"keys": keys}}})
    yield
    gate.set_policy({"mode": "Enforce"})


def _wait_known(cluster: ControlPlane, namespace: str, *, refused: bool) -> None:
    """Wait until gpugate knows the namespace as it is now."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All"

    def known() -> bool:
        answer = cluster.request("POST", path, job("probe", namespace))
        return answer.status == 403 if refused else "gpugate.io/owner" in answer.body.get("metadata", {}).get("labels", {})

    wait_until(known, 30, f"gpugate to know namespace {namespace}")


def test_a_workload_of_nobody_is_refused_with_the_line_to_add(control_plane: ControlPlane, namespace: str) -> None:
    _wait_known(control_plane, namespace, refused=True)
    answer = send(control_plane, job("train", namespace))
    assert answer.returncode == 1
    assert f"kubectl label namespace {namespace} gpugate.io/owner=<owner>" in answer.stderr
    told = job("train", namespace, annotations={"owner": "data-science-squad"})
    assert send(control_plane, told).returncode == 0
    (running,) = wait_running(control_plane, namespace, 1, "job-name=train")
    assert running["metadata"]["labels"]["gpugate.io/owner"] == "data-science-squad"


def test_what_an_annotation_of_the_namespace_says_reaches_pods_and_no_later_word_rolls_them_out(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("annotate", "namespace", namespace, "team=vision")
    _wait_known(control_plane, namespace, refused=False)
    serving = deployment("serve", namespace, container(gpus(1)))
    written = orjson.dumps(serving).decode()
    control_plane.kubectl("apply", "-f", "-", input=written)
    (running,) = wait_running(control_plane, namespace, 1, "app=serve")
    labels = running["metadata"]["labels"]
    assert (labels["gpugate.io/owner"], labels["gpugate.io/project"]) == ("vision", namespace)
    before = get(control_plane, "deployment", "serve", namespace)

    control_plane.kubectl("annotate", "--overwrite", "namespace", namespace, "team=speech")
    again = control_plane.kubectl("apply", "-f", "-", input=written).stdout
    assert "unchanged" in again
    serving["spec"]["replicas"] = 2
    control_plane.kubectl("apply", "-f", "-", input=orjson.dumps(serving).decode())
    assert len(wait_running(control_plane, namespace, 2, "app=serve,gpugate.io/owner=vision")) == 2
    assert get(control_plane, "deployment", "serve", namespace)["spec"]["template"] == before["spec"]["template"]
