"""What the rule isolation writes is taken by a real apiserver, and what that would refuse is never written."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.workloads import container, pod

if TYPE_CHECKING:
    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e]

USER = 10001


@pytest.fixture
def hardened(gate: Gate, namespace: str) -> str:
    """A namespace in which everything is written that the rule can write."""
    rule = {
        "mode": "Enforce",
        "seccomp": "Write",
        "privilegeEscalation": "Write",
        "runAsNonRoot": "Write",
        "users": [{"image": "registry.example.com/train*", "user": USER}],
        "capabilities": ["SYS_ADMIN"],
    }
    match = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    gate.set_policy({"priority": 10, "match": match, "rules": {"isolation": rule}}, name=namespace)
    return namespace


def sent(cluster: ControlPlane, namespace: str, context: dict[str, Any] | None = None, **spec: Any) -> Any:
    fields = {"securityContext": context} if context else {}
    obj = pod("train", namespace, container(**fields), **spec)
    return cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict", obj)


def test_what_nobody_states_is_written_and_taken(control_plane: ControlPlane, hardened: str) -> None:
    answer = sent(control_plane, hardened)
    assert answer.status == http.HTTPStatus.CREATED, answer.body
    spec = answer.body["spec"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (trainer,) = spec["containers"]
    assert trainer["securityContext"] == {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": USER}


@pytest.mark.parametrize("capability", ["SYS_ADMIN", "CAP_SYS_ADMIN"])
def test_what_the_api_refuses_beside_a_capability_is_not_written(
    control_plane: ControlPlane, hardened: str, capability: str
) -> None:
    answer = sent(control_plane, hardened, {"capabilities": {"add": [capability]}})
    assert answer.status == http.HTTPStatus.CREATED, answer.body
    assert "allowPrivilegeEscalation" not in answer.body["spec"]["containers"][0]["securityContext"]


def test_a_privileged_container_is_refused_by_the_rule_and_not_by_the_apis_validation(
    control_plane: ControlPlane, hardened: str
) -> None:
    answer = sent(control_plane, hardened, {"privileged": True})
    assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
    assert "container train is privileged" in answer.body["message"]


def test_without_such_a_policy_it_is_a_warning_and_nothing_is_written(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    assert gate.get("/readyz")
    answer = sent(control_plane, namespace, {"privileged": True}, hostNetwork=True)
    assert answer.status == http.HTTPStatus.CREATED, answer.body
    assert any("container train is privileged" in one for one in answer.warnings)
    assert any("hostNetwork: true gives the containers of a GPU pod the network of the node" in one for one in answer.warnings)
    assert answer.body["spec"]["containers"][0]["securityContext"] == {"privileged": True}
