"""PodGroups that gpugate makes, and what the real schedulers make of them; gangs that are stuck.

The coscheduling plugin, Volcano and Kubernetes' own gang scheduling place pods on machines that KWOK keeps alive. The CRDs of the
first two are installed when gpugate's controller runs already.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import GPU_TAINT, ControlPlane, ManagedProcess, answers_ok, free_port, wait_until
from tests.e2e.controlplane.gang_schedulers import COSCHEDULING_NAME, start_coscheduling, start_volcano
from tests.e2e.controlplane.process import stop_all
from tests.e2e.gate import NAMESPACE, Gate
from tests.e2e.workloads import container, gpus, job, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

Object = dict[str, Any]

#: API of the PodGroup, field of the minimum, and scheduler that pods name, by system.
SYSTEMS = {
    "Coscheduling": ("scheduling.x-k8s.io/v1alpha1", COSCHEDULING_NAME),
    "Volcano": ("scheduling.volcano.sh/v1beta1", None),
    "Kubernetes": ("scheduling.k8s.io/v1alpha2", None),
}
STUCK_AFTER = 5
POOL = "e2e.gpugate.io/gang-pool"


class Stand:
    """A cluster with gang schedulers, gpugate at its door, and gpugate's controller."""

    def __init__(self, cluster: ControlPlane) -> None:
        self.cluster = cluster
        self.gate = Gate(cluster)
        self._address = f"127.0.0.1:{free_port()}"
        self._controller: ManagedProcess | None = None
        self.machines: list[str] = []

    def start_controller(self) -> None:
        """Run the controller under its own service account."""
        command: list[str | Path] = [
            Path(sys.executable).with_name("gpugate"),
            "controller",
            f"--listen={self._address}",
            f"--kubeconfig={self.cluster.kubeconfig_for_service_account(NAMESPACE, 'gpugate-controller')}",
            f"--namespace={NAMESPACE}",
            "--lease-duration=5",
        ]
        log = self.cluster.run_dir / "controller.log"
        self._controller = ManagedProcess.start("gpugate-controller", command, log=log)
        self._controller.wait_ready(lambda: answers_ok(f"http://{self._address}/readyz"), 60)

    def stop_controller(self) -> None:
        """Stop the controller."""
        if self._controller is not None:
            self._controller.stop()

    def metric(self, line: str) -> float | None:
        """The value of a metric of the controller."""
        import urllib.request  # noqa: PLC0415

        with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=10) as response:
            text = response.read().decode()
        return next((float(one.rpartition(" ")[2]) for one in text.splitlines() if one.startswith(f"{line} ")), None)

    def set_policy(self, **gang: Any) -> None:
        """Bind the rules about gangs and tolerations alone: what never fits is let in, for the schedulers to hold back."""
        rules = {"gang": {"mode": "Enforce", "stuckAfter": f"{STUCK_AFTER}s", **gang}, "tolerations": {"mode": "Enforce"}}
        self.gate.set_policy({"rules": rules})

    def use(self, system: str) -> None:
        """Have gangs placed by this system."""
        name = SYSTEMS[system][1]
        self.set_policy(scheduler=system, **({"schedulerName": name} if name else {}))

    def add_machine(self, pool: str) -> str:
        """One more machine of 8 GPUs for the pods of one test."""
        name = f"{pool}-{len(self.machines)}"
        self.cluster.add_gpu_node(name, labels={POOL: pool})
        self.machines.append(name)
        return name

    def pod_group(self, system: str, namespace: str, name: str) -> Object | None:
        """The PodGroup as it is stored; None where there is none."""
        answer = self.cluster.request("GET", f"/apis/{SYSTEMS[system][0]}/namespaces/{namespace}/podgroups/{name}")
        return answer.body if answer.status == 200 else None

    def pods(self, namespace: str) -> list[Object]:
        """The pods of a namespace that are not being deleted."""
        found: list[Object] = self.cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def running(self, namespace: str) -> int:
        """How many pods run on a machine."""
        return sum(one["status"].get("phase") == "Running" and "nodeName" in one["spec"] for one in self.pods(namespace))

    def told(self, namespace: str, reason: str, about: str) -> list[Object]:
        """Events of gpugate about an object."""
        found = self.cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"]
        return [one for one in found if one["reason"] == reason and one["regarding"]["name"] == about]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The cluster; the schedulers' CRDs come when the controller runs."""
    run_dir = tmp_path_factory.mktemp("gangs")
    gates = ("GenericWorkload", "GangScheduling")
    served = ["--runtime-config=scheduling.k8s.io/v1alpha2=true"]
    schedulers: list[ManagedProcess] = []
    with ControlPlane.start(run_dir, apiserver_args=served, feature_gates=gates) as cluster:
        found = Stand(cluster)
        try:
            found.gate.install()
            found.gate.start()
            found.set_policy()
            found.gate.register()
            found.start_controller()
            schedulers += [start_coscheduling(cluster), *start_volcano(cluster)]
            wait_until(lambda: _is_rewritten(cluster), 30, "the apiserver to call gpugate")
            yield found
        finally:
            found.stop_controller()
            found.gate.stop()
            stop_all(schedulers)


