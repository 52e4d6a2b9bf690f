"""ResourceQuotas as budgets: which pods they count, and which amounts.

Formulas: ``k8s.io/kubernetes`` 1.36.3, ``pkg/quota/v1/evaluator/core/pods.go`` (``PodUsageFunc``, ``podMatchesScopeFunc``,
``Constraints``) and ``pkg/quota/v1/generic``.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpugate.policies.cluster.in_flight import in_all
from gpugate.policies.cluster.records.common import Expression, Selector
from gpugate.policies.cluster.records.namespaces import ResourceQuota
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.kube.fields import mapping, mappings
from gpugate.policies.kube.names import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpugate.policies.kube.quantity import NO_AMOUNTS
from gpugate.policies.queueing.workload_demand import number_of_pods
from gpugate.policies.scheduling.pod_resources import ResolvedContainer, ResolvedResources, resolved_resources
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.workload import Workload

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
#: Names in a quota, and the request or limit that every container must state under such a quota.
_MUST_STATE: Final = {
    **{f"{kind}.{resource}": (kind, resource) for kind in ("requests", "limits") for resource in ("cpu", "memory")},
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
}


class Missing(NamedTuple):
    """A request or limit that a container lacks and a quota counts: ``resources.<kind>.<resource>``."""

    container: ResolvedContainer
    kind: str
    resource: str
    quota_name: str


class QuotaBudget(NamedTuple):
    """A ResourceQuota as the budget of a workload."""

    workload: Workload
    snapshot: ClusterSnapshot
    quota: ResourceQuota

    @property
    def source(self) -> str:
        """The ResourceQuota."""
        return f"ResourceQuota {self.quota.name}"

    @property
    def facts(self) -> tuple[str, ...]:
        """Resource names of the kinds that state the amounts."""
        return ("resourcequotas",)

    def count(self, pods: PodSet) -> int:
        """Return the number of pods; zero if the object does not state it."""
        return number_of_pods(self.workload, pods)[0] if pods.count else 0

    def applies(self, pods: PodSet) -> bool | None:
        """Return whether the pods are in all scopes of the quota; None if unknown."""
        if not self.quota.scopes:
            return True
        resources = resolved_resources(pods, self.snapshot, self.quota.namespace, with_overhead=False)
        return in_scope(self.quota, pods, resources, self.snapshot)

    def charge(self, pods: PodSet) -> Mapping[str, int]:
        """Return the amounts above zero that the quota counts for one pod, sorted by name."""
        usage = usage_of_pod(resolved_resources(pods, self.snapshot, self.quota.namespace))
        return {name: usage[name] for name in sorted(self.quota.hard) if usage.get(name)}

    def total(self, name: str) -> int:
        """Return the hard limit."""
        return self.quota.hard[name]

    def available(self, name: str, in_flight: int) -> int:
        """Return the unused part of the hard limit, less ``in_flight``; never below zero."""
        return max(0, self.quota.hard[name] - self.quota.used.get(name, 0) - in_flight)

    def in_flight(self) -> Mapping[str, int]:
        """Return the amounts in flight into the namespace; empty for a quota with scopes, which may not count them."""
        in_flight, namespace = self.snapshot.in_flight, self.quota.namespace
        if self.quota.scopes or not in_flight.into_namespace(namespace):
            return NO_AMOUNTS
        unconfirmed = (
            _usage_in_flight(in_flight.unconfirmed.namespace(namespace)) if in_flight.unconfirmed is not None else NO_AMOUNTS
        )
        return in_all(_usage_in_flight(in_flight.namespace(namespace)), unconfirmed, self.quota.hard)


def quotas_of(workload: Workload, snapshot: ClusterSnapshot) -> list[QuotaBudget]:
    """Return the ResourceQuotas of the workload's namespace."""
    return [QuotaBudget(workload, snapshot, quota) for quota in snapshot.quotas.get(workload.namespace, ())]


def namespace_facts(workload: Workload, snapshot: ClusterSnapshot) -> tuple[object, ...]:
    """Return the records and views that decide which pods the workload's namespace accepts, besides the pods' requests."""
    return (
        snapshot.runtime_classes,
        snapshot.priorities,
        snapshot.sync_state("priorityclasses"),
        snapshot.sync_state("limitranges"),
        *snapshot.limit_ranges.get(workload.namespace, ()),
        *snapshot.quotas.get(workload.namespace, ()),
    )


