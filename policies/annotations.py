"""What annotations tell of one sort of pods: those of its own template, or else those of the object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpugate.policies.edits import Edit
from gpugate.policies.fields import Path, string
from gpugate.policies.workload import PodSet, Workload


def says_any(workload: Workload, keys: frozenset[str]) -> bool:
    """Whether the object or one of its templates has one of the annotations ``keys``."""
    if not keys.isdisjoint(workload.annotations()):
        return True
    return not workload.is_pod() and any(not keys.isdisjoint(pods.annotations()) for pods in workload.pod_sets)


def written_for(workload: Workload, pods: PodSet, key: str) -> str | None:
    """What ``pods`` are told by annotation ``key``: by that of their own template, or else by the object's.

    Raises:
        MalformedError: an annotation is no string.
    """
    own = string(pods.annotations(), key, pods.meta("annotations"))
    return own if own is not None else string(workload.annotations(), key, ("metadata", "annotations"))


def place_for(pods: PodSet, key: str) -> Path:
    """Where annotation ``key`` stands, or would: at the pods' template or at the object itself."""
    return pods.meta("annotations", key) if key in pods.annotations() else ("metadata", "annotations", key)


def told_to_pods(workload: Workload, pods: PodSet, keys: Iterable[str]) -> Iterator[Edit]:
    """Edits that write into the pods' template what the object's annotations ``keys`` say.

    Whoever states the lists of a template may keep them as they are: the pods must know then what they are for.
    """
    own = pods.annotations()
    for key in () if workload.is_pod() else keys:
        written = workload.annotations().get(key)
        if written is not None and own.get(key) is None:
            yield Edit("set", pods.meta("annotations", key), written)
