"""What the tools show of a refusal, what becomes of the other objects, and that nothing running is ever lost to one."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import container, deployment, gpus, job
from tests.e2e_gitops.app import Object, config_map, without_empty
from tests.e2e_gitops.argocd import MODES
from tests.e2e_gitops.remaining import wait_for_none

if TYPE_CHECKING:
    from tests.e2e_gitops.world import World

pytestmark = pytest.mark.e2e

#: The rule, the sums and the remedy of each refusal below.
OVERCOMMITTED = (
    "host-memory",
    "limit 64Gi / request 8Gi = 8, above the ratio of 2",
    "Write resources.requests.memory: 32Gi or more",
)
FRAGMENTED = ("gang", "8 = 2 x 3 + 2", "Request 1 or 2 or 4 or 8 nvidia.com/gpu per pod")
#: Words that make a tool delete the running object to make it anew.
FATAL = ("is immutable", "immutable field")


def served(namespace: str, resources: dict[str, Any]) -> Object:
    """A Deployment that is judged but starts no pods."""
    return without_empty(deployment("serve", namespace, container(resources), replicas=0))


def trained(namespace: str, per_pod: int) -> Object:
    """A gang of two pods."""
    return without_empty(job("train", namespace, container(gpus(per_pod, "64Gi")), size=2))


def bad_app(namespace: str) -> list[Object]:
    """A ConfigMap and a Deployment that are fine, and a Job that is not."""
    return [config_map(namespace), served(namespace, gpus(1, "32Gi")), trained(namespace, 3)]


def sync_result(world: World, name: str, kind: str) -> str:
    """What Argo CD's last sync says about the object of this kind."""
    found = (world.argo.status(name).get("operationState") or {}).get("syncResult") or {}
    return next((one.get("message", "") for one in found.get("resources") or [] if one["kind"] == kind), "")


def assert_told(text: str, wanted: tuple[str, ...]) -> None:
    """The user reads all of it, and nothing that a tool takes for a reason to delete."""
    assert all(part in text for part in wanted), text
    assert not any(word in text for word in FATAL), text


@pytest.mark.parametrize("mode", MODES)
def test_argo_cd_shows_why_an_object_is_refused_and_applies_the_others(door: World, mode: str) -> None:
    name = f"refused-{mode}"
    door.add_namespace(name)
    door.repository.commit({name: bad_app(name)})
    door.cluster.apply(door.argo.application(name, name, mode))
    wait_until(lambda: sync_result(door, name, "Job"), 120, "Argo CD to have tried")
    assert_told(sync_result(door, name, "Job"), FRAGMENTED)
    kept = {kind: bool(door.list(kind, name)) for kind in ("Deployment", "Job")}
    assert kept == {"Deployment": True, "Job": False}
    assert "settings" in {one["metadata"]["name"] for one in door.list("ConfigMap", name)}


def test_flux_shows_why_an_object_is_refused_and_applies_nothing(door: World) -> None:
    name = "refused-flux"
    door.add_namespace(name)
    door.flux.publish(name, bad_app(name))
    door.cluster.apply(door.flux.kustomization(name))
    wait_until(lambda: door.flux.ready(name).get("status") == "False", 120, "Flux to have tried")
    ready = door.flux.ready(name)
    assert ready["reason"] == "ReconciliationFailed"
    assert f"Job/{name}/train dry-run failed (Forbidden)" in ready["message"]
    assert_told(ready["message"], FRAGMENTED)
    assert not door.list("Deployment", name)
    assert not door.list("Job", name)
    assert "settings" not in {one["metadata"]["name"] for one in door.list("ConfigMap", name)}

    def events() -> str:
        found = door.cluster.request("GET", "/api/v1/namespaces/flux-system/events").body["items"]
        mine = [one["message"] for one in found if one["involvedObject"]["name"] == name and one["type"] == "Warning"]
        return "\n".join(mine)

    assert_told(wait_until(events, 30, "the event"), FRAGMENTED)
    # It tries again by itself: what Git says next is applied.
    fixed = [*bad_app(name)[:2], trained(name, 2)]
    revision = door.flux.publish(name, fixed)
    door.flux.wait_applied(name, revisions={name: revision})
    assert door.list("Job", name)


#: How the tools are told to delete and make anew what cannot be changed.
FORCED = ("argocd-force", "flux-force", "kubectl-force")


