"""Kueue's objects (v0.15; ``v1beta1`` and ``v1beta2``): queues, quota, cohorts, flavors, topologies, and its Configuration.

Between the versions a ClusterQueue's ``cohort`` became ``cohortName``; a Cohort's parent is ``parentName`` in both.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.records.common import (
    Expression,
    Selector,
    Taint,
    Toleration,
    amount_of,
    frozen,
    name_of,
    namespace_in,
    selector_in,
    taints_in,
    texts,
    tolerations_in,
)
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence, string
from gpugate.policies.kube.names import MULTIKUEUE_ORIGIN, NAMESPACE_NAME
from gpugate.policies.kube.quantity import QuantityError, exact

_NOTHING: Final[Mapping[Any, Any]] = frozen({})


class LocalQueue(NamedTuple):
    """A Kueue LocalQueue; ``stopped``: its ``stopPolicy`` admits nothing now."""

    namespace: str
    name: str
    cluster_queue: str
    stopped: bool = False


class Quota(NamedTuple):
    """Quota and limits of one resource in one flavor, in bytes, millicores or counts; None without limit."""

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
        covered: the resources of all groups.
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
    reserved: Mapping[tuple[str, str], int] = _NOTHING
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
        labels: labels of its nodes, which Kueue adds to the nodeSelector of admitted pods.
        taints: taints of its nodes that a workload must tolerate.
        tolerations: tolerations that Kueue adds to admitted pods.
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
        value: priority; higher is sooner.
        is_default: True if it is the global default.
        preempts: False if its pods never preempt others (``preemptionPolicy: Never``).
    """

    name: str
    value: int
    is_default: bool
    preempts: bool = True


class KueueWorkload(NamedTuple):
    """A Kueue Workload.

    Attributes:
        owners: the uids of the objects that it represents.
        reserved: True if it holds quota.
        finished: True if it has finished.
        dispatched: True if MultiKueue made it, for an object of another cluster.
    """

    owners: tuple[str, ...]
    reserved: bool
    finished: bool
    dispatched: bool = False


def _is_stopped(spec: Object) -> bool:
    return string(spec, "stopPolicy", ("spec",)) not in {None, "None"}


def local_queue_of(obj: Object) -> LocalQueue:
    """Return the record of a LocalQueue."""
    metadata, spec = mapping(obj, "metadata", ()), mapping(obj, "spec", ())
    return LocalQueue(namespace_in(metadata), name_of(metadata), string(spec, "clusterQueue", ("spec",)) or "", _is_stopped(spec))


def _groups_of(spec: Object) -> tuple[ResourceGroup, ...]:
    groups = []
    for group in mappings(spec, "resourceGroups", ("spec",)):
        covered = frozenset(map(str, sequence(group, "coveredResources", ("spec", "resourceGroups"))))
        flavors = tuple((str(flavor.get("name") or ""), _quotas_of(flavor)) for flavor in mappings(group, "flavors", ()))
        groups.append(ResourceGroup(covered, flavors))
    return tuple(groups)


def _quotas_of(flavor: Object) -> Mapping[str, Quota]:
    quotas = {}
    for resource in mappings(flavor, "resources", ()):
        name = str(resource.get("name") or "")
        nominal, borrowing, lending = (
            amount_of(resource.get(key), name) for key in ("nominalQuota", "borrowingLimit", "lendingLimit")
        )
        quotas[name] = Quota(nominal or 0, borrowing, lending)
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
        for resource in mappings(flavor, "resources", ()):
            name = str(resource.get("name") or "")
            amounts[(str(flavor.get("name") or ""), name)] = amount_of(resource.get("total"), name) or 0
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
    conditions = mappings(status, "conditions", ("status",))
    met = {str(condition.get("type")) for condition in conditions if condition.get("status") == "True"}
    metadata = mapping(obj, "metadata", ())
    return KueueWorkload(
        tuple(str(owner.get("uid") or "") for owner in mappings(metadata, "ownerReferences", ("metadata",))),
        "QuotaReserved" in met,
        "Finished" in met,
        MULTIKUEUE_ORIGIN in mapping(metadata, "labels", ("metadata",)),
    )


