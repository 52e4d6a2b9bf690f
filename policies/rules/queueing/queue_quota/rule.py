"""A workload asks for no more than its Kueue queue could ever have.

## What it does

Adds up what Kueue will count: pods times what one requests, with LimitRange defaults, limits that stand in for requests and
the RuntimeClass's overhead, as Kueue's own Configuration has resources left out or transformed. Holds it against the quota of
the ClusterQueue behind the workload's LocalQueue: nominal quota and what its cohorts could lend it, in each flavor that the
pods may be given.

Refuses what can never be admitted: more than the queue could have with nothing else in the cohort, a resource that the queue
does not cover, flavors none of which the pods tolerate or select, a namespace that the queue admits nothing from, a priority
class that does not exist. What merely does not fit now, or waits for a stopped queue, is at most a warning. Says nothing about
kinds that Kueue does not manage here.

## Why

Kueue admits such a workload never, and says so only in the status of a Workload that nobody reads: the Job stays suspended,
and in a StrictFIFO queue everything behind it waits, too.

## Practice

- Field guide, step 2: a quota per team or flavor, admitted whole or not at all.
- Orchestration guide, "Resource Quotas and Limits": what a team may never have is known when the job is sent.

## Example

Refused, in a queue with 16 GPUs of its own and 8 to borrow:

```yaml
spec:
  parallelism: 4
  template:
    spec:
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
```

4 pods x 8 = 32 of nvidia.com/gpu > 24. With `parallelism: 3` it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from gpugate.policies.cluster.records.kueue import ClusterQueue, LocalQueue
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.rule import Params, Rule, no_edits
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.names import PRIORITY_CLASS
from gpugate.policies.queueing.cluster_queue import not_yet_counted
from gpugate.policies.queueing.flavor_fit import FlavorFit, check_together, fit_of, in_flight_into, is_certain, uncovered_of
from gpugate.policies.queueing.flavor_fit_kueue_memo import fits, is_known_to_fit, key_of_asked
from gpugate.policies.queueing.workload_demand import PodSetDemand, annotations_and_labels, asked_of, is_managed
from gpugate.policies.rules.queueing.queue_quota.messages import beyond, remedy_of, short_now, sum_of
from gpugate.policies.workloads.queue_name import PREBUILT, queue_label, queue_path
from gpugate.policies.workloads.workload import Workload

_QUOTA: Final = ("clusterqueues", "cohorts", "localqueues", "resourceflavors")
_JUDGED_BY: Final = (*_QUOTA, "configurations", "namespaces")
_SHOWN: Final = 4


class QueueQuotaParams(Params):
    """Parameters of `queue-quota`."""

    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether a workload that its queue could never admit is refused, or only warned about."""
    waits: Literal["Warn", "Allow"] = "Warn"
    """Whether a workload that does not fit now is warned about."""


def check(workload: Workload, params: QueueQuotaParams, snapshot: ClusterSnapshot) -> Iterable[Finding]:
    """Refuse what the queue could never admit; warn of what waits."""
    managed = is_managed(workload, snapshot)
    path, name = queue_path(workload), queue_label(workload)
    if not managed and managed is not None:
        return ()
    if (
        path is None
        or not name
        or not workload.gpu_pod_sets()
        or workload.controller() is not None
        or PREBUILT in workload.labels()
    ):
        return ()
    pending = _pending(workload, snapshot)
    if pending:
        return (_unknown(path, name, pending),)
    queue = snapshot.queue(workload.namespace, name)
    if queue is None:
        return ()
    findings = [*_of_priority(workload, snapshot), *_of_queue(workload, path, queue, params, snapshot)]
    if managed is not None and params.never_fits == "Deny":
        return findings
    # Whether Kueue manages such kinds, only its Configuration says.
    kind = workload.kind.kind
    unless = (
        f" (a warning, for Kueue's Configuration is not known, and so not whether it manages a {kind})" if managed is None else ""
    )
    return [one._replace(level=Level.WARN, message=f"{one.message}{unless}") for one in findings]


def _pending(workload: Workload, snapshot: ClusterSnapshot) -> list[str]:
    """Kinds on which the answer rests and of which the cluster was not read yet."""
    known = snapshot.known
    pending = [kind for kind in _JUDGED_BY if known.get(kind) is SyncState.PENDING]
    if known.get("workloadpriorityclasses") is SyncState.PENDING and PRIORITY_CLASS in annotations_and_labels(workload)[1]:
        pending.append("workloadpriorityclasses")
    return pending


