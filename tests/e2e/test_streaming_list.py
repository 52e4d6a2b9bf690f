"""The reflector and the real apiserver: lists streamed or read in pages, and kinds that come and go."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from gpugate.webhook.kube.kubeconfig import connect
from gpugate.webhook.kube.lister import Discovery
from gpugate.webhook.kube.reflector import Reflector, run_all
from gpugate.webhook.kube.types import WatchedKind
from tests.e2e.controlplane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from gpugate.webhook.kube.types import EventType, JsonObject

pytestmark = pytest.mark.e2e

GROUP = "e2e.gpugate.io"
WIDGETS = WatchedKind("Widget", GROUP, ("v2", "v1"), "widgets")
GADGETS = WatchedKind("Gadget", GROUP, ("v1",), "gadgets")
NODES = WatchedKind("Node", "", ("v1",), "nodes")
PODS = WatchedKind("Pod", "", ("v1",), "pods")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_READER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "facts-reader"},
    "rules": [{"apiGroups": ["", GROUP], "resources": ["nodes", "pods", "widgets", "gadgets"], "verbs": ["get", "list", "watch"]}],
}


@pytest.fixture(scope="module", params=[True, False], ids=["streamed", "in pages"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, bool]]:
    """A cluster whose apiserver streams lists, and one whose apiserver does not."""
    arguments = [] if request.param else ["--feature-gates=WatchList=false"]
    with ControlPlane.start(tmp_path_factory.mktemp("lists"), apiserver_args=arguments) as started:
        started.apply(_READER)
        started.kubectl("create", "clusterrolebinding", "facts-reader", "--clusterrole=facts-reader", "--user=facts-reader")
        yield started, bool(request.param)


class Names:
    """A sink that is given names, keeps them by kind, and lets others wait for them."""

    def __init__(self) -> None:
        self.now: dict[str, list[str] | None] = {}
        self.replacements = 0
        self._changed = asyncio.Event()

    def replaced(self, kind: WatchedKind, objects: Sequence[Any], /) -> None:
        self.replacements += 1
        self._tell(kind, sorted(objects))

    def changed(self, kind: WatchedKind, event_type: EventType, item: Any, /) -> None:
        left = {*(self.now[kind.plural] or ())} - {item}
        self._tell(kind, sorted(left if event_type == "DELETED" else left | {item}))

    def absent(self, kind: WatchedKind, /) -> None:
        self._tell(kind, None)

    def _tell(self, kind: WatchedKind, names: list[str] | None) -> None:
        self.now[kind.plural] = names
        self._changed.set()

    async def until(self, resource: str, names: list[str] | None, seconds: float = 30.0) -> None:
        """Wait for exactly these names; None stands for an absent kind."""
        async with asyncio.timeout(seconds):
            while resource not in self.now or self.now[resource] != names:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def following(control_plane: ControlPlane, *kinds: WatchedKind) -> AsyncIterator[tuple[Names, list[Reflector], list[str]]]:
    """Reflectors that run under an account which may read these kinds and no more, and the paths that they read in pages."""
    names, pages = Names(), list[str]()
    client = await connect(control_plane.kubeconfig_for("facts-reader"))
    whole = client.list

    async def listing(path: str, **options: Any) -> JsonObject:
        pages.append(path)
        return await whole(path, **options)

    client.list = listing  # type: ignore[method-assign]
    discovery = Discovery(client)
    strip: Callable[[JsonObject], str] = lambda item: str(item["metadata"]["name"])  # noqa: E731
    reflectors = [Reflector(client, kind, names, strip=strip, discovery=discovery) for kind in kinds]
    task = asyncio.create_task(run_all(reflectors))
    try:
        yield names, reflectors, pages
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


def definition(kind: WatchedKind) -> dict[str, Any]:
    """The CRD of a kind that takes anything."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": anything}]
    named = {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name, "listKind": f"{kind.name}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": named, "versions": versions},
    }


def pod(name: str) -> dict[str, Any]:
    """A pod that no scheduler touches."""
    spec = {"schedulerName": "none", "containers": [{"name": "c", "image": "x"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def widget(name: str) -> dict[str, Any]:
    """A custom resource."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": name}}


async def install(control_plane: ControlPlane, kind: WatchedKind, *objects: dict[str, Any]) -> None:
    """Add the CRD of a kind, and objects once it takes them."""
    await asyncio.to_thread(control_plane.apply, definition(kind))
    await asyncio.to_thread(control_plane.kubectl, "wait", "--for=condition=Established", f"crd/{kind.plural}.{GROUP}")
    if objects:
        await asyncio.to_thread(control_plane.apply, *objects)


async def delete(control_plane: ControlPlane, path: str) -> None:
    """Delete an object, at once where it is a pod."""
    answer = await asyncio.to_thread(control_plane.request, "DELETE", f"{path}?gracePeriodSeconds=0")
    assert answer.status in {200, 202}, answer


def test_nodes_pods_and_custom_resources_are_listed_and_then_watched(cluster: tuple[ControlPlane, bool]) -> None:
    control_plane, streamed = cluster

    async def scenario() -> None:
        control_plane.add_node("first")
        control_plane.apply(pod("first"))
        await install(control_plane, WIDGETS, widget("first"), widget("second"))
        async with following(control_plane, NODES, PODS, WIDGETS) as (names, reflectors, pages):
            await names.until("nodes", ["first"])
            await names.until("pods", ["first"])
            await names.until("widgets", ["first", "second"])
            assert names.replacements == 3
            await asyncio.to_thread(control_plane.apply, pod("later"), widget("later"))
            await delete(control_plane, f"/apis/{GROUP}/v1/widgets/first")
            await delete(control_plane, "/api/v1/namespaces/default/pods/first")
            await names.until("widgets", ["later", "second"])
            await names.until("pods", ["later"])
            states = {reflector.state.resource: reflector.state for reflector in reflectors}
            assert {resource: state.objects for resource, state in states.items()} == {"nodes": 1, "pods": 1, "widgets": 2}
            assert {state.phase for state in states.values()} == {"synced"}
        paths = ["/api/v1/nodes", "/api/v1/pods", f"/apis/{GROUP}/v1/widgets"]
        assert sorted(pages) == ([] if streamed else paths)
        await delete(control_plane, f"{_CRDS}/widgets.{GROUP}")

    asyncio.run(scenario())


def test_a_kind_that_comes_goes_and_comes_again_is_followed_each_time(cluster: tuple[ControlPlane, bool]) -> None:
    control_plane, _ = cluster

    async def scenario() -> None:
        gadget = {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": "a"}}
        async with following(control_plane, GADGETS) as (names, reflectors, _pages):
            for _ in range(2):
                await names.until("gadgets", None)
                await install(control_plane, GADGETS)
                # Seen within one look of five seconds and the apiserver's own time to set the kind up.
                await names.until("gadgets", [], seconds=15.0)
                await asyncio.to_thread(control_plane.apply, gadget)
                await names.until("gadgets", ["a"])
                await delete(control_plane, f"{_CRDS}/gadgets.{GROUP}")
                await names.until("gadgets", None, seconds=20.0)
            assert (reflectors[0].state.phase, reflectors[0].state.objects) == ("absent", 0)

    asyncio.run(scenario())
