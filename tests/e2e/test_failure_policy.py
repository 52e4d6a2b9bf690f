"""What happens to GPU workloads while gpugate does not answer: refused where a policy refuses, and nowhere else."""

from __future__ import annotations

import http
import os
import random
import signal
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import orjson
import pytest

from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.failing_closed import FailingClosed
from gpugate.policies.policy.models import API_VERSION, KIND, parse_policy
from gpugate.policies.workloads.kinds import kind_of
from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import container, cpu_container, deployment, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]

#: The timeouts of the mutating and the validating webhook for one object, with room for a busy machine. Seconds.
_LONGEST: Final = 3 + 5 + 4
_NAME: Final = "kubernetes.io/metadata.name"


@contextmanager
def _stalled(gate: Gate) -> Iterator[None]:
    """gpugate takes connections and answers nothing, as a process that hangs."""
    os.kill(gate.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(gate.pid, signal.SIGCONT)


@contextmanager
def _registered(gate: Gate, *policies: Mapping[str, Any]) -> Iterator[None]:
    """The webhooks are those for policies of these specs."""
    gate.register(policies=policies)
    try:
        yield
    finally:
        gate.register()


def _create(cluster: ControlPlane, obj: dict[str, Any], query: str = "") -> tuple[int, str, float]:
    """Create an object; return the status, the message, and how many seconds it took."""
    began = time.monotonic()
    answer = cluster.request("POST", _path(obj) + query, obj)
    return answer.status, str(answer.body.get("message", "")), time.monotonic() - began


def _path(obj: dict[str, Any]) -> str:
    kind = kind_of(obj["apiVersion"], obj["kind"])
    assert kind is not None
    root = "/apis" if "/" in obj["apiVersion"] else "/api"
    return f"{root}/{obj['apiVersion']}/namespaces/{obj['metadata']['namespace']}/{kind.resource}"


def _webhooks(cluster: ControlPlane) -> dict[str, str]:
    """The failurePolicy of each validating webhook."""
    found = cluster.kubectl_json("get", "validatingwebhookconfiguration", "gpugate-validating")["webhooks"]
    return {webhook["name"]: webhook["failurePolicy"] for webhook in found}


def _serve(cluster: ControlPlane, namespace: str, wanted: int) -> tuple[int, str, float]:
    """Create a GPU Deployment once the apiserver knows the webhooks: once a dry run is answered with ``wanted``."""
    served = deployment("serve", namespace)
    wait_until(lambda: _create(cluster, served, "?dryRun=All")[0] == wanted, 60, f"the apiserver to answer {wanted}")
    return _create(cluster, served)


def test_a_gpu_deployment_is_created_and_runs_though_gpugate_hangs_in_a_trial(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    gate.set_policy({"mode": "DryRun"})
    try:
        with _registered(gate):
            assert set(_webhooks(control_plane).values()) == {"Ignore"}
            with _stalled(gate):
                status, message, seconds = _serve(control_plane, namespace, http.HTTPStatus.CREATED)
                assert status == http.HTTPStatus.CREATED, message
                assert seconds < _LONGEST

                def running() -> bool:
                    pods = control_plane.kubectl_json("get", "pods", "-n", namespace, "-l", "app=serve")["items"]
                    return [one["status"].get("phase") for one in pods] == ["Running"]

                wait_until(running, 90, "the pod of the Deployment to run")
    finally:
        gate.set_policy({"mode": "Enforce"})


def test_an_enforced_policy_refuses_gpu_workloads_while_gpugate_hangs_and_no_others(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    assert _webhooks(control_plane)["templates.validate.gpugate.io"] == "Fail"
    with _stalled(gate):
        status, message, seconds = _serve(control_plane, namespace, http.HTTPStatus.INTERNAL_SERVER_ERROR)
        assert status == http.HTTPStatus.INTERNAL_SERVER_ERROR
        assert 'failed calling webhook "templates.validate.gpugate.io"' in message
        assert seconds < _LONGEST
        status, _, seconds = _create(control_plane, deployment("web", namespace, cpu_container()))
        assert status == http.HTTPStatus.CREATED
        # Less than the shortest timeout: nobody waited for gpugate.
        assert seconds < 2
    assert _create(control_plane, deployment("serve", namespace))[0] == http.HTTPStatus.CREATED


def test_an_enforced_policy_that_says_ignore_refuses_nothing_while_gpugate_hangs(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    with _registered(gate, {"mode": "Enforce", "failurePolicy": "Ignore"}), _stalled(gate):
        status, message, _ = _serve(control_plane, namespace, http.HTTPStatus.CREATED)
        assert status == http.HTTPStatus.CREATED, message


#: Labels of namespaces, and policies that select by them.
_LABELS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"team": "a"},
    {"team": "b", "env": "prod"},
    {"team": "a", "env": "prod"},
    {"env": "dev"},
)


def _selector(chooser: random.Random, names: list[str]) -> dict[str, Any]:
    expressions = [
        {"key": "team", "operator": chooser.choice(["In", "NotIn"]), "values": ["a"]},
        {"key": "env", "operator": chooser.choice(["Exists", "DoesNotExist"])},
        {"key": _NAME, "operator": "In", "values": chooser.sample(names, 2)},
    ]
    return {"matchExpressions": chooser.sample(expressions, chooser.randint(0, 2))}


def _policies(chooser: random.Random, names: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "priority": chooser.randint(0, 9),
            "match": {"namespaceSelector": _selector(chooser, names)},
            "failurePolicy": chooser.choice(["Fail", "Fail", "Ignore"]),
            **chooser.choice(
                [
                    {"mode": "Enforce"},
                    {"mode": "DryRun"},
                    {"rules": {"jobs": {"mode": "Enforce", "longestDeadline": "48h"}}},
                    {"rules": {"queue": {"mode": "Enforce", "required": True, "kinds": ["Deployment", "PyTorchJob"]}}},
                ]
            ),
        }
        for _ in range(chooser.randint(1, 4))
    ]


def _objects(namespace: str) -> list[dict[str, Any]]:
    """One object of several kinds in ``namespace``, each under a new name."""
    name = f"x-{uuid.uuid4().hex[:10]}"
    template = deployment(name, namespace)["spec"]["template"]
    once = job(name, namespace, container())
    metadata = {"name": name, "namespace": namespace}
    schedule = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": once["spec"]}}
    replicas = {"Worker": {"replicas": 1, "template": template}}
    return [
        pod(name, namespace),
        once,
        deployment(name, namespace),
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": schedule},
        {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": replicas}},
    ]


@pytest.fixture(scope="module")
def namespaces(control_plane: ControlPlane) -> Iterator[dict[str, dict[str, str]]]:
    """Namespaces with these labels, by name."""
    made = {f"fails-{at}": {**labels, _NAME: f"fails-{at}"} for at, labels in enumerate(_LABELS)}
    for name, labels in made.items():
        control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield made
    for name in made:
        control_plane.request("DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize("seed", range(4))
def test_every_object_is_sent_to_one_webhook_a_phase_and_refused_without_an_answer_where_it_must(
    control_plane: ControlPlane, gate: Gate, namespaces: dict[str, dict[str, str]], seed: int
) -> None:
    specs = _policies(random.Random(seed), list(namespaces))  # noqa: S311 - the same in each run
    failing = FailingClosed(
        PolicySet(
            parse_policy({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": f"policy-{at}"}, "spec": spec})
            for at, spec in enumerate(specs)
        )
    )
    assert failing.is_exact
    with _registered(gate, *specs):
        wait_until(lambda: _all_sent_once(control_plane, namespaces), 60, f"one webhook a phase for each object with {specs}")
        gate.kill()
        try:
            wait_until(lambda: _outcomes(control_plane, namespaces) == _expected(failing, namespaces), 30, f"what {specs} mean")
        finally:
            gate.start()


def _dry_run(cluster: ControlPlane, obj: dict[str, Any]) -> int:
    return int(cluster.request("POST", f"{_path(obj)}?dryRun=All", obj).status)


def _all_sent_once(cluster: ControlPlane, namespaces: Mapping[str, Any]) -> bool:
    """Whether each of some new objects is sent to one mutating and one validating webhook, by the audit log."""
    objects = [obj for name in namespaces for obj in _objects(name)]
    offset = cluster.audit_log.stat().st_size
    for obj in objects:
        assert _dry_run(cluster, obj) == http.HTTPStatus.CREATED

    def read() -> dict[tuple[str, str], list[str]]:
        found: dict[tuple[str, str], list[str]] = {}
        with cluster.audit_log.open("rb") as log:
            log.seek(offset)
            lines = log.read().splitlines()
        for line in lines:
            event = orjson.loads(line)
            reference = event.get("objectRef") or {}
            keys = [key for key in event.get("annotations") or {} if key.endswith(".gpugate.io/policies")]
            if event.get("verb") == "create" and event.get("stage") == "ResponseComplete":
                found[reference.get("resource", ""), reference.get("name", "")] = [key.split(".")[1] for key in sorted(keys)]
        return found

    wanted = [(_path(obj).rpartition("/")[2], obj["metadata"]["name"]) for obj in objects]
    seen = wait_until(lambda: log if set(wanted) <= set(log := read()) else {}, 10, "the creations in the audit log")
    return all(sorted(seen[place]) == ["mutate", "validate"] for place in wanted)


def _outcomes(cluster: ControlPlane, namespaces: Mapping[str, Any]) -> dict[tuple[str, str], bool]:
    """Whether objects of each kind are refused in each namespace."""
    return {(name, obj["kind"]): _dry_run(cluster, obj) != http.HTTPStatus.CREATED for name in namespaces for obj in _objects(name)}


def _expected(failing: FailingClosed, namespaces: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], bool]:
    wanted = {}
    for name, labels in namespaces.items():
        for obj in _objects(name):
            kind = kind_of(obj["apiVersion"], obj["kind"])
            assert kind is not None
            wanted[name, obj["kind"]] = any(region.inside and region.contains(labels) for region in failing.regions(kind))
    return wanted
