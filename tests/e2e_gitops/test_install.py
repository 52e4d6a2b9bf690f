"""gpugate itself is installed by Argo CD and by Flux, from the manifests that are in manifests/gitops.

Three things are not as in a cluster, for nothing routes to a Service here and no image is pulled: the repositories' addresses, an
overlay that has the webhooks call this machine instead of the Service, and the server, which runs as a process beside KWOK's pods.
"""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from ruamel.yaml import YAML

from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import container, deployment, gpus
from tests.e2e_gitops.app import Object, config_map, without_empty
from tests.e2e_gitops.remaining import wait_for_none
from tests.e2e_gitops.repository import as_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e_gitops.world import World

pytestmark = pytest.mark.e2e

MANIFESTS = Path(__file__).parents[2] / "manifests"
GITOPS = MANIFESTS / "gitops"
OVERLAY = "overlay"
PHASES = {"mutating": "mutate", "validating": "validate"}
_MERGE = "application/merge-patch+json"
_POLICY = "/apis/gpugate.io/v1alpha1/gpupolicies/default"


def read(path: Path) -> list[Object]:
    """The documents of a file."""
    return [document for document in YAML(typ="safe").load_all(path.read_text()) if document]


def stated(phase: str) -> Object:
    """The webhook configuration as it is in Git."""
    (found,) = read(MANIFESTS / "base" / "webhook" / f"{phase}.yaml")
    return found


def platform(world: World) -> dict[str, bytes]:
    """The files of gpugate's repository that matter here, and the overlay that has the webhooks call this machine."""
    files = {str(path.relative_to(MANIFESTS.parent)): path.read_bytes() for path in MANIFESTS.rglob("*.yaml")}
    patches = []
    for phase, endpoint in PHASES.items():
        config = {"url": f"{world.gate.url}/{endpoint}"}
        operations = [
            {"op": "replace", "path": f"/webhooks/{at}/clientConfig", "value": config}
            for at in range(len(stated(phase)["webhooks"]))
        ]
        kind = f"{phase.capitalize()}WebhookConfiguration"
        patches.append({"target": {"kind": kind}, "patch": orjson.dumps(operations).decode()})
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../manifests/base"],
        "patches": patches,
    }
    return {**files, f"{OVERLAY}/kustomization.yaml": orjson.dumps(overlay)}


def team(namespace: str) -> list[Object]:
    """What a team keeps in its repository."""
    return [config_map(namespace), without_empty(deployment("serve", namespace, container(gpus(1, "32Gi")), replicas=0))]


def configuration(world: World, phase: str) -> Object | None:
    """The live webhook configuration."""
    path = f"/apis/admissionregistration.k8s.io/v1/{phase}webhookconfigurations/gpugate-{phase}"
    answer = world.cluster.request("GET", path)
    return answer.body if answer.status == 200 else None


def inject_bundle(world: World) -> None:
    """Put the CA into the webhook configurations as soon as they are there, as the documentation has it: a patch by name."""
    for phase in PHASES:
        live = wait_until(partial(configuration, world, phase), 180, f"the {phase} configuration", interval=0.2)
        assert live is not None
        bundle = {"caBundle": world.cluster.authority.ca_bundle}
        webhooks = [{"name": one["name"], "clientConfig": bundle} for one in live["webhooks"]]
        patch = orjson.dumps({"webhooks": webhooks}).decode()
        manager = "--field-manager=gpugate-certs"
        world.cluster.kubectl("patch", f"{phase}webhookconfiguration", f"gpugate-{phase}", manager, "--patch", patch)


def remove_gpugate(world: World) -> None:
    """Take away what the tools are to install; the server beside the cluster needs the CRD, the namespace and its rights."""
    world.gate.unregister()
    for kind in ("deployment", "service", "poddisruptionbudget", "networkpolicy"):
        world.cluster.kubectl("delete", kind, "--all", "-n", "gpugate-system")
    world.cluster.kubectl("delete", "gpupolicy", "--all")


@pytest.fixture
def bare(world: World) -> Iterator[World]:
    """The cluster without gpugate."""
    remove_gpugate(world)
    try:
        yield world
    finally:
        world.argo.delete("platform", "workloads", "gpugate-policies", "gpugate")
        world.flux.delete("workloads", "gpugate-policies", "gpugate")
        world.gate.unregister()
        world.gate.set_policy({"mode": "Enforce"})


def versions(world: World) -> dict[str, str]:
    """The resourceVersions of what would show that a tool writes again and again."""
    found = {phase: configuration(world, phase) for phase in PHASES}
    return {phase: one["metadata"]["resourceVersion"] for phase, one in found.items() if one}


def assert_as_in_git(world: World) -> None:
    """The live webhooks have no field that Git does not state but the CA, and that is still there."""
    for phase, endpoint in PHASES.items():
        live = configuration(world, phase)
        assert live is not None
        wanted = stated(phase)["webhooks"]
        for webhook in wanted:
            webhook["clientConfig"] = {"url": f"{world.gate.url}/{endpoint}", "caBundle": world.cluster.authority.ca_bundle}
        assert live["webhooks"] == wanted


