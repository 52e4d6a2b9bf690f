"""Read the annotations that tell rules what to do with a pod set: those of its template, or else those of the object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpugate.policies.kube.fields import Path, from_pointer, lookup, string
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.workload import PodSet, Workload


def has_any_annotation(workload: Workload, keys: frozenset[str]) -> bool:
    """Tell whether the object or one of its templates has an annotation of ``keys``."""
    if not keys.isdisjoint(workload.annotations()):
        return True
    return not workload.is_pod() and any(not keys.isdisjoint(pods.annotations()) for pods in workload.pod_sets)


def annotation_for(workload: Workload, pods: PodSet, key: str) -> str | None:
    """Return annotation ``key`` of the template of ``pods``, or else of the object.

    Raises:
        MalformedError: an annotation is no string.
    """
    own = string(pods.annotations(), key, pods.meta("annotations"))
    if own is not None and not is_copied(workload, pods, key, own):
        return own
    return string(workload.annotations(), key, ("metadata", "annotations"))


def is_copied(workload: Workload, pods: PodSet, key: str, value: str) -> bool:
    """Tell whether gpugate once copied ``value`` from the object's annotation ``key`` into the template of ``pods``."""
    if workload.transition is None or workload.is_pod():
        return False
    path = pods.meta("annotations", key)
    for op, at, *values in workload.transition.recorded:
        place = from_pointer(at)
        if op != "remove" and path[: len(place)] == place and lookup(values[0], path[len(place) :]) == value:
            return True
    return False


def annotation_before(workload: Workload, pods: PodSet, key: str) -> str | None:
    """Return what an UPDATE's old object said by annotation ``key`` of the template or of itself; None if nothing."""
    for path in (pods.meta("annotations", key), ("metadata", "annotations", key)):
        value = lookup(workload.old, path)
        if type(value) is str:
            return value
    return None


def had_any_annotation(workload: Workload, keys: frozenset[str]) -> bool:
    """Tell whether an UPDATE's old object, or one of its templates, has an annotation of ``keys``."""
    if workload.old is None:
        return False
    places = [("metadata", "annotations"), *(pods.meta("annotations") for pods in workload.pod_sets)]
    return any(not keys.isdisjoint(lookup(workload.old, path) or ()) for path in places)


def annotation_path(pods: PodSet, key: str) -> Path:
    """Return the path of annotation ``key``: in the template of ``pods`` if it is there, or else at the object."""
    return pods.meta("annotations", key) if key in pods.annotations() else ("metadata", "annotations", key)


def copy_to_template(workload: Workload, pods: PodSet, keys: Iterable[str]) -> Iterator[Edit]:
    """Yield edits that copy the object's annotations ``keys`` into the template of ``pods``, and remove copies that no longer hold.

    Where GitOps controls the lists of a template, the rule can edit only the pods: they must know what to be placed by.
    """
    for key in () if workload.is_pod() else keys:
        own = string(pods.annotations(), key, pods.meta("annotations"))
        written = annotation_for(workload, pods, key)
        if written is None and own is not None:
            yield Edit("remove", pods.meta("annotations", key), defaulted=True)
        elif written is not None and written != own:
            yield Edit("set", pods.meta("annotations", key), written, defaulted=True)
