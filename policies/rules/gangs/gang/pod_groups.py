"""Plan the PodGroup that a gang needs from the scheduler of its policy, and correct an existing one.

Sources: the coscheduling plugin of scheduler-plugins v0.34 (``pkg/coscheduling/core``: a pod whose PodGroup is missing is not
placed), Volcano v1.10 (``pkg/controllers/podgroup``: pods that name a group wait for it, and get no other), Kubernetes 1.36
``scheduling.k8s.io/v1alpha2`` (``spec.schedulingPolicy`` is immutable).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.pod_groups import MANAGED_BY, MANAGER, GroupKey, PodGroup
from gpugate.policies.framework.decision import BoundRule
from gpugate.policies.gangs.gang import GANG_NAME, Gang, declared_size, gang_of, group_of, invalid_size, min_count, min_size
from gpugate.policies.gangs.status import is_over
from gpugate.policies.kube.fields import Object, lookup
from gpugate.policies.rules.gangs.gang.mutate import GangParams
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: API groups of the PodGroups, by the scheduler that reads them.
API_GROUPS: Final = {"Coscheduling": "scheduling.x-k8s.io", "Volcano": "scheduling.volcano.sh", "Kubernetes": "scheduling.k8s.io"}
#: The annotation from which Volcano reads the queue of a pod.
_VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"


class PodGroupOwner(NamedTuple):
    """An owner of a PodGroup; ``controller`` if it is the only one."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool


