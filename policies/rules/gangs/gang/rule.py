"""Pods that must start together are marked so for the scheduler, and never in a way that lets them start in part.

## What it does

A gang is a Job of several pods with accelerators (or a CronJob that makes such Jobs), all such pods of a Kubeflow job, a JobSet,
a RayJob or a Volcano Job together (master and workers are one gang), each group of a LeaderWorkerSet, or a workload or plain
pod annotated `gpugate.io/gang-size`. A declared size may count pods without accelerators, or those that start later, or not.
It gets what the policy's scheduler reads: Kueue's pod group label and total count on plain pods (a
Job with a queue name is all-or-nothing by itself); the pod group label of the coscheduling plugin; Volcano's scheduler name
and group annotation; the `schedulingGroup` of Kubernetes; KAI's scheduler name and queue label. Plain pods name their group by
`gpugate.io/gang-name`. Where an operator makes the pod groups itself (Kubeflow, KubeRay, Volcano), its pods are not marked for
Coscheduling, Volcano or Kubernetes. The PodGroup that such a mark names is made by gpugate's controller (see the page about
gangs), unless `podGroups: Leave`: then somebody else makes it, and a Job under Volcano gets the minimum member count instead.

Refuses: a declared size that differs from the pods made; `completions` that is not `parallelism`; a minimum below the full
size; a gang made by a Deployment, ReplicaSet or DaemonSet, which start and replace pods one by one; accelerators per pod that
leave a remainder on every node (3 of 8), unless the policy allows it; an UPDATE that makes a running gang smaller or larger,
or gives it another group or queue. A Job whose pods do not wait for each other says so by `gpugate.io/gang-size: "1"`; a gang
that can run with fewer pods says so by `gpugate.io/gang-elastic: "true"`, by `gpugate.io/gang-min-size` with the fewest, to
Kueue by `kueue.x-k8s.io/elastic-job: "true"`, or in its own fields: `elasticPolicy.minReplicas`, a Ray group's `minReplicas`
with autoscaling.

## Why

The default scheduler places pods one by one. Two gangs that each hold a part of what the other needs wait for ever, with
every device they hold idle. Three devices per pod on nodes of eight leave two on every node that no pod of the gang can use.

## Practice

- NUMA guide, "Gang Scheduling for Distributed Training": all workers start at once, by Volcano or the coscheduling plugin.
- Field guide, "The default scheduler is wrong for GPU work", and step 2: all pods of a job or none, by Kueue.
- Orchestration guide, "Distributed Training Patterns": the kinds of Kubeflow and Ray, each with its own sense of what belongs
  together.

## Example

Before, with the coscheduling plugin: a Job `llm` with `completions: 4`, `parallelism: 4`. After:

```yaml
spec:
  template:
    metadata:
      labels:
        scheduling.x-k8s.io/pod-group: llm
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.pod_groups import COSCHEDULING_GROUP, KUEUE_COUNT
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.framework.rule import Params, Rule, Seconds
from gpugate.policies.gangs.gang import GANG_NAME, GANG_SIZE, Gang, gang_of, group_of, invalid_size, is_elastic, min_size
from gpugate.policies.kube.cel import LabelValue
from gpugate.policies.kube.fields import string
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.patch import Edit
from gpugate.policies.queueing.webhook_limits import kueue_rejects
from gpugate.policies.rules.gangs.gang.minimum import check_minimum
from gpugate.policies.rules.gangs.gang.schedulers import (
    mark_for_coscheduling,
    mark_for_kai,
    mark_for_kubernetes,
    mark_for_kueue,
    mark_for_volcano,
)
from gpugate.policies.rules.gangs.gang.updates import check_count, check_pod_update, check_template, is_member, running_gang
from gpugate.policies.scheduling.node_selection import matching_shapes
from gpugate.policies.workloads.queue_name import queue_label
from gpugate.policies.workloads.transition import Transition
from gpugate.policies.workloads.workload import PodSet, Workload

_SHOWN_SHAPES: Final = 4
#: Schedulers that hold only pods together which name their group, and by what.
_NAMED_BY: Final = {"Coscheduling": COSCHEDULING_GROUP, "Kubernetes": "schedulingGroup"}


class GangParams(Params):
    """Parameters of `gang`."""

    scheduler: Literal["Kueue", "Coscheduling", "Volcano", "Kubernetes", "KAI", "None"] = "Kueue"
    """Who holds the pods of a gang together in this cluster; Kubernetes from 1.36 on, with its feature gates on."""
    scheduler_name: str | None = None
    """schedulerName of gang pods; Volcano's and KAI's own where it is left out, untouched for the others."""
    kai_queue: LabelValue | None = None
    """KAI queue of gang pods that name none."""
    pod_groups: Literal["Create", "Leave"] = "Create"
    """Whether gpugate's controller makes the PodGroup of a gang that has none, for Coscheduling, Volcano and Kubernetes."""
    volcano_queue: str | None = None
    """Volcano queue of the PodGroups that are made, for pods that name none."""
    schedule_timeout: Seconds | None = None
    """How long Coscheduling holds places for a gang until all of it has one; its own default where it is left out."""
    stuck_after: Seconds = 600
    """How long members of a gang may be missing, or not run, before the gang is reported as stuck."""
    fragments: Literal["Deny", "Warn", "Allow"] = "Deny"
    """What is done about accelerators per pod that leave a remainder on every node."""
    one_by_one: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang made by a Deployment, ReplicaSet or DaemonSet is refused, or only warned about."""


def mutate(workload: Workload, params: GangParams, _facts: ClusterSnapshot) -> Iterator[Edit]:
    """Mark the gang for the policy's scheduler."""
    if invalid_size(workload) is not None:
        return
    gang = gang_of(workload)
    if gang is None or workload.kind.scheduled or (workload.is_pod() and workload.controller() is not None):
        return
    if workload.is_child() or gang.gangs > 1:
        # What it is a part of was marked; a group for each of several gangs is their controller's to make.
        return
    if not _has_its_size(workload, gang):
        return
    name = workload.annotation(GANG_NAME) or ("" if workload.is_pod() else workload.name)
    if params.scheduler == "Kueue":
        yield from mark_for_kueue(workload, gang, name)
    elif params.scheduler == "KAI":
        yield from mark_for_kai(workload, gang, params.kai_queue, params.scheduler_name)
    elif not workload.kind.groups_itself:
        # A second group beside the operator's own would hold the same pods twice.
        yield from _mark_with_group(workload, gang, name, params)


