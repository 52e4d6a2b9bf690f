"""Annotations that apply to one pod set, labels that select its pods, and the queue name of a workload.

Kueue reads the queue name where ``pkg/controller/jobframework`` (v0.15.0) does.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from gpugate.policies.kube.fields import Object, Path, from_pointer, lookup, mapping, string
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Labels that applications put on their pods, the most specific first.
_APPLICATION_LABELS: Final = ("batch.kubernetes.io/job-name", "app.kubernetes.io/name", "app")


def pod_selector(workload: Workload, pods: PodSet) -> Object | None:
    """Return a label selector for the pods of this workload; None if no label tells them from others."""
    kind = workload.kind
    if kind.template_labels and workload.name:
        return {"matchLabels": {kind.template_labels[0]: workload.name}}
    if kind.selector is not None:
        path = kind.selector
        holder = mapping(workload.root, str(path[0]), ())
        selected = mapping(mapping(holder, str(path[-1]), path[:-1]), "matchLabels", path)
        if selected:
            return {"matchLabels": dict(selected)}
    labels = pods.labels()
    for key in _APPLICATION_LABELS:
        if key in labels:
            return {"matchLabels": {key: labels[key]}}
    return None


def has_any_annotation(workload: Workload, keys: frozenset[str]) -> bool:
    """Whether the object or one of its templates has one of the annotations ``keys``."""
    if not keys.isdisjoint(workload.annotations()):
        return True
    return not workload.is_pod() and any(not keys.isdisjoint(pods.annotations()) for pods in workload.pod_sets)


def annotation_for(workload: Workload, pods: PodSet, key: str) -> str | None:
    """Return annotation ``key`` of the template of ``pods``, or else of the object; None if neither has it.

    Raises:
        MalformedError: an annotation is no string.
    """
    own = string(pods.annotations(), key, pods.meta("annotations"))
    if own is not None and not is_copied(workload, pods, key, own):
        return own
    return string(workload.annotations(), key, ("metadata", "annotations"))


def is_copied(workload: Workload, pods: PodSet, key: str, own: str) -> bool:
    """Whether gpugate copied ``own`` into the template from the object's earlier annotation."""
    if workload.transition is None or workload.is_pod():
        return False
    path = pods.meta("annotations", key)
    for op, at, *values in workload.transition.recorded:
        place = from_pointer(at)
        if op != "remove" and path[: len(place)] == place and lookup(values[0], path[len(place) :]) == own:
            return True
    return False


def annotation_before(workload: Workload, pods: PodSet, key: str) -> str | None:
    """Return what annotation ``key`` was for ``pods`` before the UPDATE; None if it was absent, or if there was no object."""
    for path in (pods.meta("annotations", key), ("metadata", "annotations", key)):
        value = lookup(workload.old, path)
        if type(value) is str:
            return value
    return None


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

    An owner may keep the lists of a template as they are, so that only the annotations tell what the pods are for.
    """
    for key in () if workload.is_pod() else keys:
        own = string(pods.annotations(), key, pods.meta("annotations"))
        wanted = annotation_for(workload, pods, key)
        if wanted is None and own is not None:
            yield Edit("remove", pods.meta("annotations", key), defaulted=True)
        elif wanted is not None and wanted != own:
            yield Edit("set", pods.meta("annotations", key), wanted, defaulted=True)


_OWN_LABEL: Final[Path] = ("metadata", "labels", QUEUE_NAME)
PREBUILT: Final = "kueue.x-k8s.io/prebuilt-workload-name"
#: The label of objects that MultiKueue copies into the cluster that runs them (Kueue v0.15 ``apis/kueue/v1beta2/constants.go``).
MULTIKUEUE_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"


def queue_path(workload: Workload) -> Path | None:
    """Return the path of the queue-name label that Kueue reads; None for a kind that it does not manage."""
    holder = workload.kind.queue
    if not workload.kind.queued:
        return None
    return (*holder, "metadata", "labels", QUEUE_NAME) if holder else _OWN_LABEL


def _label_at(workload: Workload, holder: Path) -> str | None:
    if not holder:
        return string(workload.labels(), QUEUE_NAME, ("metadata", "labels"))
    parent = lookup(workload.root, holder)
    if type(parent) is not dict:
        return None
    labels = mapping(mapping(parent, "metadata", holder), "labels", (*holder, "metadata"))
    return string(labels, QUEUE_NAME, (*holder, "metadata", "labels"))


def queue_label(workload: Workload) -> str | None:
    """Return the queue name that Kueue reads; None if there is none."""
    return _label_at(workload, workload.kind.queue) if workload.kind.queued else None


def misplaced_queue_label(workload: Workload) -> str | None:
    """Return a queue name on the object or its pod template that Kueue does not read; None if there is none."""
    if workload.is_pod():
        return None
    for holder in ((), *(pods.path for pods in workload.pod_sets if pods.is_whole)):
        if holder != workload.kind.queue:
            name = _label_at(workload, holder)
            if name:
                return name
    return None
