"""Ways round a required queue and round reserved devices that were really run, each beside its honest twin, which passes."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.test_door import wait_running
from tests.e2e.test_takers import ALL_DEVICES
from tests.e2e.workloads import container, deployment, gpus, job, pod, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.controlplane import ControlPlane
    from tests.e2e.controlplane.access import ApiResponse
    from tests.e2e.gate import Gate

Json = dict[str, Any]

QUEUE = "kueue.x-k8s.io/queue-name"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
OPERATOR = "system:serviceaccount:ray-system:kuberay-operator"
REQUIRED = {"mode": "Enforce", "rules": {"queue": {"required": True}}}
MISSING = "the policy requires a queue"

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("required")]


@pytest.fixture(scope="module")
def required(gate: Gate) -> Iterator[None]:
    """A policy that requires a queue."""
    gate.set_policy(REQUIRED)
    yield
    gate.set_policy({"mode": "Enforce"})


class Team:
    """A namespace with two queues, so that none is the obvious one, and users with the rights of the ClusterRole edit."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        other = queue(namespace, "other", 8)[-1]
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name} for name in ("alice", OPERATOR)]
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": role, "subjects": subjects}
        binding["metadata"] = {"name": "edit", "namespace": namespace}
        cluster.apply(*queue(namespace, "train", 8), other, binding)

    def send(self, obj: Json, user: str = "alice", query: str = "") -> ApiResponse:
        """What the apiserver answers ``user`` who creates ``obj``."""
        identity = self.cluster.authority.client(user.replace(":", "-"), user, [])
        group = obj["apiVersion"].rpartition("/")[0]
        root = f"/apis/{obj['apiVersion']}" if group else "/api/v1"
        path = f"{root}/namespaces/{self.namespace}/{obj['kind'].lower()}s{query}"
        return self.cluster.request("POST", path, obj, identity=identity)

    def refused(self, obj: Json, text: str = MISSING, user: str = "alice") -> bool:
        """Whether ``obj`` is refused with ``text``; its rights alone would let the user create it."""
        answer = self.send(obj, user)
        assert answer.status == http.HTTPStatus.FORBIDDEN, answer.body
        assert text in answer.body["message"]
        return True

    def created(self, obj: Json, user: str = "alice", query: str = "") -> ApiResponse:
        """The answer to ``obj``, which is created."""
        answer = self.send(obj, user, query)
        assert answer.status == http.HTTPStatus.CREATED, answer.body
        return answer

    def pod(self, name: str, owner: Json | None = None, **fields: Any) -> Json:
        """A GPU pod whose controller is ``owner``, as stored, if any."""
        return owned(pod(name, self.namespace, container(gpus(1)), **fields), owner)


def owned(obj: Json, owner: Json | None) -> Json:
    """``obj``, with ``owner`` as its controller."""
    if owner is not None:
        metadata = owner["metadata"]
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"]}
        obj["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return obj


@pytest.fixture
def team(control_plane: ControlPlane, namespace: str) -> Team:
    """A namespace with queues and users."""
    return Team(control_plane, namespace)


def replicas(team: Team, version: str, kind: str, **labels: str) -> Json:
    """A ReplicaSet or ReplicationController with one GPU pod; ``labels`` are those of its template."""
    made = deployment(f"bare-{kind.lower()}", team.namespace, container(gpus(1)))
    made |= {"apiVersion": version, "kind": kind}
    selector = made["spec"]["selector"]["matchLabels"]
    made["spec"]["selector"] = selector if version == "v1" else {"matchLabels": selector}
    made["spec"]["template"]["metadata"]["labels"] |= labels
    return made


def config_map(team: Team) -> Json:
    """A ConfigMap of the user's own, as stored."""
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": team.namespace}}
    found: Json = team.created(made).body
    return found | {"apiVersion": "v1", "kind": "ConfigMap"}


def ray_cluster(team: Team) -> Json:
    """A RayCluster without accelerators, as stored: Kueue's webhook looks its pods' owner up."""
    made = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "tune", "namespace": team.namespace}}
    template = {"spec": {"containers": [{"name": "head", "image": "registry.example.com/ray:2"}]}}
    path = f"/apis/ray.io/v1/namespaces/{team.namespace}/rayclusters"
    made["spec"] = {"headGroupSpec": {"rayStartParams": {}, "template": template}}
    answer = team.cluster.request("POST", path, made)
    assert answer.status == http.HTTPStatus.CREATED, answer.body
    found: Json = answer.body
    return found


def ghost(group: str = "example.com", kind: str = "Ghost") -> Json:
    """An owner that is nowhere."""
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "ghost", "uid": "6f1c1f0e-0000-4000-8000-000000000001"}}


def test_a_bare_replica_set_needs_a_queue(team: Team) -> None:
    assert team.refused(replicas(team, "apps/v1", "ReplicaSet"))


def test_a_bare_replica_set_in_a_queue_runs(team: Team) -> None:
    team.created(replicas(team, "apps/v1", "ReplicaSet", **{QUEUE: "train"}))
    wait_running(team.cluster, team.namespace, 1, "app=bare-replicaset")


def test_a_deployment_in_a_queue_runs(team: Team) -> None:
    made = deployment("serve", team.namespace, container(gpus(1)), replicas=2)
    made["metadata"]["labels"] = {QUEUE: "train"}
    team.created(made)
    wait_running(team.cluster, team.namespace, 2, "app=serve")


