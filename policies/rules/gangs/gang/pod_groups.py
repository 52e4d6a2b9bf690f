"""Which PodGroup a gang needs from the scheduler that its policy names, and what becomes of one that is there.

Sources: the coscheduling plugin of scheduler-plugins v0.34 (``pkg/coscheduling/core``: a pod whose PodGroup is not there is not
placed), Volcano v1.10 (``pkg/controllers/podgroup``: pods that name a group are left alone, and wait for it), Kubernetes 1.36
``scheduling.k8s.io/v1alpha2`` (``spec.schedulingPolicy`` is immutable).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.pod_groups import MANAGED_BY, MANAGER, GroupKey, PodGroup
from gpugate.policies.findings import Mode
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.gangs.gang import GANG_NAME, Gang, declared_size, gang_of, group_of, invalid_size, min_count, min_size
from gpugate.policies.gangs.status import is_over
from gpugate.policies.kube.fields import Object, lookup
from gpugate.policies.rules.gangs.gang.params import GangParams
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: API groups of the PodGroups by who reads them.
API_GROUPS: Final = {"Coscheduling": "scheduling.x-k8s.io", "Volcano": "scheduling.volcano.sh", "Kubernetes": "scheduling.k8s.io"}
#: Where Volcano reads the queue of a pod.
_VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"


class PodGroupOwner(NamedTuple):
    """What a PodGroup goes with: ``controller`` where it alone decides about it."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool


class WantedPodGroup(NamedTuple):
    """The PodGroup that a gang needs.

    Attributes:
        system: ``Coscheduling``, ``Volcano`` or ``Kubernetes``.
        namespace: where it belongs.
        name: its name, which the pods carry.
        minimum: pods without which none starts.
        owners: what it goes with: the workload; plain pods all together, so that it goes with the last of them.
        devices: accelerators of the minimum of pods together, by name, for Volcano; empty where their number is not certain.
        queue: Volcano's queue; empty for its default.
        priority: the priority class of the pods; empty for none.
        timeout: seconds for which Coscheduling holds places; None for its own default.
    """

    system: str
    namespace: str
    name: str
    minimum: int
    owners: tuple[PodGroupOwner, ...]
    devices: tuple[tuple[str, int], ...] = ()
    queue: str = ""
    priority: str = ""
    timeout: int | None = None

    @property
    def key(self) -> GroupKey:
        """The group by which facts know it."""
        return GroupKey(self.system, self.name)


class PodGroupPlan(NamedTuple):
    """What to do about the PodGroup of a workload.

    Attributes:
        wanted: the PodGroup that it needs; None where it needs none of gpugate's.
        rehearsal: whether the rule is in DryRun, so that it is only told that the PodGroup would be made.
        why_not: why a gang gets none, for people; empty where it gets one, or is no gang.
        create: whether it is made where there is none; otherwise one that is there is only kept right.
    """

    wanted: WantedPodGroup | None = None
    rehearsal: bool = False
    why_not: str = ""
    create: bool = True


NOTHING: Final = PodGroupPlan()


def _asked(gang_rule: BoundRule | None) -> tuple[GangParams, Mode] | None:
    """The parameters and mode of the rule about gangs; None where no PodGroup is asked for."""
    if gang_rule is None or not isinstance(gang_rule.params, GangParams):
        return None
    params = gang_rule.params
    return (params, gang_rule.mode) if params.pod_groups == "Create" and params.scheduler in API_GROUPS else None


def plan(workload: Workload, gang_rule: BoundRule | None) -> PodGroupPlan:
    """What a workload that makes its pods itself needs; plain pods are for :func:`plan_together`.

    Args:
        workload: the workload.
        gang_rule: the rule ``gang`` as it is bound for the workload; None where it is not bound, or the workload is exempt.

    Raises:
        MalformedError: a field has a type that the API does not accept.
    """
    if workload.is_pod() or workload.kind.scheduled or workload.is_child() or is_over(workload.root):
        return NOTHING
    asked, gang = _asked(gang_rule), gang_of(workload)
    if asked is None or invalid_size(workload) is not None:
        return NOTHING
    params, mode = asked
    return _plan_of_one(workload, params, mode) if gang is None else _plan_of_gang(workload, gang, params, mode)


def _plan_of_gang(workload: Workload, gang: Gang, params: GangParams, mode: Mode) -> PodGroupPlan:
    why_not = _why_not(workload, gang)
    if why_not:
        return PodGroupPlan(why_not=why_not)
    name = _name_of(workload, gang, params.scheduler, rehearsal=mode is Mode.DRY_RUN)
    if not name:
        return PodGroupPlan(
            why_not=f"its pods name no one group of {params.scheduler}: they were made before the policy marked them"
        )
    return PodGroupPlan(_wanted(workload, gang, params, name, _owner(workload)), mode is Mode.DRY_RUN)


