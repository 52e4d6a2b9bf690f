"""Review parts of manifests, such as the ``resources`` of a container or an ``affinity``, in a Pod made for them."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from gpugate.policies.kube.accelerators import NVIDIA_GPU
from gpugate.policies.kube.fields import Object, Path, clone, from_pointer, lookup, pointer

_SPEC: Final[Path] = ("spec",)
_CONTAINER: Final[Path] = ("spec", "containers", 0)
_OF_A_CONTAINER: Final = "a container of a pod"
_OF_A_POD: Final = "the spec of a pod, or of a pod template"


class Place(NamedTuple):
    """The path of a field's parent in the Pod (None for another object), the same in words, and a check of its value."""

    parent: Path | None
    inside: str
    is_valid: Callable[[Any], bool]


def _is_list(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(value, list) and bool(value) and all(isinstance(element, dict) for element in value)


def _is_map(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(value, dict) and bool(value)


def _is_pod_spec(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return _is_map(value) and _is_list(value.get("containers"))


def _has(*names: str) -> Callable[[Any], bool]:
    """Return a check that a value is a map with keys among ``names`` only."""
    return lambda value: _is_map(value) and set(value) <= set(names)


_PLACES: Final[dict[str, Place]] = {
    "resources": Place(_CONTAINER, _OF_A_CONTAINER, _has("limits", "requests", "claims")),
    **dict.fromkeys(("env", "volumeMounts"), Place(_CONTAINER, _OF_A_CONTAINER, _is_list)),
    "affinity": Place(_SPEC, _OF_A_POD, _has("nodeAffinity", "podAffinity", "podAntiAffinity")),
    "nodeSelector": Place(_SPEC, _OF_A_POD, _is_map),
    **dict.fromkeys(("tolerations", "topologySpreadConstraints", "volumes"), Place(_SPEC, _OF_A_POD, _is_list)),
    **dict.fromkeys(("containers", "initContainers"), Place(_SPEC, _OF_A_POD, _is_list)),
    "spec": Place((), "a pod, or a pod template", _is_pod_spec),
    "metadata": Place((), "an object or a pod template", _has("annotations", "labels")),
    **dict.fromkeys(
        ("backoffLimit", "parallelism", "completions", "activeDeadlineSeconds", "ttlSecondsAfterFinished"),
        Place(None, "the spec of a Job", lambda value: type(value) is int),
    ),
}


class Part(NamedTuple):
    """A part of a manifest as it is in the file, and a Pod that contains it."""

    value: Object
    pod: Object

    @property
    def inside(self) -> str:
        """The place of its fields in words."""
        places: dict[str, list[str]] = {}
        for key in self.value:
            places.setdefault(_PLACES[key].inside, []).append(key)
        return "; ".join(f"{', '.join(keys)} in {inside}" for inside, keys in places.items())

    def within(self, path: Path) -> Path | None:
        """Return the path inside of the part for a ``path`` in the Pod; None outside of the part."""
        for key in self.value:
            parent = _PLACES[key].parent
            if parent is not None and path[: len(parent) + 1] == (*parent, key):
                return path[len(parent) :]
        return None

    def patch(self, patch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the operations of a patch of the Pod that change the part."""
        inside = ((operation, self.within(from_pointer(operation["path"]))) for operation in patch)
        return [{**operation, "path": pointer(path)} for operation, path in inside if path is not None]

    def taken_from(self, pod: Object) -> Object:
        """Return the part as it is in ``pod``."""
        parents = {key: _PLACES[key].parent for key in self.value}
        return {key: self.value[key] if parent is None else lookup(pod, (*parent, key)) for key, parent in parents.items()}


def part_in(value: Any) -> Part | None:  # noqa: ANN401 - any JSON value
    """Return ``value`` as a part of a manifest; None if it is something else."""
    if not _is_map(value) or any(key not in _PLACES or not _PLACES[key].is_valid(field) for key, field in value.items()):
        return None
    parents = {_PLACES[key].parent for key in value}
    # A field must not contain another field of the same part.
    if ("spec" in value and {_SPEC, _CONTAINER} & parents) or ("containers" in value and _CONTAINER in parents):
        return None
    # Rules only review pods with accelerators, and most parts do not name their pod.
    container: Object = {"name": "main", "resources": {"limits": {NVIDIA_GPU: 1}}}
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "part"}, "spec": {"containers": [container]}}
    for key, field in value.items():
        parent = _PLACES[key].parent
        if key == "metadata":
            pod["metadata"] |= clone(field)
        elif parent is not None:
            lookup(pod, parent)[key] = clone(field)
    return Part(value, pod)
