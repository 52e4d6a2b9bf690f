"""Known limits, each with what it would take: expected to fail, so that a limit which goes away is noticed. Listed in docs/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import container, deployment, gpus, job, pod
from tests.e2e_gitops.app import Object, stateful_set, without_empty

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e_gitops.world import World

pytestmark = pytest.mark.e2e


def synced_once(world: World, name: str, obj: Object, mode: str) -> str:
    """What Argo CD says of the app after one sync that nothing repeats."""
    world.add_namespace(name)
    world.repository.commit({name: [obj]})
    world.cluster.apply(world.argo.application(name, name, mode, automated=False))
    world.argo.refresh(name)
    world.argo.sync(name)
    wait_until(lambda: (world.argo.status(name).get("operationState") or {}).get("phase") == "Succeeded", 60, "the sync")
    world.argo.refresh(name)
    return str(world.argo.status(name)["sync"]["status"])


def with_empty(namespace: str, field: str) -> Object:
    """A Deployment that states an empty list or map where gpugate puts something."""
    obj = without_empty(deployment("serve", namespace, container(gpus(1, "32Gi")), replicas=0))
    spec = obj["spec"]["template"]["spec"]
    holders: dict[str, tuple[Object, Any]] = {
        "tolerations": (spec, []),
        "volumes": (spec, []),
        "volumeMounts": (spec["containers"][0], []),
        "labels": (obj["metadata"], {}),
    }
    holder, empty = holders[field]
    holder[field] = empty
    return obj


EMPTY_FIELDS = ("tolerations", "volumes", "volumeMounts", "labels")


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="Argo CD's default diff takes an empty list or map in Git for one that must stay empty",
)
@pytest.mark.parametrize("field", EMPTY_FIELDS)
def test_an_empty_field_in_git_is_no_drift_under_the_default_diff(door: World, field: str) -> None:
    name = f"empty-{field.lower()}"
    assert synced_once(door, name, with_empty(name, field), "default") == "Synced"


@pytest.mark.parametrize("field", EMPTY_FIELDS)
def test_an_empty_field_in_git_is_no_drift_under_the_server_side_diff(door: World, field: str) -> None:
    name = f"empty-{field.lower()}-ssd"
    assert synced_once(door, name, with_empty(name, field), "server-side-diff") == "Synced"


def suspended_gang(namespace: str) -> Object:
    """A gang that Git wants suspended."""
    obj = without_empty(job("train", namespace, container(gpus(1, "32Gi")), size=2))
    obj["spec"]["suspend"] = True
    return obj


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="`suspend` belongs to Kueue: Git that states true stops what Kueue started"
)
@pytest.mark.parametrize("mode", ["default", "server-side-diff", "server-side-apply"])
def test_suspend_true_in_git_is_no_drift(door: World, mode: str) -> None:
    name = f"suspended-{mode}"
    synced_once(door, name, suspended_gang(name), mode)
    wait_until(lambda: any(one["status"].get("ready") == 2 for one in door.list("Job", name)), 60, "Kueue to start it")
    door.argo.refresh(name)
    assert door.argo.status(name)["sync"]["status"] == "Synced"


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="`suspend` belongs to Kueue: Git that states true stops what Kueue started"
)
def test_suspend_true_in_git_is_left_as_kueue_has_it_by_flux(door: World) -> None:
    name = "suspended-flux"
    door.add_namespace(name)
    door.flux.publish(name, [suspended_gang(name)])
    door.cluster.apply(door.flux.kustomization(name))
    door.flux.wait_applied(name)
    wait_until(lambda: any(one["status"].get("ready") == 2 for one in door.list("Job", name)), 60, "Kueue to start it")
    door.flux.reconcile(name)
    assert set(door.flux.applied(name)[-1].values()) == {"unchanged"}


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="pods are not sent to the mutating door on UPDATE, so the API asks to make one anew"
)
def test_a_refused_update_leaves_a_bare_pod_alone_where_flux_is_told_to_force(door: World) -> None:
    name = "bare-pod"
    door.add_namespace(name)
    good = pod("train", name, container(gpus(1, "32Gi")))
    door.flux.publish(name, [good])
    door.cluster.apply(door.flux.kustomization(name, force=True))
    door.flux.wait_applied(name)
    before = door.get(good)
    assert before is not None
    revision = door.flux.publish(name, [pod("train", name, container(gpus(1, "64Gi", request="8Gi")))])
    wait_until(lambda: door.flux.status(name).get("lastAttemptedRevision") == revision, 60, "Flux to have tried")
    door.flux.reconcile(name)
    after = door.get(good)
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="Kueue lets no pod join a group whose tolerations are others, and those of new pods are as the policy has them today",
)
def test_a_pod_of_a_stateful_set_in_a_queue_is_replaced_after_a_policy_change(door: World) -> None:
    name = "replaced"
    door.add_namespace(name)
    shards = without_empty(stateful_set(name))
    door.cluster.apply(shards)

    def ready() -> bool:
        found = door.get(shards)
        return found is not None and found["status"].get("readyReplicas") == 2

    wait_until(ready, 60, "the pods to be ready")
    taints = {"taints": [{"key": "example.com/new", "effect": "NoSchedule"}]}
    door.gate.set_policy({"mode": "Enforce", "rules": {"tolerations": taints}})
    try:
        before = {one["metadata"]["uid"] for one in door.list("Pod", name)}
        door.cluster.kubectl("delete", "pod", "shards-1", "-n", name)
        wait_until(lambda: {one["metadata"]["uid"] for one in door.list("Pod", name)} - before, 60, "the new pod")
        wait_until(ready, 30, "the new pod to be ready")
    finally:
        door.gate.set_policy({"mode": "Enforce"})


def with_own_tolerations(namespace: str) -> Object:
    """A Deployment whose Git states a list of tolerations."""
    obj = without_empty(deployment("serve", namespace, container(gpus(1, "32Gi"))))
    obj["spec"]["template"]["spec"]["tolerations"] = [{"key": "example.com/own", "operator": "Exists"}]
    return obj


@pytest.fixture
def without_pod_level(door: World) -> Iterator[World]:
    """gpugate at the door, but that pods are not mutated."""
    patch = (
        '[{"op": "test", "path": "/webhooks/0/name", "value": "pods.mutate.gpugate.io"}, {"op": "remove", "path": "/webhooks/0"}]'
    )
    door.cluster.kubectl("patch", "mutatingwebhookconfiguration", "gpugate-mutating", "--type=json", "--patch", patch)
    try:
        wait_until(lambda: not _tolerates(_dry_pod(door)), 30, "the apiserver to send pods no more")
        yield door
    finally:
        door.gate.register()
        wait_until(lambda: _tolerates(_dry_pod(door)), 30, "the apiserver to send pods again")


def _dry_pod(world: World) -> Object:
    probe = pod("probe", "default", container(gpus(1, "32Gi")))
    answer = world.cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", probe)
    found: Object = answer.body
    return found


def _tolerates(obj: Object) -> bool:
    return any(one.get("key") == "nvidia.com/gpu" for one in obj.get("spec", {}).get("tolerations", []))


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a list of tolerations that Git states is left to the pods, and those are not mutated here",
)
def test_tolerations_in_git_are_completed_with_the_pod_level_switched_off(without_pod_level: World) -> None:
    world, name = without_pod_level, "no-pod-level"
    assert synced_once(world, name, with_own_tolerations(name), "default") == "Synced"
    pods = wait_until(lambda: world.list("Pod", name), 60, "the pod")
    assert _tolerates(pods[0])


def test_tolerations_in_git_are_completed_on_the_pods(door: World) -> None:
    name = "pod-level"
    assert synced_once(door, name, with_own_tolerations(name), "default") == "Synced"
    pods = wait_until(lambda: door.list("Pod", name), 60, "the pod")
    assert _tolerates(pods[0])
    served = door.get(with_own_tolerations(name))
    assert served is not None
    assert served["spec"]["template"]["spec"]["tolerations"] == [{"key": "example.com/own", "operator": "Exists"}]
