"""Parameters and checks of the rule `queue-quota`: compare each pod set with the ClusterQueue behind the LocalQueue."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, Literal

from gpugate.policies.cluster.records.kueue import ClusterQueue, LocalQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.kube.fields import Object, Path
from gpugate.policies.kube.memo import remembered
from gpugate.policies.kube.names import PRIORITY_CLASS
from gpugate.policies.queueing.admission import (
    exceeding_together,
    fits_of,
    flavors_for,
    not_covered_by,
    total_of,
    unknown_priority_class,
    why_namespace_not_admitted,
    why_stopped,
)
from gpugate.policies.queueing.budget import pod_fingerprint
from gpugate.policies.queueing.cluster_queue import has_prebuilt_workload, not_yet_counted
from gpugate.policies.queueing.flavor_fit import QUOTA_FACTS, in_flight_into, queue_facts
from gpugate.policies.queueing.managed import is_managed
from gpugate.policies.queueing.workload_demand import PodSetDemand, annotations_and_labels, demands_of, pod_counts
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
    for finding in [*_check_priority(workload, snapshot), *_check_queue(workload, path, queue, params, snapshot)]:
        level = Level.WARN if unless or params.never_fits == "Warn" else finding.level
        yield finding._replace(level=level, message=f"{finding.message}{unless}")


def _pending(labels: Object, snapshot: ClusterSnapshot) -> list[str]:
    """Return the kinds that the check of a workload with these ``labels`` needs and that are not synced yet."""
    needed = (*_NEEDED, "workloadpriorityclasses") if PRIORITY_CLASS in labels else _NEEDED
    known, pending = snapshot.known, SyncState.PENDING
    return [kind for kind in needed if known.get(kind) is pending]


def _check_priority(workload: Workload, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    name = unknown_priority_class(workload, snapshot)
    if not name:
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
    not_admitted = why_namespace_not_admitted(workload, queue, snapshot)
    if not_admitted:
        yield Finding(
            "NamespaceNotAdmitted",
            path,
            not_admitted,
            "Use a queue that admits the namespace, or let the namespaceSelector of the ClusterQueue select it.",
            rests_on=("clusterqueues", "localqueues", "namespaces"),
        )
    stopped = why_stopped(local, queue, snapshot)
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
    if not any(finding.level is Level.DENY for finding in findings):
        findings += _check_together(workload, demands, queue, snapshot)
    return tuple(findings)


def _check_demand(
    workload: Workload, demand: PodSetDemand, queue: ClusterQueue, in_flight: Mapping[str, int] | None, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    uncovered = not_covered_by(queue, demand)
    if uncovered:
        yield not_covered(demand, queue, uncovered, snapshot)
    fits = fits_of(workload, demand, queue, snapshot)
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
    for name, fits in exceeding_together(workload, demands, queue, snapshot):
        requesting = [fit for fit in fits if fit.charge.each.get(name)]
        flavors = sorted(flavors_for(fits, name))
        yield never_fits_together(workload.root, requesting, queue, name, total_of(fits, name), flavors, snapshot)