def _owner(workload: Workload) -> PodGroupOwner:
    uid = str(workload.metadata().get("uid") or "")
    return PodGroupOwner(str(workload.root.get("apiVersion")), workload.kind.kind, workload.name, uid, controller=True)


def _plan_of_one(workload: Workload, params: GangParams, mode: Mode) -> PodGroupPlan:
    """What is no gang any more, scaled down to one pod, and still names the group of the gang that it was."""
    found = {group_of(pods) for pods in workload.gpu_pod_sets()}
    key = found.pop() if len(found) == 1 else None
    if key is None or key.system != params.scheduler or workload.kind.groups_itself or workload.gangs > 1:
        return NOTHING
    wanted = WantedPodGroup(key.system, workload.namespace, key.name, 1, (_owner(workload),), timeout=params.schedule_timeout)
    return PodGroupPlan(wanted, mode is Mode.DRY_RUN, create=False)


def _why_not(workload: Workload, gang: Gang) -> str:
    if workload.kind.groups_itself:
        return f"the operator of {workload.kind.kind} makes the pod groups itself"
    if gang.gangs > 1:
        return (
            f"its {gang.gangs} gangs are made from one template, so that their pods cannot name different groups:"
            " let the controller of the kind make them"
        )
    return "" if gang.members is not None else "the workload does not state how many pods it makes"


def _name_of(workload: Workload, gang: Gang, system: str, *, rehearsal: bool) -> str:
    """The group that all pods of the gang name; in a rehearsal, the one that they would name."""
    found = {group_of(pods) for pods in gang.parts}
    if len(found) != 1:
        return ""
    key = found.pop()
    if key is not None and key.system == system:
        return key.name
    return (workload.annotation(GANG_NAME) or workload.name) if rehearsal and (key is None or key.system == "gpugate") else ""