class WantedPodGroup(NamedTuple):
    """The PodGroup that a gang needs.

    Attributes:
        system: ``Coscheduling``, ``Volcano`` or ``Kubernetes``.
        namespace: its namespace.
        name: its name, which the pods state.
        minimum: the number of pods that the gang needs to start.
        owners: its owners: the workload, or all plain pods, so that it is deleted with the last of them.
        devices: accelerators of the minimum of pods together, by name, for Volcano; empty if their number is uncertain.
        queue: Volcano's queue; empty for its default.
        priority: the priority class of the pods; empty for none.
        timeout: seconds for which Coscheduling reserves nodes; None for its default.
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
        """Return the key of the group in the cluster snapshot."""
        return GroupKey(self.system, self.name)


class PodGroupPlan(NamedTuple):
    """The change of the PodGroup of a workload.

    Attributes:
        wanted: the PodGroup that the workload needs; None if gpugate creates none.
        dry_run: whether the rule is in Warn or DryRun, so that gpugate only reports the PodGroup that it would create.
        why_not: why a gang gets none, for people; empty if it gets one, or is no gang.
        create: whether to create a missing PodGroup; otherwise gpugate only corrects an existing one.
    """

    wanted: WantedPodGroup | None = None
    dry_run: bool = False
    why_not: str = ""
    create: bool = True


NOTHING: Final = PodGroupPlan()


def _creating_params(gang_rule: BoundRule | None) -> GangParams | None:
    """Return the parameters of the rule ``gang``; None if gpugate creates no PodGroups with them."""
    params = None if gang_rule is None else gang_rule.params
    if isinstance(params, GangParams) and params.pod_groups == "Create" and params.scheduler in API_GROUPS:
        return params
    return None


def plan(workload: Workload, gang_rule: BoundRule | None) -> PodGroupPlan:
    """Return the plan for a workload that creates its pods itself; :func:`plan_together` is for plain pods.

    Args:
        workload: the workload.
        gang_rule: the rule ``gang`` as it is bound for the workload; None if it is not bound, or the workload is exempt.

    Raises:
        MalformedError: a field has a type that the API does not accept.
    """
    if workload.is_pod() or workload.kind.scheduled or workload.is_child() or is_over(workload.root):
        return NOTHING
    params = _creating_params(gang_rule)
    if gang_rule is None or params is None or invalid_size(workload) is not None:
        return NOTHING
    dry_run = gang_rule.mode.is_rehearsed
    workload.parallel_jobs_are_gangs = params.jobs == "Parallel"
    gang = gang_of(workload)
    if gang is None:
        return _plan_of_former_gang(workload, params, dry_run=dry_run)
    why_not = _why_not(workload, gang)
    if why_not:
        return PodGroupPlan(why_not=why_not)
    name = _group_name(workload, gang, params.scheduler, dry_run=dry_run)
    if not name:
        return PodGroupPlan(
            why_not=f"its pods do not all name the same group of {params.scheduler}: they are older than the policy"
        )
    return PodGroupPlan(_pod_group_of(workload, gang, params, name), dry_run)


def _owner(workload: Workload, api_version: str, *, controller: bool) -> PodGroupOwner:
    uid = str(workload.metadata().get("uid") or "")
    return PodGroupOwner(api_version, workload.kind.kind, workload.name, uid, controller=controller)


def _sole_owner(workload: Workload) -> tuple[PodGroupOwner, ...]:
    return (_owner(workload, str(workload.root.get("apiVersion")), controller=True),)


def _plan_of_former_gang(workload: Workload, params: GangParams, *, dry_run: bool) -> PodGroupPlan:
    """Return the plan for a workload that was scaled down to one pod, and still names the group of its former gang."""
    keys = {group_of(pods) for pods in workload.gpu_pod_sets()}
    key = keys.pop() if len(keys) == 1 else None
    if key is None or key.system != params.scheduler or workload.kind.groups_itself or workload.gangs > 1:
        return NOTHING
    owners, timeout = _sole_owner(workload), params.schedule_timeout
    return PodGroupPlan(WantedPodGroup(key.system, workload.namespace, key.name, 1, owners, timeout=timeout), dry_run, create=False)


def _why_not(workload: Workload, gang: Gang) -> str:
    if workload.kind.groups_itself:
        return f"the operator of {workload.kind.kind} creates the PodGroups itself"
    if gang.gangs > 1:
        return (
            f"its {gang.gangs} gangs come from one template, so their pods cannot name different groups;"
            " let the controller of the kind create the PodGroups"
        )
    return "" if gang.members is not None else "the workload does not state how many pods it makes"


def _group_name(workload: Workload, gang: Gang, system: str, *, dry_run: bool) -> str:
    """Return the group that all pods of the gang name; in a dry run, the one that they would name."""
    keys = {group_of(pods) for pods in gang.parts}
    if len(keys) != 1:
        return ""
    key = keys.pop()
    if key is not None and key.system == system:
        return key.name
    return (workload.annotation(GANG_NAME) or workload.name) if dry_run and (key is None or key.system == "gpugate") else ""


def _pod_group_of(workload: Workload, gang: Gang, params: GangParams, name: str) -> WantedPodGroup:
    # Pods that start after others have run would never arrive while the group waits for them. Pods without accelerators
    # have no group label, with any declared size.
    together = [part for part in gang.parts if not part.follows and not part.starts_late] or list(gang.parts)
    at_once = sum(part.numbers.at_once // gang.gangs for part in together)
    minimum = max(1, min(min_size(workload, gang.size), at_once))
    certain = sum(min_count(part) // gang.gangs for part in together)
    counts = [(part, part.numbers.at_once // gang.gangs) for part in together]
    return WantedPodGroup(
        system=params.scheduler,
        namespace=workload.namespace,
        name=name,
        minimum=minimum,
        owners=_sole_owner(workload),
        devices=_devices(counts) if minimum == certain == at_once else (),
        queue=_queue(gang.parts, params),
        priority=_priority(gang.parts),
        timeout=params.schedule_timeout,
    )


def _devices(counts: Iterable[tuple[PodSet, int]]) -> tuple[tuple[str, int], ...]:
    # Only accelerators: other requests may get defaults at creation, and with a sum too high the gang would never start.
    sums: dict[str, int] = {}
    for pods, number in counts:
        for name, count in pods.accelerators().items():
            sums[name] = sums.get(name, 0) + count * number
    return tuple(sorted(sums.items()))


def _queue(parts: Iterable[PodSet], params: GangParams) -> str:
    if params.scheduler != "Volcano":
        return ""
    return _common(str(part.annotations().get(_VOLCANO_QUEUE) or "") for part in parts) or params.volcano_queue or ""


def _priority(parts: Iterable[PodSet]) -> str:
    return _common(str(part.spec.get("priorityClassName") or "") for part in parts)


def _common(values: Iterable[str]) -> str:
    """Return the value that all have; empty if they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else ""


def plan_together(members: Sequence[Workload], gang_rule: BoundRule | None) -> PodGroupPlan:
    """Return the plan for plain pods that name one group; ``gang_rule`` is the rule ``gang`` as it is bound for the first pod.

    The pods have no common owner, so each is an owner of the PodGroup and none its controller: it is deleted with the last.
    """
    first = members[0]
    params, key = _creating_params(gang_rule), group_of(first.pod_sets[0])
    if gang_rule is None or params is None or key is None:
        return NOTHING
    dry_run = gang_rule.mode.is_rehearsed
    if key.system != params.scheduler and not (dry_run and key.system == "gpugate"):
        return NOTHING
    present = [pod for pod in members if "deletionTimestamp" not in pod.metadata() and not _has_ended(pod)]
    sizes = {size for pod in present if (size := declared_size(pod)) is not None}
    if len(sizes) != 1:
        return PodGroupPlan(why_not=f"its pods state different sizes: {sorted(sizes)}" if sizes else "its pods state no size")
    size = sizes.pop()
    if size < 2:
        return NOTHING
    parts = [pods for pod in present for pods in pod.gpu_pod_sets()]
    wanted = WantedPodGroup(
        system=params.scheduler,
        namespace=first.namespace,
        name=key.name,
        minimum=min(min_size(pod, size) for pod in present),
        owners=tuple(sorted(_owner(pod, pod.kind.versions[-1], controller=False) for pod in members)),
        queue=_queue(parts, params),
        priority=_priority(parts),
        timeout=params.schedule_timeout,
    )
    return PodGroupPlan(wanted, dry_run)


