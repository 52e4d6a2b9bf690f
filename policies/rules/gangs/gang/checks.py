"""Findings of the rule `gang`."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.cluster.nodes import NodeShape
from gpugate.policies.cluster.records.pod_groups import COSCHEDULING_GROUP, KUEUE_COUNT
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.gangs.gang import (
    GANG_ELASTIC,
    GANG_NAME,
    GANG_SIZE,
    VOLCANO_MINIMUM,
    Gang,
    declared_min_size,
    gang_of,
    group_of,
    invalid_size,
    min_count,
    min_size,
)
from gpugate.policies.kube.fields import Object, Path, lookup, string
from gpugate.policies.kube.names import MIN_PARALLELISM, QUEUE_NAME
from gpugate.policies.queueing.webhook_limits import kueue_rejects
from gpugate.policies.rules.gangs.gang.mutate import GangParams, has_its_size
from gpugate.policies.rules.gangs.gang.updates import check_update
from gpugate.policies.scheduling.node_selection import matching_shapes
from gpugate.policies.workloads.metadata import queue_label
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_SHOWN_SHAPES: Final = 4
#: Schedulers that only start pods together which name their group, and the label or field of the name.
_NAMED_BY: Final = {"Coscheduling": COSCHEDULING_GROUP, "Kubernetes": "schedulingGroup"}
#: Annotations for a minimum: Kueue's partial admission (v0.15 ``pkg/controller/jobs/job``), Volcano's (v1.10).
_MINIMUM_ANNOTATIONS: Final = (MIN_PARALLELISM, VOLCANO_MINIMUM)
_MOST_DIGITS: Final = 9


def check(workload: Workload, params: GangParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse gangs that could start in part, fall apart, or leave unusable devices."""
    invalid = invalid_size(workload)
    if invalid is not None:
        yield Finding(
            "SizeUnreadable",
            ("metadata", "annotations", invalid.key),
            f"{invalid.key} is {invalid.written!r:.40}, no whole number of at least 1",
            f'Write {invalid.key}: "4" for 4 pods, or remove it.',
        )
        return
    if workload.is_child():
        return
    gang = gang_of(workload)
    if workload.transition is not None:
        yield from check_update(workload.transition, gang)
    if gang is None:
        return
    yield from _check_size(workload, gang)
    if has_its_size(workload, gang):
        yield from _check_completions(gang)
    yield from check_minimum(workload, gang)
    yield from _check_start(workload, gang, params)
    if params.fragments != "Allow":
        for part in gang.parts:
            yield from _check_fragments(part, snapshot)


def _check_size(workload: Workload, gang: Gang) -> Iterator[Finding]:
    if not has_its_size(workload, gang) and gang.declared:
        yield Finding(
            "SizeMismatch",
            ("metadata", "annotations", GANG_SIZE),
            f"{GANG_SIZE} declares {gang.size} pods, but the workload makes {gang.members}: {gang.size} != {gang.members}",
            f'Write {GANG_SIZE}: "{gang.members}", or change the number of pods to {gang.size}.',
        )
    stated = string(gang.pods.annotations(), KUEUE_COUNT, gang.pods.meta("annotations"))
    if workload.is_pod() and stated is not None and stated != str(gang.size):
        yield Finding(
            "SizeMismatch",
            gang.pods.meta("annotations", KUEUE_COUNT),
            f"{GANG_SIZE} declares {gang.size} pods, but {KUEUE_COUNT} is {stated:.20}",
            f'Write {KUEUE_COUNT}: "{gang.size}" in every pod of the group.',
        )


def _check_completions(gang: Gang) -> Iterator[Finding]:
    for part in gang.parts:
        completions, parallelism = part.numbers.completions, part.numbers.child
        # Pods of one child that run one after the other do not wait for each other.
        if completions is None or parallelism in {None, 1} or completions <= (parallelism or 0):
            continue
        yield Finding(
            "CompletionsNotParallelism",
            part.numbers.completions_path,
            f"completions {completions} > parallelism {parallelism}, but all pods of a gang run at once, each to completion",
            f"Write parallelism: {completions} and completions: {completions}; if the pods do not wait for each other, write the"
            f' annotation {GANG_SIZE}: "1" instead.',
        )


class _Minimum(NamedTuple):
    """A minimum number of pods that a workload states.

    Attributes:
        path: the field or annotation.
        number: the minimum.
        full: the number of pods that it is a minimum of.
        needed: the pods that the gang needs to run.
    """

    path: Path
    number: int
    full: int
    needed: int


