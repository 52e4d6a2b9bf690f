"""Every kind of the table at a real apiserver with its real definition: sent where it asks, changed, stored as changed."""

from __future__ import annotations

import copy
import http
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gpugate.policies.kube.fields import from_pointer, lookup
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.workloads.kinds import KINDS, kind_of
from gpugate.webhook.files.documents import Document, read_all
from gpugate.webhook.files.inputs import load_facts, load_policies
from gpugate.webhook.review.entry import Outcome
from gpugate.webhook.review.review import review
from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e]

_EXAMPLES = Path(__file__).parents[2] / "examples"
_RECORD = "gpugate.io/mutations"
_GPU = "nvidia.com/gpu"


def _documents() -> list[Document]:
    found = list(read_all([str(_EXAMPLES / "workloads")]))
    assert all(isinstance(one, Document) for one in found)
    return [one for one in found if isinstance(one, Document)]


def _path(obj: dict[str, Any], namespace: str) -> str:
    kind = kind_of(obj["apiVersion"], obj["kind"])
    assert kind is not None
    root = "/apis" if "/" in obj["apiVersion"] else "/api"
    return f"{root}/{obj['apiVersion']}/namespaces/{namespace}/{kind.resource}"


@pytest.fixture(scope="module")
def teams(control_plane: ControlPlane) -> Iterator[None]:
    """The namespaces that the examples are in."""
    names = sorted({one.value["metadata"]["namespace"] for one in _documents()})
    for name in names:
        control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield
    for name in names:
        control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module", autouse=True)
def runtime(control_plane: ControlPlane) -> Iterator[None]:
    """The runtime that the example of a TrainJob names: Kueue's webhook refuses one that is not there."""
    pods = {"template": {"spec": {"containers": [{"name": "node", "image": "registry.example.com/torch:2.7"}]}}}
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    node = {"name": "node", "template": {"metadata": step, "spec": pods}}
    name = "torch-distributed"
    control_plane.apply(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "ClusterTrainingRuntime",
            "metadata": {"name": name},
            "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node]}}},
        }
    )
    yield
    control_plane.request("DELETE", f"/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/{name}")


@pytest.mark.usefixtures("teams")
def test_every_example_as_gpugate_changes_it_is_accepted_with_strict_validation(control_plane: ControlPlane) -> None:
    snapshot = load_facts([_EXAMPLES / "cluster.yaml"])
    policies = PolicySet(load_policies([_EXAMPLES / "policy.yaml"]))
    documents = _documents()
    changed: set[str] = set()
    for entry in review(documents, policies, snapshot):
        if entry.outcome is not Outcome.CHANGED:
            continue
        obj = entry.after
        answer = control_plane.request("POST", f"{_path(obj, obj['metadata']['namespace'])}?dryRun=All&fieldValidation=Strict", obj)
        assert answer.status == http.HTTPStatus.CREATED, (entry.title, answer.body)
        for op in entry.patch:
            if op["op"] == "remove":
                continue
            path = from_pointer(op["path"])
            stored = lookup(answer.body, path[:-1] if path[-1] == "-" else path)
            # What the definition of the kind does not know would be gone.
            assert stored is not None, (entry.title, op)
        changed.add(obj["kind"])
    assert changed >= {kind.kind for kind in KINDS} - {"ReplicaSet", "DaemonSet"}


def _of_kind(name: str, api_group: str) -> dict[str, Any]:
    """The first example of a kind, with a GPU for each pod and free to run anywhere."""
    for document in _documents():
        obj = document.value
        if obj.get("kind") == name and str(obj.get("apiVersion")).rpartition("/")[0] == api_group:
            found: dict[str, Any] = _walked(obj, {_GPU: 1}, drop=("nodeSelector",))
            return found
    raise AssertionError(f"no example of {name}")


