"""Replicas and gangs as the rule `spread` sends them off, placed by the real scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import container, deployment, gpus, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("machines")]

POOL = "e2e.gpugate.io/pool"
FABRIC = "example.com/fabric"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
#: Zone, fabric and CPUs of each machine: the scheduler likes the large ones, which are one in each fabric.
MACHINES = {
    "spread-a1": ("a", "f1", "1000"),
    "spread-a2": ("a", "f1", "64"),
    "spread-b1": ("b", "f2", "1000"),
    "spread-b2": ("b", "f2", "64"),
}


@pytest.fixture(scope="module")
def machines(control_plane: ControlPlane) -> Iterator[None]:
    """Four machines of 8 GPUs, two in each of two zones."""
    for name, (zone, fabric, cpu) in MACHINES.items():
        memory = "8Ti" if cpu == "1000" else "512Gi"
        control_plane.add_gpu_node(name, cpu=cpu, memory=memory, labels={POOL: "spread", ZONE: zone, FABRIC: fabric})
    yield
    for name in MACHINES:
        control_plane.remove_node(name)


@pytest.fixture(autouse=True)
def empty_machines(control_plane: ControlPlane, gate: Gate) -> Iterator[None]:
    """The pods of the test before are gone, their namespace goes in its own time; the policy of the other tests is given back."""
    wait_until(lambda: not _busy(control_plane), 90, "the machines to be empty")
    yield
    gate.set_policy({"mode": "Enforce"})


def _busy(cluster: ControlPlane) -> list[str]:
    found = cluster.kubectl_json("get", "pods", "--all-namespaces")["items"]
    return [one["metadata"]["name"] for one in found if one["spec"].get("nodeName") in MACHINES]


def _ask(gate: Gate, **spread: Any) -> None:
    gate.set_policy({"rules": {"tolerations": {}, "spread": spread}})


def _here(spec: dict[str, Any]) -> None:
    spec["nodeSelector"] = {POOL: "spread"}


def _placed(cluster: ControlPlane, namespace: str, selector: str, count: int) -> list[str]:
    """The machines of ``count`` running pods, sorted."""

    def running() -> list[str]:
        pods = cluster.kubectl_json("get", "pods", "-n", namespace, "-l", selector)["items"]
        found = sorted(one["spec"]["nodeName"] for one in pods if one["status"].get("phase") == "Running")
        return found if len(found) == count else []

    return wait_until(running, 60, f"{count} pods with {selector} to run")


def _zones(nodes: list[str]) -> list[str]:
    return sorted(MACHINES[name][0] for name in nodes)


def test_replicas_land_on_different_hosts_in_both_zones(control_plane: ControlPlane, gate: Gate, namespace: str) -> None:
    _ask(gate)
    serve = deployment("serve", namespace, container(gpus(1, "16Gi")), replicas=4)
    _here(serve["spec"]["template"]["spec"])
    control_plane.apply(serve)
    assert _placed(control_plane, namespace, "app=serve", 4) == sorted(MACHINES)
    (running, *_) = control_plane.kubectl_json("get", "pods", "-n", namespace, "-l", "app=serve")["items"]
    constraints = running["spec"]["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in constraints] == [HOST, ZONE]
    assert [one["matchLabelKeys"] for one in constraints] == [["pod-template-hash"]] * 2


def test_a_required_zone_holds_replicas_back_until_the_other_zone_has_room(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    _ask(gate, over=[{"key": ZONE, "whenUnsatisfiable": "DoNotSchedule"}])
    fillers = [name for name, (zone, _, _) in MACHINES.items() if zone == "b"]
    for name in fillers:
        filler = pod(name, namespace, container(gpus(8, "16Gi")))
        filler["spec"]["nodeSelector"] = {HOST: name}
        control_plane.apply(filler)
        _placed(control_plane, namespace, f"app={name}", 1)
    serve = deployment("serve", namespace, container(gpus(1, "16Gi")), replicas=4)
    _here(serve["spec"]["template"]["spec"])
    control_plane.apply(serve)
    wait_until(lambda: len(_refused(control_plane, namespace)) == 3, 60, "three replicas to wait for their zone")
    assert _zones(_placed(control_plane, namespace, "app=serve", 1)) == ["a"]
    control_plane.kubectl("delete", "pods", "-n", namespace, "--now", *fillers)
    assert _zones(_placed(control_plane, namespace, "app=serve", 4)) == ["a", "a", "b", "b"]


def _refused(cluster: ControlPlane, namespace: str) -> list[str]:
    """The replicas of which the scheduler says that its constraints keep them off."""
    found = []
    for one in cluster.kubectl_json("get", "pods", "-n", namespace, "-l", "app=serve")["items"]:
        conditions = one["status"].get("conditions", [])
        if any("topology spread constraints" in condition.get("message", "") for condition in conditions):
            found.append(one["metadata"]["name"])
    return found


def test_required_anti_affinity_leaves_a_fifth_replica_out_that_is_added_later(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    _ask(gate, by="AntiAffinity", over=[{"key": HOST, "whenUnsatisfiable": "DoNotSchedule"}])
    serve = deployment("serve", namespace, container(gpus(1, "16Gi")), replicas=4)
    _here(serve["spec"]["template"]["spec"])
    control_plane.apply(serve)
    assert _placed(control_plane, namespace, "app=serve", 4) == sorted(MACHINES)
    control_plane.kubectl("scale", "deployment", "serve", "--replicas=5", "-n", namespace)

    def kept_off() -> bool:
        pods = control_plane.kubectl_json("get", "pods", "-n", namespace, "-l", "app=serve")["items"]
        messages = [one.get("message", "") for each in pods for one in each["status"].get("conditions", [])]
        return any("anti-affinity" in one for one in messages)

    wait_until(kept_off, 60, "the fifth replica to find no host")


@pytest.mark.parametrize("fabric", ["Preferred", "Required"])
def test_a_gang_lands_in_one_fabric_where_it_would_be_torn_apart(
    control_plane: ControlPlane, gate: Gate, namespace: str, fabric: str
) -> None:
    train = job("train", namespace, container(gpus(8, "256Gi", cpu="32")), size=2)
    _here(train["spec"]["template"]["spec"])
    _ask(gate, by="Nothing")
    control_plane.apply(train)
    torn = _placed(control_plane, namespace, "batch.kubernetes.io/job-name=train", 2)
    assert {MACHINES[name][1] for name in torn} == {"f1", "f2"}
    control_plane.kubectl("delete", "job", "train", "-n", namespace, "--cascade=foreground", "--wait=true")
    _ask(gate, by="Nothing", fabricKey=FABRIC, fabric=fabric)
    control_plane.apply(train)
    packed = _placed(control_plane, namespace, "batch.kubernetes.io/job-name=train", 2)
    assert len({MACHINES[name][1] for name in packed}) == 1
