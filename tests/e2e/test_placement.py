"""Annotations that name cards, at the real scheduler: the pods land where they ask to, or are refused with what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controlplane import A100, T4, wait_until
from tests.e2e.workloads import container, deployment, gpus, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]

POOL = "e2e.gpugate.io/pool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OLD_DRIVER = {"nvidia.com/cuda.driver.major": "535", "nvidia.com/cuda.driver.minor": "104", "nvidia.com/cuda.driver.rev": "05"}
Object = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def cards(control_plane: ControlPlane) -> Iterator[None]:
    """Beside the H100s of the door: A100s with an old and a new driver, and a T4."""
    control_plane.add_gpu_node("placed-a100-old", product=A100.product, labels={POOL: "old", **OLD_DRIVER})
    control_plane.add_gpu_node("placed-a100-new", product=A100.product, labels={POOL: "new"})
    control_plane.add_gpu_node("placed-t4", product=T4.product, labels={POOL: "small"})
    yield
    for name in ("placed-a100-old", "placed-a100-new", "placed-t4"):
        control_plane.remove_node(name)


def annotated(obj: Object, **said: str) -> Object:
    """``obj`` with annotations of gpugate, ``min_compute`` for ``gpugate.io/min-compute``."""
    obj["metadata"]["annotations"] = {f"gpugate.io/{key.replace('_', '-')}": value for key, value in said.items()}
    return obj


def within(*pools: str) -> Object:
    """An affinity of the user's own, with a term for each pool."""
    terms = [{"matchExpressions": [{"key": POOL, "operator": "In", "values": [pool]}]} for pool in pools]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def node_of(cluster: ControlPlane, name: str, namespace: str) -> str:
    """The node on which the pod was bound."""

    def bound() -> str:
        found: str = cluster.kubectl_json("get", "pod", name, "-n", namespace)["spec"].get("nodeName", "")
        return found

    return wait_until(bound, 60, f"{name} to be bound to a node")


def create(cluster: ControlPlane, obj: Object) -> tuple[int, Any]:
    """The apiserver's status and answer to a POST of ``obj``."""
    group = "/api/v1" if obj["kind"] == "Pod" else "/apis/apps/v1"
    namespace = obj["metadata"]["namespace"]
    answer = cluster.request("POST", f"{group}/namespaces/{namespace}/{obj['kind'].lower()}s", obj)
    return answer.status, answer.body


def test_a_pod_lands_on_the_card_and_capability_that_it_names(control_plane: ControlPlane, namespace: str) -> None:
    status, stored = create(control_plane, annotated(pod("big", namespace), gpu="h100", min_compute="9.0"))
    assert status == 201, stored
    (term,) = stored["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert {"key": "nvidia.com/gpu.compute.major", "operator": "Gt", "values": ["8"]} in term["matchExpressions"]
    assert node_of(control_plane, "big", namespace).startswith("door-h100-")


def test_what_is_named_is_joined_with_an_affinity_of_the_users_own(control_plane: ControlPlane, namespace: str) -> None:
    # Each of the user's terms becomes three: the driver is newer, or its minor version, or its revision.
    own = pod("tuned", namespace, affinity=within("old", "new", "small"))
    status, stored = create(control_plane, annotated(own, gpu="a100", min_driver="550.54.15"))
    assert status == 201, stored
    assert len(stored["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]) == 9
    assert node_of(control_plane, "tuned", namespace) == "placed-a100-new"


def test_a_capability_between_two_takes_both_of_its_terms(control_plane: ControlPlane, namespace: str) -> None:
    own = annotated(pod("turing", namespace, affinity=within("small", "nowhere")), min_compute="7.5")
    status, stored = create(control_plane, own)
    assert status == 201, stored
    assert node_of(control_plane, "turing", namespace) == "placed-t4"


def test_the_template_of_a_deployment_places_its_pods(control_plane: ControlPlane, namespace: str) -> None:
    serve = annotated(deployment("serve", namespace, container(gpus(1, "16Gi", "2"))), gpu_family="turing")
    status, stored = create(control_plane, serve)
    assert status == 201, stored

    def placed() -> str:
        found = control_plane.kubectl_json("get", "pods", "-n", namespace, "-l", "app=serve")["items"]
        return found[0]["spec"].get("nodeName", "") if found else ""

    assert wait_until(placed, 60, "the replica to be bound") == "placed-t4"


def test_another_card_in_the_annotation_moves_a_deployment_that_is_applied_again(
    control_plane: ControlPlane, namespace: str
) -> None:
    # What gpugate wrote is in the object that kubectl sends: it keeps what its manifest never had.
    def affinity_of(card: str) -> list[str]:
        serve = annotated(deployment("moved", namespace, container(gpus(1, "16Gi", "2"))), gpu=card)
        stored = control_plane.kubectl_json("apply", "-f", "-", input=orjson.dumps(serve).decode())
        required = stored["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIRED]
        return [value for term in required["nodeSelectorTerms"] for one in term["matchExpressions"] for value in one["values"]]

    assert affinity_of("t4") == ["Tesla-T4"]
    assert affinity_of("l40s, t4") == ["NVIDIA-L40S", "Tesla-T4"]
    assert affinity_of("a100-40gb") == ["NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-SXM4-40GB"]


def test_what_no_node_has_is_refused_with_what_there_is(control_plane: ControlPlane, namespace: str) -> None:
    status, answer = create(control_plane, annotated(pod("none", namespace), gpu="a100", min_driver="580"))
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert "placement" in answer["message"]
    assert "gpugate.io/gpu: a100 and gpugate.io/min-driver: 580: none of the" in answer["message"]
    assert "2 x NVIDIA-A100-SXM4-40GB (40960Mi, compute 8.0, driver 535 or 570)" in answer["message"]
    assert "1 x Tesla-T4 (15360Mi, compute 7.5, driver 570.86.15)" in answer["message"]


def test_a_node_selector_for_another_card_is_named_as_the_contradiction(control_plane: ControlPlane, namespace: str) -> None:
    torn = pod("torn", namespace, nodeSelector={"nvidia.com/gpu.product": T4.product})
    status, answer = create(control_plane, annotated(torn, gpu="h100"))
    assert status == 403
    assert "spec.nodeSelector[nvidia.com/gpu.product]" in answer["message"]
