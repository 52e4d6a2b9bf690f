"""Whatever way kubectl or Helm brings the app in, the same comes of it, and a second time changes nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.e2e.controlplane import wait_until
from tests.e2e_gitops.app import Object, app
from tests.e2e_gitops.repository import as_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e_gitops.world import World

pytestmark = pytest.mark.e2e

#: What differs between any two objects.
_OWN_METADATA = frozenset({"creationTimestamp", "generation", "managedFields", "namespace", "resourceVersion", "uid"})
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Kueue names a Workload after its job and a hash of the job's UID.
_WORKLOAD = re.compile(r"(job|deployment|pod|statefulset)-[a-z-]+-[0-9a-f]{5}\b")


def objects(namespace: str) -> list[Object]:
    """The app with the one gang that its quota holds."""
    return [one for one in app(namespace) if one["metadata"]["name"] != "train-next"]


def as_list(manifests: list[Object]) -> bytes:
    return orjson.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})


def apply(world: World, manifests: list[Object], _: Path) -> None:
    world.cluster.kubectl("apply", "-f", "-", input=as_list(manifests))


def apply_server_side(world: World, manifests: list[Object], _: Path) -> None:
    world.cluster.kubectl("apply", "--server-side", "-f", "-", input=as_list(manifests))


def create_or_replace(world: World, manifests: list[Object], _: Path) -> None:
    """Create what is not there; replace what is, but for Jobs: the API takes no Job without its selector, gpugate or not."""
    for one in manifests:
        there = world.get(one) is not None
        if not (there and one["kind"] == "Job"):
            world.cluster.kubectl("replace" if there else "create", "-f", "-", input=orjson.dumps(one))


def helm_template_and_apply(world: World, manifests: list[Object], folder: Path) -> None:
    chart = folder / "chart"
    (chart / "templates").mkdir(parents=True, exist_ok=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: app\nversion: 1.0.0\n")
    for name, content in as_files(manifests).items():
        (chart / "templates" / name).write_bytes(content)
    rendered = world.run_tool("helm", "template", "app", str(chart))
    world.cluster.kubectl("apply", "-f", "-", input=rendered)


WAYS: dict[str, Callable[[World, list[Object], Path], None]] = {
    "apply": apply,
    "server-side": apply_server_side,
    "replace": create_or_replace,
    "helm": helm_template_and_apply,
}


def settled(world: World, manifests: list[Object]) -> dict[str, Object]:
    """The live objects, once Kueue lets the gang run and its pods are ready."""
    namespace = manifests[0]["metadata"]["namespace"]

    def ready() -> bool:
        (gang,) = world.list("Job", namespace)
        (deployment,), (stateful,) = world.list("Deployment", namespace), world.list("StatefulSet", namespace)
        numbers = [gang["status"].get("ready"), deployment["status"].get("readyReplicas"), stateful["status"].get("readyReplicas")]
        suspended = [world.list(kind, namespace)[0]["spec"] for kind in ("JobSet", "PyTorchJob")]
        started = not suspended[0].get("suspend") and not (suspended[1].get("runPolicy") or {}).get("suspend")
        return numbers == [2, 1, 2] and started

    wait_until(ready, 120, f"the app in {namespace} to run", interval=0.3)
    found = {f"{one['kind']}/{one['metadata']['name']}": world.get(one) for one in manifests}
    return {name: one for name, one in found.items() if one is not None}


#: What Kueue writes into the templates of a job that it started.
_KUEUES_OWN = ("kueue.x-k8s.io/podset", "kueue.x-k8s.io/workload")


def lean(value: Any) -> Any:
    """Without Kueue's marks, what is empty, and a switch that is off.

    A client-side apply or a replace of a custom resource writes its lists as a whole, and with that undoes what Kueue put
    into them; that is so with and without gpugate.
    """
    if isinstance(value, dict):
        kept = {key: lean(item) for key, item in value.items() if key not in _KUEUES_OWN and (key, item) != ("suspend", False)}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    return [lean(item) for item in value] if isinstance(value, list) else value


def comparable(live: dict[str, Object], namespace: str) -> Any:
    """What must be the same whatever way the objects came in."""
    found = {}
    for name, one in live.items():
        metadata = {key: value for key, value in one["metadata"].items() if key not in _OWN_METADATA}
        annotations = {key: value for key, value in metadata.pop("annotations", {}).items() if key != _LAST_APPLIED}
        found[name] = {"metadata": metadata, "annotations": annotations, "spec": one.get("spec"), "data": one.get("data")}
    text = orjson.dumps(found, option=orjson.OPT_SORT_KEYS).decode().replace(namespace, "NAMESPACE")
    return lean(orjson.loads(_WORKLOAD.sub("WORKLOAD", _UID.sub("UID", text))))


@pytest.fixture(scope="module")
def outcomes(door: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, Object], dict[str, Object]]]:
    """The live objects after each way was gone once, and again."""
    found = {}
    for way in WAYS:
        door.add_namespace(f"way-{way}")
    folders = {way: tmp_path_factory.mktemp(way) for way in WAYS}
    for way, bring in WAYS.items():
        bring(door, objects(f"way-{way}"), folders[way])
    first = {way: settled(door, objects(f"way-{way}")) for way in WAYS}
    for way, bring in WAYS.items():
        bring(door, objects(f"way-{way}"), folders[way])
    for way in WAYS:
        found[way] = (first[way], settled(door, objects(f"way-{way}")))
    return found


@pytest.mark.parametrize("way", WAYS)
def test_the_second_time_changes_nothing(
    door: World, outcomes: dict[str, tuple[dict[str, Object], dict[str, Object]]], way: str
) -> None:
    first, second = outcomes[way]
    assert comparable(second, f"way-{way}") == comparable(first, f"way-{way}")
    assert {name: one["metadata"]["uid"] for name, one in second.items()} == {
        name: one["metadata"]["uid"] for name, one in first.items()
    }
    # A change of the template would be another generation. A replace takes away the controller's annotation of a Deployment,
    # which counts as one, too: there the ReplicaSets show that nothing was rolled out. Custom resources: see `lean`.
    native = [name for name in first if name.startswith(("Job/", "StatefulSet/"))]
    generations = [{name: live[name]["metadata"]["generation"] for name in native} for live in (first, second)]
    assert generations[0] == generations[1]
    assert len(door.list("ReplicaSet", f"way-{way}")) == 1


@pytest.mark.parametrize("way", [way for way in WAYS if way != "apply"])
def test_every_way_has_the_same_outcome(outcomes: dict[str, tuple[dict[str, Object], dict[str, Object]]], way: str) -> None:
    assert comparable(outcomes[way][1], f"way-{way}") == comparable(outcomes["apply"][1], "way-apply")


@pytest.mark.parametrize(("way", "options"), [("apply", ()), ("server-side", ("--server-side",)), ("helm", ())])
def test_kubectl_diff_finds_nothing_after_an_apply(
    door: World, outcomes: dict[str, tuple[dict[str, Object], dict[str, Object]]], way: str, options: tuple[str, ...]
) -> None:
    assert outcomes[way]
    done = door.cluster.kubectl("diff", *options, "-f", "-", input=as_list(objects(f"way-{way}")), check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