@pytest.mark.parametrize("what", ["Deployment", "Job"])
@pytest.mark.parametrize("tool", FORCED)
def test_a_refused_update_leaves_the_running_object_alone_even_where_the_tool_is_told_to_force(
    door: World, tool: str, what: str
) -> None:
    name = f"{tool}-{what.lower()}"
    door.add_namespace(name)
    good = served(name, gpus(1, "32Gi")) if what == "Deployment" else trained(name, 2)
    bad = served(name, gpus(1, "64Gi", request="8Gi")) if what == "Deployment" else trained(name, 3)
    wanted = OVERCOMMITTED if what == "Deployment" else FRAGMENTED
    apply_first(door, tool, name, good)
    before = door.get(good)
    assert before is not None
    assert_told(apply_by_force(door, tool, name, bad), wanted)
    after = door.get(good)
    assert after is not None, "the running object is gone"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]


def apply_first(world: World, tool: str, name: str, obj: Object) -> None:
    """Let the tool apply it."""
    if tool == "flux-force":
        world.flux.publish(name, [obj])
        world.cluster.apply(world.flux.kustomization(name, force=True))
        world.flux.wait_applied(name)
    elif tool == "argocd-force":
        world.repository.commit({name: [obj]})
        application = world.argo.application(name, name, options=("Force=true",))
        world.cluster.apply(application)
        world.argo.wait_synced(name)
    else:
        world.cluster.apply(obj)
    kueue_has_settled(world, name)


def apply_by_force(world: World, tool: str, name: str, obj: Object) -> str:
    """Let the tool apply it over what is there, by force, several times; what it says."""
    if tool == "flux-force":
        revision = world.flux.publish(name, [obj])

        def failed() -> dict[str, Any] | None:
            ready = world.flux.ready(name)
            attempted = world.flux.status(name).get("lastAttemptedRevision")
            return ready if attempted == revision and ready.get("status") == "False" else None

        wait_until(failed, 60, "Flux to have tried")
        for _ in range(2):
            world.flux.reconcile(name)
        return str(world.flux.ready(name).get("message", ""))
    if tool == "argocd-force":
        revision = world.repository.commit({name: [obj]})
        world.argo.refresh(name)

        def tried() -> bool:
            operation = world.argo.status(name).get("operationState") or {}
            result = (operation.get("syncResult") or {}).get("revision")
            return result == revision and "denied the request" in sync_result(world, name, obj["kind"])

        wait_until(tried, 120, "Argo CD to have tried")
        return sync_result(world, name, obj["kind"])
    return world.cluster.kubectl("apply", "--force", "-f", "-", input=orjson.dumps(obj), check=False).stderr


def kueue_has_settled(world: World, namespace: str) -> None:
    """Wait until Kueue has let the Jobs of the namespace start."""

    def left() -> list[str]:
        return [one["metadata"]["name"] for one in world.list("Job", namespace) if one["status"].get("ready") != 2]

    wait_for_none(left, 60, f"the gangs of {namespace} to run")


@pytest.mark.parametrize("mode", MODES)
def test_argo_cd_shows_why_an_update_is_refused_and_the_running_object_stays(door: World, mode: str) -> None:
    name = f"worse-{mode}"
    door.add_namespace(name)
    good = served(name, gpus(1, "32Gi"))
    door.repository.commit({name: [good, config_map(name)]})
    door.cluster.apply(door.argo.application(name, name, mode))
    door.argo.wait_synced(name)
    before = door.get(good)
    assert before is not None
    bad = served(name, gpus(1, "64Gi", request="8Gi"))
    door.repository.commit({name: [bad, config_map(name, epochs="4")]})
    door.argo.refresh(name)

    def told() -> str:
        found = sync_result(door, name, "Deployment")
        if mode == "server-side-diff":
            # A comparison that follows, for whatever reason, takes the answer of the one before the refused one.
            door.argo.refresh(name)
            found = "\n".join(one["message"] for one in door.argo.status(name).get("conditions") or [])
        return found if "denied the request" in found else ""

    assert_told(wait_until(told, 120, "Argo CD to have tried"), OVERCOMMITTED)
    after = door.get(good)
    assert after is not None
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    settings = door.get(config_map(name))
    assert settings is not None
    # Argo CD compares on the server before it syncs: where that is refused, nothing of the app is applied.
    assert settings["data"]["epochs"] == ("3" if mode == "server-side-diff" else "4")
    assert door.cluster.request("PUT", _path(after), {**after, "spec": bad["spec"]}).status == http.HTTPStatus.FORBIDDEN


def _path(obj: Object) -> str:
    meta = obj["metadata"]
    return f"/apis/apps/v1/namespaces/{meta['namespace']}/deployments/{meta['name']}"
