"""Compare each pod set with the LimitRanges and ResourceQuotas of its namespace."""

from collections.abc import Hashable, Iterator
from typing import Final

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.kube.memo import remembered
from gpugate.policies.kube.quantity import NO_AMOUNTS
from gpugate.policies.queueing.budget import Charge, exceeds_ever, exceeds_together, pod_fingerprint, waits_now
from gpugate.policies.queueing.cluster_queue import not_yet_counted
from gpugate.policies.queueing.limit_range import limit_violations
from gpugate.policies.queueing.resource_quota import missing_requests, namespace_facts, quotas_of, usage_of_object
from gpugate.policies.queueing.workload_demand import number_of_pods
from gpugate.policies.rules.queueing.namespace_limits.messages import (
    full_now,
    limit_range_finding,
    needs_request,
    never_fits,
    never_fits_together,
    objects_never_fit,
)
from gpugate.policies.rules.queueing.namespace_limits.params import NamespaceLimitsParams
from gpugate.policies.scheduling.pod_resources import defaults_for, filled, resolved_resources
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_NAMESPACE: Final = ("metadata", "namespace")


def check(workload: Workload, params: NamespaceLimitsParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse pods that the namespace would never accept; warn of a quota that is full."""
    if not workload.gpu_pod_sets():
        return
    pending = [kind for kind in ("limitranges", "resourcequotas") if snapshot.sync_state(kind) is SyncState.PENDING]
    if pending:
        what = f"what namespace {workload.namespace} would take"
        yield not_synced("NamespaceLimitsUnknown", _NAMESPACE, " and ".join(pending), what)
        return
    if workload.namespace not in snapshot.limit_ranges and workload.namespace not in snapshot.quotas:
        return
    warns_of_waiting = params.waits == "Warn" and not_yet_counted(workload)
    findings = [*_of_object(workload, snapshot, waits=warns_of_waiting)]
    for pods in workload.pod_sets:
        findings += _never(workload, pods, snapshot)
        if warns_of_waiting and not workload.owner_was_reviewed():
            findings += _waits(workload, pods, snapshot)
    if len(workload.pod_sets) > 1 and not any(finding.level is Level.DENY for finding in findings):
        findings += _together(workload, snapshot)
    if params.never_fits == "Warn" or workload.owner_was_reviewed():
        yield from [finding._replace(level=Level.WARN) for finding in findings]
        return
    yield from findings


def _of_object(workload: Workload, snapshot: ClusterSnapshot, *, waits: bool) -> Iterator[Finding]:
    """Compare the object itself with quotas that count objects: those without scopes."""
    counts = usage_of_object(workload)
    for budget in quotas_of(workload, snapshot):
        for name in sorted(counts.keys() & budget.quota.hard.keys()) if not budget.quota.scopes else ():
            charge = Charge(1, {name: 1})
            if exceeds_ever(budget, charge):
                yield objects_never_fit(budget, name)
            elif waits and waits_now(budget, charge, NO_AMOUNTS):
                yield full_now(budget, _NAMESPACE, charge, [name], NO_AMOUNTS)


def _key(workload: Workload, pods: PodSet, _snapshot: ClusterSnapshot) -> Hashable | None:
    fingerprint = pod_fingerprint(workload, pods)
    return fingerprint and (fingerprint, number_of_pods(workload, pods))


def _key_with_nothing_in_flight(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Hashable | None:
    return None if snapshot.in_flight.namespace(workload.namespace) else _key(workload, pods, snapshot)


@remembered(by=_key, on=lambda workload, _pods, snapshot: namespace_facts(workload, snapshot))
def _never(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> tuple[Finding, ...]:
    """Find what keeps the pods from being created, whatever else ends."""
    defaults = defaults_for(snapshot, workload.namespace)
    containers = filled(pods, defaults)
    own = resolved_resources(pods, snapshot, workload.namespace, with_overhead=False)
    violations = limit_violations(snapshot.limit_ranges.get(workload.namespace, ()), containers, own, defaults)
    findings = [limit_range_finding(violation, pods) for violation in violations]
    number, together = number_of_pods(workload, pods)
    for budget in quotas_of(workload, snapshot):
        if budget.applies(pods):
            findings += [needs_request(missing, budget, snapshot) for missing in missing_requests(budget.quota, pods, containers)]
            charge = Charge(number, budget.charge(pods))
            names = exceeds_ever(budget, charge)
            if names:
                findings.append(never_fits(budget, pods, charge, names, together=together))
    return tuple(findings)


@remembered(by=_key_with_nothing_in_flight, on=lambda workload, _pods, snapshot: namespace_facts(workload, snapshot))
def _waits(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> tuple[Finding, ...]:
    """Find the quotas that have too little left for the pods now."""
    # Other pods of a group count as used once they are created.
    number = 1 if workload.is_pod() else number_of_pods(workload, pods)[0]
    findings = []
    for budget in quotas_of(workload, snapshot):
        if budget.applies(pods):
            charge, in_flight = Charge(number, budget.charge(pods)), budget.in_flight()
            never = exceeds_ever(budget, charge)
            names = [name for name in waits_now(budget, charge, in_flight) if name not in never]
            if names:
                findings.append(full_now(budget, pods.field("containers"), charge, names, in_flight))
    return tuple(findings)


def _together(workload: Workload, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Find the quotas that each pod set fits, and all of them together do not."""
    for budget in quotas_of(workload, snapshot):
        charges, together = [], True
        for pods in workload.pod_sets:
            number, whole = number_of_pods(workload, pods) if pods.count and not pods.follows else (0, True)
            if number and budget.applies(pods):
                together = together and whole
                charges.append(Charge(number, budget.charge(pods)))
        name = exceeds_together(charges, budget.total)
        if name is not None:
            amounts = [charge.total(name) for charge in charges if charge.each.get(name)]
            yield never_fits_together(budget, workload, name, amounts, together=together)