def _has_ended(pod: Workload) -> bool:
    return lookup(pod.root, ("status", "phase")) in {"Succeeded", "Failed"}


def manifest(wanted: WantedPodGroup, version: str) -> Object:
    """Return the PodGroup to create, in ``version`` of its API group."""
    metadata = {
        "name": wanted.name,
        "namespace": wanted.namespace,
        "labels": {MANAGED_BY: MANAGER},
        "ownerReferences": _references(wanted),
    }
    api_version = f"{API_GROUPS[wanted.system]}/{version}"
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": _spec(wanted)}


def _references(wanted: WantedPodGroup) -> list[Object]:
    # Without blockOwnerDeletion the controller needs no right to the owners' finalizers.
    return [
        {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": owner.controller,
            "blockOwnerDeletion": False,
        }
        for owner in wanted.owners
    ]


def _spec(wanted: WantedPodGroup) -> Object:
    if wanted.system == "Kubernetes":
        return {"schedulingPolicy": {"gang": {"minCount": wanted.minimum}}}
    spec: Object = {"minMember": wanted.minimum}
    if wanted.system == "Volcano":
        spec |= {key: value for key, value in (("queue", wanted.queue), ("priorityClassName", wanted.priority)) if value}
        if wanted.devices:
            spec["minResources"] = {name: str(count) for name, count in wanted.devices}
    # No minResources for Coscheduling: it retries pods that it rejects for them only on events of pods and PodGroups, not
    # of nodes (``EventsToRegister`` of v0.34), so they wait for minutes although a node has room.
    elif wanted.timeout is not None:
        spec["scheduleTimeoutSeconds"] = wanted.timeout
    return spec


def is_ours(record: PodGroup, wanted: WantedPodGroup) -> bool:
    """Return whether gpugate made the PodGroup for this workload: by its label and its owner's uid, never by its name."""
    return record.managed and any(owner.uid in record.owners for owner in wanted.owners)


def fits(record: PodGroup, wanted: WantedPodGroup) -> bool:
    """Return whether the PodGroup needs no change."""
    return record.minimum == wanted.minimum and {owner.uid for owner in wanted.owners} <= set(record.owners)


def correction(stored: Object, wanted: WantedPodGroup) -> Object | None:
    """Return the merge patch from ``stored`` to ``wanted``; None if they are equal, or differ in immutable fields only."""
    patch: Object = {}
    metadata = stored.get("metadata")
    references = metadata.get("ownerReferences") if type(metadata) is dict else None
    known = {str(reference.get("uid")) for reference in references or () if type(reference) is dict}
    missing = [reference for reference in _references(wanted) if reference["uid"] not in known]
    if missing:
        # The garbage collector removes references to deleted owners.
        patch["metadata"] = {"ownerReferences": [*(references or ()), *missing]}
    if wanted.system != "Kubernetes":
        changes = _changes(stored.get("spec"), _spec(wanted))
        if changes:
            patch["spec"] = changes
    if not patch:
        return None
    version = metadata.get("resourceVersion") if type(metadata) is dict else None
    patch["metadata"] = {**patch.get("metadata", {}), "resourceVersion": version}
    return patch


def _changes(stored: object, wanted: Object) -> Object:
    """Return the merge patch of the spec: it removes sums that are no longer certain, and keeps fields that others added."""
    spec = stored if type(stored) is dict else {}
    changes = {key: value for key, value in wanted.items() if spec.get(key) != value}
    before = spec.get("minResources")
    if "minMember" in changes:
        resources = wanted.get("minResources") or {}
        removed = {name: None for name in before if name not in resources} if type(before) is dict else {}
        if resources or removed:
            changes["minResources"] = {**removed, **resources}
    elif "minResources" in changes and type(before) is dict:
        changes["minResources"] = {**dict.fromkeys(before), **wanted["minResources"]}
    return changes
