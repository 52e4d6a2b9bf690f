"""gpugate in a cluster without Kueue and without its own CRD, and when the apiserver goes away."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controlplane import ControlPlane, wait_until
from tests.e2e.gate import NAMESPACE, Gate
from tests.e2e.workloads import container, gpus, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, Gate]]:
    """A cluster with nothing but Kubernetes, and gpugate started before anything of its own is installed."""
    with ControlPlane.start(tmp_path_factory.mktemp("bare")) as cluster:
        door = Gate(cluster)
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        cluster.kubectl(
            "create", "clusterrolebinding", "reader", "--clusterrole=cluster-admin", f"--serviceaccount={NAMESPACE}:gpugate"
        )
        door.start()
        try:
            yield cluster, door
        finally:
            door.stop()


def dry_run(cluster: ControlPlane, obj: dict[str, Any], path: str = "/api/v1/namespaces/default/pods") -> Any:
    """The apiserver's answer to a dry run of creating ``obj``."""
    return cluster.request("POST", f"{path}?dryRun=All", obj)


def test_gpugate_serves_without_its_crd_and_without_kueue_in_dry_run(bare: tuple[ControlPlane, Gate]) -> None:
    cluster, door = bare
    ready = door.get("/readyz?verbose")
    assert "localqueues: absent" in ready
    assert "gpupolicies: absent" in ready or "policy default" in ready
    assert re.search(r"^nodes: synced, objects \d+, age \d+\.\d s$", ready, re.MULTILINE), ready
    assert 'gpugate_facts_synced{resource="localqueues"} 1.0' in door.get("/metrics")
    door.register()
    bad = pod("x", "default", container(gpus(1, "64Gi", request="8Gi")))
    wait_until(lambda: dry_run(cluster, bad).status == 201 and door.reviews(endpoint="mutate") > 0, 20, "the first review")
    assert "volumes" not in dry_run(cluster, bad).body["spec"]


def test_policies_take_effect_when_their_crd_comes_later(bare: tuple[ControlPlane, Gate]) -> None:
    cluster, door = bare
    door.install()
    # An absent kind is looked for every few seconds.
    cluster.apply(
        {
            "apiVersion": "gpugate.io/v1alpha1",
            "kind": "GPUPolicy",
            "metadata": {"name": "all"},
            "spec": {"profile": "recommended", "mode": "Enforce"},
        }
    )
    wait_until(lambda: "policy all: generation 1" in door.get("/readyz?verbose"), 60, "the policy to be found")
    refused = dry_run(cluster, pod("x", "default", container(gpus(1, "64Gi", request="8Gi"))))
    assert refused.status == 403
    gang = dry_run(cluster, job("x", "default", container(gpus(8)), size=2), "/apis/batch/v1/namespaces/default/jobs")
    assert "kueue.x-k8s.io/queue-name" not in orjson.dumps(gang.body["metadata"].get("labels", {})).decode()


def test_nodes_that_come_and_go_are_known_within_seconds(bare: tuple[ControlPlane, Gate]) -> None:
    cluster, _ = bare
    large = pod("x", "default", container(gpus(8, "1500Gi")))
    cluster.add_gpu_node("small", "NVIDIA-A100-SXM4-40GB")
    wait_until(lambda: dry_run(cluster, large).status == 403, 20, "the machine that is too small to be known")
    assert "memory 1500Gi (train) > 1152Gi allocatable" in dry_run(cluster, large).body["message"]
    cluster.add_gpu_node("large")
    wait_until(lambda: dry_run(cluster, large).status == 201, 20, "the machine that is large enough to be known")
    cluster.remove_node("large")
    wait_until(lambda: dry_run(cluster, large).status == 403, 20, "the large machine to be forgotten")


def test_gpugate_goes_on_when_the_apiserver_was_away(bare: tuple[ControlPlane, Gate], tmp_path: Path) -> None:
    cluster, door = bare
    apiserver = cluster.processes["kube-apiserver"]
    apiserver.send_signal(19)
    try:
        assert door.get("/readyz") == "ok\n"
        assert "gpugate_reviews_total" in door.get("/metrics")
    finally:
        apiserver.send_signal(18)
    cluster.add_gpu_node("again")
    large = pod("x", "default", container(gpus(8, "1500Gi")))
    wait_until(lambda: dry_run(cluster, large).status == 201, 60, "the new machine to be known")
    assert not list(tmp_path.iterdir())
