"""What `node-terms` refuses is what the apiserver takes in no pod, or what the scheduler never places."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.controlplane.nodes import GPU_TAINT
from tests.e2e.workloads import container, deployment, gpus, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]

Object = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_COUNT = "nvidia.com/gpu.count"
_HOST = "kubernetes.io/hostname"


def _nodes(*expressions: Object, field: str = "matchExpressions") -> Object:
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [{field: list(expressions)}]}}}}


def _preferred(expression: Object) -> Object:
    return {"affinity": {"nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [expression]}}]}}}


def _beside(**selector: Any) -> Object:
    return {"affinity": {"podAffinity": {_REQUIRED: [{"topologyKey": _HOST, **selector}]}}}


def _spread(**selector: Any) -> Object:
    constraint = {"maxSkew": 1, "topologyKey": _HOST, "whenUnsatisfiable": "ScheduleAnyway", **selector}
    return {"topologySpreadConstraints": [constraint]}


def _tolerates(**toleration: Any) -> Object:
    return {"tolerations": [toleration]}


_OF_WRONG_TYPE = "values without quotes"
#: What no pod may say, by what gpugate calls it.
_REFUSED: Mapping[str, Object] = {
    "Gte": _nodes({"key": _COUNT, "operator": "Gte", "values": ["4"]}),
    "no operator": _nodes({"key": _COUNT, "operator": "", "values": ["4"]}),
    "Gt of two": _nodes({"key": _COUNT, "operator": "Gt", "values": ["4", "5"]}),
    "In without values": _nodes({"key": _COUNT, "operator": "In"}),
    "Exists with values": _nodes({"key": _COUNT, "operator": "Exists", "values": ["4"]}),
    _OF_WRONG_TYPE: _nodes({"key": _COUNT, "operator": "In", "values": [4]}),
    "a field that exists": _nodes({"key": "metadata.name", "operator": "Exists"}, field="matchFields"),
    "two names of a node": _nodes({"key": "metadata.name", "operator": "In", "values": ["a", "b"]}, field="matchFields"),
    "a preferred Gte": _preferred({"key": _COUNT, "operator": "Gte", "values": ["4"]}),
    "Gt of pods": _beside(labelSelector={"matchExpressions": [{"key": "rank", "operator": "Gt", "values": ["1"]}]}),
    "In of pods without values": _beside(labelSelector={"matchExpressions": [{"key": "rank", "operator": "In"}]}),
    "namespaces that Is": _beside(labelSelector={}, namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Is"}]}),
    "Equals in a spread": _spread(labelSelector={"matchExpressions": [{"key": "a", "operator": "Equals", "values": ["b"]}]}),
    "In of a taint": _tolerates(key="sku", operator="In", value="gpu"),
    "Exists of a taint with a value": _tolerates(key="sku", operator="Exists", value="gpu"),
    "Equal without a key": _tolerates(operator="Equal", value="gpu"),
    "an effect that is none": _tolerates(key="sku", operator="Exists", effect="Evict"),
    "seconds without NoExecute": _tolerates(key="sku", operator="Exists", effect="NoSchedule", tolerationSeconds=60),
}
#: What pods may say, and no node is ever found for.
_NEVER_PLACED: Mapping[str, Object] = {
    "memory with a unit": _nodes({"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["40Gi"]}),
    "a version": _nodes({"key": "nvidia.com/gpu.compute.major", "operator": "Lt", "values": ["9.5"]}),
    "pods of no label": _beside(),
}


@pytest.fixture(autouse=True)
def enforced_again(gate: Gate) -> Iterator[None]:
    yield
    gate.set_policy({"mode": "Enforce"})


def _create(cluster: ControlPlane, obj: Object, *, dry_run: bool = True) -> Any:
    namespace, plural = obj["metadata"]["namespace"], f"{obj['kind'].lower()}s"
    base = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
    return cluster.request("POST", f"{base}/namespaces/{namespace}/{plural}{'?dryRun=All' if dry_run else ''}", obj)


def _pytorchjob(namespace: str, spec: Object) -> Object:
    worker = {"replicas": 1, "template": {"spec": {"containers": [container(gpus(1), name="pytorch")], **spec}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "llm", "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }


def _only_disabled(gate: Gate, cluster: ControlPlane, namespace: str) -> None:
    gate.set_policy({"mode": "Enforce", "rules": {"node-terms": {"mode": "Disabled"}}})
    probe = _pytorchjob(namespace, _REFUSED["Gte"])
    wait_until(lambda: _create(cluster, probe).status == http.HTTPStatus.CREATED, 30, "the policy to be in force")


@pytest.mark.parametrize("name", list(_REFUSED))
def test_what_is_refused_in_a_custom_kind_is_taken_in_no_pod_and_no_template_of_the_apiservers_own(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    spec = _REFUSED[name]
    built_in = [pod("p", namespace, **spec), job("j", namespace, **spec), deployment("d", namespace)]
    built_in[2]["spec"]["template"]["spec"] |= spec
    answers = {one["kind"]: _create(control_plane, one) for one in built_in}
    assert all(one.status in {http.HTTPStatus.BAD_REQUEST, http.HTTPStatus.UNPROCESSABLE_ENTITY} for one in answers.values()), (
        answers
    )
    refused = _create(control_plane, _pytorchjob(namespace, spec))
    # What is of the wrong type is no PyTorchJob, either: others say so first.
    assert refused.status == (http.HTTPStatus.BAD_REQUEST if name == _OF_WRONG_TYPE else http.HTTPStatus.FORBIDDEN)
    assert name == _OF_WRONG_TYPE or "node-terms: " in refused.body["message"]


def test_without_the_rule_the_custom_kind_is_taken_and_says_nothing(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    _only_disabled(gate, control_plane, namespace)
    taken = {
        name: _create(control_plane, _pytorchjob(namespace, spec)).status == http.HTTPStatus.CREATED
        for name, spec in _REFUSED.items()
    }
    assert [name for name, is_taken in taken.items() if not is_taken] == [_OF_WRONG_TYPE]


@pytest.mark.parametrize("name", list(_NEVER_PLACED))
def test_what_the_apiserver_takes_and_is_refused_is_never_placed(
    control_plane: ControlPlane, gate: Gate, namespace: str, name: str
) -> None:
    spec = {"tolerations": [dict(GPU_TAINT)], **_NEVER_PLACED[name]}
    refused = _create(control_plane, pod("p", namespace, container(gpus(1)), **spec))
    assert refused.status == http.HTTPStatus.FORBIDDEN
    assert "node-terms: " in refused.body["message"]

    _only_disabled(gate, control_plane, namespace)
    assert (
        _create(control_plane, pod("never", namespace, container(gpus(1)), **spec), dry_run=False).status == http.HTTPStatus.CREATED
    )

    def condition() -> Object:
        found = control_plane.kubectl_json("get", "pod", "never", "-n", namespace)
        return next((one for one in found["status"].get("conditions", ()) if one["type"] == "PodScheduled"), {})

    wait_until(lambda: condition().get("status") == "False", 30, "the scheduler to say that it finds no node")
    # One made later is placed: there is room, and the scheduler has looked.
    good = pod("good", namespace, container(gpus(1)), tolerations=[dict(GPU_TAINT)])
    assert _create(control_plane, good, dry_run=False).status == http.HTTPStatus.CREATED
    wait_until(lambda: _node_of(control_plane, namespace, "good"), 60, "another pod to be placed")
    assert _node_of(control_plane, namespace, "never") == ""


def _node_of(cluster: ControlPlane, namespace: str, name: str) -> str:
    return str(cluster.kubectl_json("get", "pod", name, "-n", namespace)["spec"].get("nodeName", ""))
