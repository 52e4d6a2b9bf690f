"""Pod records: the resources that each holds, and its group."""

from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import CAPACITY, Sharing, shared_text
from gpugate.policies.cluster.records.pod_groups import COSCHEDULING_LEGACY, KUEUE_COUNT, OWN_SIZE, GroupKey, group_key
from gpugate.policies.cluster.records.pod_problems import PodProblem, trouble_of
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, whole_number
from gpugate.policies.kube.names import PRIORITY_CLASS, QUEUE_NAME, REQUIRED_AFFINITY
from gpugate.policies.workloads.kinds import KINDS
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import PodRequests, limited_memory_of, pod_requests
from gpugate.policies.workloads.resources import memo_key

_NO_CLAIMS: Final[frozenset[str]] = frozenset()
_NOTHING: Final[Object] = {}


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
        uid: its uid.
        owner: uid of its controller; empty for none.
        node: the node that it is bound to; empty while it is pending, and once it has ended.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed``, or ``Leaving`` while it is being deleted.
        memory: requested bytes.
        memory_limit: bytes that it may grow to: its limits, or its requests without a limit.
        cpu: requested millicores.
        devices: accelerators, sorted by name.
        group: its group.
        member: the properties that its group must share.
        owner_group: its owner or group, from :func:`owner_group_of`; empty for a pod on its own, or without accelerators.
        trouble: why it does not run; None if it runs, has ended, or has no owner group.
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
    trouble: PodProblem | None = None


class _Held(NamedTuple):
    """Requests of a pod; see :class:`PodRecord`, and :class:`Member` for ``asks``."""

    memory: int
    memory_limit: int
    cpu: int
    devices: tuple[tuple[str, int], ...]
    asks: tuple[tuple[str, int], ...]


#: Requests of pods by the resources that their containers state: many pods of a cluster state the same.
_held: Final[dict[bytes, _Held]] = {}
_REMEMBERED: Final = 4096
_shared_members: Final[Sharing[Member]] = Sharing()
_shared_groups: Final[Sharing[GroupKey]] = Sharing()


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
    if group is None and (ended or (not node and not _may_ask(spec))):
        return None
    held = _held_by(obj, spec)
    if group is None and not node and not held.devices:
        return None
    owner = shared_text(_owner(metadata))
    crew = owner_group_of(mapping(metadata, "labels", ("metadata",)), owner, group) if held.devices else ""
    return PodRecord(
        uid=str(metadata.get("uid") or ""),
        owner=owner,
        node=shared_text(node),
        phase=shared_text("Leaving" if metadata.get("deletionTimestamp") and not ended else phase),
        memory=held.memory,
        memory_limit=held.memory_limit,
        cpu=held.cpu,
        devices=held.devices,
        group=None if group is None else _shared_groups(group),
        member=None if group is None else _shared_members(_member_of(PodSet(obj, spec, (), 1, _NO_CLAIMS), held.asks)),
        owner_group=crew,
        trouble=trouble_of(metadata, status, phase, node) if crew else None,
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


def _held_by(obj: Object, spec: Object) -> _Held:
    """Return the requests of one pod, computed once for all pods whose containers state the same."""
    key = _stated(spec)
    requests = _held.get(key) if key is not None else None
    if requests is None:
        pods = PodSet(obj, spec, (), 1, _NO_CLAIMS)
        demand = pod_requests(pods)
        devices = tuple(sorted(demand.devices.items()))
        requests = _Held(demand.memory, limited_memory_of(pods), demand.cpu, devices, _asks(demand))
        if key is not None:
            if len(_held) >= _REMEMBERED:
                _held.clear()
            _held[key] = requests
    return requests


def _stated(spec: Object) -> bytes | None:
    """Return a key of the requests of a pod; None if it has no short, exact one."""
    if "resources" in spec or "overhead" in spec or "ephemeralContainers" in spec:
        return None
    parts: list[object] = []
    for place in ("initContainers", "containers"):
        for container in mappings(spec, place, ("spec",)) if place in spec else ():
            resources = container.get("resources", _NOTHING)
            if type(resources) is not dict or type(container.get("name")) is not str:
                return None
            parts += (resources, container.get("restartPolicy") == "Always" if place == "initContainers" else place)
    return memo_key(parts)


def _may_ask(spec: Object) -> bool:
    """Return whether a container names an extended resource: most pending pods do not, and need no sum."""
    for key in ("containers", "initContainers"):
        for container in mappings(spec, key, ("spec",)) if key in spec else ():
            if any("/" in name for name in mapping(mapping(container, "resources", ()), "limits", ())):
                return True
    return False


def _owner(metadata: Object) -> str:
    for owner in mappings(metadata, "ownerReferences", ("metadata",)) if "ownerReferences" in metadata else ():
        if owner.get("controller") is True:
            return str(owner.get("uid") or "")
    return ""


def member_of(pods: PodSet) -> Member:
    """Return the properties of a pod of ``pods`` that its group must share."""
    return _member_of(pods, _asks(pod_requests(pods)))


def _asks(demand: PodRequests) -> tuple[tuple[str, int], ...]:
    return (*sorted(demand.devices.items()), ("cpu", demand.cpu), ("memory", demand.memory))


def _member_of(pods: PodSet, asks: tuple[tuple[str, int], ...]) -> Member:
    labels, annotations, spec = pods.labels(), pods.annotations(), pods.spec
    return Member(
        size=_size(annotations, labels),
        queue=str(labels.get(QUEUE_NAME) or ""),
        priority=str(labels.get(PRIORITY_CLASS) or spec.get("priorityClassName") or ""),
        asks=asks,
        capacity=capacity_of(pods),
    )


def _size(annotations: Object, labels: Object) -> int:
    for written in (annotations.get(KUEUE_COUNT), annotations.get(OWN_SIZE), labels.get(f"{COSCHEDULING_LEGACY}/min-available")):
        size = whole_number(written)
        if size is not None:
            return size
    return 0


def capacity_of(pods: PodSet) -> str:
    """Return ``spot`` or ``on-demand`` if nodeSelector or required affinity of the pods requires either; else empty."""
    spec = pods.spec
    capacities = {_kind(key, [value]) for key, value in mapping(spec, "nodeSelector", pods.field()).items() if key in CAPACITY}
    if "affinity" in spec:
        affinity = mapping(mapping(spec, "affinity", pods.field()), "nodeAffinity", pods.field("affinity"))
        required = mapping(affinity, REQUIRED_AFFINITY, pods.field("affinity"))
        for term in mappings(required, "nodeSelectorTerms", pods.field("affinity")):
            for expression in mappings(term, "matchExpressions", pods.field("affinity")):
                key = str(expression.get("key"))
                if key in CAPACITY and expression.get("operator") == "In":
                    capacities.add(_kind(key, sequence(expression, "values", pods.field("affinity"))))
    return capacities.pop() if len(capacities) == 1 else ""


def _kind(key: str, values: list[object]) -> str:
    if len(values) != 1:
        return ""
    return "spot" if str(values[0]) == CAPACITY[key] else "on-demand"
