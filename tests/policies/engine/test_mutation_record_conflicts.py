"""A patch leaves in the object what gpugate put in: what the request states is not crossed by it."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from gpugate.policies.kube.fields import clone
from tests.shared.builders import bind, container, decided, every_rule, reasons, templated

_POLICY = bind({"numa": {}, "host-memory": {}, "shared-memory": {}}, mode="Enforce")


def _live() -> dict[str, Any]:
    """A Deployment that Git states with one GPU alone."""
    live = templated("Deployment", container(memory=None))
    decided(live, _POLICY)
    assert _resources(live) == {"limits": {"nvidia.com/gpu": 1, "memory": "32Gi", "cpu": "4"}, "requests": {"memory": "32Gi"}}
    return live


def _spec(root: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = root["spec"]["template"]["spec"]
    return found


def _resources(root: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _spec(root)["containers"][-1]["resources"]
    return found


def _patched(kind: str, name: str, amount: object, bound: Any = _POLICY) -> tuple[dict[str, Any], Any]:
    """What comes of a patch by which Git states an amount, and the decision."""
    live = _live()
    sent = clone(live)
    _resources(sent)[kind][name] = amount
    return _updated(sent, live, bound)


def _updated(sent: dict[str, Any], live: dict[str, Any], bound: Any = _POLICY) -> tuple[dict[str, Any], Any]:
    root = clone(sent)
    decision = decided(root, bound, old=clone(live))
    assert jsonpatch.apply_patch(sent, decision.patch) == root
    again = clone(root)
    assert decided(again, bound, old=clone(live)).patch == []
    assert again == root
    return root, decision


def test_a_request_above_the_limit_that_was_put_in_gets_another_limit() -> None:
    root, decision = _patched("requests", "memory", "48Gi")
    assert (_resources(root)["requests"]["memory"], _resources(root)["limits"]["memory"]) == ("48Gi", "48Gi")
    assert not decision.refused


def test_a_limit_below_the_request_that_was_put_in_gets_another_request() -> None:
    root, decision = _patched("limits", "memory", "24Gi")
    assert _resources(root)["limits"]["memory"] == "24Gi"
    assert _resources(root)["requests"].get("memory", "24Gi") == "24Gi"
    assert not decision.refused


def test_a_limit_below_the_shared_memory_that_was_put_in_gets_a_smaller_one() -> None:
    root, decision = _patched("limits", "memory", "8Gi")
    assert _resources(root)["limits"]["memory"] == "8Gi"
    assert _resources(root)["requests"].get("memory", "8Gi") == "8Gi"
    assert _spec(root)["volumes"] == [{"name": "gpugate-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}}]
    assert _spec(root)["containers"][0]["volumeMounts"] == [{"name": "gpugate-shm", "mountPath": "/dev/shm"}]
    assert [one for one in reasons(decision) if one[2] == "deny"] == []


def test_a_container_is_known_by_its_name_where_another_stands_before_it_now() -> None:
    live = _live()
    sent = clone(live)
    _resources(sent)["requests"]["memory"] = "48Gi"
    _spec(sent)["containers"].insert(0, container("first", gpus=None, memory="1Gi"))
    root, _ = _updated(sent, live)
    assert _resources(root)["limits"]["memory"] == "48Gi"
    assert _spec(root)["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}


@pytest.mark.parametrize("bound", [(), every_rule("DryRun")], ids=["no policy", "a rehearsal"])
def test_what_crosses_is_taken_out_though_no_rule_writes_it_anew(bound: Any) -> None:
    root, _ = _patched("requests", "memory", "48Gi", bound)
    assert "memory" not in _resources(root)["limits"]
    assert _resources(root)["requests"]["memory"] == "48Gi"


def test_what_git_states_itself_stays_whatever_it_crosses() -> None:
    live = templated("Deployment", container(memory="32Gi", cpu="4"))
    decided(live, _POLICY)
    sent = clone(live)
    limits = _resources(sent)["limits"]
    _resources(sent)["requests"] = {**limits, "memory": "48Gi"}
    root, _ = _updated(sent, live, ())
    assert _resources(root) == _resources(sent)
