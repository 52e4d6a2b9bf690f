"""Accelerator workloads stand in a Kueue queue, named where Kueue reads it.

## What it does

Puts the label `kueue.x-k8s.io/queue-name` on the object where Kueue reads it (a Job's own labels, a CronJob's
`spec.jobTemplate.metadata.labels`), never on what a controller made. The name comes from the object itself (where somebody
put it in another place), else from the namespace's label `gpugate.io/default-queue`, else from the policy, else it is the
only LocalQueue of the namespace, or the one called `default`, which Kueue itself would take.

Names no queue on what Kueue's own webhooks would then turn away (a Ray cluster that scales by itself, a RayJob that keeps its
cluster, more than 8 sorts of pods), and says so.

Refuses a workload for which none can be found where the policy requires one, and a name of a LocalQueue that does not exist.

## Why

Without the label a workload passes Kueue by and takes devices that others have quota for. With a name that does not exist it
is never admitted, and Kueue says so only in a Workload that nobody reads. The name must be there before Kueue's own webhook
runs.

## Practice

- Field guide, step 2: jobs stand in queues of Kueue, with quota per team.
- Orchestration guide, "Resource Quotas and Limits": no team takes the whole cluster.

## Example

Before: a Job without labels in a namespace with one LocalQueue, `team-a-train`. After:

```yaml
metadata:
  labels:
    kueue.x-k8s.io/queue-name: team-a-train
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, get_args

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.rule import Params, Rule
from gpugate.policies.kube.cel import UNIQUE, LabelValue
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.webhook_limits import Rejection, kueue_rejects
from gpugate.policies.workloads.kinds import QueuedKind
from gpugate.policies.workloads.queue_name import PREBUILT, misplaced_queue_label, queue_label, queue_path
from gpugate.policies.workloads.workload import Workload

_NAMESPACE_LABEL: Final = "gpugate.io/default-queue"
#: Kueue's LocalQueueDefaulting names the LocalQueue of this name where a workload names none.
_KUEUE_DEFAULT: Final = "default"


class QueueParams(Params):
    """Parameters of `queue`."""

    required: bool = False
    """Whether a workload for which no queue can be found is refused."""
    queue_name: LabelValue | None = None
    """Queue of workloads whose object and namespace name none."""
    kinds: Annotated[tuple[QueuedKind, ...], *UNIQUE] = get_args(QueuedKind)
    """Kinds that stand in queues here; Kueue's own configuration says which it manages."""


def _applies(workload: Workload, params: QueueParams) -> bool:
    if not workload.kind.queued or workload.kind.kind not in params.kinds or workload.controller() is not None:
        return False
    return PREBUILT not in workload.labels() and bool(workload.gpu_pod_sets())


def _find(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> tuple[str, str] | None:
    """The queue for a workload that names none where Kueue reads it, and where the name comes from."""
    misplaced = misplaced_queue_label(workload)
    if misplaced:
        return misplaced, "from another place of the object"
    by_namespace = snapshot.namespace_labels(workload.namespace).get(_NAMESPACE_LABEL)
    if by_namespace:
        return by_namespace, f"from the label of namespace {workload.namespace}"
    if params.queue_name:
        return params.queue_name, "from the policy"
    queues = snapshot.queues.get(workload.namespace, ())
    if len(queues) == 1:
        return queues[0].name, f"the only LocalQueue in {workload.namespace}"
    if any(queue.name == _KUEUE_DEFAULT for queue in queues):
        return _KUEUE_DEFAULT, "the LocalQueue that Kueue itself defaults to"
    return None


def mutate(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> Iterable[Edit]:
    """Name the queue where Kueue reads it."""
    path = queue_path(workload)
    if path is None or not _applies(workload, params) or queue_label(workload) or kueue_rejects(workload) is not None:
        return ()
    found = _find(workload, params, snapshot)
    return () if found is None else (Edit("set", path, found[0], f"queue {found[0]} ({found[1]})"),)


def check(workload: Workload, params: QueueParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse a missing queue, and one that does not exist."""
    path = queue_path(workload)
    if path is None or not _applies(workload, params):
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
            rests_on=("localqueues",),
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
            Level.UNKNOWN,
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
        rests_on=("localqueues", "namespaces"),
    )


RULE = Rule(
    id="queue",
    title="Accelerator workloads stand in a Kueue queue, named where Kueue reads it",
    since="0.1.0",
    params=QueueParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"localqueues", "namespaces"}),
    documentation=__doc__,
    on_update=False,
)
