"""Findings of the rule `gang`."""

from collections.abc import Iterator
from typing import Final

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.pod_groups import COSCHEDULING_GROUP, KUEUE_COUNT
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.gangs.gang import GANG_NAME, GANG_SIZE, Gang, gang_of, group_of, invalid_size
from gpugate.policies.kube.fields import string
from gpugate.policies.kube.names import QUEUE_NAME
from gpugate.policies.queueing.webhook_limits import kueue_rejects
from gpugate.policies.rules.gangs.gang.minimum import check_minimum
from gpugate.policies.rules.gangs.gang.mutate import has_its_size
from gpugate.policies.rules.gangs.gang.params import GangParams
from gpugate.policies.rules.gangs.gang.updates import check_count, check_pod_update, check_template, is_member, running_gang
from gpugate.policies.scheduling.node_selection import matching_shapes
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.transition import Transition
from gpugate.policies.workloads.workload import Workload

_SHOWN_SHAPES: Final = 4


#: Schedulers that hold only pods together which name their group, and by what.
_NAMED_BY: Final = {"Coscheduling": COSCHEDULING_GROUP, "Kubernetes": "schedulingGroup"}


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
            yield from _check_fragments(part, snapshot)


def _check_update(transition: Transition, gang: Gang | None) -> Iterator[Finding]:
    if is_member(transition):
        yield from check_pod_update(transition)
    running = running_gang(transition, gang)
    if running is not None:
        yield from check_count(transition, running)
        yield from check_template(transition, running)


def _check_size(workload: Workload, gang: Gang) -> Iterator[Finding]:
    if not has_its_size(workload, gang) and gang.declared:
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
        )
    if workload.kind.one_by_one:
        yield Finding(
            "OneByOne",
            ("metadata", "annotations", GANG_SIZE),
            f"a {workload.kind.kind} starts and replaces its {gang.size} pods one by one: nothing holds them together",
            "Use a Job with completions equal to parallelism, a JobSet or a LeaderWorkerSet for a gang.",
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


def _check_fragments(pods: PodSet, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    if snapshot.sync_state("nodes") is SyncState.PENDING:
        yield not_synced("NodesUnknown", pods.field("containers"), "the nodes", "whether the gang leaves fragments")
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
        )


def _remainder(shape: NodeShape, name: str, count: int) -> str:
    offered = shape.devices[name]
    return f"{shape.title}: {offered} = {offered // count} x {count} + {offered % count}"
