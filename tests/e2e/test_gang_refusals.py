"""Gangs against the real Kueue and scheduler: what gpugate refuses is what, let through, never runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import FINISH_ANNOTATION, wait_until
from tests.e2e.controlplane.nodes import GPU_TAINT
from tests.e2e.workloads import container, gpus, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.gate import Gate

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("gate")]

POOL, RACK = "e2e.gpugate.io/pool", "e2e.gpugate.io/rack"
# Rack a has two machines, rack b one.
MACHINES = {"gangs-1": "a", "gangs-2": "a", "gangs-3": "b"}
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
Object = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def racks(control_plane: ControlPlane) -> Iterator[None]:
    """Three machines of 8 GPUs in two racks."""
    for name, rack in MACHINES.items():
        control_plane.add_gpu_node(name, labels={POOL: "gangs", RACK: rack})
    yield
    for name in MACHINES:
        control_plane.remove_node(name)


@pytest.fixture(autouse=True)
def free_machines(control_plane: ControlPlane) -> None:
    """Wait until nothing is left on the machines of the tests before: their namespaces go away in their own time.

    Kueue does not look again at a gang that must be in one rack when a pod ends that it did not place itself.
    """

    def are_free() -> bool:
        found: list[Object] = control_plane.kubectl_json("get", "pods", "-A")["items"]
        return all(one["spec"].get("nodeName") not in MACHINES for one in found)

    wait_until(are_free, 60, "the machines to be free")


@pytest.fixture
def dry_run(gate: Gate) -> Iterator[None]:
    """Everything is let through while a test asks for it."""
    yield
    gate.set_policy({"mode": "Enforce"})


def queue(namespace: str, *, topology: str = "") -> list[Object]:
    """A LocalQueue ``gangs`` with quota for more than the machines have."""

    def made(kind: str, spec: Object, **meta: str) -> Object:
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": kind,
            "metadata": {"name": "gangs" if meta else namespace, **meta},
            "spec": spec,
        }

    flavor: Object = {"nodeLabels": {POOL: "gangs"}, "tolerations": [dict(GPU_TAINT)]}
    resources = [
        {"name": name, "nominalQuota": "1000Gi" if name == "memory" else "1000"} for name in ("nvidia.com/gpu", "cpu", "memory")
    ]
    groups = [{"coveredResources": [one["name"] for one in resources], "flavors": [{"name": namespace, "resources": resources}]}]
    objects = [
        made("ResourceFlavor", flavor | ({"topologyName": namespace} if topology else {})),
        made("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": groups}),
        made("LocalQueue", {"clusterQueue": namespace}, namespace=namespace),
    ]
    return [*([made("Topology", {"levels": [{"nodeLabel": topology}]})] if topology else []), *objects]


def member(name: str, namespace: str, group: str, size: int) -> Object:
    """A plain pod that is one of a Kueue pod group."""
    one = pod(name, namespace, container(gpus(1)), tolerations=[dict(GPU_TAINT)])
    one["metadata"]["labels"] |= {"kueue.x-k8s.io/queue-name": "gangs", "kueue.x-k8s.io/pod-group-name": group}
    one["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(size)}
    return one


def create(cluster: ControlPlane, obj: Object, *, dry_run: bool = False) -> Any:
    """What the apiserver answers."""
    namespace, plural = obj["metadata"]["namespace"], f"{obj['kind'].lower()}s"
    base = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
    return cluster.request("POST", f"{base}/namespaces/{namespace}/{plural}{'?dryRun=All' if dry_run else ''}", obj)


def wait_refused(cluster: ControlPlane, obj: Object, *texts: str) -> None:
    """Wait until gpugate knows enough to refuse ``obj`` in these words."""

    def refused() -> bool:
        answer = create(cluster, obj, dry_run=True)
        return answer.status == 403 and all(text in answer.body["message"] for text in texts)

    wait_until(refused, 20, f"gpugate to refuse {obj['metadata']['name']} with {texts}")
    assert create(cluster, obj).status == 403


def pods(cluster: ControlPlane, namespace: str, **selector: str) -> list[Object]:
    """The pods with these labels (``_`` for ``-``)."""
    found: list[Object] = cluster.kubectl_json("get", "pods", "-n", namespace)["items"]
    return [one for one in found if all(one["metadata"]["labels"].get(key) == value for key, value in selector.items())]


def running(cluster: ControlPlane, namespace: str) -> list[str]:
    """Names of the pods that run on a node."""
    found = pods(cluster, namespace)
    return sorted(
        one["metadata"]["name"] for one in found if one["status"].get("phase") == "Running" and one["spec"].get("nodeName")
    )


def workload(cluster: ControlPlane, namespace: str) -> Object:
    """The only Kueue Workload of the namespace; empty before it is there."""
    found: list[Object] = cluster.kubectl_json("get", "workloads.kueue.x-k8s.io", "-n", namespace)["items"]
    return found[0] if found else {}


@pytest.mark.usefixtures("dry_run")
def test_one_pod_too_many_is_refused_and_let_through_kueue_deletes_it_before_it_runs(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    # Kueue deletes a pod too many of the same role, and what gpugate puts into a pod makes it another.
    gate.set_policy({"mode": "DryRun"})
    control_plane.apply(*queue(namespace))
    for number in range(2):
        assert create(control_plane, member(f"llm-{number}", namespace, "llm", 2)).status == 201
    wait_until(lambda: running(control_plane, namespace) == ["llm-0", "llm-1"], 60, "the gang to run")
    gate.set_policy({"mode": "Enforce"})
    excess = member("excess", namespace, "llm", 2)
    wait_refused(control_plane, excess, "the gang llm already runs in full: 2 running")

    gate.set_policy({"mode": "DryRun"})
    assert create(control_plane, excess).status == 201
    wait_until(lambda: len(pods(control_plane, namespace)) == 2, 30, "Kueue to delete the excess pod")
    assert running(control_plane, namespace) == ["llm-0", "llm-1"]
    events = control_plane.kubectl_json("get", "events", "-n", namespace)["items"]
    told = {one["reason"] for one in events if one["involvedObject"]["name"] == "excess"}
    assert "ExcessPodDeleted" in told
    assert "Scheduled" not in told


@pytest.mark.usefixtures("dry_run")
def test_a_member_that_states_another_size_is_refused_and_let_through_holds_its_gang_up(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    control_plane.apply(*queue(namespace))
    assert create(control_plane, member("llm-0", namespace, "llm", 2)).status == 201
    odd = member("llm-1", namespace, "llm", 3)
    wait_refused(control_plane, odd, "its other members state 2: 3 != 2")

    gate.set_policy({"mode": "DryRun"})
    assert create(control_plane, odd).status == 201
    log = control_plane.run_dir / "logs" / "kueue.log"
    wait_until(lambda: namespace in log.read_text() and "pod-group-total-count' values" in log.read_text(), 30, "Kueue to complain")
    assert running(control_plane, namespace) == []
    assert workload(control_plane, namespace) == {}


@pytest.mark.usefixtures("dry_run")
def test_a_member_of_a_gang_that_has_ended_is_refused_and_let_through_never_runs(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    control_plane.apply(*queue(namespace))
    for number in range(2):
        one = member(f"llm-{number}", namespace, "llm", 2)
        one["metadata"]["annotations"][FINISH_ANNOTATION] = "true"
        assert create(control_plane, one).status == 201

    def finished() -> bool:
        conditions = workload(control_plane, namespace).get("status", {}).get("conditions", [])
        return any(one["type"] == "Finished" and one["status"] == "True" for one in conditions)

    wait_until(finished, 60, "the gang to end")
    late = member("late", namespace, "llm", 2)
    wait_refused(control_plane, late, "the gang llm has ended: 2 of its 2 members have succeeded")

    gate.set_policy({"mode": "DryRun"})
    assert create(control_plane, late).status == 201
    # Another gang of the same queue, created later, runs to show that Kueue has looked.
    for number in range(2):
        assert create(control_plane, member(f"next-{number}", namespace, "next", 2)).status == 201
    wait_until(lambda: running(control_plane, namespace) == ["next-0", "next-1"], 60, "the next gang to run")
    assert "late" not in running(control_plane, namespace)


def gang(name: str, namespace: str, size: int, **annotations: str) -> Object:
    """A Job of ``size`` pods with 8 GPUs each on the machines of the racks."""
    made = job(name, namespace, container(gpus(8)), size=size, tolerations=[dict(GPU_TAINT)], nodeSelector={POOL: "gangs"})
    made["metadata"]["annotations"] = {"gpugate.io/gang-size": str(size)}
    made["spec"]["template"]["metadata"]["annotations"] = annotations
    return made


@pytest.mark.usefixtures("dry_run")
def test_a_gang_larger_than_its_rack_is_refused_and_let_through_waits_while_one_that_fits_runs(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    control_plane.apply(*queue(namespace, topology=RACK))
    large, fitting = (gang(name, namespace, size, **{REQUIRED: RACK}) for name, size in (("large", 3), ("fitting", 2)))
    for one in (large, fitting):
        one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "gangs"
    wait_refused(control_plane, large, f"must run in one domain of {RACK}, but the largest, a with 2 nodes, holds 2", "2 < 3")
    other = gang("other", namespace, 2, **{REQUIRED: "e2e.gpugate.io/row"})
    other["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "gangs"
    wait_refused(control_plane, other, "has the topology level e2e.gpugate.io/row", f": {RACK})")

    gate.set_policy({"mode": "DryRun"})
    assert create(control_plane, large).status == 201

    def told() -> str:
        conditions = workload(control_plane, namespace).get("status", {}).get("conditions", [])
        return next((one["message"] for one in conditions if one["type"] == "QuotaReserved" and one["status"] == "False"), "")

    assert "out of 3 pod(s)" in wait_until(told, 60, "Kueue to say why the gang waits")
    assert create(control_plane, fitting).status == 201
    wait_until(lambda: len(running(control_plane, namespace)) == 2, 60, "the gang that fits to run")
    placed = {one["spec"]["nodeName"] for one in pods(control_plane, namespace)}
    assert placed == {"gangs-1", "gangs-2"}


@pytest.mark.usefixtures("dry_run")
def test_a_gang_larger_than_its_pool_is_refused_and_let_through_never_runs_in_full(
    control_plane: ControlPlane, gate: Gate, namespace: str
) -> None:
    large = gang("large", namespace, 4)
    wait_refused(control_plane, large, "the 3 nodes that it may run on; when empty, these hold 3 x 1")

    gate.set_policy({"mode": "DryRun"})
    assert create(control_plane, large).status == 201

    def stuck() -> bool:
        found = pods(control_plane, namespace)
        waiting = [one for one in found if one["status"].get("phase") == "Pending" and _unschedulable(one)]
        return len(found) == 4 and len(waiting) == 1 and len(running(control_plane, namespace)) == 3

    wait_until(stuck, 60, "three pods to hold their devices while the fourth waits")


def _unschedulable(one: Object) -> bool:
    return any(condition.get("reason") == "Unschedulable" for condition in one["status"].get("conditions", []))
