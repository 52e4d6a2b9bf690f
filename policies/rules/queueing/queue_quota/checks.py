"""Parameters and checks of the rule `queue-quota`: compare each pod set with the ClusterQueue behind the LocalQueue."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Literal

from gpugate.policies.cluster.records.kueue import ClusterQueue, LocalQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.fields import Object, Path
from gpugate.policies.kube.memo import remembered
from gpugate.policies.kube.names import PRIORITY_CLASS
from gpugate.policies.queueing.budget import exceeds_together, pod_fingerprint
from gpugate.policies.queueing.cluster_queue import has_prebuilt_workload, not_yet_counted
from gpugate.policies.queueing.flavor_fit import QUOTA_FACTS, FlavorFit, FlavorQuota, fit_of, in_flight_into, queue_facts
from gpugate.policies.queueing.workload_demand import PodSetDemand, annotations_and_labels, demands_of, is_managed, pod_counts
from gpugate.policies.rules.queueing.queue_quota.messages import (
    never_fits,
    never_fits_together,
    no_flavor_matches,
    not_covered,
    waits_for_quota,
)
from gpugate.policies.workloads.metadata import is_queued_with_owner, queue_label, queue_path
from gpugate.policies.workloads.workload import Workload

_NEEDED: Final = (*QUOTA_FACTS, "configurations", "namespaces")
#: The most priority classes that a message lists.
_SHOWN: Final = 4


class QueueQuotaParams(Params):
    """Parameters of `queue-quota`."""

    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether a workload that its queue could never admit is refused or only warned about."""
    waits: Literal["Warn", "Allow"] = "Warn"
    """Whether gpugate warns about a workload that does not fit now."""


