"""Values that no field takes, and more of them than anybody writes: rules neither break nor take long."""

from __future__ import annotations

from typing import Any

import pytest

from gpugate.policies.cluster.builder import snapshot_from_objects
from gpugate.policies.kube.fields import MalformedError
from gpugate.policies.rules.lifecycle.environment.variables import replacement_for
from tests.shared.builders import bind, container, decided, every_rule, node, pod, reasons
from tests.shared.caches import results_of
from tests.shared.cases import shared_snapshot

_TOO_LONG = 2**70
_RULES = {"priority": {}, "attribution": {}, "spread": {"fabricKey": "rack"}}


def _affinity(expression: dict[str, Any], **more: Any) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}, **more}


@pytest.mark.parametrize(
    "spec",
    [
        {"restartPolicy": []},
        {"restartPolicy": {}},
        {"nodeSelector": {"zone": _TOO_LONG}},
        {"affinity": _affinity({"key": "zone", "operator": "In", "values": [_TOO_LONG]})},
        {"affinity": _affinity({"key": [], "operator": "In", "values": ["a"]})},
        {"affinity": _affinity({"key": {}, "operator": "Exists"})},
    ],
    ids=str,
)
@pytest.mark.parametrize("snapshot", ["cohorts", "priorities", "spot-nodes"])
def test_a_value_of_another_type_breaks_no_rule(spec: dict[str, Any], snapshot: str) -> None:
    root = pod(container(), **spec)
    root["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "train"}
    try:
        decision = decided(root, bind(_RULES, mode="Enforce"), snapshot=shared_snapshot(snapshot))
    except MalformedError as error:
        assert "must be" in str(error), "the place is named, and what belongs there"
    else:
        assert decision.failures == []


@pytest.mark.parametrize("kind", [{}, [], None, 7], ids=str)
@pytest.mark.parametrize("snapshot", ["priorities", "spot-nodes"])
def test_an_owner_of_no_kind_breaks_no_rule(kind: Any, snapshot: str) -> None:
    root = pod(container())
    root["metadata"]["ownerReferences"] = [{"apiVersion": "a/v1", "kind": kind, "name": "o", "uid": "u", "controller": True}]
    root["metadata"]["annotations"] = {"gpugate.io/model-parameters": "7B"}
    assert decided(root, bind(_RULES, mode="Enforce"), snapshot=shared_snapshot(snapshot)).failures == []


def test_only_so_many_names_of_variables_are_looked_up() -> None:
    results_of(replacement_for).clear()
    env = [{"name": f"NCCL_IB_X{at}Y", "value": "1"} for at in range(1000)]
    env.append({"name": "CUDA_LAUNCH_BLOCKING", "value": "1"})
    decision = decided(pod(container(env=env)), every_rule())
    assert len(results_of(replacement_for)) <= 256
    assert "DebuggingAid" in {one.finding.reason for one in decision.findings}, "what is judged by its value is judged in any case"


def test_every_unknown_toleration_gets_its_finding_and_only_so_many_are_looked_up() -> None:
    nodes = [node("gpu-1", taints=[{"key": "example.com/dedicated-team", "effect": "NoSchedule"}])]
    snapshot = snapshot_from_objects([{**each, "apiVersion": "v1", "kind": "Node"} for each in nodes])
    tolerations = [{"key": "example.com/dedicated-taem", "operator": "Equal", "value": str(at)} for at in range(100)]
    decision = decided(pod(container(), tolerations=tolerations), bind({"node-terms": {}}), snapshot=snapshot)
    remedies = [judged.finding.remedy for judged in decision.findings if judged.finding.reason == "ToleratesNothing"]
    assert len(remedies) == 100
    assert sum(remedy.startswith("Write example.com/dedicated-team instead") for remedy in remedies) == 64


def test_a_variable_that_a_container_states_many_times_is_one_finding() -> None:
    env = [{"name": "CUDA_LAUNCH_BLOCKING", "value": "1"} for _ in range(100)]
    found = reasons(decided(pod(container(env=env)), every_rule()))
    assert [reason for rule, reason, _ in found if rule == "environment"] == ["DebuggingAid"]
