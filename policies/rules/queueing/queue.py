"""Accelerator workloads are in a Kueue queue, in the label that Kueue reads.

## What it does

Writes the label `kueue.x-k8s.io/queue-name` into the object where Kueue reads it (a Job's own labels, a CronJob's
`spec.jobTemplate.metadata.labels`), never into an object of a controller. The name comes from another place of the object, else
from the namespace's label `gpugate.io/default-queue`, else from the policy, else it is the only LocalQueue of the namespace, or
the one called `default`, Kueue's own default.

Kinds that run jobs are queued; a Deployment, StatefulSet, LeaderWorkerSet or plain pod only if `kinds` lists its kind, if the
policy requires a queue or names one in `queueName`, or if the object names one in another place.

It writes no name of a queue that could not admit the workload, and warns instead, since the workload runs as it is: the LocalQueue
does not exist or is stopped, its ClusterQueue does not exist, is stopped or not active, does not select the namespace, does not
cover a resource that the pods request, or could never have enough quota. Nor does it queue a workload that its author suspended,
since Kueue would start it. It writes nothing where Kueue's Configuration does not enable the kind's integration, or its
`managedJobsNamespaceSelector` does not select the namespace: there a Job with a queue name stays suspended for ever. If the
Configuration is unknown, kinds that run jobs are queued as by Kueue's default Configuration. Where the policy requires a queue,
every existing LocalQueue will do, although the workload may wait.

It writes no queue name, and reports it, if Kueue's own webhooks would then refuse the object (a Ray cluster that scales itself, a
RayJob that keeps its cluster, more than 8 pod sets).

It refuses a workload without a queue where the policy requires one and Kueue manages the object, and the name of a LocalQueue
that does not exist.

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
from typing import Annotated, Final, NamedTuple

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.cel import UNIQUE, LabelValue
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.admission import why_not_admitted
from gpugate.policies.queueing.cluster_queue import has_prebuilt_workload
from gpugate.policies.queueing.flavor_fit import QUOTA_FACTS
from gpugate.policies.queueing.managed import Unmanaged, is_managed, why_unmanaged
from gpugate.policies.queueing.webhook_limits import kueue_rejects
from gpugate.policies.scheduling.node_selection import SCHEDULING_FIELDS
from gpugate.policies.workloads.kinds import QueuedKind, WorkloadKind
from gpugate.policies.workloads.metadata import (
    is_queued_with_owner,
    is_suspended_by_author,
    misplaced_queue_label,
    prebuilt_workload_name,
    queue_label,
    queue_path,
)
from gpugate.policies.workloads.workload import Workload

_NAMESPACE_LABEL: Final = "gpugate.io/default-queue"
#: The LocalQueue that Kueue's LocalQueueDefaulting names.
_KUEUE_DEFAULT: Final = "default"
#: The facts without which gpugate queues only what the policy requires to be queued.
_NEEDED: Final = ("clusterqueues", "configurations", "localqueues")


class QueueParams(Params):
    """Parameters of `queue`."""

    required: bool = False
    """Whether a workload without a queue is refused."""
    queue_name: LabelValue | None = None
    """Queue of workloads if neither the object nor its namespace names one."""
    kinds: Annotated[tuple[QueuedKind, ...], *UNIQUE] | None = None
    """Kinds that are queued. By default all that run jobs; all that Kueue manages if the policy requires or names a queue."""


class _Choice(NamedTuple):
    """The queue for a workload that names none where Kueue reads it, and the origin of the name; an empty name for none."""

    name: str
    origin: str


def _is_queued(kind: WorkloadKind, params: QueueParams) -> bool:
    return kind.queued and (params.kinds is None or (kind.queued_as or kind.kind) in params.kinds)


def _applies(workload: Workload) -> bool:
    return workload.kind.queued and not is_queued_with_owner(workload) and bool(workload.gpu_pod_sets())


def _is_queued_by_default(workload: Workload, params: QueueParams) -> bool:
    """Tell whether a workload that names no queue where Kueue reads it gets one."""
    if params.kinds is not None or params.required or params.queue_name or misplaced_queue_label(workload):
        return _is_queued(workload.kind, params)
    return not (workload.kind.serving or workload.is_pod())


def mutate(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Name the queue in the label that Kueue reads."""
    path = queue_path(workload)
    if path is None or not _applies(workload) or queue_label(workload) or kueue_rejects(workload) is not None:
        return ()
    if prebuilt_workload_name(workload) or not _is_queued_by_default(workload, params):
        return ()
    choice = _choose(workload, params, snapshot)
    if not choice.name or not _may_write(workload, params, snapshot) or _why_not(workload, choice.name, params, snapshot):
        return ()
    return (Edit("set", path, choice.name, f"queue {choice.name} ({choice.origin})"),)