def check_minimum(workload: Workload, gang: Gang) -> Iterator[Finding]:
    """Refuse a minimum below the full size of a gang that is not declared elastic."""
    for path, minimum, full, needed in _stated_minimums(workload, gang):
        if minimum < needed:
            value = f'"{needed}"' if "annotations" in path else str(needed)
            yield Finding(
                "PartialStart",
                path,
                f"the minimum of {minimum} lets {minimum} of {full} pods start, and the gang needs {needed}: {minimum} < {needed}",
                f'Write {value}, or write {GANG_ELASTIC}: "true" if the gang can run with fewer pods.',
                measure=needed - minimum,
            )


def _stated_minimums(workload: Workload, gang: Gang) -> Iterator[_Minimum]:
    holders: list[tuple[Path, Object]] = [(("metadata", "annotations"), workload.annotations())]
    if gang.pods.path:
        holders.append((gang.pods.meta("annotations"), gang.pods.annotations()))
    for key in _MINIMUM_ANNOTATIONS:
        for path, annotations in holders:
            text = annotations.get(key)
            # The scheduler itself rejects a text that is no number.
            if type(text) is str and text.isascii() and text.isdigit():
                yield _Minimum((*path, key), int(text[:_MOST_DIGITS]), gang.size, min_size(workload, gang.size))
    field = workload.kind.min_available
    minimum = None if field is None else lookup(workload.root, field.path)
    if field is not None and type(minimum) is int and (minimum or not field.zero_is_absent):
        # Pods that start after the others may be missing: with them in the minimum the gang would wait for itself.
        first = [pods for pods in workload.pod_sets if not pods.starts_late and not pods.follows]
        full = sum(pods.numbers.at_once for pods in first)
        declared = declared_min_size(workload, full)
        yield _Minimum(field.path, minimum, full, sum(map(min_count, first)) if declared is None else declared)


def _check_start(workload: Workload, gang: Gang, params: GangParams) -> Iterator[Finding]:
    key = group_of(gang.pods)
    if (key is None or key.system == "gpugate") and workload.controller() is None:
        yield from _check_name(workload, gang, params)
    can_queue = workload.kind.queued and not workload.is_pod() and kueue_rejects(workload) is None
    if params.scheduler == "Kueue" and can_queue and not queue_label(workload):
        yield Finding(
            "NotHeldTogether",
            ("metadata", "labels", QUEUE_NAME),
            f"the gang of {gang.size} pods has no queue name, so Kueue does not admit it as a whole",
            f"Write the label {QUEUE_NAME} with the name of a LocalQueue.",
        )
    if workload.kind.one_by_one:
        yield Finding(
            "OneByOne",
            ("metadata", "annotations", GANG_SIZE),
            f"a {workload.kind.kind} starts and replaces its {gang.size} pods one by one, so they cannot start together",
            "Use a Job with completions equal to parallelism, a JobSet or a LeaderWorkerSet for a gang.",
        )
    if params.scheduler == "KAI" and workload.kind.batch and not workload.kind.grouped_by_kai:
        yield Finding(
            "OneByOne",
            ("spec",),
            f"KAI makes one pod group per pod of a Job, so the {gang.size} pods do not start together",
            "Use a JobSet, LeaderWorkerSet or PyTorchJob for a gang under KAI.",
            Level.WARN,
        )


def _check_name(workload: Workload, gang: Gang, params: GangParams) -> Iterator[Finding]:
    path = ("metadata", "annotations", GANG_NAME)
    if workload.is_pod() and params.scheduler in {"Kueue", "Coscheduling", "Volcano", "Kubernetes"}:
        yield Finding(
            "GangNameMissing",
            path,
            f"the pod is 1 of {gang.size} and names no group, so {params.scheduler} would place it alone",
            f"Write the annotation {GANG_NAME} with the same name in all {gang.size} pods.",
        )
    elif workload.kind.groups_itself or gang.gangs > 1:
        return
    elif params.scheduler in _NAMED_BY and not workload.kind.scheduled and gang.members == gang.size:
        # The API server expands metadata.generateName after the mutating webhooks have run.
        yield Finding(
            "GangNameMissing",
            path,
            f"the {gang.size} pods of the gang have no {_NAMED_BY[params.scheduler]}, so the scheduler would place them one by one",
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
        divisors = sorted(
            {divisor for shape in large for divisor in range(1, shape.devices[name] + 1) if shape.devices[name] % divisor == 0}
        )
        yield Finding(
            "Fragments",
            pods.field("containers"),
            f"{count} {name} per pod leave a remainder on every node that has them ({sums}), which no pod of the gang can use",
            f"Request {' or '.join(map(str, divisors))} {name} per pod.",
        )


def _remainder(shape: NodeShape, name: str, count: int) -> str:
    total = shape.devices[name]
    return f"{shape.title}: {total} = {total // count} x {count} + {total % count}"
