"""Fixtures for tests against a real control plane."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.e2e.controlplane import ControlPlane, crds, wait_until
from tests.e2e.gate import Gate
from tests.e2e.workloads import container, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

# The CRDs of every custom kind that gpugate reads; each makes the start a little longer.
JOB_KINDS = tuple(crds.JOB_KINDS)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One cluster with Kueue for the whole test run (under pytest-xdist, one for each worker)."""
    if sys.platform != "linux":
        pytest.skip("the control plane's programs are started the Linux way")
    run_dir = tmp_path_factory.mktemp("control-plane")
    with ControlPlane.start(run_dir, kueue=True, job_kinds=JOB_KINDS) as cluster:
        yield cluster


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A fresh namespace; it goes away after the test, in its own time."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def gate(control_plane: ControlPlane) -> Iterator[Gate]:
    """gpugate at the cluster's door, enforcing, with two machines of 8 GPUs behind it, for one module of tests."""
    door = Gate(control_plane)
    machines = [f"door-h100-{number}" for number in (1, 2)]
    try:
        door.install()
        for machine in machines:
            control_plane.add_gpu_node(machine)
        control_plane.add_node("door-cpu")
        door.start()
        door.register()
        door.set_policy({"mode": "Enforce"})
        wait_until(lambda: _is_in_force(control_plane), 30, "the apiserver to call gpugate")
        yield door
    finally:
        door.unregister()
        door.stop()
        for machine in (*machines, "door-cpu"):
            control_plane.remove_node(machine)


def _is_in_force(control_plane: ControlPlane) -> bool:
    """Whether both doors answer: a GPU pod is rewritten, and one that must be refused is."""
    good = control_plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod("probe", "default"))
    bad = pod("probe", "default", container({"limits": {"nvidia.com/mig-1g5gb": "1"}}))
    refused = control_plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", bad)
    return "tolerations" in good.body.get("spec", {}) and good.status == 201 and refused.status == 403