def set_ready(world: World, status: str, generation: int | None = None, *, stalled: bool = False) -> None:
    """Write the policy's status, as a controller would."""
    live = world.cluster.request("GET", _POLICY).body
    seen = live["metadata"]["generation"] if generation is None else generation
    condition = {
        "type": "Ready",
        "status": status,
        "reason": "Tested",
        "message": "as the test says",
        "observedGeneration": seen,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = {
        "status": {
            "observedGeneration": seen,
            "conditions": [condition, *([{**condition, "type": "Stalled", "status": "True"}] if stalled else [])],
        }
    }
    answer = world.cluster.request("PATCH", f"{_POLICY}/status", patch, content_type=_MERGE)
    assert answer.status == 200, answer.body


def test_argo_cd_installs_gpugate_then_its_policies_then_the_workloads(bare: World) -> None:
    world, namespace = bare, "team-argocd"
    world.add_namespace(namespace)
    world.argo.configure(read(GITOPS / "argocd" / "argocd-cm.yaml")[0]["data"])
    files = platform(world)
    for path in (GITOPS / "argocd" / "apps").glob("*.yaml"):
        (application,) = read(path)
        source = application["spec"]["source"]
        source["repoURL"] = world.repository.url
        name = application["metadata"]["name"]
        source["path"] = {"gpugate": f"platform/{OVERLAY}", "workloads": namespace}.get(name, f"platform/{source['path']}")
        files[str(path.relative_to(MANIFESTS.parent))] = orjson.dumps(application)
    world.repository.commit_files({"platform": files, namespace: as_files(team(namespace))})
    (root,) = read(GITOPS / "argocd" / "app-of-apps.yaml")
    root["spec"]["source"] |= {"repoURL": world.repository.url, "path": f"platform/{root['spec']['source']['path']}"}
    patching = threading.Thread(target=inject_bundle, args=(world,), daemon=True)
    patching.start()
    world.cluster.apply(root)
    apps = ("gpugate", "gpugate-policies", "workloads")
    wait_for_none(lambda: [app for app in apps if not world.argo.status(app)], 240, "the Applications to be made")
    patching.join(60)
    world.argo.wait_synced("platform", *apps)
    wait_for_none(lambda: unhealthy(world, "platform", *apps), 120, "the Applications to be healthy")

    # Each wave began after the one before it was done.
    made = [world.argo.get(app)["metadata"]["creationTimestamp"] for app in apps]
    done = [world.argo.status(app)["operationState"]["finishedAt"] for app in apps]
    assert done[0] <= made[1] <= done[1] <= made[2]
    world.argo.refresh("gpugate", "gpugate-policies")
    world.argo.wait_synced("gpugate", "gpugate-policies")
    before, operations = versions(world), world.argo.operations("gpugate")
    for _ in range(3):
        world.argo.refresh("gpugate", "gpugate-policies", "workloads")
        assert {world.argo.status(app)["sync"]["status"] for app in apps} == {"Synced"}
    assert versions(world) == before
    assert world.argo.operations("gpugate") == operations
    assert_as_in_git(world)
    assert_came_through_the_door(world, namespace)

    for status, health in (("False", "Degraded"), ("Unknown", "Progressing"), ("True", "Healthy")):
        set_ready(world, status)
        wait_until(partial(policy_is, world, health), 60, f"a policy whose Ready is {status} to be {health}")
    set_ready(world, "Unknown", stalled=True)
    wait_until(partial(policy_is, world, "Degraded"), 60, "a policy that is stalled to be degraded")
    set_ready(world, "True", generation=0)
    wait_until(partial(policy_is, world, "Progressing"), 60, "a policy that nobody has looked at to be progressing")


def assert_came_through_the_door(world: World, namespace: str) -> None:
    """The workload was judged when it was made. The policy in Git is DryRun: what would have been done is in the log."""
    assert world.get(team(namespace)[1]) is not None
    reviews = world.gate.events(message="review", namespace=namespace, endpoint="mutate", kind="Deployment")
    assert any("wouldChange" in event for event in reviews)


def policy_is(world: World, health: str) -> bool:
    """Whether the Application with the policy is of this health, which is the policy's."""
    found = world.argo.status("gpugate-policies").get("health") or {}
    return bool(found.get("status") == health)


def unhealthy(world: World, *names: str) -> dict[str, Any]:
    """The Applications that are not healthy."""
    found = {name: (world.argo.status(name).get("health") or {}) for name in names}
    return {name: health for name, health in found.items() if health.get("status") != "Healthy"}


def test_flux_installs_gpugate_then_its_policies_then_the_workloads(bare: World) -> None:
    world, namespace = bare, "team-flux"
    world.add_namespace(namespace)
    revisions = {
        "gpugate": world.flux.publish_files("gpugate", platform(world)),
        "workloads": world.flux.publish("workloads", team(namespace)),
    }
    patching = threading.Thread(target=inject_bundle, args=(world,), daemon=True)
    patching.start()
    for name in ("workloads", "policies", "gpugate"):
        (kustomization,) = read(GITOPS / "flux" / f"{name}.yaml")
        kustomization["spec"]["retryInterval"] = "3s"
        if name == "gpugate":
            kustomization["spec"]["path"] = f"./{OVERLAY}"
        world.cluster.apply(kustomization)
    names = ("gpugate", "gpugate-policies", "workloads")
    wait_until(lambda: "dependency" in world.flux.ready("workloads").get("message", ""), 60, "the workloads to wait")
    patching.join(180)
    world.flux.wait_applied(*names, revisions={name: revisions.get(name, revisions["gpugate"]) for name in names})
    before = versions(world)
    applied = {name: len(world.flux.applied(name)) for name in names}
    for _ in range(3):
        world.flux.reconcile(*names)
    for name in names:
        for output in world.flux.applied(name)[applied[name] :]:
            assert set(output.values()) == {"unchanged"}
    assert versions(world) == before
    assert_as_in_git(world)
    assert_came_through_the_door(world, namespace)