def _unknown(path: Path, name: str, pending: list[str]) -> Finding:
    return not_synced("QuotaUnknown", path, ", ".join(pending), f"whether queue {name} could ever admit the workload")


def _of_priority(workload: Workload, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    name = annotations_and_labels(workload)[1].get(PRIORITY_CLASS)
    if not name or snapshot.sync_state("workloadpriorityclasses") is not SyncState.SYNCED or name in snapshot.workload_priorities:
        return
    known = ", ".join(sorted(snapshot.workload_priorities)[:_SHOWN]) or "none"
    yield Finding(
        "PriorityClassUnknown",
        (*workload.kind.queue, "metadata", "labels", PRIORITY_CLASS),
        f"there is no WorkloadPriorityClass {name}, so Kueue makes no Workload of the object and never admits it; there is {known}",
        "Name a WorkloadPriorityClass that exists, or have this one made.",
        rests_on=("workloadpriorityclasses",),
    )


def _of_queue(
    workload: Workload, path: Path, local: LocalQueue, params: QueueQuotaParams, snapshot: ClusterSnapshot
) -> Iterator[Finding]:
    if snapshot.sync_state("clusterqueues") is not SyncState.SYNCED:
        return
    queue = snapshot.cluster_queues.get(local.cluster_queue)
    if queue is None:
        yield Finding(
            "ClusterQueueUnknown",
            path,
            f"LocalQueue {local.name} leads to ClusterQueue {local.cluster_queue}, which does not exist: nothing is admitted there",
            "Name another queue, or have the ClusterQueue made.",
            Level.WARN,
            rests_on=("clusterqueues", "localqueues"),
        )
        return
    if not _admits_namespace(workload, queue, snapshot):
        yield _namespace_not_admitted(workload, path, queue)
    stopped = _why_stopped(local, queue, snapshot)
    if stopped:
        yield _stopped(path, stopped)
    waits = params.waits == "Warn" and not stopped and not_yet_counted(workload)
    in_flight = in_flight_into(queue, snapshot) if waits else {}
    key = key_of_asked(workload, queue)
    if not in_flight and is_known_to_fit(key, snapshot):
        return
    asks = asked_of(workload, snapshot)
    found = [one for asked in asks for one in _of_asked(workload, asked, queue, snapshot, in_flight, waits=waits)]
    if len(asks) > 1 and not any(one.level is Level.DENY for one in found):
        found += _of_all(workload, asks, queue, snapshot)
    if waits and not in_flight and not found:
        fits(key, snapshot)
    yield from found


def _admits_namespace(workload: Workload, queue: ClusterQueue, snapshot: ClusterSnapshot) -> bool:
    if queue.namespaces is None:
        return False
    # Of a namespace that is not known, its name says nothing about its labels.
    return workload.namespace not in snapshot.namespaces or queue.namespaces.matches(snapshot.namespace_labels(workload.namespace))


def _namespace_not_admitted(workload: Workload, path: Path, queue: ClusterQueue) -> Finding:
    why = "it has no namespaceSelector" if queue.namespaces is None else "its namespaceSelector does not select it"
    return Finding(
        "NamespaceNotAdmitted",
        path,
        f"ClusterQueue {queue.name} admits nothing from namespace {workload.namespace}: {why}",
        "Name a queue that admits the namespace, or have the namespaceSelector of the ClusterQueue select it.",
        rests_on=("clusterqueues", "localqueues", "namespaces"),
    )


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
    return f"ClusterQueue {queue.name} is not active: there is no ResourceFlavor {', '.join(missing)}" if missing else ""


def _stopped(path: Path, why: str) -> Finding:
    return Finding(
        "QueueStopped",
        path,
        f"{why}; the workload waits until that changes",
        "Wait until the queue admits again, or name another one.",
        Level.WARN,
        rests_on=_QUOTA,
    )


def _of_asked(
    workload: Workload,
    asked: PodSetDemand,
    queue: ClusterQueue,
    snapshot: ClusterSnapshot,
    in_flight: Mapping[str, int],
    *,
    waits: bool,
) -> Iterator[Finding]:
    uncovered = uncovered_of(asked, queue)
    if uncovered:
        yield _not_covered(asked, queue, uncovered, snapshot)
    fits = [fit_of(workload, asked, queue, group, snapshot) for group in queue.groups]
    found = [fit for fit in fits if fit is not None]
    for fit in found:
        if not fit.open:
            yield _no_flavor(fit, queue, workload)
        elif not fit.fits_ever:
            yield _never_fits(fit, queue, snapshot)
    if waits and not uncovered and all(fit.fits_ever for fit in found):
        for fit in found:
            if all(fit.lacking_now(offer, in_flight) for offer in fit.open):
                yield _waits(fit, queue, in_flight)


def _of_all(workload: Workload, asks: Sequence[PodSetDemand], queue: ClusterQueue, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """What several pod sets come to together, in each resource group."""
    for group in queue.groups:
        fits = [fit_of(workload, asked, queue, group, snapshot) for asked in asks]
        known = [fit for fit in fits if fit is not None]
        if all(fit.open for fit in known):
            yield from check_together(workload.root, known, queue, snapshot)


def _not_covered(asked: PodSetDemand, queue: ClusterQueue, names: list[str], snapshot: ClusterSnapshot) -> Finding:
    sums = ", ".join(sum_of(asked, asked.each[name], name) for name in names)
    return Finding(
        "NotCovered",
        asked.pods.field("containers"),
        f"ClusterQueue {queue.name} covers no {' and no '.join(names)}, so Kueue never admits a workload that asks for some:"
        f" {sums}; it covers {', '.join(sorted(queue.covered)) or 'nothing'}",
        f"Ask for no {' and no '.join(names)}, name a queue that covers what is asked for, or have it left out of Kueue's"
        " accounting by excludeResourcePrefixes.",
        # Without Kueue's Configuration it is not known what it leaves out.
        Level.WARN if snapshot.kueue is None else Level.DENY,
        measure=len(names),
        rests_on=("clusterqueues", "configurations", "localqueues"),
    )


def _no_flavor(fit: FlavorFit, queue: ClusterQueue, workload: Workload) -> Finding:
    reasons = "; ".join(f"{offer.flavor}: {offer.mismatch}" for offer in fit.offers[:_SHOWN])
    taint = any(" taint " in offer.mismatch for offer in fit.offers)
    return Finding(
        "NoFlavorMatches",
        fit.asked.pods.field("tolerations" if taint else "nodeSelector"),
        f"ClusterQueue {queue.name} has {', '.join(fit.each)} in no flavor that the pods may be given: {reasons or 'it has none'}",
        "Tolerate the taint of the flavor meant, in the template that Kueue reads."
        if taint
        else "Select node labels that one of the flavors has, or name another queue.",
        Level.WARN if workload.kind.counted_as_pods else Level.DENY,
        rests_on=_QUOTA,
    )


def _never_fits(fit: FlavorFit, queue: ClusterQueue, snapshot: ClusterSnapshot) -> Finding:
    sums = [" and ".join(beyond(fit, offer, name, queue) for name in offer.lacking(fit.totals)) for offer in fit.open[:_SHOWN]]
    sums += [f"flavor {offer.flavor} is out: {offer.mismatch}" for offer in fit.offers if offer.mismatch][:_SHOWN]
    return Finding(
        "QuotaNeverFits",
        fit.asked.pods.field("containers"),
        "; ".join(sums),
        remedy_of(fit),
        Level.DENY if is_certain(fit, queue, snapshot) else Level.WARN,
        measure=sum(fit.totals.values()),
        rests_on=_QUOTA,
    )


def _waits(fit: FlavorFit, queue: ClusterQueue, in_flight: Mapping[str, int]) -> Finding:
    offer = min(fit.open, key=lambda one: len(fit.lacking_now(one, in_flight)))
    sums = "; ".join(short_now(fit, offer, name, queue, in_flight.get(name, 0)) for name in fit.lacking_now(offer, in_flight))
    waiting = f"; {queue.pending} workload{'s wait' if queue.pending > 1 else ' waits'} there already" if queue.pending else ""
    return Finding(
        "WaitsForQuota",
        fit.asked.pods.field("containers"),
        f"does not fit now: {sums}{waiting}",
        "Nothing need be changed: Kueue admits the workload once there is room; to start sooner, ask for what is left.",
        Level.WARN,
        rests_on=_QUOTA,
    )


RULE = Rule(
    id="queue-quota",
    title="A workload asks for no more than its Kueue queue could ever have",
    since="0.1.0",
    params=QueueQuotaParams,
    mutate=no_edits,
    check=check,
    needs=frozenset(
        {
            "clusterqueues",
            "cohorts",
            "configurations",
            "limitranges",
            "localqueues",
            "namespaces",
            "resourceflavors",
            "runtimeclasses",
            "workloadpriorityclasses",
        }
    ),
    documentation=__doc__,
)
