"""Nothing drifts: not after gpugate's installation, a change of its policy or a restart, nor where it was installed late.

One timeline for all tools and modes, side by side in one cluster; each of its stages is watched for a minute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e.workloads import FINISH, container, gpus, job
from tests.e2e_gitops.app import app, older_app
from tests.e2e_gitops.argocd import MODES
from tests.e2e_gitops.quiet import ROUNDS, App, Seen, watch
from tests.e2e_gitops.remaining import wait_for_none

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.e2e_gitops.world import World

pytestmark = pytest.mark.e2e

ALL = (*(f"argocd-{mode}" for mode in MODES), "flux")
AFTER_INSTALL, INSTALLED_LATE = "after install", "installed late"
AFTER_POLICY, AFTER_RESTART = "after a policy change", "after a restart"
#: Who is watched when: apps that came after gpugate, and apps that were there before it.
CASES = [
    *((name, AFTER_INSTALL) for name in ALL),
    *((f"{name}-late", INSTALLED_LATE) for name in ALL),
    *((f"{name}{late}", stage) for stage in (AFTER_POLICY, AFTER_RESTART) for late in ("", "-late") for name in ALL),
]


@dataclass(frozen=True)
class Gangs:
    """What became of an app's two gangs, of which the quota holds one."""

    running: str
    waiting: str
    workloads: Mapping[str, str]
    """The UIDs of Kueue's Workloads."""


@dataclass(frozen=True)
class Timeline:
    """What was seen at each stage, by stage and name of the app."""

    apps: Mapping[str, App]
    seen: Mapping[str, Mapping[str, Seen]]
    first: Mapping[str, Gangs]
    second: Mapping[str, Gangs]


@pytest.fixture(scope="module")
def timeline(world: World) -> Iterator[Timeline]:
    """The apps, taken through all stages."""
    early = [App(name, name.removeprefix("argocd-"), app(name)) for name in ALL]
    late = [App(f"{name}-late", name.removeprefix("argocd-"), older_app(f"{name}-late")) for name in ALL]
    apps = [*early, *late]
    for one in apps:
        world.add_namespace(one.name)
    seen: dict[str, dict[str, Seen]] = {}
    _deploy(world, late)
    world.gate.register()
    try:
        world.gate.wait_in_force()
        _deploy(world, early)
        first = {one.name: _gangs(world, one.name) for one in apps}
        watched = watch(world, apps)
        seen[AFTER_INSTALL] = {one.name: watched[one.name] for one in early}
        seen[INSTALLED_LATE] = {one.name: watched[one.name] for one in late}

        before = _new_job(world)
        world.gate.set_policy(CHANGED)
        assert _new_job(world) != before, "the policy change would change nothing, so nothing could drift"
        seen[AFTER_POLICY] = watch(world, apps)

        for one in apps:
            _finish(world, one.name, first[one.name].running)
        _roll_out(world, apps)
        world.gate.kill()
        world.gate.start()
        world.gate.wait_in_force()
        second = {one.name: _gangs(world, one.name) for one in apps}
        _wait_applied(world, apps)
        seen[AFTER_RESTART] = watch(world, apps)
        yield Timeline({one.name: one for one in apps}, seen, first, second)
    finally:
        world.gate.unregister()
        world.gate.set_policy({"mode": "Enforce"})


NEXT_IMAGE = "registry.example.com/train:2"
#: Another /dev/shm and another toleration for every workload that comes in from now on.
CHANGED: Mapping[str, Any] = {
    "mode": "Enforce",
    "rules": {
        "shared-memory": {"maxSize": "4Gi"},
        "tolerations": {"taints": [{"key": "example.com/new", "effect": "NoSchedule"}]},
    },
}


def _new_job(world: World) -> dict[str, Any]:
    """The pod spec of a gang as the apiserver would store it now."""
    manifest = job("new", ALL[0], container(gpus(8, "512Gi", cpu="64")), size=2)
    answer = world.cluster.request("POST", f"/apis/batch/v1/namespaces/{ALL[0]}/jobs?dryRun=All", manifest)
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.body["spec"]["template"]["spec"]
    return found


def _deploy(world: World, apps: list[App]) -> None:
    """Put the apps into Git and let the tools apply them."""
    world.repository.commit({one.name: one.objects for one in apps})
    for one in apps:
        if one.by_flux:
            world.flux.publish(one.name, one.objects)
            world.cluster.apply(world.flux.kustomization(one.name))
        else:
            world.cluster.apply(world.argo.application(one.name, one.name, one.mode))
    _wait_applied(world, apps)


def _roll_out(world: World, apps: list[App]) -> None:
    """Have the people change their Deployment in Git, now that the policy is another one (StatefulSets: see test_limits.py)."""
    for one in apps:
        for obj in one.objects:
            if obj["kind"] == "Deployment":
                for container_ in obj["spec"]["template"]["spec"]["containers"]:
                    container_["image"] = NEXT_IMAGE
    revision = world.repository.commit({one.name: one.objects for one in apps})
    revisions = {one.name: world.flux.publish(one.name, one.objects) for one in apps if one.by_flux}
    argo = [one.name for one in apps if not one.by_flux]
    world.argo.refresh(*argo)
    world.argo.wait_synced(*argo, revision=revision)
    world.flux.wait_applied(*revisions, revisions=revisions)
    for one in apps:
        wait_for_none(partial(_old_pods, world, one.name), 120, f"the new image in {one.name}")


