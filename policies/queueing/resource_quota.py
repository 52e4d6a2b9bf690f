"""What counts against a ResourceQuota, and whose pods it is about.

Formulas: ``k8s.io/kubernetes`` 1.36.3, ``pkg/quota/v1/evaluator/core/pods.go`` (``PodUsageFunc``, ``podMatchesScopeFunc``,
``Constraints``) and ``pkg/quota/v1/generic``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.cluster.in_flight import InFlight
from gpugate.policies.cluster.records.common import Expression, Selector
from gpugate.policies.cluster.records.namespaces import ResourceQuota
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.accelerators import is_accelerator
from gpugate.policies.kube.fields import Object, mapping, mappings
from gpugate.policies.kube.names import PREFERRED_AFFINITY, REQUIRED_AFFINITY
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.queueing.workload_demand import number_of_pods
from gpugate.policies.scheduling.pod_resources import ResolvedContainer, ResolvedResources, resolved_resources
from gpugate.policies.workloads.kinds import CRON_JOB, DEPLOYMENT
from gpugate.policies.workloads.requests import pod_level
from gpugate.policies.workloads.workload import PodSet, Workload

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
#: Names in a quota that make every container state the resource, and where.
_MUST_STATE: Final = {
    "cpu": ("requests", "cpu"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
}
#: What the controller of a kind makes one of, as a quota counts it.
_MAKES: Final = (
    (CRON_JOB, "count/jobs.batch"),
    (DEPLOYMENT, "count/replicasets.apps"),
)


class Missing(NamedTuple):
    """What a container must state because a quota counts it: ``resources.<kind>.<resource>``."""

    container: ResolvedContainer
    kind: str
    resource: str
    quota_name: str


def usage_of_pod(effective: ResolvedResources) -> dict[str, int]:
    """What one pod counts for, by the names that quotas use: bytes, millicores or counts."""
    found = {"count/pods": 1, "pods": 1}
    for name, amount in effective.requests.items():
        if name in _NATIVE or name.startswith("hugepages-"):
            found[name] = amount
        found[f"requests.{name}"] = amount
    for name in _NATIVE:
        if name in effective.limits:
            found[f"limits.{name}"] = effective.limits[name]
    return found


def usage_of_object(workload: Workload) -> dict[str, int]:
    """What the object itself counts for where it is no pod, and what its controller makes of it: ``count/jobs.batch``."""
    if workload.is_pod():
        return {}
    kind = workload.kind
    found = {f"count/{kind.resource}.{kind.group}" if kind.group else f"count/{kind.resource}": 1}
    found.update((name, 1) for maker, name in _MAKES if maker is kind)
    return found


def usage_in_flight(in_flight: InFlight, namespace: str) -> dict[str, int]:
    """What was just admitted into ``namespace``, by the names that quotas use."""
    amounts = in_flight.namespace(namespace)
    if not amounts:
        return {}
    requests = {name: amount for name, amount in amounts.items() if name != "pods"}
    found = usage_of_pod(ResolvedResources(requests, {}))
    found["pods"] = found["count/pods"] = amounts.get("pods", 0)
    return found


def in_scope(quota: ResourceQuota, pods: PodSet, effective: ResolvedResources, snapshot: ClusterSnapshot) -> bool | None:
    """Whether the pods are in all scopes of ``quota``; None where that is not known.

    Args:
        quota: the quota.
        pods: the pods.
        effective: what one of them comes to, without overhead.
        snapshot: the cluster, for the priority class that pods get by default.
    """
    answers = [_in_scope(scope, pods, effective, snapshot) for scope in quota.scopes]
    if False in answers:
        return False
    return None if None in answers else True


def _in_scope(scope: Expression, pods: PodSet, effective: ResolvedResources, snapshot: ClusterSnapshot) -> bool | None:
    if scope.key in {"Terminating", "NotTerminating"}:
        deadline = pods.spec.get("activeDeadlineSeconds")
        ends = type(deadline) is int and deadline >= 0
        return ends == (scope.key == "Terminating")
    if scope.key in {"BestEffort", "NotBestEffort"}:
        states = any(amounts.get(name) for amounts in effective for name in ("cpu", "memory"))
        return states == (scope.key == "NotBestEffort")
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
        name = next((one.name for one in snapshot.priorities.values() if one.is_default), "")
    return Selector((scope,)).matches({scope.key: name} if name else {})


def _crosses_namespaces(pods: PodSet) -> bool:
    affinity = mapping(pods.spec, "affinity", pods.field())
    for kind in ("podAffinity", "podAntiAffinity"):
        path = pods.field("affinity", kind)
        held = mapping(affinity, kind, pods.field("affinity"))
        required = mappings(held, REQUIRED_AFFINITY, path)
        preferred = [mapping(one, "podAffinityTerm", path) for one in mappings(held, PREFERRED_AFFINITY, path)]
        if any(_names_namespaces(term) for term in (*required, *preferred)):
            return True
    return False


def _names_namespaces(term: Object) -> bool:
    selector: Any = term.get("namespaceSelector")
    return bool(term.get("namespaces")) or selector is not None


def missing_requests(quota: ResourceQuota, pods: PodSet, containers: Sequence[ResolvedContainer]) -> list[Missing]:
    """What containers do not state though ``quota`` counts it, which makes the API refuse every such pod.

    Only CPU and memory must be stated so, and not where the pod states them for all containers together.
    """
    wanted = [(name, *_MUST_STATE[name]) for name in sorted(quota.hard) if name in _MUST_STATE]
    if not wanted or pod_level(pods, "requests") or pod_level(pods, "limits"):
        return []
    found: dict[tuple[str, str, str], Missing] = {}
    for one in containers:
        for name, kind, resource in wanted:
            held: Mapping[str, int] = one.limits if kind == "limits" else one.requests
            if resource not in held:
                found.setdefault((one.container.name, kind, resource), Missing(one, kind, resource, name))
    return list(found.values())


def check_together(workload: Workload, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse sorts of pods each of which is within a quota, and which together are not.

    Raises:
        MalformedError: an amount is no quantity.
    """
    space = workload.namespace
    for quota in snapshot.quotas.get(space, ()):
        totals: dict[str, list[int]] = {}
        together = True
        for pods in workload.pod_sets:
            number, whole = number_of_pods(workload, pods) if pods.count and not pods.follows else (0, True)
            if (
                not number
                or in_scope(quota, pods, resolved_resources(pods, snapshot, space, with_overhead=False), snapshot) is not True
            ):
                continue
            together = together and whole
            for name, amount in usage_of_pod(resolved_resources(pods, snapshot, space)).items():
                if amount and name in quota.hard:
                    totals.setdefault(name, []).append(amount * number)
        above = [name for name, parts in totals.items() if len(parts) > 1 and sum(parts) > quota.hard[name]]
        if above:
            name = min(above, key=lambda one: (not is_accelerator(one.removeprefix("requests.")), one))
            parts, hard = totals[name], show_amount(name, quota.hard[name])
            sums = " + ".join(show_amount(name, part) for part in parts)
            yield Finding(
                "QuotaNeverFits",
                workload.gpu_pod_sets()[0].field("containers"),
                f"all pods together ask for {sums} = {show_amount(name, sum(parts))} of {name} > {hard}, the hard limit of"
                f" ResourceQuota {quota.name} in namespace {quota.namespace}",
                f"Ask for at most {hard} of {name} in all pods together.",
                Level.DENY if together else Level.WARN,
                measure=sum(parts),
                rests_on=("resourcequotas", "limitranges", "runtimeclasses"),
            )