def _choose(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> _Choice:
    misplaced = misplaced_queue_label(workload)
    if misplaced:
        return _Choice(misplaced, "from another place of the object")
    of_namespace = snapshot.namespace_labels(workload.namespace).get(_NAMESPACE_LABEL)
    if of_namespace:
        return _Choice(of_namespace, f"from the label of namespace {workload.namespace}")
    if params.queue_name:
        return _Choice(params.queue_name, "from the policy")
    names = _existing(workload, snapshot)
    if len(names) == 1:
        return _Choice(names[0], f"the only LocalQueue in {workload.namespace}")
    return _Choice(_KUEUE_DEFAULT, "Kueue's default LocalQueue") if _KUEUE_DEFAULT in names else _Choice("", "")


def _existing(workload: Workload, snapshot: ClusterSnapshot) -> list[str]:
    return [queue.name for queue in snapshot.queues.get(workload.namespace, ())]


def _may_write(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> bool:
    """Tell whether Kueue manages the object, as far as gpugate can know."""
    managed = is_managed(workload, snapshot)
    if params.required or managed is False:
        return managed is not False
    if any(snapshot.sync_state(kind) is SyncState.PENDING for kind in _NEEDED):
        return False
    # Without Kueue nothing reads the label. A policy that is applied to files alone decides without the cluster.
    if snapshot.sync_state("localqueues") is SyncState.ABSENT:
        return False
    # A namespace that is not known yet may be left out, and a job in it would stay suspended.
    return managed is True or snapshot.kueue is None


def _why_not(workload: Workload, name: str, params: QueueParams, snapshot: ClusterSnapshot) -> str:
    """Return why the workload is not put into the queue ``name``; empty if it is."""
    if snapshot.sync_state("localqueues") is not SyncState.SYNCED:
        return ""
    local = snapshot.queue(workload.namespace, name)
    if local is None:
        return f"namespace {workload.namespace} has no LocalQueue {name}"
    if params.required:
        return ""
    if is_suspended_by_author(workload):
        return "the workload is suspended, and Kueue would start it"
    return why_not_admitted(workload, local, snapshot)


def check(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a missing queue, and one that does not exist; warn of a queue without effect."""
    path = queue_path(workload)
    if path is None or not _applies(workload) or not _is_queued(workload.kind, params):
        return
    prebuilt = has_prebuilt_workload(workload, snapshot)
    if prebuilt or (prebuilt is None and snapshot.sync_state("workloads") is SyncState.NOT_GIVEN):
        return
    name = queue_label(workload)
    if prebuilt is None:
        if params.required and not name:
            yield _undecided(path, f"whether its Workload {prebuilt_workload_name(workload)!r:.64} exists is unknown")
        return
    unmanaged = why_unmanaged(workload, snapshot)
    if unmanaged is None:
        yield from _check_managed(workload, path, params, snapshot)
    elif name or params.required:
        yield _ignored(workload, path, unmanaged)


def _check_managed(workload: Workload, path: Path, params: QueueParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    name, state = queue_label(workload), snapshot.sync_state("localqueues")
    existing = _existing(workload, snapshot)
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
    elif not name and params.required:
        missing = _missing(path, workload, _choose(workload, params, snapshot), state, existing)
        yield missing._replace(rests_on=("workloads",)) if prebuilt_workload_name(workload) else missing
    elif not name:
        yield from _not_queued(workload, path, params, snapshot)
    elif state is SyncState.SYNCED and name not in existing:
        yield Finding(
            "QueueUnknown",
            path,
            f"namespace {workload.namespace} has no LocalQueue {name}, so Kueue never admits the workload; it {_has(existing)}",
            f"Write {QUEUE_NAME}: {existing[0]}." if len(existing) == 1 else "Name an existing LocalQueue, or create this one.",
            Level.DENY if is_managed(workload, snapshot) else Level.WARN,
        )


def _ignored(workload: Workload, path: Path, unmanaged: Unmanaged) -> Finding:
    kind = workload.kind.kind
    if not queue_label(workload):
        effect = f"no queue could hold the {kind} that the policy requires one for"
    elif unmanaged.suspends:
        effect = f"Kueue v0.15 and later suspends the {kind} and never admits it"
    else:
        effect = f"it ignores the queue name, and the {kind} runs outside of every queue"
    return Finding("QueueIgnored", path, f"{unmanaged.why}, so {effect}", unmanaged.remedy)


def _not_queued(workload: Workload, path: Path, params: QueueParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Report the queue that a new workload would be in if that could admit it."""
    if workload.operation == "UPDATE" or prebuilt_workload_name(workload) or not _is_queued_by_default(workload, params):
        return
    choice = _choose(workload, params, snapshot)
    why = choice.name and _may_write(workload, params, snapshot) and _why_not(workload, choice.name, params, snapshot)
    if why:
        yield Finding(
            "NotQueued",
            path,
            f"gpugate puts the workload into no queue, since Kueue would not admit it in {choice.name} ({choice.origin}): {why}",
            f"Name a queue that can admit it in the label {QUEUE_NAME}, or let it run outside of Kueue's quota.",
        )


def _has(names: list[str]) -> str:
    return f"has LocalQueue{'' if len(names) == 1 else 's'} {', '.join(names)}" if names else "has no LocalQueue"


def _missing(path: Path, workload: Workload, choice: _Choice, state: SyncState, existing: list[str]) -> Finding:
    namespace = workload.namespace
    if state in {SyncState.PENDING, SyncState.NOT_GIVEN}:
        return _undecided(path, f"the LocalQueues of namespace {namespace} are unknown")
    named = (
        f"{choice.name} ({choice.origin}) does not exist" if choice.name else "the object, its namespace and the policy name none"
    )
    return Finding(
        "QueueMissing",
        path,
        f"the policy requires a queue, but {named}; namespace {namespace} {_has(existing)}",
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
    "NotQueued": Reason(
        "The queue that gpugate would write could not admit the workload, so it writes none.", action="Warn", facts=QUOTA_FACTS
    ),
    "QueueIgnored": Reason(
        "Kueue's Configuration leaves out the kind or the namespace.", action="Warn", facts=("configurations", "namespaces")
    ),
    "QueueMissing": Reason("The policy requires a queue and the workload has none.", facts=("localqueues", "namespaces")),
    "QueueUndecided": Reason("The workload names no queue, and the LocalQueues are unknown.", action="Unknown"),
    "QueueUnknown": Reason(
        "The namespace has no LocalQueue of that name.",
        facts=("configurations", "localqueues"),
        warns="it is not known whether Kueue manages the object",
    ),
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
    needs=frozenset({*QUOTA_FACTS, "configurations", "limitranges", "namespaces", "runtimeclasses", "workloadpriorityclasses"}),
    reads=SCHEDULING_FIELDS | {"annotations", "labels"},
    writes=frozenset({"labels"}),
    documentation=__doc__,
    on_update=False,
)
