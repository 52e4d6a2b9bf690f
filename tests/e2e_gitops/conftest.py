"""One cluster with Argo CD, Flux and gpugate for the whole run."""

from __future__ import annotations

import http
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import H100, ControlPlane
from tests.e2e.controlplane.nodes import is_schedulable, node_manifest
from tests.e2e.gate import Gate
from tests.e2e_gitops.argocd import ArgoCD
from tests.e2e_gitops.flux import Flux
from tests.e2e_gitops.programs import find_tools
from tests.e2e_gitops.remaining import wait_for_none
from tests.e2e_gitops.repository import ArtifactServer, Repository
from tests.e2e_gitops.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane.programs import Programs

# Two for each gang that runs, and one for each pod that the scheduler may put alone on a machine.
_MACHINES = 44


@pytest.fixture(scope="session")
def tools() -> Programs:
    """Argo CD, Flux and what they need."""
    return find_tools()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One cluster with Kueue and GPU machines."""
    if sys.platform != "linux":
        pytest.skip("the control plane's programs are started the Linux way")
    run_dir = tmp_path_factory.mktemp("gitops")
    with ControlPlane.start(run_dir, kueue=True, job_kinds=("jobset", "pytorchjob")) as cluster:
        _add_machines(cluster)
        yield cluster


def _add_machines(cluster: ControlPlane) -> None:
    """Many machines at once: waiting for each in turn takes a minute."""
    for number in range(_MACHINES):
        answer = cluster.request("POST", "/api/v1/nodes", node_manifest(f"h100-{number:02}", H100))
        assert answer.status == http.HTTPStatus.CREATED, answer.body
    cluster.add_node("cpu")

    def left() -> list[str]:
        nodes: list[dict[str, Any]] = cluster.request("GET", "/api/v1/nodes").body["items"]
        return [one["metadata"]["name"] for one in nodes if not is_schedulable(one)]

    wait_for_none(left, 120, "the machines to be ready")


@pytest.fixture(scope="session")
def world(control_plane: ControlPlane, tools: Programs) -> Iterator[World]:
    """Argo CD, Flux and gpugate, all running; gpugate is not at the door yet."""
    repository = Repository(control_plane.run_dir / "repository")
    with ArtifactServer() as artifacts:
        argo, flux, gate = ArgoCD(control_plane, tools, repository), Flux(control_plane, tools, artifacts), Gate(control_plane)
        try:
            argo.start()
            flux.start()
            gate.install()
            gate.start()
            gate.set_policy({"mode": "Enforce"})
            yield World(control_plane, tools, repository, argo, flux, gate)
        finally:
            gate.stop()
            flux.stop()
            argo.stop()


@pytest.fixture(scope="module", autouse=True)
def _tidy(world: World) -> Iterator[None]:
    """Leave the machines free for the next module."""
    yield
    world.forget_all()


@pytest.fixture(scope="module")
def door(world: World) -> Iterator[World]:
    """gpugate at the door."""
    world.gate.register()
    try:
        world.gate.wait_in_force()
        yield world
    finally:
        world.gate.unregister()