def test_a_replica_set_with_an_owner_that_is_none_needs_a_queue(team: Team) -> None:
    assert team.refused(owned(replicas(team, "apps/v1", "ReplicaSet"), config_map(team)))
    assert team.refused(owned(replicas(team, "apps/v1", "ReplicaSet"), ghost()))


def test_the_pods_of_a_replication_controller_need_a_queue(team: Team) -> None:
    team.created(replicas(team, "v1", "ReplicationController"))

    def refused() -> bool:
        selector = "reason=FailedCreate,involvedObject.kind=ReplicationController"
        events = team.cluster.kubectl_json("get", "events", "-n", team.namespace, "--field-selector", selector)["items"]
        return any(MISSING in one["message"] for one in events)

    wait_until(refused, 30, "the pods of the ReplicationController to be refused")


def test_a_replication_controller_in_a_queue_runs(team: Team) -> None:
    team.created(replicas(team, "v1", "ReplicationController", **{QUEUE: "train"}))
    wait_running(team.cluster, team.namespace, 1, "app=bare-replicationcontroller")


def test_a_config_map_owns_no_pod_and_no_job(team: Team) -> None:
    mine = config_map(team)
    assert team.refused(team.pod("forged", mine))
    assert team.refused(owned(job("forged", team.namespace, container(gpus(1))), mine))


def test_a_kind_that_does_not_exist_owns_no_pod(team: Team) -> None:
    assert team.refused(team.pod("forged", ghost()))
    assert team.refused(team.pod("forged", ghost("ray.io")))


def test_the_pods_of_a_job_in_a_queue_run(team: Team) -> None:
    made = job("train", team.namespace, container(gpus(1)), size=2, labels={QUEUE: "train"})
    team.created(made)
    wait_running(team.cluster, team.namespace, 2, "batch.kubernetes.io/job-name=train")


def test_the_pod_of_an_operator_that_is_not_listed_is_reported_and_runs(team: Team, gate: Gate) -> None:
    cluster = ray_cluster(team)
    answer = team.created(team.pod("worker", cluster), OPERATOR, "?dryRun=All")
    assert any("spec.controllerIdentities" in warning for warning in answer.warnings), answer.warnings
    gate.set_policy({**REQUIRED, "controllerIdentities": [OPERATOR]})
    try:
        assert not team.created(team.pod("worker", cluster), OPERATOR, "?dryRun=All").warnings
        # Only the operator is listed, and not the user.
        assert team.refused(team.pod("forged", config_map(team)))
    finally:
        gate.set_policy(REQUIRED)


def test_the_pod_of_a_kind_that_was_added_a_moment_ago_passes(team: Team) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Robot", "plural": "robots"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "robots.bypasses.example.com"},
        "spec": {"group": "bypasses.example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    robot = ghost("bypasses.example.com", "Robot")
    assert team.refused(team.pod("early", robot))
    try:
        team.cluster.apply(definition)
        team.cluster.kubectl("wait", "--for=condition=Established", "crd/robots.bypasses.example.com", "--timeout=30s")
        path = "/apis/bypasses.example.com/v1"
        wait_until(lambda: team.cluster.request("GET", path).status == http.HTTPStatus.OK, 30, "the kind to be served")
        team.created(team.pod("honest", robot), OPERATOR, "?dryRun=All")
    finally:
        team.cluster.kubectl("delete", "crd", "robots.bypasses.example.com", "--ignore-not-found")


def test_the_label_of_a_prebuilt_workload_that_does_not_exist_hides_no_missing_queue(team: Team) -> None:
    assert team.refused(job("forged", team.namespace, container(gpus(1)), labels={PREBUILT: "nonexistent"}))


def test_a_job_with_a_prebuilt_workload_passes(team: Team, gate: Gate) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [container(gpus(1))]}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "ready", "namespace": team.namespace},
        "spec": {"queueName": "train", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    team.cluster.apply(workload)
    made = job("honest", team.namespace, container(gpus(1)), labels={PREBUILT: "ready"})

    def passes() -> bool:
        answer = team.send(made, query="?dryRun=All")
        assert answer.status == http.HTTPStatus.CREATED or MISSING in answer.body["message"], answer.body
        return answer.status == http.HTTPStatus.CREATED

    # Nothing is added to such an object, so no other rule may require something of it.
    gate.set_policy({"rules": {"queue": {"mode": "Enforce", "required": True}}})
    try:
        wait_until(passes, 30, "gpugate to see the prebuilt Workload")
    finally:
        gate.set_policy(REQUIRED)


def exporter(name: str, namespace: str) -> Json:
    """A pod of the node stack that reaches every GPU of its node and requests none."""
    image = "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.0"
    return pod(name, namespace, {"name": "exporter", "image": image, "env": ALL_DEVICES})


def test_a_forged_daemon_set_takes_no_devices(team: Team) -> None:
    forged = owned(exporter("forged", team.namespace), ghost("apps", "DaemonSet"))
    assert team.refused(forged, "NVIDIA_VISIBLE_DEVICES=all")


def test_a_daemon_set_of_the_node_stack_runs(team: Team) -> None:
    spec = exporter("dcgm", team.namespace)["spec"] | {
        "restartPolicy": "Always",
        "nodeSelector": {"kubernetes.io/hostname": "door-cpu"},
    }
    labels = {"app": "dcgm"}
    team.created(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "dcgm", "namespace": team.namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
        }
    )
    wait_running(team.cluster, team.namespace, 1, "app=dcgm")
