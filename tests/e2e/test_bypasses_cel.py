"""Objects with so much in them that the apiserver could not afford to look: their reviews are sent, and judged, all the same."""

from __future__ import annotations

import http
import time
from typing import TYPE_CHECKING, Any

import pytest

from gpugate.policies.workloads.kinds import POD
from gpugate.policies.workloads.kinds.core import DEPLOYMENT
from gpugate.policies.workloads.kinds.jobset import JOB_SET
from gpugate.webhook.admission import conditions
from tests.e2e.controlplane import wait_until
from tests.e2e.test_takers import ALL_DEVICES, path_of
from tests.e2e.workloads import IMAGE, container, cpu_container, deployment, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]

Json = dict[str, Any]
DEVICE = {"name": "device", "hostPath": {"path": "/dev/nvidia0"}}
#: The name of a resource, nearly as long as the apiserver accepts it.
LONG_KEY = ".".join(["a" * 63] * 3 + ["b" * 48]) + "/" + "c" * 55


def host_paths(number: int, length: int) -> list[Json]:
    return [{"name": f"v{at}", "hostPath": {"path": "/" + "a" * (length - 1)}} for at in range(number)]


def with_annotation(obj: Json, key: str) -> Json:
    obj["metadata"].setdefault("annotations", {})[key] = "nvidia.com/gpu=all"
    return obj


def attacks(namespace: str) -> Iterator[tuple[str, Json]]:
    """Pods that take every GPU, each behind entries of another list."""
    cpu = cpu_container()
    yield "270 long paths before a device file", pod("p", namespace, cpu, volumes=[*host_paths(270, 4000), DEVICE])
    annotated = with_annotation(pod("p", namespace, cpu, volumes=host_paths(270, 4000)), "cdi.k8s.io/x")
    yield "270 long paths before an annotation", annotated
    yield "one long path", pod("p", namespace, cpu, volumes=[*host_paths(1, 900_000), DEVICE])
    slashes = {"name": "device", "hostPath": {"path": "/" + "./" * 2000 + "dev/nvidia0"}}
    yield "one long path of a device file", pod("p", namespace, cpu, volumes=[slashes])
    many = [{**cpu, "name": f"c{at}"} for at in range(1000)]
    yield "1,000 containers", pod("p", namespace, *many, {**cpu, "env": ALL_DEVICES})
    yield "500 init containers", pod("p", namespace, cpu, initContainers=many[:500], volumes=[DEVICE])
    short = [{"name": f"A{at}"} for at in range(15_000)]
    yield "15,000 variables", pod("p", namespace, {**cpu, "env": [*short, *ALL_DEVICES]})
    long = [{"name": f"A{at}", "value": "x" * 10_000} for at in range(80)]
    yield "variables of 800 KB", pod("p", namespace, {**cpu, "env": [*long, *ALL_DEVICES]})
    empty = {"name": "empty", "emptyDir": {}}
    mounts = [{"name": "empty", "mountPath": f"/{at}/{'a' * 300}"} for at in range(2500)]
    yield "2,500 mounts", pod("p", namespace, {**cpu, "volumeMounts": mounts}, volumes=[empty, DEVICE])
    one = [{"name": "empty", "mountPath": "/" + "a" * 900_000}]
    yield "one long mount", pod("p", namespace, {**cpu, "volumeMounts": one}, volumes=[empty, DEVICE])
    names = {"requests": {f"{LONG_KEY}{at}": "1" for at in range(1000)}, "limits": {f"{LONG_KEY}{at}": "1" for at in range(1000)}}
    yield "1,000 resources", pod("p", namespace, container(names), volumes=[DEVICE])


@pytest.mark.parametrize("what", [what for what, _ in attacks("")])
def test_a_pod_that_takes_gpus_behind_very_much_else_is_sent_and_refused(
    control_plane: ControlPlane, gate: Gate, namespace: str, what: str
) -> None:
    obj = dict(attacks(namespace))[what]
    before, begun = gate.reviews(kind="Pod"), time.monotonic()
    answer = control_plane.request("POST", path_of(POD, namespace), obj)
    assert gate.reviews(kind="Pod") > before, answer.body
    assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
    assert "validate.gpugate.io" in answer.body["message"]
    assert time.monotonic() - begun < 5


