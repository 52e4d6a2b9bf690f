"""Pod records: the resources that each holds, its group, and why it does not run."""

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.records.common import CAPACITY, shared_text
from gpugate.policies.cluster.records.pod_groups import COSCHEDULING_LEGACY, KUEUE_COUNT, OWN_SIZE, GroupKey, group_key
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, whole_number
from gpugate.policies.kube.memo import remember
from gpugate.policies.kube.names import PRIORITY_CLASS, QUEUE_NAME
from gpugate.policies.workloads.kinds import KINDS
from gpugate.policies.workloads.node_affinity import required_terms
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import limited_memory_of, pod_requests
from gpugate.policies.workloads.resources import memo_key

_NO_CLAIMS: Final[frozenset[str]] = frozenset()
_NOTHING: Final[Object] = {}
#: Maximum length of a message: thousands of pods may keep one each, and its first words tell the reason.
_LONGEST: Final = 300
#: Reason of a running pod whose containers are not ready.
NOT_READY: Final = "NotReady"
#: Reason of a pod that a queue gates until admission.
GATED: Final = "SchedulingGated"
#: Waiting reasons of a container that starts normally.
_ORDINARY: Final = frozenset({"ContainerCreating", "PodInitializing", ""})


class PodProblem(NamedTuple):
    """Reason why one pod does not run.

    Attributes:
        since: start in seconds since 1970; 0 if unknown.
        reason: one word: ``Unschedulable``, ``SchedulingGated``, ``ImagePullBackOff``, ``NotReady``, ``Evicted``, ``Leaving``, ...;
            ``Starting`` if nothing is wrong so far.
        message: message of the scheduler, the kubelet or another component.
    """

    since: float
    reason: str
    message: str
    node: str


class Member(NamedTuple):
    """Properties that the members of one group must share.

    Attributes:
        size: declared number of members; 0 if the pod declares none.
        queue: its Kueue queue; empty for none.
        priority: its priority class; empty for none.
        asks: its requests: accelerators, then millicores of CPU and bytes of memory.
        capacity: ``spot`` or ``on-demand`` if its selectors require either; else empty.
    """

    size: int
    queue: str
    priority: str
    asks: tuple[tuple[str, int], ...]
    capacity: str


class PodRecord(NamedTuple):
    """A pod that holds resources of a node, waits for accelerators, or is a member of a group.

    Attributes:
        owner: uid of its controller; empty for none.
        node: the node that it is bound to; empty while it is pending, and once it has ended.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed``, or ``Leaving`` while it is being deleted.
        memory: requested bytes.
        memory_limit: bytes that it may grow to: its limits, or its requests without a limit.
        cpu: requested millicores.
        devices: accelerators, sorted by name.
        member: the properties that its group must share.
        owner_group: its owner or group, from :func:`owner_group_of`; empty for a pod on its own, or without accelerators.
        problem: why it does not run; None if it runs, has ended, or has no owner group.
    """

    uid: str
    owner: str
    node: str
    phase: str
    memory: int
    memory_limit: int
    cpu: int
    devices: tuple[tuple[str, int], ...]
    group: GroupKey | None
    member: Member | None
    owner_group: str = ""
    problem: PodProblem | None = None


#: Records with nothing but requests, by the resources that containers state: many pods of a cluster state the same.
_requests: Final[dict[bytes, PodRecord]] = {}


@lru_cache(maxsize=1 << 16, typed=True)
def _shared(value: Any) -> Any:  # noqa: ANN401 - a group or member
    return value


def pod_record_of(obj: Object) -> PodRecord | None:
    """Return the record of a Pod; None if it neither holds resources of a node, nor waits for accelerators, nor is in a group.

    Raises:
        MalformedError: a field is of the wrong type.
    """
    metadata, spec = mapping(obj, "metadata", ()), mapping(obj, "spec", ())
    status = mapping(obj, "status", ())
    phase = str(status.get("phase") or "Pending")
    group = group_key(mapping(metadata, "labels", ("metadata",)), mapping(metadata, "annotations", ("metadata",)), spec)
    ended = phase in {"Succeeded", "Failed"}
    node = "" if ended else str(spec.get("nodeName") or "")
    if group is None and (ended or (not node and not _may_request(spec))):
        return None
    pod = _with_requests(obj, spec)
    if group is None and not node and not pod.devices:
        return None
    owners = mappings(metadata, "ownerReferences", ("metadata",))
    owner = shared_text(next((str(owner.get("uid") or "") for owner in owners if owner.get("controller") is True), ""))
    owner_group = owner_group_of(mapping(metadata, "labels", ("metadata",)), owner, group) if pod.devices else ""
    return pod._replace(
        uid=str(metadata.get("uid") or ""),
        owner=owner,
        node=shared_text(node),
        phase=shared_text("Leaving" if metadata.get("deletionTimestamp") and not ended else phase),
        group=group and _shared(group),
        member=group and _shared(_member_of(PodSet(obj, spec, (), 1, _NO_CLAIMS), _asks(pod.devices, pod.cpu, pod.memory))),
        owner_group=owner_group,
        problem=_problem_of(metadata, status, phase, node) if owner_group else None,
    )


#: How the pods of kinds whose controller creates them through other objects are found, by label.
_BY_LABEL: Final = {kind.members.label: kind.members for kind in KINDS if kind.members is not None and kind.members.label}