def _is_rewritten(cluster: ControlPlane) -> bool:
    answer = cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod("probe", "default"))
    return "tolerations" in answer.body.get("spec", {})


@pytest.fixture
def namespace(stand: Stand) -> Iterator[str]:
    """A fresh namespace, and its machines, which go after the test."""
    name = f"gangs-{uuid.uuid4().hex[:8]}"
    stand.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    stand.cluster.request("DELETE", f"/api/v1/namespaces/{name}")
    while stand.machines:
        stand.cluster.remove_node(stand.machines.pop())


def gang(namespace: str, size: int = 2) -> Object:
    """A Job of pods with all GPUs of a machine each."""
    return job("llm", namespace, container(gpus(8)), size=size, nodeSelector={POOL: namespace}, terminationGracePeriodSeconds=0)


def create(stand: Stand, obj: Object) -> Object:
    """Create an object; it as it is stored."""
    plural = f"{obj['kind'].lower()}s"
    base = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
    answer = stand.cluster.request("POST", f"{base}/namespaces/{obj['metadata']['namespace']}/{plural}", obj)
    assert answer.status == 201, answer.body
    stored: Object = answer.body
    return stored


def delete_job(stand: Stand, namespace: str) -> None:
    """Delete the Job as kubectl does: what it owns goes with it."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/llm"
    assert stand.cluster.request("DELETE", path, {"propagationPolicy": "Background"}).status == 200


def minimum_of(system: str, found: Object) -> int:
    """How many pods the PodGroup waits for."""
    spec = found["spec"]
    return int(spec["schedulingPolicy"]["gang"]["minCount"] if system == "Kubernetes" else spec["minMember"])


def holds_back(stand: Stand, namespace: str, size: int) -> bool:
    """Whether the scheduler has looked at all pods, and placed none."""
    found = stand.pods(namespace)
    assert not [one for one in found if "nodeName" in one["spec"]], "a part of the gang was placed"
    looked = [
        one
        for one in found
        if any(each["type"] == "PodScheduled" and each["status"] == "False" for each in one["status"].get("conditions", []))
    ]
    return len(looked) == size


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_a_gang_without_a_pod_group_gets_one_and_starts_as_a_whole_or_not_at_all(stand: Stand, namespace: str, system: str) -> None:
    stand.use(system)
    stand.add_machine(namespace)
    made = create(stand, gang(namespace))
    found = wait_until(lambda: stand.pod_group(system, namespace, "llm"), 30, "the PodGroup")
    assert found is not None
    assert minimum_of(system, found) == 2
    assert found["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "gpugate"}
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Job", "llm", made["metadata"]["uid"], True)
    wait_until(lambda: holds_back(stand, namespace, 2), 60, "the scheduler to hold both pods back")
    assert stand.running(namespace) == 0

    stand.add_machine(namespace)
    wait_until(lambda: stand.running(namespace) == 2, 90, "both pods to run")
    assert len({one["spec"]["nodeName"] for one in stand.pods(namespace)}) == 2

    delete_job(stand, namespace)
    wait_until(lambda: stand.pod_group(system, namespace, "llm") is None, 60, "the PodGroup to go with its owner")


def test_without_its_pod_group_the_same_gang_starts_in_part(stand: Stand, namespace: str) -> None:
    stand.set_policy(scheduler="None")
    stand.add_machine(namespace)
    create(stand, gang(namespace))
    wait_until(lambda: stand.running(namespace) == 1, 60, "one pod to run alone")


@pytest.mark.parametrize("system", ["Coscheduling", "Volcano"])
def test_a_pod_group_of_somebody_else_is_left_alone_and_told_of(stand: Stand, namespace: str, system: str) -> None:
    stand.use(system)
    group = {
        "apiVersion": SYSTEMS[system][0],
        "kind": "PodGroup",
        "metadata": {"name": "llm", "namespace": namespace},
        "spec": {"minMember": 3},
    }
    # A PodGroup that asks for more pods than there are keeps all of them waiting; its scheduler writes its status alone.
    theirs = create(stand, group)
    made = create(stand, gang(namespace, size=3) | {"metadata": {"name": "llm", "namespace": namespace}})
    events = wait_until(lambda: stand.told(namespace, "PodGroupNotOwned", "llm"), 60, "an Event about it")
    assert events is not None
    assert events[0]["regarding"]["uid"] == made["metadata"]["uid"]
    now = stand.pod_group(system, namespace, "llm")
    assert now is not None
    if system == "Coscheduling":
        assert now == theirs
    assert now["spec"] == theirs["spec"] | ({"queue": "default"} if "queue" in now["spec"] else {})
    assert now["metadata"].get("ownerReferences") is None
    writers = {one["manager"] for one in now["metadata"]["managedFields"]}
    assert not [one for one in writers if "gpugate" in one]

    delete_job(stand, namespace)
    wait_until(lambda: not stand.pods(namespace), 60, "the pods to go")
    assert stand.pod_group(system, namespace, "llm") is not None


def test_a_pod_group_that_gpugate_owns_is_put_right_and_made_anew(stand: Stand, namespace: str) -> None:
    stand.use("Coscheduling")
    create(stand, gang(namespace))
    wait_until(lambda: stand.pod_group("Coscheduling", namespace, "llm"), 30, "the PodGroup")
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups/llm"
    less = {"spec": {"minMember": 1}}
    assert stand.cluster.request("PATCH", path, less, content_type="application/merge-patch+json").status == 200

    def put_right() -> bool:
        found = stand.pod_group("Coscheduling", namespace, "llm")
        return found is not None and found["spec"]["minMember"] == 2

    wait_until(put_right, 40, "minMember to be put right")
    before = stand.pod_group("Coscheduling", namespace, "llm")
    assert before is not None
    assert stand.cluster.request("DELETE", path).status == 200

    def made_anew() -> bool:
        found = stand.pod_group("Coscheduling", namespace, "llm")
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    wait_until(made_anew, 40, "the PodGroup to be made anew")


def test_plain_pods_share_a_pod_group_that_goes_with_the_last_of_them(stand: Stand, namespace: str) -> None:
    stand.use("Coscheduling")
    for machine in range(2):
        assert stand.add_machine(namespace), machine
    for number in range(2):
        one = pod(f"llm-{number}", namespace, container(gpus(8)), nodeSelector={POOL: namespace}, tolerations=[dict(GPU_TAINT)])
        one["metadata"]["annotations"] = {"gpugate.io/gang-name": "llm", "gpugate.io/gang-size": "2"}
        create(stand, one)
        if number == 0:
            wait_until(lambda: stand.pod_group("Coscheduling", namespace, "llm"), 30, "the PodGroup")
    wait_until(lambda: stand.running(namespace) == 2, 90, "both pods to run")

    def owners() -> set[str]:
        found = stand.pod_group("Coscheduling", namespace, "llm") or {"metadata": {}}
        return {one["name"] for one in found["metadata"].get("ownerReferences", [])}

    wait_until(lambda: owners() == {"llm-0", "llm-1"}, 40, "both pods to own the PodGroup")
    now = {"gracePeriodSeconds": 0}
    assert stand.cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/llm-0", now).status == 200
    wait_until(lambda: owners() == {"llm-1"}, 60, "the garbage collector to take the first owner out")
    assert stand.cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/llm-1", now).status == 200
    wait_until(lambda: stand.pod_group("Coscheduling", namespace, "llm") is None, 60, "the PodGroup to go with the last pod")


def test_a_gang_that_loses_a_machine_is_stuck_until_there_is_another(stand: Stand, namespace: str) -> None:
    stand.set_policy(scheduler="None")
    for _ in range(2):
        stand.add_machine(namespace)
    create(stand, gang(namespace))
    wait_until(lambda: stand.running(namespace) == 2, 60, "both pods to run")
    wait_until(lambda: stand.metric("gpugate_gangs_stuck") == 0, 40, "no gang to be stuck")

    stand.cluster.remove_node(stand.machines.pop())
    wait_until(lambda: stand.metric("gpugate_gangs_stuck") == 1, 90, "the gang to be found stuck")
    assert stand.metric("gpugate_gangs_stuck_accelerators") == 8
    events = wait_until(lambda: stand.told(namespace, "GangStuck", "llm"), 30, "an Event on the Job")
    assert events is not None
    assert events[0]["type"] == "Warning"
    # The Job may not have replaced the lost pod yet.
    state = "1 of 2 run and 8 accelerators are held meanwhile; 1"
    assert events[0]["note"].startswith((f"{state} has no node: 0/", f"{state} of 2 is not there"))

    stand.add_machine(namespace)
    wait_until(lambda: stand.metric("gpugate_gangs_stuck") == 0, 90, "the gang to be whole again")


def test_a_gang_whose_pods_the_quota_refuses_says_so(stand: Stand, namespace: str) -> None:
    stand.set_policy(scheduler="None")
    for _ in range(2):
        stand.add_machine(namespace)
    quota = {"hard": {"requests.nvidia.com/gpu": "8"}}
    stand.cluster.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus", "namespace": namespace}, "spec": quota}
    )
    create(stand, gang(namespace))

    def said() -> bool:
        return any(
            "is not there: " in one["note"] and "exceeded quota" in one["note"] for one in stand.told(namespace, "GangStuck", "llm")
        )

    wait_until(said, 90, "an Event that names the quota")
