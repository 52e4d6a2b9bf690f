"""What annotations tell of one sort of pods: those of its own template, or else those of the object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpugate.policies.kube.fields import Path, from_pointer, lookup, string
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.recorded_edits import recorded
from gpugate.policies.workloads.workload import PodSet, Workload


def has_any_annotation(workload: Workload, keys: frozenset[str]) -> bool:
    """Whether the object or one of its templates has one of the annotations ``keys``."""
    if not keys.isdisjoint(workload.annotations()):
        return True
    return not workload.is_pod() and any(not keys.isdisjoint(pods.annotations()) for pods in workload.pod_sets)


def annotation_for(workload: Workload, pods: PodSet, key: str) -> str | None:
    """What ``pods`` are told by annotation ``key``: by that of their own template, or else by the object's.

    Raises:
        MalformedError: an annotation is no string.
    """
    own = string(pods.annotations(), key, pods.meta("annotations"))
    if own is not None and not _is_copied(workload, pods, key, own):
        return own
    return string(workload.annotations(), key, ("metadata", "annotations"))


def _is_copied(workload: Workload, pods: PodSet, key: str, own: str) -> bool:
    """Whether it was gpugate that wrote ``own`` into the template, from the object's annotation at that time."""
    if workload.old is None or workload.is_pod():
        return False
    path = pods.meta("annotations", key)
    for op, at, *values in recorded(workload.old):
        place = from_pointer(at)
        if op != "remove" and path[: len(place)] == place and lookup(values[0], path[len(place) :]) == own:
            return True
    return False


def annotation_before(workload: Workload, pods: PodSet, key: str) -> str | None:
    """What the object that an UPDATE replaces told the same pods by annotation ``key``; None where nothing is replaced."""
    for path in (pods.meta("annotations", key), ("metadata", "annotations", key)):
        found = lookup(workload.old, path)
        if type(found) is str:
            return found
    return None


def had_any_annotation(workload: Workload, keys: frozenset[str]) -> bool:
    """Whether the object that an UPDATE replaces, or one of its templates, has one of the annotations ``keys``."""
    if workload.old is None:
        return False
    places = [("metadata", "annotations"), *(pods.meta("annotations") for pods in workload.pod_sets)]
    return any(not keys.isdisjoint(lookup(workload.old, path) or ()) for path in places)


def annotation_changed(workload: Workload, keys: Iterable[str]) -> bool:
    """Whether an UPDATE changes what annotations ``keys`` say, of the object or of a template; not what gpugate wrote there."""
    old = workload.old
    for key in keys if old is not None else ():
        if workload.annotations().get(key) != lookup(old, ("metadata", "annotations", key)):
            return True
        for pods in workload.pod_sets:
            now, was = pods.annotations().get(key), lookup(old, pods.meta("annotations", key))
            if now != was and not (now is None and type(was) is str and _is_copied(workload, pods, key, was)):
                return True
    return False


def annotation_path(pods: PodSet, key: str) -> Path:
    """Where annotation ``key`` stands, or would: at the pods' template or at the object itself."""
    return pods.meta("annotations", key) if key in pods.annotations() else ("metadata", "annotations", key)


def copy_to_template(workload: Workload, pods: PodSet, keys: Iterable[str]) -> Iterator[Edit]:
    """Edits that write into the pods' template what the object's annotations ``keys`` say, and take out what they no longer say.

    Whoever states the lists of a template may keep them as they are: the pods must know then what they are for.
    """
    for key in () if workload.is_pod() else keys:
        own = string(pods.annotations(), key, pods.meta("annotations"))
        written = annotation_for(workload, pods, key)
        if written is None and own is not None:
            yield Edit("remove", pods.meta("annotations", key), defaulted=True)
        elif written is not None and written != own:
            yield Edit("set", pods.meta("annotations", key), written, defaulted=True)
