"""Objects that ask for no accelerator and get at them: what is refused, what is warned about, and what never waits for gpugate."""

from __future__ import annotations

import copy
import http
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT
from gpugate.policies.workloads.device_access import may_access_devices
from gpugate.policies.workloads.kinds import POD, WorkloadKind
from gpugate.policies.workloads.kinds.core import CRON_JOB, DAEMON_SET, DEPLOYMENT, JOB, STATEFUL_SET
from gpugate.policies.workloads.open import open_workload
from gpugate.webhook.audit.subjects import may_request_gpu
from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import IMAGE, cpu_container, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]

Json = dict[str, Any]
ALL_DEVICES = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def taker(namespace: str, name: str = "taker", **fields: Any) -> Json:
    return pod(name, namespace, {**cpu_container(), "env": ALL_DEVICES, **fields})


def device_plugin(namespace: str, *, names_devices: bool = False) -> Json:
    """The DaemonSet of a device plugin as its makers and the basics guide shape it, which runs where the tests' GPU nodes are."""
    plugin: Json = {
        "name": "plugin",
        "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.1",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "device-plugin", "mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    if names_devices:
        plugin["env"] = ALL_DEVICES
    labels = {"name": "nvidia-device-plugin-ds"}
    spec = {
        "tolerations": [TAINT],
        "priorityClassName": "system-node-critical",
        "containers": [plugin],
        "volumes": [{"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "device-plugin", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def path_of(kind: WorkloadKind, namespace: str, query: str = "?dryRun=All") -> str:
    root = f"/apis/{kind.group}" if kind.group else "/api"
    return f"{root}/v1/namespaces/{namespace}/{kind.resource}{query}"


def wait_for_pods(cluster: ControlPlane, namespace: str, machines: int) -> None:
    """Wait until the DaemonSet's pods run on the GPU nodes."""

    def running() -> bool:
        pods = cluster.kubectl_json("get", "pods", "-n", namespace, "-l", "name=nvidia-device-plugin-ds")["items"]
        nodes = {one["spec"].get("nodeName", "") for one in pods if one["status"].get("phase") == "Running"}
        return len([node for node in nodes if node.startswith("door-h100")]) == machines

    wait_until(running, 60, "the device plugin to run on every GPU node")


@pytest.fixture
def stopped(gate: Gate) -> Iterator[None]:
    """gpugate down, its webhooks still registered."""
    gate.stop()
    yield
    gate.start()
    gate.wait_in_force()


def test_a_pod_that_takes_every_gpu_and_asks_for_none_is_refused_by_kubectl(control_plane: ControlPlane, namespace: str) -> None:
    text = orjson.dumps(taker(namespace)).decode()
    answer = control_plane.kubectl("create", "-f", "-", input=text, check=False)
    assert answer.returncode != 0
    assert 'admission webhook "takers-pods.validate.gpugate.io" denied the request' in answer.stderr
    assert "container train sets NVIDIA_VISIBLE_DEVICES=all in a pod that requests 0 of nvidia.com/gpu" in answer.stderr


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET, JOB, CRON_JOB, DAEMON_SET], ids=lambda kind: kind.kind)
def test_the_template_of_such_pods_is_refused_where_a_person_writes_it(
    control_plane: ControlPlane, namespace: str, kind: WorkloadKind
) -> None:
    template: Json = {"metadata": {"labels": {"app": "taker"}}, "spec": taker(namespace)["spec"]}
    template["spec"]["restartPolicy"] = "Never" if kind in {JOB, CRON_JOB} else "Always"
    spec: Json = {"template": template}
    if kind is CRON_JOB:
        spec = {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    elif kind is not JOB:
        spec["selector"] = {"matchLabels": {"app": "taker"}}
    obj = {"apiVersion": f"{kind.group}/v1", "kind": kind.kind, "metadata": {"name": "taker", "namespace": namespace}, "spec": spec}
    answer = control_plane.request("POST", path_of(kind, namespace), obj)
    assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
    assert "TakesDevices" in answer.body["message"] or "NVIDIA_VISIBLE_DEVICES=all" in answer.body["message"]


def test_an_ephemeral_container_that_takes_gpus_is_refused_in_a_pod_that_has_none(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.apply(pod("web", namespace, cpu_container(), nodeSelector={"waits": "for-ever"}))
    patch = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox", "env": ALL_DEVICES}]}}
    path = f"/api/v1/namespaces/{namespace}/pods/web/ephemeralcontainers"
    answer = control_plane.request("PATCH", path, patch, content_type="application/strategic-merge-patch+json")
    assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
    assert "ephemeral container debug" in answer.body["message"]


def test_a_cpu_pod_that_tolerates_the_taint_is_let_in_with_a_warning(control_plane: ControlPlane, namespace: str) -> None:
    answer = control_plane.request("POST", path_of(POD, namespace, ""), pod("web", namespace, cpu_container(), tolerations=[TAINT]))
    assert answer.status == http.HTTPStatus.CREATED
    assert any("reserved-nodes" in one and "onto GPU nodes" in one for one in answer.warnings), answer.warnings


def test_the_device_plugin_gets_in_and_only_what_names_devices_is_asked_about(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    before = gate.reviews()
    control_plane.apply(device_plugin(namespace))
    wait_for_pods(control_plane, namespace, 2)
    assert gate.reviews() == before
    control_plane.apply(device_plugin(namespace, names_devices=True))
    wait_until(lambda: gate.reviews(kind="DaemonSet") > 0 and gate.reviews(kind="Pod") > 0, 60, "reviews of the device plugin")
    wait_for_pods(control_plane, namespace, 2)


@pytest.mark.usefixtures("stopped")
def test_the_device_plugin_starts_while_gpugate_is_down(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.apply(device_plugin(namespace, names_devices=True))
    wait_for_pods(control_plane, namespace, 2)
    # So does whatever else gets at GPUs without asking: the next audit tells of it. What asks for GPUs is refused meanwhile.
    assert control_plane.request("POST", path_of(POD, namespace), taker(namespace)).status == http.HTTPStatus.CREATED
    assert control_plane.request("POST", path_of(POD, namespace), pod("train", namespace)).status >= http.HTTPStatus.BAD_REQUEST


def _variants(namespace: str) -> Iterator[Json]:
    """Pods of which some are sent and some are not, by little differences."""
    terms = "requiredDuringSchedulingIgnoredDuringExecution"

    def affinity(expression: Json) -> Json:
        return {"nodeAffinity": {terms: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}

    source = {"configMapKeyRef": {"name": "c", "key": "k"}}
    for env in (
        *({"name": "NVIDIA_VISIBLE_DEVICES", "value": value} for value in ("all", "0", "none", "void", "")),
        {"name": "NVIDIA_VISIBLE_DEVICES"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": source},
        *({"name": f"{maker}_VISIBLE_DEVICES", "value": "0"} for maker in ("AMD", "HABANA", "ASCEND", "CUDA", "OTHER")),
    ):
        yield pod("p", namespace, {**cpu_container(), "env": [{"name": "A", "value": "b"}, env]})
        yield pod("p", namespace, cpu_container(), initContainers=[{"name": "i", "image": IMAGE, "env": [env]}])
    for path in ("/dev/nvidia0", "//dev/./nvidiactl", "/dev/kfd", "/dev/nvme0", "/dev", "/usr/lib/nvidia", "/devices/nvidia0"):
        yield pod("p", namespace, cpu_container(), volumes=[{"name": "v", "hostPath": {"path": path}}])
    for path in ("/var/run/nvidia-container-devices/all", "/var/./run/nvidia-container-devices/0", "/var/run/other"):
        mounted = {**cpu_container(), "volumeMounts": [{"name": "v", "mountPath": path}]}
        yield pod("p", namespace, mounted, volumes=[{"name": "v", "hostPath": {"path": "/dev/null"}}])
    for key, value in (
        *(
            ("nvidia.com/gpu", ""),
            ("sku", "gpu"),
            ("dedicated", "GPU"),
            ("gpuNodes", "yes"),
            ("accelerator", "x"),
            ("amd.com/gpu", ""),
        ),
        *(
            ("kubernetes.io/arch", "amd64"),
            ("network.nvidia.com/ready", "gpu"),
            ("output", "x"),
            ("spot", "true"),
            ("migration", "amdahl"),
        ),
    ):
        yield pod("p", namespace, cpu_container(), tolerations=[{"key": key, "value": value, "effect": "NoSchedule"}])
        yield pod("p", namespace, cpu_container(), nodeSelector={key: value})
        yield pod("p", namespace, cpu_container(), affinity=affinity({"key": key, "operator": "In", "values": [value]}))
        yield pod("p", namespace, cpu_container(), affinity=affinity({"key": key, "operator": "NotIn", "values": [value]}))
    yield pod("p", namespace, cpu_container(), tolerations=[{"operator": "Exists"}])
    yield pod("p", namespace, cpu_container(), nodeSelector={"nvidia.com/gpu.present": "false"})
    yield pod("p", namespace, cpu_container(), affinity=affinity({"key": "nvidia.com/gpu.present", "operator": "Exists"}))
    yield pod("p", namespace, cpu_container(), affinity=affinity({"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"}))
    yield pod("p", namespace, cpu_container(), tolerations=[TAINT], priorityClassName="system-node-critical")
    for annotation in ("cdi.k8s.io/x", "k8s.io/x"):
        obj = pod("p", namespace, cpu_container())
        obj["metadata"]["annotations"] = {annotation: "nvidia.com/gpu=all"}
        yield obj
    # Kueue's webhook looks up owners of kinds that it knows.
    for version, owner in (("apps/v1", "DaemonSet"), ("example.com/v1", "Run")):
        obj = pod("p", namespace, cpu_container(), tolerations=[TAINT])
        obj["metadata"]["ownerReferences"] = [{"apiVersion": version, "kind": owner, "name": "o", "uid": "u", "controller": True}]
        yield obj
        taking = copy.deepcopy(obj)
        taking["spec"]["containers"][0]["env"] = ALL_DEVICES
        yield taking


def test_the_apiserver_sends_what_an_audit_looks_at_and_no_other_pod(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    sent = 0
    for obj in _variants(namespace):
        workload = open_workload(POD, copy.deepcopy(obj), EMPTY_SNAPSHOT)
        assert not may_request_gpu(workload)
        before = gate.reviews(kind="Pod")
        answer = control_plane.request("POST", path_of(POD, namespace), obj)
        assert answer.status in {http.HTTPStatus.CREATED, http.HTTPStatus.FORBIDDEN}, answer.body
        reviewed = gate.reviews(kind="Pod") - before
        assert reviewed == int(may_access_devices(workload)), obj
        sent += reviewed
    assert sent > 30


def test_a_plain_cpu_pod_never_reaches_gpugate(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    before = gate.reviews()
    assert control_plane.request("POST", path_of(POD, namespace, ""), pod("web", namespace, cpu_container())).status == 201
    assert gate.reviews() == before
    assert not gate.events(namespace=namespace)


@pytest.mark.parametrize("entries", [100, 1000])
def test_the_conditions_cost_little_enough_for_pods_with_very_much_in_them(
    control_plane: ControlPlane, namespace: str, entries: int
) -> None:
    """The apiserver bounds what conditions may cost; above it, a webhook that ignores failures would not be asked."""
    long = "x" * 200
    env = [{"name": f"{long}_{number}", "value": long} for number in range(entries)]
    tolerations = [{"key": f"example.com/{'a' * 60}", "value": f"v{number}", "operator": "Equal"} for number in range(100)]
    containers = [{**cpu_container(), "name": f"c{number}", "env": list(env)} for number in range(3)]
    containers[-1]["env"] += ALL_DEVICES
    answer = control_plane.request("POST", path_of(POD, namespace), pod("big", namespace, *containers, tolerations=tolerations))
    assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
    assert "container c2 sets NVIDIA_VISIBLE_DEVICES=all" in answer.body["message"]