def _wanted(workload: Workload, gang: Gang, params: GangParams, name: str, owner: PodGroupOwner) -> WantedPodGroup:
    # Pods that come when others have run, or wait for them, would be waited for in vain. Those without accelerators are
    # not marked, whatever size is declared.
    together = [part for part in gang.parts if not part.follows and not part.starts_late] or list(gang.parts)
    at_once = sum((part.count or 0) // gang.gangs for part in together)
    minimum = max(1, min(min_size(workload, gang.size), at_once))
    certain = sum(min_count(part) // gang.gangs for part in together)
    return WantedPodGroup(
        system=params.scheduler,
        namespace=workload.namespace,
        name=name,
        minimum=minimum,
        owners=(owner,),
        devices=_devices((part, (part.count or 0) // gang.gangs) for part in together) if minimum == certain == at_once else (),
        queue=_queue(gang.parts, params),
        priority=_agreed(str(part.spec.get("priorityClassName") or "") for part in gang.parts),
        timeout=params.schedule_timeout,
    )


def _devices(parts: Iterable[tuple[PodSet, int]]) -> tuple[tuple[str, int], ...]:
    # Accelerators alone: what else a pod asks for may be filled in when it is made, and a sum too high never starts.
    found: dict[str, int] = {}
    for part, number in parts:
        for name, count in part.accelerators().items():
            found[name] = found.get(name, 0) + count * number
    return tuple(sorted(found.items()))


def _queue(parts: Iterable[PodSet], params: GangParams) -> str:
    if params.scheduler != "Volcano":
        return ""
    return _agreed(str(part.annotations().get(_VOLCANO_QUEUE) or "") for part in parts) or params.volcano_queue or ""


def _agreed(values: Iterable[str]) -> str:
    found = set(values)
    return found.pop() if len(found) == 1 else ""


def plan_together(members: Sequence[Workload], gang_rule: BoundRule | None) -> PodGroupPlan:
    """What plain pods need that name one group; ``gang_rule`` is the rule ``gang`` as it is bound for the first of them.

    They have no owner in common, so that the PodGroup goes with the last of them: each is an owner, none the controller.
    """
    first = members[0]
    asked, key = _asked(gang_rule), group_of(first.pod_sets[0])
    if asked is None or key is None:
        return NOTHING
    params, mode = asked
    rehearsal = mode is Mode.DRY_RUN
    if key.system != params.scheduler and not (rehearsal and key.system == "gpugate"):
        return NOTHING
    here = [one for one in members if "deletionTimestamp" not in one.metadata() and not _has_ended(one)]
    sizes = {size for one in here if (size := declared_size(one)) is not None}
    if len(sizes) != 1:
        return PodGroupPlan(why_not="its pods state no size" if not sizes else f"its pods state different sizes: {sorted(sizes)}")
    size = sizes.pop()
    if size < 2:
        return NOTHING
    owners = sorted(
        PodGroupOwner(one.kind.versions[-1], one.kind.kind, one.name, str(one.metadata().get("uid") or ""), controller=False)
        for one in members
    )
    parts = [pods for one in here for pods in one.gpu_pod_sets()]
    minimum = min(min_size(one, size) for one in here)
    return PodGroupPlan(
        WantedPodGroup(
            system=params.scheduler,
            namespace=first.namespace,
            name=key.name,
            minimum=minimum,
            owners=tuple(owners),
            queue=_queue(parts, params),
            priority=_agreed(str(part.spec.get("priorityClassName") or "") for part in parts),
            timeout=params.schedule_timeout,
        ),
        rehearsal,
    )


def _has_ended(pod: Workload) -> bool:
    return lookup(pod.root, ("status", "phase")) in {"Succeeded", "Failed"}


def manifest(wanted: WantedPodGroup, version: str) -> Object:
    """The PodGroup as it is created, in this version of its API group."""
    return {
        "apiVersion": f"{API_GROUPS[wanted.system]}/{version}",
        "kind": "PodGroup",
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "labels": {MANAGED_BY: MANAGER},
            "ownerReferences": _references(wanted),
        },
        "spec": _spec(wanted),
    }


def _references(wanted: WantedPodGroup) -> list[Object]:
    # Nobody waits for a PodGroup to go, so that no right to the owners' finalizers is needed.
    return [
        {
            "apiVersion": one.api_version,
            "kind": one.kind,
            "name": one.name,
            "uid": one.uid,
            "controller": one.controller,
            "blockOwnerDeletion": False,
        }
        for one in wanted.owners
    ]


def _spec(wanted: WantedPodGroup) -> Object:
    if wanted.system == "Kubernetes":
        return {"schedulingPolicy": {"gang": {"minCount": wanted.minimum}}}
    spec: Object = {"minMember": wanted.minimum}
    if wanted.system == "Volcano":
        spec |= {key: value for key, value in (("queue", wanted.queue), ("priorityClassName", wanted.priority)) if value}
        if wanted.devices:
            spec["minResources"] = {name: str(count) for name, count in wanted.devices}
    # No minResources for Coscheduling: pods that it turns away for them are not looked at again when a node comes or gets free
    # (``EventsToRegister`` of v0.34 names pods and PodGroups alone), and wait for minutes beside room enough.
    elif wanted.timeout is not None:
        spec["scheduleTimeoutSeconds"] = wanted.timeout
    return spec


def is_ours(record: PodGroup, wanted: WantedPodGroup) -> bool:
    """Whether gpugate made the PodGroup for this very workload: by its label and the uid of its owner, never by its name."""
    return record.managed and any(one.uid in record.owners for one in wanted.owners)


def fits(record: PodGroup, wanted: WantedPodGroup) -> bool:
    """Whether nothing of the PodGroup has to change."""
    return record.minimum == wanted.minimum and {one.uid for one in wanted.owners} <= set(record.owners)


def correction(stored: Object, wanted: WantedPodGroup) -> Object | None:
    """The merge patch that makes ``stored`` what is wanted; None where it is, or where the API lets nobody change it."""
    patch: Object = {}
    metadata = stored.get("metadata")
    references = metadata.get("ownerReferences") if type(metadata) is dict else None
    known = {str(one.get("uid")) for one in references or () if type(one) is dict}
    missing = [one for one in _references(wanted) if one["uid"] not in known]
    if missing:
        # Those that are gone are taken out by the garbage collector.
        patch["metadata"] = {"ownerReferences": [*(references or ()), *missing]}
    if wanted.system != "Kubernetes":
        changed = _changed(stored.get("spec"), _spec(wanted))
        if changed:
            patch["spec"] = changed
    if not patch:
        return None
    version = metadata.get("resourceVersion") if type(metadata) is dict else None
    patch["metadata"] = {**patch.get("metadata", {}), "resourceVersion": version}
    return patch


def _changed(stored: object, wanted: Object) -> Object:
    """What of ``wanted`` differs; sums that are no longer certain are taken out, and what others added stays."""
    spec = stored if type(stored) is dict else {}
    changed = {key: value for key, value in wanted.items() if spec.get(key) != value}
    if "minMember" in changed:
        resources = wanted.get("minResources")
        before = spec.get("minResources")
        gone = {name: None for name in before if not resources or name not in resources} if type(before) is dict else {}
        if resources or gone:
            changed["minResources"] = {**gone, **(resources or {})}
    elif "minResources" in changed and type(spec.get("minResources")) is dict:
        changed["minResources"] = {**dict.fromkeys(spec["minResources"]), **wanted["minResources"]}
    return changed
