"""What a check may look at beside the object itself: the other objects of the same input, and the facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import MalformedError, Object, lookup
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.workload import PodSet

_Made = TypeVar("_Made")
#: Gives the value of a text that is YAML; None where it is not.
ReadYaml: TypeAlias = Callable[[str], Any]


def group_of(api_version: str) -> str:
    """The API group of an ``apiVersion``; empty for the core group."""
    return api_version.rpartition("/")[0]


def map_at(value: Any, *path: str | int) -> Object:  # noqa: ANN401 - any JSON value
    """The map at ``path``; an empty one where there is none."""
    found = lookup(value, path)
    return found if isinstance(found, dict) else {}


def list_at(value: Any, *path: str | int) -> list[Any]:  # noqa: ANN401 - any JSON value
    """The list at ``path``; an empty one where there is none."""
    found = lookup(value, path)
    return found if isinstance(found, list) else []


def maps_at(value: Any, *path: str | int) -> Iterator[tuple[int, Object]]:  # noqa: ANN401 - any JSON value
    """The maps in the list at ``path``, each with its index."""
    return ((at, one) for at, one in enumerate(list_at(value, *path)) if isinstance(one, dict))


def text_at(value: Any, *path: str | int) -> str:  # noqa: ANN401 - any JSON value
    """The text at ``path``; an empty one where there is none."""
    found = lookup(value, path)
    return found if isinstance(found, str) else ""


def texts_at(value: Any, *path: str | int) -> dict[str, str]:  # noqa: ANN401 - any JSON value
    """The texts by key of the map at ``path``."""
    return {key: one for key, one in map_at(value, *path).items() if isinstance(one, str)}


def _no_yaml(_text: str) -> Any:  # noqa: ANN401 - any JSON value
    return None


class LintContext:
    """What surrounds an object under review.

    Attributes:
        snapshot: the cluster.
        namespace: where objects go that state no namespace.
        read_yaml: reads a text that an object holds.
    """

    def __init__(
        self,
        objects: Iterable[Any] = (),
        snapshot: ClusterSnapshot = EMPTY_SNAPSHOT,
        namespace: str = "",
        read_yaml: ReadYaml = _no_yaml,
    ) -> None:
        self.snapshot = snapshot
        self.namespace = namespace or "default"
        self.read_yaml = read_yaml
        self._objects: dict[tuple[str, str], list[Object]] = {}
        self._kept: dict[str, Any] = {}
        for one in objects:
            if isinstance(one, dict):
                key = (group_of(text_at(one, "apiVersion")), text_at(one, "kind"))
                self._objects.setdefault(key, []).append(one)

    def every(self) -> Iterator[Object]:
        """Every object of the same input."""
        return (one for found in self._objects.values() for one in found)

    def of(self, group: str, kind: str) -> list[Object]:
        """The objects of a kind in the same input."""
        return self._objects.get((group, kind), [])

    def names(self, group: str, kind: str) -> set[str]:
        """The names of the objects of a kind in the same input."""
        return self.kept(f"names {group} {kind}", lambda: {text_at(one, "metadata", "name") for one in self.of(group, kind)})

    def kept(self, name: str, make: Callable[[], _Made]) -> _Made:
        """What was made of these objects once, and is asked for by many of them."""
        if name not in self._kept:
            self._kept[name] = make()
        found: _Made = self._kept[name]
        return found

    def namespace_of(self, obj: Object) -> str:
        """The namespace that an object goes to."""
        return text_at(obj, "metadata", "namespace") or self.namespace

    def is_known(self, resource: str) -> bool:
        """Whether the facts have all objects of ``resource``."""
        return self.snapshot.sync_state(resource) is SyncState.SYNCED


class Pods(NamedTuple):
    """Alike pods of a workload.

    Attributes:
        owner: the workload as people name it.
        namespace: where they run.
        pods: the pods.
        number: how many there are; None where the workload does not say.
        batch: whether the workload runs to completion, so that several pods of it are one gang.
    """

    owner: str
    namespace: str
    pods: PodSet
    number: int | None
    batch: bool


def pods_in(around: LintContext) -> list[Pods]:
    """The pods of every workload of the same input; those that cannot be read are left out."""
    return around.kept("pods", lambda: [pods for obj in around.every() for pods in _pods_of(obj, around)])


def _pods_of(obj: Object, around: LintContext) -> Iterator[Pods]:
    kind = kind_of(text_at(obj, "apiVersion"), text_at(obj, "kind"))
    if kind is None:
        return
    owner = f"{kind.kind} {text_at(obj, 'metadata', 'name')}".strip()
    try:
        workload = open_workload(kind, obj, around.snapshot, namespace=around.namespace_of(obj))
        found = [Pods(owner, workload.namespace, pods, pods.count, kind.batch) for pods in workload.pod_sets if pods.is_whole]
    except (MalformedError, RecursionError):
        return
    yield from found
