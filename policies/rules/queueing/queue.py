"""Accelerator workloads are in a Kueue queue, in the label that Kueue reads.

## What it does

Writes the label `kueue.x-k8s.io/queue-name` into the object where Kueue reads it (a Job's own labels, a CronJob's
`spec.jobTemplate.metadata.labels`), never into an object of a controller. The name comes from another place of the object, else
from the namespace's label `gpugate.io/default-queue`, else from the policy, else it is the only LocalQueue of the namespace, or
the one called `default`, Kueue's own default.

It writes no queue name, and reports it, if Kueue's own webhooks would then refuse the object (a Ray cluster that scales itself, a
RayJob that keeps its cluster, more than 8 pod sets).

It refuses a workload without a queue where the policy requires one, and the name of a LocalQueue that does not exist.

Kueue queues the pods of a ReplicaSet or ReplicationController one by one: the label belongs into the template. gpugate writes it
there for a ReplicaSet without a controller, and into the pods of a ReplicationController. The label
`kueue.x-k8s.io/prebuilt-workload-name` replaces a queue only if a Workload of that name exists and belongs to no object yet. Owners
count as described in [operators](../guide/policies.md#operators).

## Why

Without the label a workload bypasses Kueue and takes devices that others have quota for. With an unknown name Kueue never admits
it, and reports it only in the status of its Workload. The name must be set before Kueue's own webhook runs.

## Practice

- Field guide, step 2: jobs are in queues of Kueue, with quota per team.
- Orchestration guide, "Resource Quotas and Limits": no team takes the whole cluster.

## Example

Before: a Job without labels in a namespace with one LocalQueue, `team-a-train`. After:

```yaml
metadata:
  labels:
    kueue.x-k8s.io/queue-name: team-a-train
```
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, get_args

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.cel import UNIQUE, LabelValue
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.cluster_queue import has_prebuilt_workload
from gpugate.policies.queueing.webhook_limits import kueue_rejects
from gpugate.policies.workloads.kinds import QueuedKind, WorkloadKind
from gpugate.policies.workloads.metadata import PREBUILT, is_queued_with_owner, misplaced_queue_label, queue_label, queue_path
from gpugate.policies.workloads.workload import Workload

_NAMESPACE_LABEL: Final = "gpugate.io/default-queue"
#: The LocalQueue that Kueue's LocalQueueDefaulting names.
_KUEUE_DEFAULT: Final = "default"


class QueueParams(Params):
    """Parameters of `queue`."""

    required: bool = False
    """Whether a workload without a queue is refused."""
    queue_name: LabelValue | None = None
    """Queue of workloads if neither the object nor its namespace names one."""
    kinds: Annotated[tuple[QueuedKind, ...], *UNIQUE] = get_args(QueuedKind)
    """Kinds that are queued in this cluster, as Kueue's Configuration lists them."""


def _is_queued(kind: WorkloadKind, params: QueueParams) -> bool:
    return kind.queued and (kind.queued_as or kind.kind) in params.kinds


def _applies(workload: Workload, params: QueueParams) -> bool:
    return _is_queued(workload.kind, params) and not is_queued_with_owner(workload) and bool(workload.gpu_pod_sets())


