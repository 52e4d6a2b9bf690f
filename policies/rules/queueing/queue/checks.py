"""Findings of the rule `queue`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.queueing.webhook_limits import Rejection, kueue_rejects
from gpugate.policies.rules.queueing.queue.mutate import applies
from gpugate.policies.rules.queueing.queue.params import QueueParams
from gpugate.policies.workloads.metadata import queue_label, queue_path
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a missing queue, and one that does not exist."""
    path = queue_path(workload)
    if path is None or not applies(workload, params):
        return
    name = queue_label(workload)
    known = snapshot.sync_state("localqueues")
    here = [queue.name for queue in snapshot.queues.get(workload.namespace, ())]
    obstacle = kueue_rejects(workload)
    if obstacle is not None and (name or here or params.required):
        yield _impossible(workload, obstacle, refuse=params.required and not name)
    elif not name:
        if params.required:
            yield _missing(path, workload, known, here)
    elif known is SyncState.SYNCED and name not in here:
        yield Finding(
            "QueueUnknown",
            path,
            f"namespace {workload.namespace} has no LocalQueue {name}: Kueue would never admit the workload; {_list(here)}",
            f"Write {QUEUE_NAME}: {here[0]}." if len(here) == 1 else "Name a LocalQueue that exists, or have one made.",
        )


def _impossible(workload: Workload, obstacle: Rejection, *, refuse: bool) -> Finding:
    return Finding(
        "NotQueueable",
        obstacle.path,
        f"the {workload.kind.kind} can stand in no queue: Kueue takes {obstacle.what}",
        obstacle.remedy,
        Level.DENY if refuse else Level.WARN,
        measure=1,
    )


def _list(names: list[str]) -> str:
    return f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)}" if names else "it has no LocalQueue at all"


def _missing(path: tuple[str | int, ...], workload: Workload, known: SyncState, here: list[str]) -> Finding:
    if known in {SyncState.PENDING, SyncState.NOT_GIVEN}:
        return Finding(
            "QueueUndecided",
            path,
            f"no queue is named, and the LocalQueues of namespace {workload.namespace} are not known",
            f"Write the label {QUEUE_NAME}, or give the cluster's LocalQueues.",
        )
    return Finding(
        "QueueMissing",
        path,
        f"the policy requires a queue and none is named by the object, its namespace or the policy;"
        f" in namespace {workload.namespace}: {_list(here)}",
        f"Write the label {QUEUE_NAME}: {here[0]}."
        if len(here) == 1
        else f"Write the label {QUEUE_NAME} with one of {', '.join(here)}."
        if here
        else f"Have a LocalQueue made in namespace {workload.namespace}, and name it in the label {QUEUE_NAME}.",
    )