def owner_group_of(labels: Object, owner: str, group: GroupKey | None) -> str:
    """Return the key of the pods counted together: the workload in its labels, else the controller's uid, else the group.

    The pods of a JobSet belong to Jobs, those of a LeaderWorkerSet to StatefulSets: only their labels name the whole. Empty for a
    pod on its own.
    """
    if not owner:
        return "" if group is None else shared_text(f"{group.system}/{group.name}")
    for label, members in _BY_LABEL.items():
        if label in labels:
            return shared_text(members.key(labels[label], labels.get(members.index_label)))
    return owner


def _with_requests(obj: Object, spec: Object) -> PodRecord:
    """Return the requests of one pod, computed once for all pods whose containers state the same."""
    key = _requests_key(spec)
    record = _requests.get(key) if key is not None else None
    if record is None:
        pods = PodSet(obj, spec, (), 1, _NO_CLAIMS)
        demand = pod_requests(pods)
        devices = tuple(sorted(demand.devices.items()))
        record = PodRecord("", "", "", "", demand.memory, limited_memory_of(pods), demand.cpu, devices, None, None)
        if key is not None:
            remember(_requests, key, record)
    return record


def _requests_key(spec: Object) -> bytes | None:
    """Return a key of the requests of a pod; None if it has no short, exact one."""
    if "resources" in spec or "overhead" in spec or "ephemeralContainers" in spec:
        return None
    parts: list[object] = []
    for field in ("initContainers", "containers"):
        for container in mappings(spec, field, ("spec",)):
            resources = container.get("resources", _NOTHING)
            if type(resources) is not dict or type(container.get("name")) is not str:
                return None
            parts += (resources, container.get("restartPolicy") == "Always" if field == "initContainers" else field)
    return memo_key(parts)


def _may_request(spec: Object) -> bool:
    """Return whether a container names an extended resource: most pending pods do not, and need no sum."""
    return any(
        "/" in name
        for key in ("containers", "initContainers")
        for container in mappings(spec, key, ("spec",))
        for name in mapping(mapping(container, "resources", ()), "limits", ())
    )


def moment(written: object) -> float:
    """Return a Kubernetes timestamp in seconds since 1970; 0 if it is absent or invalid."""
    if type(written) is not str:
        return 0.0
    try:
        return datetime.fromisoformat(written).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _problem_of(metadata: Object, status: Object, phase: str, node: str) -> PodProblem | None:
    """Return why a pod does not run; None if it runs or succeeded."""
    since, deleted = moment(metadata.get("creationTimestamp")), metadata.get("deletionTimestamp")
    state: Object = {}
    if phase == "Succeeded":
        return None
    if phase == "Failed":
        reason, state = status.get("reason") or "Failed", status
    elif deleted:
        reason, since = "Leaving", moment(deleted)
    elif phase == "Pending":
        state = _condition(status, "PodScheduled")
        if not node and state.get("status") == "False":
            reason = state.get("reason") or "Unschedulable"
        else:
            state = _waiting(status)
            reason = state.get("reason") or "Starting"
    else:
        state = _condition(status, "Ready")
        reason, since = NOT_READY, moment(state.get("lastTransitionTime"))
        if state.get("status") in {None, "True"}:
            return None
    text = " ".join(str(state.get("message") or "").split())
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    return PodProblem(since, shared_text(str(reason)[:80]), shared_text(text), shared_text(node))


def _condition(status: Object, kind: str) -> Object:
    conditions = mappings(status, "conditions", ("status",))
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _waiting(status: Object) -> Object:
    """Return the waiting state of the first container that does not start normally; empty if there is none."""
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in mappings(status, key, ("status",)):
            waiting = mapping(mapping(container, "state", ("status", key)), "waiting", ("status", key, "state"))
            if str(waiting.get("reason") or "") not in _ORDINARY:
                return waiting
    return {}


def member_of(pods: PodSet) -> Member:
    """Return the properties of a pod of ``pods`` that its group must share."""
    requests = pod_requests(pods)
    return _member_of(pods, _asks(sorted(requests.devices.items()), requests.cpu, requests.memory))


def _asks(devices: Iterable[tuple[str, int]], cpu: int, memory: int) -> tuple[tuple[str, int], ...]:
    return (*devices, ("cpu", cpu), ("memory", memory))


def _member_of(pods: PodSet, asks: tuple[tuple[str, int], ...]) -> Member:
    labels, annotations, spec = pods.labels(), pods.annotations(), pods.spec
    stated = (annotations.get(KUEUE_COUNT), annotations.get(OWN_SIZE), labels.get(f"{COSCHEDULING_LEGACY}/min-available"))
    return Member(
        size=next((size for size in map(whole_number, stated) if size is not None), 0),
        queue=str(labels.get(QUEUE_NAME) or ""),
        priority=str(labels.get(PRIORITY_CLASS) or spec.get("priorityClassName") or ""),
        asks=asks,
        capacity=capacity_of(pods),
    )


def capacity_of(pods: PodSet) -> str:
    """Return ``spot`` or ``on-demand`` if nodeSelector or required affinity of the pods requires either; else empty."""
    stated = [(key, [value]) for key, value in mapping(pods.spec, "nodeSelector", pods.field()).items()]
    for term in required_terms(pods) if "affinity" in pods.spec else ():
        for expression in mappings(term, "matchExpressions", pods.field("affinity")):
            key = str(expression.get("key"))
            if key in CAPACITY and expression.get("operator") == "In":
                stated.append((key, sequence(expression, "values", pods.field("affinity"))))
    capacities = {_capacity(key, values) for key, values in stated if key in CAPACITY}
    return capacities.pop() if len(capacities) == 1 else ""


def _capacity(key: str, values: list[object]) -> str:
    if len(values) != 1:
        return ""
    return "spot" if str(values[0]) == CAPACITY[key] else "on-demand"
