"""Kueue's objects (v0.15; ``v1beta1`` and ``v1beta2``): queues, quota, cohorts, flavors, topologies.

Between the versions a ClusterQueue's ``cohort`` became ``cohortName``; a Cohort's parent is ``parentName`` in both.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gpugate.policies.cluster.records.common import (
    Selector,
    Taint,
    Toleration,
    amount_or_none,
    frozen,
    name_of,
    namespace_in,
    selector_in,
    taints_in,
    texts,
    tolerations_in,
)
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, string


class LocalQueue(NamedTuple):
    """A Kueue LocalQueue.

    Attributes:
        namespace: its namespace.
        name: its name.
        cluster_queue: its ClusterQueue.
        stopped: True if its ``stopPolicy`` admits nothing now.
    """

    namespace: str
    name: str
    cluster_queue: str
    stopped: bool = False


class Quota(NamedTuple):
    """Quota of one resource in one flavor; amounts in bytes, millicores or counts.

    Attributes:
        nominal: quota of the queue or cohort.
        borrowing: borrowing limit; None without limit.
        lending: lending limit; None without limit.
    """

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


class ResourceGroup(NamedTuple):
    """A group of resources and their flavors.

    Attributes:
        covered: names of its resources.
        flavors: flavor names in the order in which Kueue tries them, with the quota of each resource.
    """

    covered: frozenset[str]
    flavors: tuple[tuple[str, Mapping[str, Quota]], ...]


class ClusterQueue(NamedTuple):
    """A Kueue ClusterQueue. It admits no workload that requests a resource outside its groups.

    Attributes:
        name: its name.
        covered: the resources of all groups.
        groups: its resource groups.
        cohort: the cohort that it belongs to; empty for none.
        namespaces: selector of the namespaces that it admits from; None admits from none.
        stopped: True if its ``stopPolicy`` admits nothing now.
        reserved: reserved quota by flavor and resource (``status.flavorsReservation``).
        pending: number of pending workloads (``status.pendingWorkloads``).
        inactive: why it admits nothing (its ``Active`` condition is False), else empty.
        checked: True if it has admission checks, which may provision nodes or dispatch workloads to another cluster.
    """

    name: str
    covered: frozenset[str]
    groups: tuple[ResourceGroup, ...] = ()
    cohort: str = ""
    namespaces: Selector | None = Selector(())
    stopped: bool = False
    reserved: Mapping[tuple[str, str], int] = frozen({})
    pending: int = 0
    inactive: str = ""
    checked: bool = False


class Cohort(NamedTuple):
    """A Kueue Cohort: quota shared by the ClusterQueues and Cohorts in it.

    For Kueue, a cohort that ClusterQueues merely name exists without an object, quota or parent.
    """

    name: str
    parent: str
    groups: tuple[ResourceGroup, ...]


class ResourceFlavor(NamedTuple):
    """A Kueue ResourceFlavor.

    Attributes:
        name: its name.
        labels: labels that its nodes carry and that admitted pods get as node selector.
        taints: taints of its nodes that a workload must tolerate.
        tolerations: tolerations that admitted pods get.
        topology: the Topology of its nodes; empty for none.
    """

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    topology: str


class Topology(NamedTuple):
    """A Kueue Topology: node label keys from the widest level to the narrowest."""

    name: str
    levels: tuple[str, ...]


class PriorityClass(NamedTuple):
    """A PriorityClass or Kueue WorkloadPriorityClass.

    Attributes:
        name: its name.
        value: priority; higher is sooner.
        is_default: True if it is the global default.
        preempts: False if its pods never preempt others (``preemptionPolicy: Never``).
    """

    name: str
    value: int
    is_default: bool
    preempts: bool = True


class KueueWorkload(NamedTuple):
    """A Kueue Workload: shows that an object has reached its queue.

    Attributes:
        owners: uids of the objects that it represents.
        reserved: True if quota is reserved for it.
        finished: True if it is finished.
    """

    owners: tuple[str, ...]
    reserved: bool
    finished: bool


def _is_stopped(spec: Object) -> bool:
    return string(spec, "stopPolicy", ("spec",)) not in {None, "None"}


def local_queue_of(obj: Object) -> LocalQueue:
    """Return the record of a LocalQueue."""
    metadata, spec = mapping(obj, "metadata", ()), mapping(obj, "spec", ())
    return LocalQueue(namespace_in(metadata), name_of(metadata), string(spec, "clusterQueue", ("spec",)) or "", _is_stopped(spec))


def _groups_of(spec: Object) -> tuple[ResourceGroup, ...]:
    groups = []
    for group in mappings(spec, "resourceGroups", ("spec",)):
        covered = frozenset(str(name) for name in sequence(group, "coveredResources", ("spec", "resourceGroups")))
        flavors = tuple((str(flavor.get("name") or ""), _quotas_of(flavor)) for flavor in mappings(group, "flavors", ()))
        groups.append(ResourceGroup(covered, flavors))
    return tuple(groups)


def _quotas_of(flavor: Object) -> Mapping[str, Quota]:
    quotas = {}
    for one in mappings(flavor, "resources", ()):
        name = str(one.get("name") or "")
        nominal = amount_or_none(one.get("nominalQuota"), name)
        borrowing = amount_or_none(one.get("borrowingLimit"), name)
        quotas[name] = Quota(nominal or 0, borrowing, amount_or_none(one.get("lendingLimit"), name))
    return frozen(quotas)


def cluster_queue_of(obj: Object) -> ClusterQueue:
    """Return the record of a ClusterQueue."""
    spec, status = mapping(obj, "spec", ()), mapping(obj, "status", ())
    groups = _groups_of(spec)
    pending = status.get("pendingWorkloads")
    return ClusterQueue(
        name=name_of(mapping(obj, "metadata", ())),
        covered=frozenset(name for group in groups for name in group.covered),
        groups=groups,
        cohort=str(spec.get("cohortName") or spec.get("cohort") or ""),
        namespaces=selector_in(spec, "namespaceSelector"),
        stopped=_is_stopped(spec),
        reserved=_reserved(status),
        pending=pending if type(pending) is int else 0,
        inactive=_why_inactive(status),
        checked=bool(spec.get("admissionChecks") or spec.get("admissionChecksStrategy")),
    )


def _reserved(status: Object) -> Mapping[tuple[str, str], int]:
    amounts = {}
    for flavor in mappings(status, "flavorsReservation", ("status",)):
        for one in mappings(flavor, "resources", ()):
            resource = str(one.get("name") or "")
            amounts[(str(flavor.get("name") or ""), resource)] = amount_or_none(one.get("total"), resource) or 0
    return frozen(amounts)


def _why_inactive(status: Object) -> str:
    for condition in mappings(status, "conditions", ("status",)):
        if condition.get("type") == "Active" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "it is not active")
    return ""


def cohort_of(obj: Object) -> Cohort:
    """Return the record of a Cohort."""
    spec = mapping(obj, "spec", ())
    return Cohort(name_of(mapping(obj, "metadata", ())), str(spec.get("parentName") or spec.get("parent") or ""), _groups_of(spec))


def flavor_of(obj: Object) -> ResourceFlavor:
    """Return the record of a ResourceFlavor."""
    spec = mapping(obj, "spec", ())
    return ResourceFlavor(
        name_of(mapping(obj, "metadata", ())),
        texts(spec, "nodeLabels"),
        taints_in(spec, "nodeTaints"),
        tolerations_in(spec, "tolerations"),
        str(spec.get("topologyName") or ""),
    )


def topology_of(obj: Object) -> Topology:
    """Return the record of a Topology."""
    levels = mappings(mapping(obj, "spec", ()), "levels", ("spec",))
    return Topology(name_of(mapping(obj, "metadata", ())), tuple(str(level.get("nodeLabel") or "") for level in levels))


def priority_class_of(obj: Object) -> PriorityClass:
    """Return the record of a PriorityClass or WorkloadPriorityClass."""
    value = obj.get("value")
    return PriorityClass(
        name_of(mapping(obj, "metadata", ())),
        value if type(value) is int else 0,
        is_default=obj.get("globalDefault") is True,
        preempts=obj.get("preemptionPolicy") != "Never",
    )


def kueue_workload_of(obj: Object) -> KueueWorkload:
    """Return the record of a Workload."""
    status = mapping(obj, "status", ())
    holds = {
        str(condition.get("type")) for condition in mappings(status, "conditions", ("status",)) if condition.get("status") == "True"
    }
    owners = mappings(mapping(obj, "metadata", ()), "ownerReferences", ("metadata",))
    return KueueWorkload(tuple(str(owner.get("uid") or "") for owner in owners), "QuotaReserved" in holds, "Finished" in holds)