def usage_of_pod(resources: ResolvedResources) -> dict[str, int]:
    """Return the amounts that quotas count for one pod, by their names: bytes, millicores or counts."""
    usage = {"count/pods": 1, "pods": 1}
    for name, amount in resources.requests.items():
        if name in _NATIVE or name.startswith("hugepages-"):
            usage[name] = amount
        usage[f"requests.{name}"] = amount
    return usage | {f"limits.{name}": resources.limits[name] for name in _NATIVE if name in resources.limits}


def _usage_in_flight(amounts: Mapping[str, int]) -> dict[str, int]:
    requests = {name: amount for name, amount in amounts.items() if name != "pods"}
    pods = amounts.get("pods", 0)
    return {**usage_of_pod(ResolvedResources(requests, {})), "pods": pods, "count/pods": pods}


def usage_of_object(workload: Workload) -> dict[str, int]:
    """Return the number of objects that quotas count for a workload other than a pod, with those that its controller creates."""
    if workload.is_pod():
        return {}
    kind = workload.kind
    usage = {f"count/{kind.full_resource}": 1}
    if kind.creates:
        usage[f"count/{kind.creates}"] = 1
    return usage


def in_scope(quota: ResourceQuota, pods: PodSet, resources: ResolvedResources, snapshot: ClusterSnapshot) -> bool | None:
    """Return whether the pods are in all scopes of ``quota``; None if unknown.

    Args:
        quota: the quota.
        pods: the pods.
        resources: requests and limits of one of them, without overhead.
        snapshot: the cluster, for the default PriorityClass.
    """
    answers = [_matches(scope, pods, resources, snapshot) for scope in quota.scopes]
    if False in answers:
        return False
    return None if None in answers else True


def _matches(scope: Expression, pods: PodSet, resources: ResolvedResources, snapshot: ClusterSnapshot) -> bool | None:
    if scope.key in {"Terminating", "NotTerminating"}:
        deadline = pods.spec.get("activeDeadlineSeconds")
        ends = type(deadline) is int and deadline >= 0
        return ends == (scope.key == "Terminating")
    if scope.key in {"BestEffort", "NotBestEffort"}:
        has_any = any(amounts.get(name) for amounts in resources for name in ("cpu", "memory"))
        return has_any == (scope.key == "NotBestEffort")
    if scope.key == "PriorityClass":
        return _has_priority(scope, pods, snapshot)
    if scope.key == "CrossNamespacePodAffinity":
        return _crosses_namespaces(pods)
    return False


def _has_priority(scope: Expression, pods: PodSet, snapshot: ClusterSnapshot) -> bool | None:
    name = pods.spec.get("priorityClassName")
    if not name:
        if snapshot.sync_state("priorityclasses") in {SyncState.PENDING, SyncState.NOT_GIVEN}:
            return None
        name = next((priority.name for priority in snapshot.priorities.values() if priority.is_default), "")
    return Selector((scope,)).matches({scope.key: name} if name else {})


def _crosses_namespaces(pods: PodSet) -> bool:
    affinity = mapping(pods.spec, "affinity", pods.field())
    for kind in ("podAffinity", "podAntiAffinity"):
        path = pods.field("affinity", kind)
        stated = mapping(affinity, kind, pods.field("affinity"))
        required = mappings(stated, REQUIRED_AFFINITY, path)
        preferred = [mapping(weighted, "podAffinityTerm", path) for weighted in mappings(stated, PREFERRED_AFFINITY, path)]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in (*required, *preferred)):
            return True
    return False


def missing_requests(quota: ResourceQuota, pods: PodSet, containers: Sequence[ResolvedContainer]) -> list[Missing]:
    """Return the requests and limits that ``quota`` counts and containers lack: the API rejects such pods.

    It does so for CPU and memory only, and not for pods with pod-level resources.
    """
    required = [(name, *_MUST_STATE[name]) for name in sorted(quota.hard) if name in _MUST_STATE]
    if not required or pod_level(pods, "requests") or pod_level(pods, "limits"):
        return []
    missing: dict[tuple[str, str, str], Missing] = {}
    for container in containers:
        for name, kind, resource in required:
            stated = container.limits if kind == "limits" else container.requests
            if resource not in stated:
                missing.setdefault((container.container.name, kind, resource), Missing(container, kind, resource, name))
    return list(missing.values())