def check(workload: Workload, params: QueueQuotaParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a workload that its queue could never admit; warn about one that has to wait."""
    managed = is_managed(workload, snapshot)
    path, name = queue_path(workload), queue_label(workload)
    if managed is False or path is None or not name or not workload.gpu_pod_sets():
        return
    if is_queued_with_owner(workload) or has_prebuilt_workload(workload, snapshot) is not False:
        return
    _, labels = annotations_and_labels(workload)
    pending = _pending(labels, snapshot)
    if pending:
        yield not_synced("QuotaUnknown", path, ", ".join(pending), f"whether queue {name} could ever admit the workload")
        return
    queue = snapshot.queue(workload.namespace, name)
    if queue is None:
        return
    unless = ""
    if managed is None:
        unless = f" (a warning: Kueue's Configuration is unknown, so gpugate cannot tell whether it manages a {workload.kind.kind})"
    for finding in [*_check_priority(workload, labels, snapshot), *_check_queue(workload, path, queue, params, snapshot)]:
        level = Level.WARN if unless or params.never_fits == "Warn" else finding.level
        yield finding._replace(level=level, message=f"{finding.message}{unless}")


def _pending(labels: Object, snapshot: ClusterSnapshot) -> list[str]:
    """Return the kinds that the check of a workload with these ``labels`` needs and that are not synced yet."""
    needed = (*_NEEDED, "workloadpriorityclasses") if PRIORITY_CLASS in labels else _NEEDED
    known, pending = snapshot.known, SyncState.PENDING
    return [kind for kind in needed if known.get(kind) is pending]


def _check_priority(workload: Workload, labels: Object, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    name = labels.get(PRIORITY_CLASS)
    if not name or snapshot.sync_state("workloadpriorityclasses") is not SyncState.SYNCED or name in snapshot.workload_priorities:
        return
    known = ", ".join(sorted(snapshot.workload_priorities)[:_SHOWN]) or "none"
    yield Finding(
        "PriorityClassUnknown",
        (*workload.kind.queue, "metadata", "labels", PRIORITY_CLASS),
        f"there is no WorkloadPriorityClass {name}, so Kueue creates no Workload and never admits the object; available: {known}",
        "Name an existing WorkloadPriorityClass, or create this one.",
        rests_on=("workloadpriorityclasses",),
    )


def _check_queue(
    workload: Workload, path: Path, local: LocalQueue, params: QueueQuotaParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    if snapshot.sync_state("clusterqueues") is not SyncState.SYNCED:
        return
    queue = snapshot.cluster_queues.get(local.cluster_queue)
    if queue is None:
        yield Finding(
            "ClusterQueueUnknown",
            path,
            f"LocalQueue {local.name} names ClusterQueue {local.cluster_queue}, which does not exist, so it admits nothing",
            "Use another queue, or create the ClusterQueue.",
            Level.WARN,
            rests_on=("clusterqueues", "localqueues"),
        )
        return
    if not _admits_namespace(workload, queue, snapshot):
        why = "it has no namespaceSelector" if queue.namespaces is None else "its namespaceSelector does not select it"
        yield Finding(
            "NamespaceNotAdmitted",
            path,
            f"ClusterQueue {queue.name} admits nothing from namespace {workload.namespace}, because {why}",
            "Use a queue that admits the namespace, or let the namespaceSelector of the ClusterQueue select it.",
            rests_on=("clusterqueues", "localqueues", "namespaces"),
        )
    stopped = _why_stopped(local, queue, snapshot)
    if stopped:
        yield Finding(
            "QueueStopped",
            path,
            f"{stopped}, so the workload waits until that changes",
            "Wait until the queue admits workloads again, or use another one.",
            Level.WARN,
            rests_on=QUOTA_FACTS,
        )
    warns_of_waiting = params.waits == "Warn" and not stopped and not_yet_counted(workload)
    yield from _check_pod_sets(workload, queue, in_flight_into(queue, snapshot) if warns_of_waiting else None, snapshot)


def _admits_namespace(workload: Workload, queue: ClusterQueue, snapshot: ClusterSnapshot) -> bool:
    if queue.namespaces is None:
        return False
    # The labels of an unknown namespace may match.
    return workload.namespace not in snapshot.namespaces or queue.namespaces.matches(snapshot.namespace_labels(workload.namespace))


def _why_stopped(local: LocalQueue, queue: ClusterQueue, snapshot: ClusterSnapshot) -> str:
    if local.stopped:
        return f"LocalQueue {local.name} is stopped by its stopPolicy"
    if queue.stopped:
        return f"ClusterQueue {queue.name} is stopped by its stopPolicy"
    if queue.inactive:
        return f"ClusterQueue {queue.name} is not active: {queue.inactive}"
    if snapshot.sync_state("resourceflavors") is not SyncState.SYNCED:
        return ""
    missing = sorted({name for group in queue.groups for name, _ in group.flavors if name not in snapshot.flavors})
    return f"ClusterQueue {queue.name} is not active: it lacks ResourceFlavor {', '.join(missing)}" if missing else ""


def _key(
    workload: Workload, queue: ClusterQueue, in_flight: Mapping[str, int] | None, _snapshot: ClusterSnapshot
) -> Hashable | None:
    # The amounts in flight change all the time.
    if in_flight or len(workload.pod_sets) > 1:
        return None
    pods = workload.pod_sets[0]
    fingerprint = pod_fingerprint(workload, pods)
    return fingerprint and (fingerprint, queue.name, pod_counts(workload, pods), in_flight is None)


@remembered(
    by=_key,
    on=lambda _workload, queue, _, snapshot: (*queue_facts(queue, snapshot), snapshot.limit_ranges, snapshot.runtime_classes),
)
def _check_pod_sets(
    workload: Workload, queue: ClusterQueue, in_flight: Mapping[str, int] | None, snapshot: ClusterSnapshot
) -> tuple[Finding, ...]:
    """Compare the pod sets with the flavors of ``queue``; also with the unused quota if ``in_flight`` is given."""
    demands = demands_of(workload, snapshot)
    findings = [finding for demand in demands for finding in _check_demand(workload, demand, queue, in_flight, snapshot)]
    if len(demands) > 1 and not any(finding.level is Level.DENY for finding in findings):
        findings += _check_together(workload, demands, queue, snapshot)
    return tuple(findings)


def _check_demand(
    workload: Workload, demand: PodSetDemand, queue: ClusterQueue, in_flight: Mapping[str, int] | None, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    uncovered = sorted(demand.each.keys() - queue.covered)
    if uncovered:
        yield not_covered(demand, queue, uncovered, snapshot)
    fits = [fit for group in queue.groups if (fit := fit_of(workload, demand, queue, group, snapshot)) is not None]
    for fit in fits:
        if not fit.open:
            yield no_flavor_matches(fit, queue, workload)
        elif not fit.fits_ever:
            yield never_fits(fit, queue, snapshot)
    if in_flight is not None and not uncovered and all(fit.fits_ever for fit in fits):
        for fit in fits:
            if all(fit.waits_now(budget, in_flight) for budget in fit.open):
                yield waits_for_quota(fit, queue, in_flight)


def _check_together(
    workload: Workload, demands: Sequence[PodSetDemand], queue: ClusterQueue, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    """Find the resource groups that each pod set fits alone, and all together exceed."""
    for group in queue.groups:
        fits = [fit for demand in demands if (fit := fit_of(workload, demand, queue, group, snapshot)) is not None]
        name = exceeds_together([fit.charge for fit in fits], partial(_total, fits))
        if name is not None and all(fit.open for fit in fits):
            requesting = [fit for fit in fits if fit.charge.each.get(name)]
            flavors = sorted(_flavors(fits, name))
            yield never_fits_together(workload.root, requesting, queue, name, _total(fits, name), flavors, snapshot)


def _flavors(fits: Iterable[FlavorFit], name: str) -> dict[str, FlavorQuota]:
    """Return the flavors that the pod sets which request ``name`` may use."""
    return {budget.flavor: budget for fit in fits if name in fit.charge.each for budget in fit.open}


def _total(fits: Iterable[FlavorFit], name: str) -> int:
    return sum(max(0, budget.total(name)) for budget in _flavors(fits, name).values())
