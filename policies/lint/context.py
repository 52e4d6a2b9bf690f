"""The context of a lint check: other objects of the same input, and the snapshot."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import MalformedError, Object, lookup
from gpugate.policies.workloads.kinds import kind_of
from gpugate.policies.workloads.open import open_workload
from gpugate.policies.workloads.pod_set import PodSet

_Made = TypeVar("_Made")
#: Parses YAML text; returns None if it does not parse.
ReadYaml: TypeAlias = Callable[[str], Any]


def group_of(api_version: str) -> str:
    """Return the API group of an ``apiVersion``; empty for the core group."""
    return api_version.rpartition("/")[0]


def map_at(value: Any, *path: str | int) -> Object:  # noqa: ANN401 - any JSON value
    """Return the map at ``path``; an empty one if there is none."""
    result = lookup(value, path)
    return result if isinstance(result, dict) else {}


def list_at(value: Any, *path: str | int) -> list[Any]:  # noqa: ANN401 - any JSON value
    """Return the list at ``path``; an empty one if there is none."""
    result = lookup(value, path)
    return result if isinstance(result, list) else []


def maps_at(value: Any, *path: str | int) -> Iterator[tuple[int, Object]]:  # noqa: ANN401 - any JSON value
    """Yield the maps in the list at ``path``, each with its index."""
    return ((at, element) for at, element in enumerate(list_at(value, *path)) if isinstance(element, dict))


def text_at(value: Any, *path: str | int) -> str:  # noqa: ANN401 - any JSON value
    """Return the text at ``path``; an empty one if there is none."""
    result = lookup(value, path)
    return result if isinstance(result, str) else ""


def texts_at(value: Any, *path: str | int) -> dict[str, str]:  # noqa: ANN401 - any JSON value
    """Return the texts by key of the map at ``path``."""
    return {key: text for key, text in map_at(value, *path).items() if isinstance(text, str)}


class LintContext:
    """The other objects of the same input, the cluster, and the namespace of objects that state none."""

    def __init__(
        self,
        objects: Iterable[Any] = (),
        snapshot: ClusterSnapshot = EMPTY_SNAPSHOT,
        namespace: str = "",
        read_yaml: ReadYaml = lambda _text: None,
    ) -> None:
        self.snapshot = snapshot
        self.namespace = namespace or "default"
        self.read_yaml = read_yaml
        self._objects: dict[tuple[str, str], list[Object]] = {}
        self._cache: dict[str, Any] = {}
        for obj in objects:
            if isinstance(obj, dict):
                key = (group_of(text_at(obj, "apiVersion")), text_at(obj, "kind"))
                self._objects.setdefault(key, []).append(obj)

    def every(self) -> Iterator[Object]:
        """Return every object of the same input."""
        return chain.from_iterable(self._objects.values())

    def of(self, group: str, kind: str) -> list[Object]:
        """Return the objects of a kind in the same input."""
        return self._objects.get((group, kind), [])

    def names(self, group: str, kind: str) -> set[str]:
        """Return the names of the objects of a kind in the same input."""
        return self.cached(f"names {group} {kind}", lambda: {text_at(obj, "metadata", "name") for obj in self.of(group, kind)})

    def cached(self, name: str, make: Callable[[], _Made]) -> _Made:
        """Return the value of ``make``, computed once for all objects of the input."""
        if name not in self._cache:
            self._cache[name] = make()
        result: _Made = self._cache[name]
        return result

    def namespace_of(self, obj: Object) -> str:
        """Return the namespace of an object."""
        return text_at(obj, "metadata", "namespace") or self.namespace

    def is_known(self, resource: str) -> bool:
        """Return whether the snapshot has all objects of ``resource``."""
        return self.snapshot.sync_state(resource) is SyncState.SYNCED


class Pods(NamedTuple):
    """A pod set of the workload ``owner``; ``number`` is None if unknown, and several pods with ``batch`` are one gang."""

    owner: str
    namespace: str
    pods: PodSet
    number: int | None
    batch: bool


def pods_in(context: LintContext) -> list[Pods]:
    """Return the pod sets of every workload of the same input, without unreadable ones."""
    return context.cached("pods", lambda: [pods for obj in context.every() for pods in _pods_of(obj, context)])


def _pods_of(obj: Object, context: LintContext) -> Iterator[Pods]:
    kind = kind_of(text_at(obj, "apiVersion"), text_at(obj, "kind"))
    if kind is None:
        return
    owner = f"{kind.kind} {text_at(obj, 'metadata', 'name')}".strip()
    try:
        workload = open_workload(kind, obj, context.snapshot, namespace=context.namespace_of(obj))
        pod_sets = [pods for pods in workload.pod_sets if pods.is_whole]
        yield from [Pods(owner, workload.namespace, pods, pods.count, kind.batch) for pods in pod_sets]
    except (MalformedError, RecursionError):
        return
