"""Could Kueue ever admit a workload through a LocalQueue: why not, and why not now.

The rule `queue` puts nothing into a queue that could not admit it, and the rule `queue-quota` reports what a user put there.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from gpugate.policies.cluster.records.kueue import ClusterQueue, LocalQueue, ResourceGroup
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.kube.names import PRIORITY_CLASS
from gpugate.policies.queueing.budget import exceeds_together
from gpugate.policies.queueing.flavor_fit import FlavorFit, FlavorQuota, fit_of
from gpugate.policies.queueing.managed import selects
from gpugate.policies.queueing.workload_demand import PodSetDemand, annotations_and_labels, demands_of
from gpugate.policies.workloads.workload import Workload


def why_not_admitted(workload: Workload, local: LocalQueue, snapshot: ClusterSnapshot) -> str:
    """Return why Kueue would not admit ``workload`` through ``local``, even with all quota unused; empty if nothing is known.

    Raises:
        MalformedError: an amount is no quantity.
    """
    name = unknown_priority_class(workload, snapshot)
    if name:
        return f"there is no WorkloadPriorityClass {name}"
    if local.stopped:
        return f"LocalQueue {local.name} is stopped by its stopPolicy"
    if snapshot.sync_state("clusterqueues") is not SyncState.SYNCED:
        return ""
    queue = snapshot.cluster_queues.get(local.cluster_queue)
    if queue is None:
        return f"its ClusterQueue {local.cluster_queue} does not exist"
    return (
        why_stopped(local, queue, snapshot)
        or why_namespace_not_admitted(workload, queue, snapshot)
        or next(_why_never(workload, queue, snapshot), "")
    )


def unknown_priority_class(workload: Workload, snapshot: ClusterSnapshot) -> str:
    """Return the name of the workload's WorkloadPriorityClass if it does not exist: Kueue then creates no Workload; else empty."""
    name = annotations_and_labels(workload)[1].get(PRIORITY_CLASS)
    if not name or snapshot.sync_state("workloadpriorityclasses") is not SyncState.SYNCED or name in snapshot.workload_priorities:
        return ""
    return str(name)


def why_namespace_not_admitted(workload: Workload, queue: ClusterQueue, snapshot: ClusterSnapshot) -> str:
    """Return why ``queue`` admits nothing from the workload's namespace; empty if it does or may."""
    if queue.namespaces is None:
        why = "it has no namespaceSelector"
    elif selects(queue.namespaces, workload.namespace, snapshot) is False:
        why = "its namespaceSelector does not select it"
    else:
        return ""
    return f"ClusterQueue {queue.name} admits nothing from namespace {workload.namespace}, because {why}"


def why_stopped(local: LocalQueue, queue: ClusterQueue, snapshot: ClusterSnapshot) -> str:
    """Return why the queues admit nothing now; empty if they admit workloads."""
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


def _why_never(workload: Workload, queue: ClusterQueue, snapshot: ClusterSnapshot) -> Iterator[str]:
    demands = demands_of(workload, snapshot)
    for demand in demands:
        for fit in fits_of(workload, demand, queue, snapshot):
            if not fit.open:
                yield f"no flavor of ClusterQueue {queue.name} matches the pods"
            elif not fit.fits_ever:
                yield f"the pods request more than ClusterQueue {queue.name} could ever have"
        missing = not_covered_by(queue, demand)
        if missing:
            yield f"ClusterQueue {queue.name} covers no {' and no '.join(missing)}, which the pods request"
    for _ in exceeding_together(workload, demands, queue, snapshot):
        yield f"all pods together request more than ClusterQueue {queue.name} could ever have"


def not_covered_by(queue: ClusterQueue, demand: PodSetDemand) -> list[str]:
    """Return the resources that the pods request and ``queue`` does not cover, sorted."""
    return sorted(demand.each.keys() - queue.covered)


def fits_of(workload: Workload, demand: PodSetDemand, queue: ClusterQueue, snapshot: ClusterSnapshot) -> list[FlavorFit]:
    """Compare ``demand`` with the flavors of each resource group whose quota is known."""
    return [fit for group in queue.groups if (fit := fit_of(workload, demand, queue, group, snapshot)) is not None]


def exceeding_together(
    workload: Workload, demands: Sequence[PodSetDemand], queue: ClusterQueue, snapshot: ClusterSnapshot
) -> Iterator[tuple[str, list[FlavorFit]]]:
    """Yield each resource of which the pod sets together request more than ``queue`` could ever have, with their fits."""
    for group in queue.groups if len(demands) > 1 else ():
        fits = _fits_in(workload, demands, queue, group, snapshot)
        name = exceeds_together([fit.charge for fit in fits], partial(total_of, fits))
        if name is not None and all(fit.open for fit in fits):
            yield name, fits


def _fits_in(
    workload: Workload, demands: Sequence[PodSetDemand], queue: ClusterQueue, group: ResourceGroup, snapshot: ClusterSnapshot
) -> list[FlavorFit]:
    return [fit for demand in demands if (fit := fit_of(workload, demand, queue, group, snapshot)) is not None]


def flavors_for(fits: Sequence[FlavorFit], name: str) -> dict[str, FlavorQuota]:
    """Return the flavors that the pod sets which request ``name`` may use."""
    return {budget.flavor: budget for fit in fits if name in fit.charge.each for budget in fit.open}


def total_of(fits: Sequence[FlavorFit], name: str) -> int:
    """Return the most of ``name`` that the pod sets can ever have together."""
    return sum(max(0, budget.total(name)) for budget in flavors_for(fits, name).values())