def _old_pods(world: World, namespace: str) -> list[str]:
    """What is left to be rolled out of the Deployment."""
    controllers = world.list("Deployment", namespace)
    left = [
        f"{one['metadata']['name']}: {one['status']}"
        for one in controllers
        if (one["status"].get("updatedReplicas"), one["status"].get("readyReplicas")) != (one["spec"]["replicas"],) * 2
    ]
    pods = [one for one in world.list("Pod", namespace) if one["metadata"]["labels"].get("app") == "serve"]
    return left + [one["metadata"]["name"] for one in pods if one["spec"]["containers"][0]["image"] != NEXT_IMAGE]


def _wait_applied(world: World, apps: list[App]) -> None:
    world.argo.wait_synced(*(one.name for one in apps if not one.by_flux))
    world.flux.wait_applied(*(one.name for one in apps if one.by_flux))


def _gangs(world: World, namespace: str) -> Gangs:
    """Wait until Kueue let one gang of the namespace run and holds the other; which is which."""

    def parted() -> tuple[str, str] | None:
        jobs = [one for one in world.list("Job", namespace) if not _is_over(one)]
        running = [one["metadata"]["name"] for one in jobs if one["status"].get("ready") == 2]
        waiting = [one["metadata"]["name"] for one in world.list("Job", namespace) if one["spec"].get("suspend")]
        return (running[0], waiting[0] if waiting else "") if running and len(jobs) == len(running) + len(waiting) else None

    found = wait_until(parted, 120, f"a gang of {namespace} to run", interval=0.3)
    assert found is not None
    # A pod of the Deployment has one of its own, which goes with it when the Deployment is rolled out.
    kept = [one["metadata"] for one in world.list("Workload", namespace) if not one["metadata"]["name"].startswith("pod-")]
    return Gangs(*found, {one["name"]: one["uid"] for one in kept})


def _is_over(obj: Mapping[str, Any]) -> bool:
    return any(one["type"] == "Complete" and one["status"] == "True" for one in obj["status"].get("conditions") or [])


def _finish(world: World, namespace: str, gang: str) -> None:
    """Let the gang's pods succeed, and wait until the Job is complete."""
    for one in world.list("Pod", namespace):
        if one["metadata"]["labels"].get("batch.kubernetes.io/job-name") == gang:
            patch = {"metadata": {"annotations": FINISH}}
            path = f"/api/v1/namespaces/{namespace}/pods/{one['metadata']['name']}"
            world.cluster.request("PATCH", path, patch, content_type="application/merge-patch+json")
    wait_for_none(
        lambda: [
            one["metadata"]["name"] for one in world.list("Job", namespace) if one["metadata"]["name"] == gang and not _is_over(one)
        ],
        60,
        f"{gang} of {namespace} to be complete",
    )


@pytest.mark.parametrize(("name", "stage"), CASES)
def test_nothing_drifts_while_the_tool_looks_again_and_again(timeline: Timeline, name: str, stage: str) -> None:
    seen = timeline.seen[stage][name]
    assert seen.looks == ROUNDS
    assert seen.problems == set()
    assert seen.statuses == ({"True"} if timeline.apps[name].by_flux else {"Synced"})
    assert seen.operations == 0
    assert seen.moved == {}


@pytest.mark.parametrize("name", [f"{name}{late}" for late in ("", "-late") for name in ALL])
def test_kueue_suspends_and_resumes_what_git_says_nothing_about(timeline: Timeline, world: World, name: str) -> None:
    first, second = timeline.first[name], timeline.second[name]
    assert {first.running, first.waiting} == {"train", "train-next"}
    assert (second.running, second.waiting) == (first.waiting, "")
    # The Workloads are the same ones all along: nothing was created anew, and no quota was given up and asked for again.
    assert set(first.workloads.items()) <= set(second.workloads.items())
    evicted = [
        condition
        for workload in world.list("Workload", name)
        for condition in workload["status"].get("conditions") or []
        if condition["type"] in {"Evicted", "Requeued"}
    ]
    assert evicted == []
    (tune,), (sweep,) = world.list("PyTorchJob", name), world.list("JobSet", name)
    assert (tune["spec"]["runPolicy"]["suspend"], sweep["spec"]["suspend"]) == (False, False)


@pytest.mark.parametrize("name", ALL)
def test_what_git_changes_gets_the_policy_of_today_and_what_it_does_not_keeps_what_it_has(
    timeline: Timeline, world: World, name: str
) -> None:
    assert timeline.apps[name]
    sizes = {}
    for kind in ("Deployment", "StatefulSet", "Job", "PyTorchJob", "JobSet"):
        text = orjson.dumps(world.list(kind, name)).decode()
        sizes[kind] = set(re.findall(r'"sizeLimit":"(\w+)"', text))
    assert sizes["Job"] == sizes["PyTorchJob"] == sizes["JobSet"] == {"16Gi"}
    # Only the image is another: edits that were right for the pods are so still.
    assert sizes["Deployment"] == sizes["StatefulSet"] == {"16Gi"}
    for one in world.list("Deployment", name):
        assert one["spec"]["template"]["spec"]["containers"][0]["image"] == NEXT_IMAGE
