"""Annotations that apply to one pod set, labels that select its pods, and the queue name of a workload.

Source for the label with the queue name: Kueue v0.15.0 ``pkg/controller/jobframework``.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from gpugate.policies.kube.fields import Object, Path, lookup, mapping, metadata_map, string
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.kinds.owners import leaves_queue_to_pods
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Labels that applications put on their pods, the most specific first.
_APPLICATION_LABELS: Final = ("batch.kubernetes.io/job-name", "app.kubernetes.io/name", "app")


def pod_selector(workload: Workload, pods: PodSet) -> Object | None:
    """Return a label selector for the pods of this workload; None if no label distinguishes them from other pods."""
    kind = workload.kind
    if kind.template_labels and workload.name:
        return {"matchLabels": {kind.template_labels[0]: workload.name}}
    if kind.selector is not None:
        path = kind.selector
        holder = mapping(workload.root, str(path[0]), ())
        match_labels = mapping(mapping(holder, str(path[-1]), path[:-1]), "matchLabels", path)
        if match_labels:
            return {"matchLabels": dict(match_labels)}
    labels = pods.labels()
    return next(({"matchLabels": {key: labels[key]}} for key in _APPLICATION_LABELS if key in labels), None)


def has_any_annotation(workload: Workload, keys: frozenset[str]) -> bool:
    """Whether the object or one of its templates has one of the annotations ``keys``."""
    if not keys.isdisjoint(workload.annotations()):
        return True
    return not workload.is_pod() and any(not keys.isdisjoint(pods.annotations()) for pods in workload.pod_sets)


def annotation_for(workload: Workload, pods: PodSet, key: str) -> str | None:
    """Return annotation ``key`` of the template of ``pods``, or else of the object; None if neither has it."""
    own = string(pods.annotations(), key, pods.meta("annotations"))
    if own is not None and not is_copied(workload, pods, key, own):
        return own
    return string(workload.annotations(), key, ("metadata", "annotations"))


def is_copied(workload: Workload, pods: PodSet, key: str, own: str) -> bool:
    """Whether gpugate copied ``own`` into the template from the object's earlier annotation."""
    if workload.transition is None or workload.is_pod():
        return False
    path, values = pods.meta("annotations", key), workload.transition.recorded_values
    return any(lookup(value, path[depth:]) == own for depth in range(1, len(path) + 1) for value in values.get(path[:depth], ()))


def annotation_before(workload: Workload, pods: PodSet, key: str) -> str | None:
    """Return annotation ``key`` of ``pods`` before the UPDATE; None if it was absent, or on CREATE."""
    values = (lookup(workload.old, path) for path in (pods.meta("annotations", key), ("metadata", "annotations", key)))
    return next((value for value in values if type(value) is str), None)


def had_any_annotation(workload: Workload, keys: frozenset[str]) -> bool:
    """Whether, before the UPDATE, the object or one of its templates had one of the annotations ``keys``."""
    if workload.old is None:
        return False
    paths = [("metadata", "annotations"), *(pods.meta("annotations") for pods in workload.pod_sets)]
    return any(not keys.isdisjoint(lookup(workload.old, path) or ()) for path in paths)


def annotation_path(pods: PodSet, key: str) -> Path:
    """Return the path of annotation ``key``: in the template if it has the key, else in the object."""
    return pods.meta("annotations", key) if key in pods.annotations() else ("metadata", "annotations", key)


def copy_to_template(workload: Workload, pods: PodSet, keys: Iterable[str]) -> Iterator[Edit]:
    """Yield edits that copy the object's annotations ``keys`` into the template, and remove copies of removed ones.

    If an owner controls the lists of a template, gpugate cannot edit these, and the pods get their edits by the annotations.
    """
    for key in () if workload.is_pod() else keys:
        own = string(pods.annotations(), key, pods.meta("annotations"))
        value = annotation_for(workload, pods, key)
        if value is None and own is not None:
            yield Edit("remove", pods.meta("annotations", key), defaulted=True)
        elif value is not None and value != own:
            yield Edit("set", pods.meta("annotations", key), value, defaulted=True)


#: The label with the name of a Workload that is made already; an annotation of Kueue v0.18 and later has the same key.
PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"


def prebuilt_workload_name(workload: Workload) -> str | None:
    """Return the name of the Workload that the object says was made for it; None if it names none."""
    name = workload.annotations().get(PREBUILT) or workload.labels().get(PREBUILT)
    return str(name) if name else None


def is_queued_with_owner(workload: Workload) -> bool:
    """Whether another object, which a controller made it for, is in a queue in its place."""
    owner = workload.controller()
    return owner is not None and not (workload.is_pod() and leaves_queue_to_pods(owner))


def is_suspended_by_author(workload: Workload) -> bool:
    """Whether the object, or the Jobs that it creates on a schedule, are suspended."""
    kind = workload.kind
    if kind.is_suspended(workload.root):
        return True
    return kind.scheduled and kind.job_spec is not None and lookup(workload.root, (*kind.job_spec, "suspend")) is True


def queue_path(workload: Workload) -> Path | None:
    """Return the path of the queue-name label that Kueue reads; None for a kind that it does not manage."""
    return (*workload.kind.queue, "metadata", "labels", QUEUE_NAME) if workload.kind.queued else None


def _label_at(workload: Workload, path: Path) -> str | None:
    if not path:
        return string(workload.labels(), QUEUE_NAME, ("metadata", "labels"))
    holder = lookup(workload.root, path)
    if type(holder) is not dict:
        return None
    return string(metadata_map(holder, "labels", path), QUEUE_NAME, (*path, "metadata", "labels"))


def queue_label(workload: Workload) -> str | None:
    """Return the queue name that Kueue reads; None if there is none."""
    return _label_at(workload, workload.kind.queue) if workload.kind.queued else None


def misplaced_queue_label(workload: Workload) -> str | None:
    """Return a queue name in the object or its pod template that Kueue does not read; None if there is none."""
    if workload.is_pod():
        return None
    paths = ((), *(pods.path for pods in workload.pod_sets if pods.is_whole))
    names = (_label_at(workload, path) for path in paths if path != workload.kind.queue)
    return next((name for name in names if name), None)