def _walked(value: Any, replaced: dict[str, Any], drop: tuple[str, ...] = (), renamed: dict[str, str] | None = None) -> Any:
    """A copy of ``value`` in which some keys have another value, another name, or are gone."""
    names = renamed or {}
    if isinstance(value, dict):
        return {
            names.get(key, key): replaced.get(key, _walked(item, replaced, drop, renamed))
            for key, item in value.items()
            if key not in drop
        }
    return [_walked(item, replaced, drop, renamed) for item in value] if isinstance(value, list) else copy.copy(value)


def _in(namespace: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def _lines(value: Any, place: str = "") -> set[str]:
    """Every value in ``value`` with its place; empty maps left out, which Kueue's webhooks write at times."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return set() if value is None else {f"{place}: {value}"}
    return {line for key, item in items for line in _lines(item, f"{place}.{key}")}


#: The kinds that are custom resources, and one of each version of MPIJob's definition is enough.
CUSTOM = [pytest.param(kind.kind, kind.group, id=f"{kind.kind}.{kind.group}") for kind in KINDS if "." in kind.group]


def _answered(cluster: ControlPlane, namespace: str, obj: dict[str, Any], query: str = "") -> dict[str, Any]:
    answer = cluster.request("POST", _path(obj, namespace) + query, obj)
    assert answer.status == http.HTTPStatus.CREATED, answer.body["message"]
    found: dict[str, Any] = answer.body
    return found


@pytest.mark.parametrize(("kind", "group"), CUSTOM)
def test_a_kind_is_sent_where_it_asks_for_an_accelerator_and_not_else(
    control_plane: ControlPlane, gate: Gate, namespace: str, kind: str, group: str
) -> None:
    obj = _in(namespace, _of_kind(kind, group))
    before = gate.reviews(kind=kind)
    answer = _answered(control_plane, namespace, obj, "?dryRun=All")
    after = gate.reviews(kind=kind)
    assert after >= before + 2, "to both doors, and to the first again where Kueue has changed it"
    assert _RECORD in answer["metadata"]["annotations"]
    plain = _walked(obj, {}, renamed={_GPU: "cpu"})
    _answered(control_plane, namespace, plain, "?dryRun=All")
    assert gate.reviews(kind=kind) == after


@pytest.mark.parametrize(("kind", "group"), CUSTOM)
def test_what_git_states_gives_back_what_is_there_whatever_the_policy_says_by_then(
    control_plane: ControlPlane, gate: Gate, namespace: str, kind: str, group: str
) -> None:
    obj = _in(namespace, _of_kind(kind, group))
    stored = _answered(control_plane, namespace, obj)
    path = f"{_path(obj, namespace)}/{obj['metadata']['name']}"
    try:
        gate.set_policy({"mode": "Enforce", "rules": {"host-memory": {"memoryPerAccelerator": "7Gi"}}})
        again = {**obj, "metadata": {**obj["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}}
        answer = control_plane.request("PUT", path, again)
        assert answer.status == http.HTTPStatus.OK, answer.body
        became, was = (_lines(one["spec"]) - {".runPolicy.suspend: False"} for one in (answer.body, stored))
        assert became - was == set()
        assert was - became == set()
        assert answer.body["metadata"]["annotations"] == stored["metadata"]["annotations"]
    finally:
        gate.set_policy({"mode": "Enforce"})
        control_plane.request("DELETE", path)


@pytest.mark.usefixtures("gate")
@pytest.mark.parametrize(("kind", "group"), CUSTOM)
def test_applying_the_same_again_changes_nothing_that_kueue_compares(
    control_plane: ControlPlane, namespace: str, kind: str, group: str
) -> None:
    # kubectl replaces the lists that Git states, and leaves what Git does not state: a volume stays, its mount goes.
    obj = _in(namespace, _of_kind(kind, group))
    path, text = f"{_path(obj, namespace)}/{obj['metadata']['name']}", orjson.dumps(obj).decode()
    control_plane.kubectl("apply", "-f", "-", input=text)
    stored = control_plane.request("GET", path).body
    control_plane.kubectl("apply", "-f", "-", input=text)
    answer = control_plane.request("GET", path).body
    assert _lines(answer["spec"]) == _lines(stored["spec"])
    assert answer["metadata"]["annotations"] == stored["metadata"]["annotations"]
    control_plane.request("DELETE", path)


#: Kinds that Kueue starts here without their own controllers, and the switch that it turns.
STARTED = [
    pytest.param("PyTorchJob", "kubeflow.org", ("spec", "runPolicy", "suspend"), id="PyTorchJob"),
    pytest.param("MPIJob", "kubeflow.org", ("spec", "runPolicy", "suspend"), id="MPIJob"),
    pytest.param("JobSet", "jobset.x-k8s.io", ("spec", "suspend"), id="JobSet"),
    pytest.param("RayJob", "ray.io", ("spec", "suspend"), id="RayJob"),
    pytest.param("AppWrapper", "workload.codeflare.dev", ("spec", "suspend"), id="AppWrapper"),
]


@pytest.mark.usefixtures("gate")
@pytest.mark.parametrize(("kind", "group", "switch"), STARTED)
def test_kueue_admits_and_starts_what_gpugate_has_changed(
    control_plane: ControlPlane, namespace: str, kind: str, group: str, switch: tuple[str, ...]
) -> None:
    control_plane.apply(*queue(namespace, "train", 8))
    wait_until(lambda: _queue_is_known(control_plane, namespace), 30, "gpugate to know the queue")
    obj = _in(namespace, _of_kind(kind, group))
    stored = _answered(control_plane, namespace, obj)
    assert stored["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "train"
    assert lookup(stored, switch) is True, "Kueue's webhook, which comes after gpugate's, saw the queue"
    path = f"{_path(obj, namespace)}/{obj['metadata']['name']}"
    started: dict[str, Any] = wait_until(lambda: _switched_off(control_plane, path, switch) or {}, 30, f"Kueue to start the {kind}")
    workloads = control_plane.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", namespace)["items"]
    (workload,) = workloads
    counted = {one["name"]: one["resourceUsage"] for one in workload["status"]["admission"]["podSetAssignments"]}
    # What gpugate put in is what Kueue counts: the limit of memory stands in the template.
    asking = [usage for usage in counted.values() if _GPU in usage]
    assert asking
    assert all("memory" in usage for usage in asking)
    assert started["metadata"]["annotations"][_RECORD] == stored["metadata"]["annotations"][_RECORD]


def _queue_is_known(cluster: ControlPlane, namespace: str) -> bool:
    """Whether gpugate names the queue on a Job that names none."""
    container = {"name": "c", "image": "i", "resources": {"limits": {_GPU: 1}}}
    obj = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    answer = cluster.request("POST", f"{_path(obj, namespace)}?dryRun=All", obj)
    return "kueue.x-k8s.io/queue-name" in answer.body["metadata"].get("labels", {})


def _switched_off(cluster: ControlPlane, path: str, switch: tuple[str, ...]) -> dict[str, Any] | None:
    found: dict[str, Any] = cluster.request("GET", path).body
    return None if lookup(found, switch) else found


def test_pods_of_a_kind_that_gpugate_does_not_know_are_changed_and_judged(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "TrainingRun", "name": "run", "uid": "1", "controller": True}
    container = {"name": "c", "image": "registry.example.com/train:1", "resources": {"limits": {_GPU: "1"}}}
    obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "run-0", "namespace": namespace, "ownerReferences": [owner]},
        "spec": {"containers": [container]},
    }
    assert kind_of("example.com/v1", "TrainingRun") is None
    stored = _answered(control_plane, namespace, obj)
    assert "memory" in stored["spec"]["containers"][0]["resources"]["limits"]
    wrong = orjson.loads(orjson.dumps(obj).replace(b"run-0", b"run-1").replace(b'"nvidia.com/gpu"', b'"nvidia.com/mig-1g5gb"'))
    answer = control_plane.request("POST", _path(wrong, namespace), wrong)
    assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
    assert "accelerator-names" in answer.body["message"]
    assert gate.reviews(kind="Pod") > 0