def test_so_is_the_template_of_such_pods(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    obj = deployment("web", namespace, cpu_container())
    obj["spec"]["template"]["spec"]["volumes"] = [*host_paths(270, 4000), DEVICE]
    before = gate.reviews(kind="Deployment")
    answer = control_plane.request("POST", path_of(DEPLOYMENT, namespace), obj)
    assert gate.reviews(kind="Deployment") == before + 1
    assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
    assert "/dev/nvidia0" in answer.body["message"]


def test_pods_within_the_bounds_are_not_sent(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    env = [{"name": f"A{at}", "value": "x" * 200} for at in range(60)]
    usual = [{**cpu_container(), "name": f"c{at}", "env": env} for at in range(30)]
    tolerations = [{"key": f"example.com/{at}", "operator": "Exists"} for at in range(20)]
    for obj in (
        pod("p", namespace, cpu_container(), volumes=host_paths(5, 30)),
        pod("p", namespace, cpu_container(), volumes=host_paths(conditions.VOLUMES, conditions.PATH)),
        pod("p", namespace, *usual, volumes=host_paths(40, 200), tolerations=tolerations),
    ):
        before = gate.reviews()
        answer = control_plane.request("POST", path_of(POD, namespace), obj)
        assert answer.status == http.HTTPStatus.CREATED, answer.body
        assert gate.reviews() == before


def test_large_objects_that_take_nothing_are_sent_and_let_in(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    plain = {"name": "c", "image": IMAGE}
    containers = [{**plain, "name": f"c{at}"} for at in range(250)]
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [plain]}}}}
    jobs = [{"name": f"j{at}", "replicas": 1, "template": template} for at in range(120)]
    metadata = {"name": "many", "namespace": namespace}
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": {"replicatedJobs": jobs}}
    wide = pod("p", namespace, *containers)
    paths = pod("p", namespace, cpu_container(), volumes=host_paths(300, 300))
    for kind, obj, path in (
        ("Pod", wide, path_of(POD, namespace)),
        ("Pod", paths, path_of(POD, namespace)),
        ("JobSet", job_set, f"/apis/{JOB_SET.group}/v1alpha2/namespaces/{namespace}/jobsets?dryRun=All"),
    ):
        before = gate.reviews(kind=kind)
        answer = control_plane.request("POST", path, obj)
        assert answer.status == http.HTTPStatus.CREATED, answer.body
        assert gate.reviews(kind=kind) > before


def test_a_gpu_pod_with_many_containers_is_changed_as_any_other(control_plane: ControlPlane, namespace: str) -> None:
    helpers = [{**cpu_container(), "name": f"c{at}"} for at in range(conditions.CONTAINERS)]
    answer = control_plane.request("POST", path_of(POD, namespace), pod("p", namespace, container(), *helpers))
    assert answer.status == http.HTTPStatus.CREATED, answer.body
    assert any(one.get("key") == "nvidia.com/gpu" for one in answer.body["spec"]["tolerations"])


def exporter(namespace: str) -> Json:
    """The DaemonSet of a GPU exporter, which takes the devices of its node."""
    labels = {"name": "exporter"}
    taker = {"name": "exporter", "image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.3.0-ubuntu22.04", "env": ALL_DEVICES}
    spec = {"containers": [taker], "tolerations": [{"operator": "Exists"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "exporter", "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def test_a_pod_that_names_a_daemon_set_and_its_image_is_refused_and_those_of_the_daemon_set_run(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.apply(exporter(namespace))

    def pods() -> list[Json]:
        found: list[Json] = control_plane.kubectl_json("get", "pods", "-n", namespace, "-l", "name=exporter")["items"]
        return found

    wait_until(lambda: len(pods()) >= 2, 60, "the DaemonSet's pods on the GPU nodes")
    forged = pod("forged", namespace, exporter(namespace)["spec"]["template"]["spec"]["containers"][0])
    forged["metadata"]["ownerReferences"] = pods()[0]["metadata"]["ownerReferences"]
    answer = control_plane.request("POST", path_of(POD, namespace), forged)
    assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
    assert "NVIDIA_VISIBLE_DEVICES=all" in answer.body["message"]


def test_pods_that_tolerate_everything_or_name_a_gpu_node_never_wait_for_gpugate(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    before = gate.reviews()
    for fields in ({"tolerations": [{"operator": "Exists"}]}, {"nodeName": "door-h100-1"}):
        answer = control_plane.request("POST", path_of(POD, namespace), pod("p", namespace, cpu_container(), **fields))
        assert answer.status == http.HTTPStatus.CREATED, answer.body
    assert gate.reviews() == before