def _mark_with_group(workload: Workload, gang: Gang, name: str, params: GangParams) -> Iterator[Edit]:
    """Mark the gang for a scheduler that reads PodGroups."""
    if params.scheduler == "Coscheduling":
        yield from mark_for_coscheduling(gang, name, params.scheduler_name)
    elif params.scheduler == "Volcano":
        yield from mark_for_volcano(workload, gang, name, params.scheduler_name, with_group=params.pod_groups == "Create")
    elif params.scheduler == "Kubernetes":
        yield from mark_for_kubernetes(gang, name, params.scheduler_name)


def check(workload: Workload, params: GangParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse gangs that could start in part, fall apart, or leave devices that nobody can use."""
    wrong = invalid_size(workload)
    if wrong is not None:
        yield Finding(
            "SizeUnreadable",
            ("metadata", "annotations", wrong.key),
            f"{wrong.key} is {wrong.written!r:.40}, no whole number of at least 1",
            f'Write {wrong.key}: "4" for 4 pods, or remove it.',
        )
        return
    if workload.is_child():
        return
    gang = gang_of(workload)
    if workload.transition is not None:
        yield from _check_update(workload.transition, gang)
    if gang is None:
        return
    yield from _check_size(workload, gang)
    yield from _check_completions(gang)
    yield from check_minimum(workload, gang)
    yield from _check_mark(workload, gang, params)
    if params.fragments != "Allow":
        for part in gang.parts:
            yield from _check_fragments(part, params, snapshot)


def _check_update(transition: Transition, gang: Gang | None) -> Iterator[Finding]:
    if is_member(transition):
        yield from check_pod_update(transition)
    running = running_gang(transition, gang)
    if running is not None:
        yield from check_count(transition, running)
        yield from check_template(transition, running)


def _has_its_size(workload: Workload, gang: Gang) -> bool:
    """Whether the workload makes as many pods as the gang has; one that is elastic may make fewer, or more."""
    if gang.members is None or gang.size in gang.sizes:
        return True
    return is_elastic(workload) and gang.members >= min_size(workload, gang.size)


def _check_size(workload: Workload, gang: Gang) -> Iterator[Finding]:
    if not _has_its_size(workload, gang) and gang.declared:
        yield Finding(
            "SizeMismatch",
            ("metadata", "annotations", GANG_SIZE),
            f"{GANG_SIZE} declares {gang.size} pods and the workload makes {gang.members}: {gang.size} != {gang.members}",
            f'Write {GANG_SIZE}: "{gang.members}", or change the number of pods to {gang.size}.',
        )
    stated = string(gang.pods.annotations(), KUEUE_COUNT, gang.pods.meta("annotations"))
    if workload.is_pod() and stated is not None and stated != str(gang.size):
        yield Finding(
            "SizeMismatch",
            gang.pods.meta("annotations", KUEUE_COUNT),
            f"{GANG_SIZE} declares {gang.size} pods and {KUEUE_COUNT} says {stated:.20}",
            f'Write {KUEUE_COUNT}: "{gang.size}", the same in every pod of the group.',
        )


def _check_completions(gang: Gang) -> Iterator[Finding]:
    for part in gang.parts:
        wanted, parallelism = part.numbers.completions, part.numbers.child
        # Pods of one child that run one after the other wait for none.
        if wanted is None or parallelism in {None, 1, wanted}:
            continue
        yield Finding(
            "CompletionsNotParallelism",
            part.numbers.completions_path,
            f"completions {wanted} != parallelism {parallelism}: a gang runs all its pods at once, each to completion",
            f"Write parallelism: {wanted} and completions: {wanted}; or, where the pods do not wait for each other, the annotation"
            f' {GANG_SIZE}: "1".',
        )


def _check_mark(workload: Workload, gang: Gang, params: GangParams) -> Iterator[Finding]:
    key = group_of(gang.pods)
    if (key is None or key.system == "gpugate") and workload.controller() is None:
        yield from _check_name(workload, gang, params)
    may_stand_in_queue = workload.kind.queued and not workload.is_pod() and kueue_rejects(workload) is None
    if params.scheduler == "Kueue" and may_stand_in_queue and not queue_label(workload):
        yield Finding(
            "NotHeldTogether",
            ("metadata", "labels", QUEUE_NAME),
            f"the gang of {gang.size} has no queue name: without one Kueue does not hold its pods together",
            f"Write the label {QUEUE_NAME} with the name of a LocalQueue.",
            Level.WARN,
        )
    if workload.kind.one_by_one:
        yield Finding(
            "OneByOne",
            ("metadata", "annotations", GANG_SIZE),
            f"a {workload.kind.kind} starts and replaces its {gang.size} pods one by one: nothing holds them together",
            "Use a Job with completions equal to parallelism, a JobSet or a LeaderWorkerSet for a gang.",
            Level.DENY if params.one_by_one == "Deny" else Level.WARN,
        )
    if params.scheduler == "KAI" and workload.kind.batch and not workload.kind.grouped_by_kai:
        yield Finding(
            "OneByOne",
            ("spec",),
            f"KAI makes one pod group per pod of a Job: nothing holds the {gang.size} pods together",
            "Use a JobSet, LeaderWorkerSet or PyTorchJob for a gang under KAI.",
            Level.WARN,
        )


def _check_name(workload: Workload, gang: Gang, params: GangParams) -> Iterator[Finding]:
    place = ("metadata", "annotations", GANG_NAME)
    if workload.is_pod() and params.scheduler in {"Kueue", "Coscheduling", "Volcano", "Kubernetes"}:
        yield Finding(
            "GangNameMissing",
            place,
            f"the pod is 1 of {gang.size} and does not say of which group: {params.scheduler} would place it alone",
            f"Write the annotation {GANG_NAME} with the same name in all {gang.size} pods.",
        )
    elif workload.kind.groups_itself or gang.gangs > 1:
        return
    elif params.scheduler in _NAMED_BY and not workload.kind.scheduled and gang.members == gang.size:
        # The name that metadata.generateName stands for is made after the mutating webhooks have run.
        mark = _NAMED_BY[params.scheduler]
        yield Finding(
            "GangNameMissing",
            place,
            f"the pods of the gang of {gang.size} carry no {mark}: the scheduler would place them one by one",
            f"Write the annotation {GANG_NAME}, or metadata.name in place of metadata.generateName.",
        )


def _check_fragments(pods: PodSet, params: GangParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    if snapshot.sync_state("nodes") is SyncState.PENDING:
        yield Finding(
            "NodesUnknown",
            pods.field("containers"),
            "the nodes are not synced yet, so it is not known whether the gang leaves fragments",
            "Try again in a few seconds.",
            Level.UNKNOWN,
        )
        return
    shapes = matching_shapes(pods, snapshot)
    for name, count in sorted(pods.accelerators().items()):
        large = [shape for shape in shapes if shape.devices[name] >= count]
        if not large or any(shape.devices[name] % count == 0 for shape in large):
            continue
        sums = "; ".join(list(dict.fromkeys(_remainder(shape, name, count) for shape in large))[:_SHOWN_SHAPES])
        fitting = sorted(
            {divisor for shape in large for divisor in range(1, shape.devices[name] + 1) if shape.devices[name] % divisor == 0}
        )
        yield Finding(
            "Fragments",
            pods.field("containers"),
            f"{count} of {name} per pod leave a remainder on every node that offers it: {sums}",
            f"Ask for {' or '.join(str(one) for one in fitting)} of {name} per pod.",
            Level.DENY if params.fragments == "Deny" else Level.WARN,
            rests_on=("nodes",),
        )


def _remainder(shape: NodeShape, name: str, count: int) -> str:
    offered = shape.devices[name]
    return f"{shape.title}: {offered} = {offered // count} x {count} + {offered % count}"


RULE = Rule(
    id="gang",
    title="Pods that must start together are held together, and leave no fragments",
    since="0.1.0",
    params=GangParams,
    mutate=mutate,
    check=check,
    needs=frozenset({"nodes"}),
    documentation=__doc__,
    on_update=False,
)
