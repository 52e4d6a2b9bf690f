"""The pods that the other objects of the same input would make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpugate.policies.fields import MalformedError, Object
from gpugate.policies.kinds import kind_of
from gpugate.policies.lens import open_workload
from gpugate.policies.setup.around import Around, text_at
from gpugate.policies.workload import PodSet


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


def pods_in(around: Around) -> list[Pods]:
    """The pods of every workload of the same input; those that cannot be read are left out."""
    return around.kept("pods", lambda: [pods for obj in around.every() for pods in _pods_of(obj, around)])


def _pods_of(obj: Object, around: Around) -> Iterator[Pods]:
    kind = kind_of(text_at(obj, "apiVersion"), text_at(obj, "kind"))
    if kind is None:
        return
    owner = f"{kind.kind} {text_at(obj, 'metadata', 'name')}".strip()
    try:
        workload = open_workload(kind, obj, around.facts, namespace=around.namespace_of(obj))
        found = [Pods(owner, workload.namespace, pods, pods.count, kind.batch) for pods in workload.pod_sets if pods.is_whole]
    except (MalformedError, RecursionError):
        return
    yield from found