def mutate(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Name the queue in the label that Kueue reads."""
    path = queue_path(workload)
    if path is None or not _applies(workload, params) or queue_label(workload) or kueue_rejects(workload) is not None:
        return ()
    if PREBUILT in workload.labels():
        return ()
    name, origin = _default_queue(workload, params, snapshot)
    return (Edit("set", path, name, f"queue {name} ({origin})"),) if name else ()


def _default_queue(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> tuple[str, str]:
    """Return the queue for a workload that names none, and the origin of the name; an empty name for none."""
    misplaced = misplaced_queue_label(workload)
    if misplaced:
        return misplaced, "from another place of the object"
    of_namespace = snapshot.namespace_labels(workload.namespace).get(_NAMESPACE_LABEL)
    if of_namespace:
        return of_namespace, f"from the label of namespace {workload.namespace}"
    if params.queue_name:
        return params.queue_name, "from the policy"
    names = [queue.name for queue in snapshot.queues.get(workload.namespace, ())]
    if len(names) == 1:
        return names[0], f"the only LocalQueue in {workload.namespace}"
    return (_KUEUE_DEFAULT, "Kueue's default LocalQueue") if _KUEUE_DEFAULT in names else ("", "")


def check(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a missing queue, and one that does not exist."""
    path = queue_path(workload)
    if path is None or not _applies(workload, params):
        return
    prebuilt = has_prebuilt_workload(workload, snapshot)
    if prebuilt or (prebuilt is None and snapshot.sync_state("workloads") is SyncState.NOT_GIVEN):
        return
    name, state = queue_label(workload), snapshot.sync_state("localqueues")
    if prebuilt is None:
        if params.required and not name:
            yield _undecided(path, f"whether its Workload {workload.labels()[PREBUILT]!r:.64} exists is unknown")
        return
    existing = [queue.name for queue in snapshot.queues.get(workload.namespace, ())]
    rejection = kueue_rejects(workload)
    if rejection is not None and (name or existing or params.required):
        yield Finding(
            "NotQueueable",
            rejection.path,
            f"the {workload.kind.kind} cannot be in a queue: Kueue accepts {rejection.what}",
            rejection.remedy,
            Level.DENY if params.required and not name else Level.WARN,
            measure=1,
        )
    elif not name:
        if params.required:
            missing = _missing(path, workload.namespace, state, existing)
            yield missing._replace(rests_on=("workloads",)) if PREBUILT in workload.labels() else missing
    elif state is SyncState.SYNCED and name not in existing:
        yield Finding(
            "QueueUnknown",
            path,
            f"namespace {workload.namespace} has no LocalQueue {name}, so Kueue never admits the workload; it {_has(existing)}",
            f"Write {QUEUE_NAME}: {existing[0]}." if len(existing) == 1 else "Name an existing LocalQueue, or create this one.",
        )


def _has(names: list[str]) -> str:
    return f"has LocalQueue{'' if len(names) == 1 else 's'} {', '.join(names)}" if names else "has no LocalQueue"


def _missing(path: Path, namespace: str, state: SyncState, existing: list[str]) -> Finding:
    if state in {SyncState.PENDING, SyncState.NOT_GIVEN}:
        return _undecided(path, f"the LocalQueues of namespace {namespace} are unknown")
    return Finding(
        "QueueMissing",
        path,
        f"the policy requires a queue, but the object, its namespace and the policy name none; namespace {namespace}"
        f" {_has(existing)}",
        f"Write the label {QUEUE_NAME}{':' if len(existing) == 1 else ' with one of'} {', '.join(existing)}."
        if existing
        else f"Create a LocalQueue in namespace {namespace}, and name it in the label {QUEUE_NAME}.",
    )


def _undecided(path: Path, why: str) -> Finding:
    return Finding(
        "QueueUndecided",
        path,
        f"the workload names no queue, and {why}",
        f"Write the label {QUEUE_NAME}, or give gpugate the cluster's LocalQueues.",
    )


REASONS: Final[dict[str, Reason]] = {
    "NotQueueable": Reason(
        "Kueue cannot queue the workload as it is written.", warns="the policy requires no queue, or the workload names one"
    ),
    "QueueMissing": Reason("The policy requires a queue and the workload has none.", facts=("localqueues", "namespaces")),
    "QueueUndecided": Reason("The workload names no queue, and the LocalQueues are unknown.", action="Unknown"),
    "QueueUnknown": Reason("The namespace has no LocalQueue of that name.", facts=("localqueues",)),
}

RULE = Rule(
    id="queue",
    title="Accelerator workloads are in a Kueue queue, in the label that Kueue reads",
    since="0.1.0",
    params=QueueParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    refuses=_is_queued,
    needs=frozenset({"localqueues", "namespaces"}),
    reads=frozenset({"labels"}),
    writes=frozenset({"labels"}),
    documentation=__doc__,
    on_update=False,
)
