"""Fixtures for tests against a real control plane."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.e2e.controlplane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

# Custom kinds whose CRDs the tests need; others are in controlplane/crds.py. Each makes the start a little longer.
JOB_KINDS = ("jobset", "leaderworkerset", "pytorchjob")


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
