"""GPUPolicies at a real apiserver: what it takes and refuses, what their status says, and when replicas change over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ruamel.yaml import YAML

from tests.e2e.gate import MANIFESTS

if TYPE_CHECKING:
    from tests.e2e.controlplane import ControlPlane

pytestmark = pytest.mark.e2e

_CASES = Path(__file__).parents[1] / "unit" / "policies" / "gpupolicy_cases.yaml"
CASES: dict[str, Any] = YAML(typ="safe").load(_CASES.read_text(encoding="utf-8"))
PATH = "/apis/gpugate.io/v1alpha1/gpupolicies"


def policy(spec: Any, name: str = "probe") -> dict[str, Any]:
    return {"apiVersion": "gpugate.io/v1alpha1", "kind": "GPUPolicy", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def crd(control_plane: ControlPlane) -> ControlPlane:
    """The cluster with the CRD: all expressions in it are within the apiserver's budget of what they may cost."""
    control_plane.kubectl("apply", "--server-side", "-f", str(MANIFESTS / "crd"))
    control_plane.kubectl("wait", "--for=condition=Established", "crd/gpupolicies.gpugate.io", "--timeout=30s")
    return control_plane


def test_the_apiserver_takes_every_good_policy_and_refuses_every_bad_one(crd: ControlPlane) -> None:
    strict = f"{PATH}?dryRun=All&fieldValidation=Strict"
    taken = {name: crd.request("POST", strict, policy(spec)) for name, spec in CASES["good"].items()}
    assert {name: one.body.get("message") for name, one in taken.items() if one.status != 201} == {}
    refused = {name: crd.request("POST", strict, policy(spec)) for name, (spec, _) in CASES["bad"].items()}
    assert {name: one.status for name, one in refused.items() if one.status not in {400, 422}} == {}