class CohortTree:
    """All cohorts, with and without an object, and their members.

    Attributes:
        cohorts: Cohort objects by name.
        queues: ClusterQueues by cohort.
        children: names of cohorts by parent.
        memo: results of :mod:`gpugate.policies.queueing.cohort_quota`.
    """

    __slots__ = ("children", "cohorts", "memo", "queues")

    def __init__(self, queues: Iterable[ClusterQueue] = (), cohorts: Mapping[str, Cohort] = _NOTHING) -> None:
        self.cohorts = cohorts
        self.queues: dict[str, list[ClusterQueue]] = {}
        self.children: dict[str, list[str]] = {}
        self.memo: dict[Any, Any] = {}
        for queue in queues:
            if queue.cohort:
                self.queues.setdefault(queue.cohort, []).append(queue)
        for cohort in cohorts.values():
            if cohort.parent:
                self.children.setdefault(cohort.parent, []).append(cohort.name)

    def parent(self, name: str) -> str:
        """Return the parent of cohort ``name``; empty for none, and for a cohort without an object."""
        cohort = self.cohorts.get(name)
        return cohort.parent if cohort else ""

    def path_to_root(self, name: str) -> list[str] | None:
        """Return cohort ``name`` and its ancestors up to the root; None for a cycle."""
        path = [name]
        while parent := self.parent(path[-1]):
            if parent in path:
                return None
            path.append(parent)
        return path


class Transformation(NamedTuple):
    """A resource that Kueue counts as others (``resources.transformations``).

    Attributes:
        resource: the resource that pods request.
        replaces: True if the resource itself is not counted.
        outputs: amounts per unit (a core, a byte, a device) by resource: cores, bytes or counts, not rounded.
    """

    resource: str
    replaces: bool
    outputs: Mapping[str, Fraction]


#: The namespaces that Kueue leaves out unless its Configuration selects others (v0.15 ``apis/config/v1beta2/defaults.go``).
_LEFT_OUT: Final = Selector((Expression(NAMESPACE_NAME, "NotIn", frozenset({"kube-system", "kueue-system"})),))


class KueueConfiguration(NamedTuple):
    """Kueue's Configuration: which resources it counts how, and which kinds it manages in which namespaces.

    Attributes:
        excluded: prefixes of resources that Kueue does not count (``resources.excludeResourcePrefixes``).
        transformations: resources that it counts as others.
        frameworks: kinds that it manages (``integrations.frameworks``), as written there: ``batch/job``, ``pod``.
        external: kinds that another controller manages for it (``integrations.externalFrameworks``): API group and kind.
        namespaces: selector of the namespaces in which it manages workloads (``managedJobsNamespaceSelector``).
    """

    excluded: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    frameworks: frozenset[str] = frozenset()
    external: frozenset[tuple[str, str]] = frozenset()
    namespaces: Selector = _LEFT_OUT


def _transformation_of(stated: Object) -> Transformation:
    factors = {}
    for name, quantity in mapping(stated, "outputs", ()).items():
        with suppress(QuantityError):
            factors[str(name)] = exact(quantity)
    return Transformation(str(stated.get("input") or ""), stated.get("strategy") == "Replace", frozen(factors))


def _external_kind(name: object) -> tuple[str, str]:
    """Return API group and kind of ``Kind.version.group``."""
    kind, _, version = str(name).partition(".")
    return version.partition(".")[2], kind


def kueue_configuration_of(obj: Object) -> KueueConfiguration:
    """Return the record of a Configuration (``config.kueue.x-k8s.io``, ``v1beta1`` or ``v1beta2``)."""
    resources = mapping(obj, "resources", ())
    transformations = map(_transformation_of, mappings(resources, "transformations", ("resources",)))
    integrations = mapping(obj, "integrations", ())
    return KueueConfiguration(
        tuple(sorted(map(str, sequence(resources, "excludeResourcePrefixes", ("resources",))))),
        tuple(sorted(transformations, key=lambda transformation: transformation.resource)),
        frozenset(map(str, sequence(integrations, "frameworks", ("integrations",)))),
        frozenset(map(_external_kind, sequence(integrations, "externalFrameworks", ("integrations",)))),
        selector_in(obj, "managedJobsNamespaceSelector") or _LEFT_OUT,
    )
