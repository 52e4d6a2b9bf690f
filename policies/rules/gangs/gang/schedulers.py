"""What marks the pods of a gang for the scheduler that holds them together."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.records.pod_groups import COSCHEDULING_GROUP, KUEUE_COUNT, KUEUE_GROUP, VOLCANO_GROUP
from gpugate.policies.gangs.gang import Gang, min_size
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

VOLCANO_MINIMUM: Final = "scheduling.volcano.sh/group-min-member"
KAI_QUEUE: Final = "kai.scheduler/queue"


def mark_for_coscheduling(gang: Gang, name: str, scheduler: str | None) -> Iterator[Edit]:
    """The pod group label that the coscheduling plugin reads."""
    for pods in gang.parts:
        yield from _set_once(pods, "labels", COSCHEDULING_GROUP, name)
        yield from _schedule_by(pods, scheduler)


def mark_for_kai(workload: Workload, gang: Gang, queue: str | None, scheduler: str | None) -> Iterator[Edit]:
    """KAI's queue, and its scheduler's name: on all pods, since it waits for those without accelerators, too."""
    for pods in gang.parts if workload.is_pod() else workload.pod_sets:
        yield from _set_once(pods, "labels", KAI_QUEUE, queue or "")
        yield from _schedule_by(pods, scheduler or "kai-scheduler")


def _set_once(pods: PodSet, where: str, key: str, value: str) -> Iterator[Edit]:
    present = pods.labels() if where == "labels" else pods.annotations()
    if value and key not in present:
        yield Edit("set", pods.meta(where, key), value, f"{key}={value}")


def _schedule_by(pods: PodSet, scheduler: str | None) -> Iterator[Edit]:
    if scheduler and pods.spec.get("schedulerName") in {None, "default-scheduler"}:
        yield Edit("set", pods.field("schedulerName"), scheduler, f"schedulerName {scheduler}", defaulted=True)


def mark_for_kueue(workload: Workload, gang: Gang, name: str) -> Iterator[Edit]:
    """Kueue's pod group label and total count on plain pods."""
    # Only plain pods need a group: any other kind that Kueue manages is one Workload, admitted whole.
    # Kueue refuses a group without its count, so one of the user's own gets it, too.
    if workload.is_pod() and (name or KUEUE_GROUP in gang.pods.labels()):
        yield from _set_once(gang.pods, "labels", KUEUE_GROUP, name)
        yield from _set_once(gang.pods, "annotations", KUEUE_COUNT, str(gang.size))


def mark_for_kubernetes(gang: Gang, name: str, scheduler: str | None) -> Iterator[Edit]:
    """The field by which a pod names its PodGroup of ``scheduling.k8s.io``."""
    for pods in gang.parts:
        if name and "schedulingGroup" not in pods.spec:
            yield Edit("set", pods.field("schedulingGroup"), {"podGroupName": name}, f"schedulingGroup {name}")
        yield from _schedule_by(pods, scheduler)


def mark_for_volcano(
    workload: Workload, gang: Gang, name: str, scheduler: str | None, *, with_group: bool = False
) -> Iterator[Edit]:
    """Volcano's group annotation on pods whose PodGroup somebody makes, else the least number of members on what makes pods.

    Volcano v1.10 makes a PodGroup itself for pods that name none, of one member, whatever the owner says; later versions
    take the number of members from the owner's annotation.
    """
    by_name = with_group and bool(name) and VOLCANO_MINIMUM not in workload.annotations()
    if workload.is_pod() or by_name:
        for pods in gang.parts:
            yield from _set_once(pods, "annotations", VOLCANO_GROUP, name)
    elif not workload.kind.is_built_in:
        # Volcano copies the annotations of owners in ``apps`` and ``batch`` to the PodGroups that it creates, and no others'
        # (``pkg/controllers/podgroup``).
        return
    elif VOLCANO_GROUP not in gang.pods.annotations() and VOLCANO_MINIMUM not in workload.annotations():
        least = str(min_size(workload, gang.size))
        yield Edit("set", ("metadata", "annotations", VOLCANO_MINIMUM), least, f"{VOLCANO_MINIMUM}={least}")
    for pods in gang.parts:
        yield from _schedule_by(pods, scheduler or "volcano")
