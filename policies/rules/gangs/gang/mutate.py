"""Parameters and edits of the rule `gang`."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from gpugate.policies.cluster.records.pod_groups import COSCHEDULING_GROUP, KUEUE_COUNT, KUEUE_GROUP, VOLCANO_GROUP
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.framework.params import Params, Seconds
from gpugate.policies.framework.reasons import Action
from gpugate.policies.gangs.gang import GANG_NAME, VOLCANO_MINIMUM, Gang, gang_of, invalid_size, is_elastic, min_size
from gpugate.policies.kube.cel import LabelValue
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

KAI_QUEUE: Final = "kai.scheduler/queue"


class GangParams(Params):
    """Parameters of `gang`."""

    scheduler: Literal["Kueue", "Coscheduling", "Volcano", "Kubernetes", "KAI", "None"] = "Kueue"
    """What starts the pods of a gang together in this cluster. Kubernetes does from 1.36 on, with its feature gates enabled."""
    scheduler_name: str | None = None
    """schedulerName of gang pods. The default is Volcano's or KAI's own name; for other schedulers it is left as it is."""
    kai_queue: LabelValue | None = None
    """KAI queue of gang pods that name none."""
    pod_groups: Literal["Create", "Leave"] = "Create"
    """Whether gpugate's controller creates the missing PodGroup of a gang, for Coscheduling, Volcano and Kubernetes."""
    volcano_queue: str | None = None
    """Volcano queue of the PodGroups that gpugate creates, for pods that name none."""
    schedule_timeout: Seconds | None = None
    """How long Coscheduling reserves nodes for a gang until all its pods have one. The default is the plugin's own."""
    stuck_after: Seconds = 600
    """How long pods of a gang may be missing or not running before gpugate reports the gang as stuck."""
    jobs: Literal["Declared", "Parallel"] = "Declared"
    """Which Jobs of Kubernetes are gangs: those that declare it, or all that run several pods at once."""
    fragments: Action = "Warn"
    """What happens if the accelerators per pod leave a remainder on every node."""
    one_by_one: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang of a Deployment, ReplicaSet or DaemonSet is refused or only warned about."""


def parallel_jobs_are_gangs(bound: Iterable[BoundRule]) -> bool:
    """Return whether the rules ``bound`` for an object count a Job with several pods at once as a gang, though it declares none."""
    return any(isinstance(binding.params, GangParams) and binding.params.jobs == "Parallel" for binding in bound)


def mutate(workload: Workload, params: GangParams, _snapshot: ClusterSnapshot) -> Iterator[Edit]:
    """Yield the edits that name the gang to the policy's scheduler."""
    gang = None if invalid_size(workload) is not None else gang_of(workload)
    if gang is None or not _is_editable(workload, gang):
        return
    name = workload.annotation(GANG_NAME) or ("" if workload.is_pod() else workload.name)
    if params.scheduler == "Kueue":
        yield from _edits_for_kueue(workload, gang, name)
    elif params.scheduler == "KAI":
        yield from _edits_for_kai(workload, gang, params)
    elif workload.kind.groups_itself:
        # The operator's own group and a second one would hold the same pods twice.
        return
    elif params.scheduler == "Volcano":
        yield from _edits_for_volcano(workload, gang, name, params)
    elif params.scheduler != "None":
        yield from _edits_for_pod_group(gang, name, params)


def _is_editable(workload: Workload, gang: Gang) -> bool:
    # The owner's template has the labels already, and the controller of several gangs makes their groups.
    if workload.kind.scheduled or workload.is_child() or gang.gangs > 1:
        return False
    return not (workload.is_pod() and workload.controller() is not None) and has_its_size(workload, gang)


def has_its_size(workload: Workload, gang: Gang) -> bool:
    """Return whether the workload makes as many pods as its gang has; an elastic gang may make fewer or more."""
    if gang.members is None or gang.size in gang.sizes:
        return True
    return is_elastic(workload) and gang.members >= min_size(workload, gang.size)


def _edits_for_kueue(workload: Workload, gang: Gang, name: str) -> Iterator[Edit]:
    # Only plain pods need a group: any other kind that Kueue manages is one Workload, admitted as a whole.
    # Kueue refuses a group without its count, so a group that the user names gets the count, too.
    if workload.is_pod() and (name or KUEUE_GROUP in gang.pods.labels()):
        yield from _set_once(gang.pods, "labels", KUEUE_GROUP, name)
        yield from _set_once(gang.pods, "annotations", KUEUE_COUNT, str(gang.size))


def _edits_for_kai(workload: Workload, gang: Gang, params: GangParams) -> Iterator[Edit]:
    # KAI waits for the pods without accelerators, too.
    for pods in gang.parts if workload.is_pod() else workload.pod_sets:
        yield from _set_once(pods, "labels", KAI_QUEUE, params.kai_queue or "")
        yield from _set_scheduler(pods, params.scheduler_name or "kai-scheduler")


def _edits_for_pod_group(gang: Gang, name: str, params: GangParams) -> Iterator[Edit]:
    """Name the PodGroup of Coscheduling or Kubernetes."""
    for pods in gang.parts:
        if params.scheduler == "Coscheduling":
            yield from _set_once(pods, "labels", COSCHEDULING_GROUP, name)
        elif name and "schedulingGroup" not in pods.spec:
            yield Edit("set", pods.field("schedulingGroup"), {"podGroupName": name}, f"schedulingGroup {name}")
        yield from _set_scheduler(pods, params.scheduler_name)


def _edits_for_volcano(workload: Workload, gang: Gang, name: str, params: GangParams) -> Iterator[Edit]:
    """Set Volcano's group annotation on pods whose PodGroup is created, else the minimum member count on the owner.

    Volcano v1.10 creates a PodGroup for pods that name none, with one member, regardless of the owner; later versions
    read the number of members from the owner's annotation.
    """
    by_name = params.pod_groups == "Create" and bool(name) and VOLCANO_MINIMUM not in workload.annotations()
    if workload.is_pod() or by_name:
        for pods in gang.parts:
            yield from _set_once(pods, "annotations", VOLCANO_GROUP, name)
    elif not workload.kind.is_built_in:
        # Volcano copies only the annotations of owners in ``apps`` and ``batch`` to the PodGroups that it creates
        # (``pkg/controllers/podgroup``).
        return
    elif VOLCANO_GROUP not in gang.pods.annotations() and VOLCANO_MINIMUM not in workload.annotations():
        minimum = str(min_size(workload, gang.size))
        yield Edit("set", ("metadata", "annotations", VOLCANO_MINIMUM), minimum, f"{VOLCANO_MINIMUM}={minimum}")
    for pods in gang.parts:
        yield from _set_scheduler(pods, params.scheduler_name or "volcano")


def _set_once(pods: PodSet, where: str, key: str, value: str) -> Iterator[Edit]:
    present = pods.labels() if where == "labels" else pods.annotations()
    if value and key not in present:
        yield Edit("set", pods.meta(where, key), value, f"{key}={value}")


def _set_scheduler(pods: PodSet, scheduler: str | None) -> Iterator[Edit]:
    if scheduler and pods.spec.get("schedulerName") in {None, "default-scheduler"}:
        yield Edit("set", pods.field("schedulerName"), scheduler, f"schedulerName {scheduler}", defaulted=True)
