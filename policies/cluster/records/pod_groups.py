"""Pod groups: the group of a pod, and the PodGroup objects of the schedulers.

Names are those of each system: Kueue v0.15 ``pkg/controller/jobs/pod``, the coscheduling plugin of scheduler-plugins v0.34,
Volcano v1.10, Kubernetes 1.36 ``scheduling.k8s.io``.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.kube.fields import Object, mapping, mappings

KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_FAST_ADMISSION: Final = "kueue.x-k8s.io/pod-group-fast-admission"
COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
COSCHEDULING_LEGACY: Final = "pod-group.scheduling.sigs.k8s.io"
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
#: Written by KAI's pod grouper, and read by its scheduler alone.
KAI_GROUP: Final = "pod-group-name"
KAI_SCHEDULER: Final = "kai-scheduler"
OWN_GROUP: Final = "gpugate.io/gang-name"
OWN_SIZE: Final = "gpugate.io/gang-size"
#: Label of the PodGroups that gpugate creates, and its value.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "gpugate"


class GroupKey(NamedTuple):
    """A group of pods within a namespace.

    Attributes:
        system: scheduler or queue of the group: ``Kueue``, ``Coscheduling``, ``Volcano``, ``Kubernetes``, ``KAI`` or ``gpugate``
            (by gpugate's own annotation alone).
    """

    system: str
    name: str


class PodGroup(NamedTuple):
    """A PodGroup object of a scheduler.

    Attributes:
        system: ``Coscheduling``, ``Volcano`` or ``Kubernetes``.
        minimum: ``minMember`` or ``minCount``; None if it states none.
        phase: ``status.phase`` (``Running``, ``Finished``, ...); empty for none.
        managed: True if its label names gpugate as manager.
        owners: uids of its owners.
    """

    system: str
    namespace: str
    name: str
    minimum: int | None
    phase: str
    managed: bool = False
    owners: tuple[str, ...] = ()


_SYSTEMS: Final = {"scheduling.x-k8s.io": "Coscheduling", "scheduling.volcano.sh": "Volcano", "scheduling.k8s.io": "Kubernetes"}


def group_key(labels: Object, annotations: Object, spec: Object) -> GroupKey | None:
    """Return the group of a pod by its labels, annotations and spec; None for a pod on its own."""
    for system, name in _names(labels, annotations, spec):
        if type(name) is str and name:
            return GroupKey(system, name)
    return None


def _names(labels: Object, annotations: Object, spec: Object) -> Iterator[tuple[str, object]]:
    yield "Kueue", labels.get(KUEUE_GROUP)
    yield "Coscheduling", labels.get(COSCHEDULING_GROUP)
    yield "Coscheduling", labels.get(f"{COSCHEDULING_LEGACY}/name")
    yield "Volcano", annotations.get(VOLCANO_GROUP)
    yield "Kubernetes", mapping(spec, "schedulingGroup", ("spec",)).get("podGroupName")
    if spec.get("schedulerName") == KAI_SCHEDULER:
        yield "KAI", annotations.get(KAI_GROUP)
    yield "gpugate", annotations.get(OWN_GROUP)


def pod_group_of(obj: Object) -> PodGroup:
    """Return the record of a PodGroup of coscheduling, Volcano or Kubernetes (1.36: ``spec.schedulingPolicy.gang.minCount``)."""
    metadata, spec = mapping(obj, "metadata", ()), mapping(obj, "spec", ())
    system = _SYSTEMS.get(str(obj.get("apiVersion")).partition("/")[0], "Coscheduling")
    if system == "Kubernetes":
        minimum = mapping(mapping(spec, "schedulingPolicy", ("spec",)), "gang", ("spec", "schedulingPolicy")).get("minCount")
    else:
        minimum = spec.get("minMember")
    return PodGroup(
        system,
        str(metadata.get("namespace") or "default"),
        str(metadata.get("name") or ""),
        minimum if type(minimum) is int else None,
        str(mapping(obj, "status", ()).get("phase") or ""),
        mapping(metadata, "labels", ("metadata",)).get(MANAGED_BY) == MANAGER,
        tuple(str(owner.get("uid") or "") for owner in mappings(metadata, "ownerReferences", ("metadata",))),
    )
