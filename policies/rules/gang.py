"""Pods that must start together are marked so for the scheduler, and never in a way that lets them start in part.

## What it does

A gang is a Job of several pods with accelerators (or a CronJob that makes such Jobs), or a workload or plain pod annotated
`gpugate.io/gang-size`. It gets what the policy's scheduler reads: Kueue's pod group label and total count on plain pods (a
Job with a queue name is all-or-nothing by itself); the pod group label of the coscheduling plugin; Volcano's scheduler name
with its group annotation or, on a Job, the minimum member count; KAI's scheduler name and queue label. Plain pods name their
group by `gpugate.io/gang-name`.

Refuses: a declared size that differs from the pods made; `completions` that is not `parallelism`; a minimum below the full
size; accelerators per pod that leave a remainder on every node (3 of 8), unless the policy allows it; an UPDATE that shrinks
a running gang. A Job whose pods do not wait for each other says so by `gpugate.io/gang-size: "1"`.

## Why

The default scheduler places pods one by one. Two gangs that each hold a part of what the other needs wait for ever, with
every device they hold idle. Three devices per pod on nodes of eight leave two on every node that no pod of the gang can use.

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

from gpugate.policies.edits import Edit
from gpugate.policies.facts import Facts, Known
from gpugate.policies.feasibility import reachable
from gpugate.policies.fields import Object, Path, string
from gpugate.policies.finding import Finding, Level
from gpugate.policies.gangs import (
    Gang,
    completions,
    declared_size,
    gang_of,
    is_being_stopped,
    is_running,
    job_spec_path,
    unreadable_size,
)
from gpugate.policies.kinds import GANG_NAME, GANG_SIZE
from gpugate.policies.kueue import QUEUE_NAME, queue_label
from gpugate.policies.lens import open_workload
from gpugate.policies.nodes import Shape
from gpugate.policies.rule import Params, Rule
from gpugate.policies.workload import Workload

_KUEUE_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
_KUEUE_MINIMUM: Final = "kueue.x-k8s.io/job-min-parallelism"
_COSCHEDULING_GROUP: Final = "scheduling.x-k8s.io/pod-group"
_VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
_VOLCANO_MINIMUM: Final = "scheduling.volcano.sh/group-min-member"
_KAI_QUEUE: Final = "kai.scheduler/queue"
_SHOWN_SHAPES: Final = 4


class GangParams(Params):
    """Parameters of `gang`."""

    scheduler: Literal["Kueue", "Coscheduling", "Volcano", "KAI", "None"] = "Kueue"
    """Who holds the pods of a gang together in this cluster."""
    scheduler_name: str | None = None
    """schedulerName of gang pods; Volcano's and KAI's own where it is left out, untouched for the others."""
    kai_queue: str | None = None
    """KAI queue of gang pods that name none."""
    fragments: Literal["Deny", "Warn", "Allow"] = "Deny"
    """What is done about accelerators per pod that leave a remainder on every node."""


def mutate(workload: Workload, params: GangParams, _facts: Facts) -> Iterator[Edit]:
    """Mark the gang for the policy's scheduler."""
    if unreadable_size(workload) is not None:
        return
    gang = gang_of(workload)
    if gang is None or workload.kind.makes == "Job" or (workload.is_pod() and workload.controller() is not None):
        return
    if gang.members is not None and gang.members != gang.size:
        return
    name = workload.annotation(GANG_NAME) or ("" if workload.is_pod() else workload.name)
    if params.scheduler == "Kueue":
        yield from _mark_for_kueue(workload, gang, name)
    elif params.scheduler == "Coscheduling":
        yield from _set_once(gang, "labels", _COSCHEDULING_GROUP, name)
        yield from _schedule_by(gang, params.scheduler_name)
    elif params.scheduler == "Volcano":
        yield from _mark_for_volcano(workload, gang, name)
        yield from _schedule_by(gang, params.scheduler_name or "volcano")
    elif params.scheduler == "KAI":
        yield from _set_once(gang, "labels", _KAI_QUEUE, params.kai_queue or "")
        yield from _schedule_by(gang, params.scheduler_name or "kai-scheduler")


def _set_once(gang: Gang, where: str, key: str, value: str) -> Iterator[Edit]:
    present = gang.pods.labels() if where == "labels" else gang.pods.annotations()
    if value and key not in present:
        yield Edit("set", gang.pods.meta(where, key), value, f"{key}={value}")


def _schedule_by(gang: Gang, scheduler: str | None) -> Iterator[Edit]:
    if scheduler and gang.pods.spec.get("schedulerName") in {None, "default-scheduler"}:
        yield Edit("set", gang.pods.field("schedulerName"), scheduler, f"schedulerName {scheduler}", defaulted=True)


def _mark_for_kueue(workload: Workload, gang: Gang, name: str) -> Iterator[Edit]:
    # Only plain pods need a group: any other kind that Kueue manages is one Workload, admitted whole.
    # Kueue refuses a group without its count, so one of the user's own gets it, too.
    if workload.is_pod() and (name or _KUEUE_GROUP in gang.pods.labels()):
        yield from _set_once(gang, "labels", _KUEUE_GROUP, name)
        yield from _set_once(gang, "annotations", _KUEUE_COUNT, str(gang.size))


def _mark_for_volcano(workload: Workload, gang: Gang, name: str) -> Iterator[Edit]:
    if workload.is_pod():
        yield from _set_once(gang, "annotations", _VOLCANO_GROUP, name)
    elif _VOLCANO_GROUP not in gang.pods.annotations() and _VOLCANO_MINIMUM not in workload.annotations():
        # Volcano makes the pod group of a Job's pods by itself and takes its minimum from the owner.
        yield Edit("set", ("metadata", "annotations", _VOLCANO_MINIMUM), str(gang.size), f"{_VOLCANO_MINIMUM}={gang.size}")


def check(workload: Workload, params: GangParams, facts: Facts) -> Iterator[Finding]:
    """Refuse gangs that could start in part, fall apart, or leave devices that nobody can use."""
    written = unreadable_size(workload)
    if written is not None:
        yield Finding(
            "SizeUnreadable",
            ("metadata", "annotations", GANG_SIZE),
            f"{GANG_SIZE} is {written!r:.40}, no whole number of at least 1",
            f'Write {GANG_SIZE}: "4" for a gang of 4 pods, or remove it.',
        )
        return
    gang = gang_of(workload)
    if workload.old is not None:
        yield from _check_shrinking(workload, workload.old, gang, facts)
    if gang is None:
        return
    yield from _check_size(workload, gang)
    yield from _check_completions(workload, gang)
    yield from _check_minimum(workload, gang)
    yield from _check_mark(workload, gang, params)
    if params.fragments != "Allow":
        yield from _check_fragments(gang, params, facts)


def _check_size(workload: Workload, gang: Gang) -> Iterator[Finding]:
    if gang.members is not None and gang.declared and gang.members != gang.size:
        yield Finding(
            "SizeMismatch",
            ("metadata", "annotations", GANG_SIZE),
            f"{GANG_SIZE} declares {gang.size} pods and the workload makes {gang.members}: {gang.size} != {gang.members}",
            f'Write {GANG_SIZE}: "{gang.members}", or change the number of pods to {gang.size}.',
        )
    stated = string(gang.pods.annotations(), _KUEUE_COUNT, gang.pods.meta("annotations"))
    if workload.is_pod() and stated is not None and stated != str(gang.size):
        yield Finding(
            "SizeMismatch",
            gang.pods.meta("annotations", _KUEUE_COUNT),
            f"{GANG_SIZE} declares {gang.size} pods and {_KUEUE_COUNT} says {stated:.20}",
            f'Write {_KUEUE_COUNT}: "{gang.size}", the same in every pod of the group.',
        )


def _check_completions(workload: Workload, gang: Gang) -> Iterator[Finding]:
    wanted = completions(workload)
    if wanted is None or gang.members is None or wanted == gang.members:
        return
    path = job_spec_path(workload) or ()
    yield Finding(
        "CompletionsNotParallelism",
        (*path, "completions"),
        f"completions {wanted} != parallelism {gang.members}: a gang runs all its pods at once, each to completion",
        f"Write parallelism: {wanted} and completions: {wanted}; or, where the pods do not wait for each other, the annotation"
        f' {GANG_SIZE}: "1".',
    )


def _minimums(workload: Workload, gang: Gang) -> Iterator[tuple[Path, str]]:
    own, pods = workload.annotations(), gang.pods.annotations()
    for key in (_KUEUE_MINIMUM, _VOLCANO_MINIMUM):
        for place, found in ((("metadata", "annotations", key), own.get(key)), (gang.pods.meta("annotations", key), pods.get(key))):
            if type(found) is str:
                yield place, found


def _check_minimum(workload: Workload, gang: Gang) -> Iterator[Finding]:
    seen: set[Path] = set()
    for place, written in _minimums(workload, gang):
        if place in seen or not (written.isascii() and written.isdigit()) or int(written[:9]) >= gang.size:
            continue
        seen.add(place)
        yield Finding(
            "PartialStart",
            place,
            f"a minimum of {written} lets {written} of {gang.size} pods start: {written} < {gang.size}",
            f'Write "{gang.size}", or remove {place[-1]}.',
        )


def _check_mark(workload: Workload, gang: Gang, params: GangParams) -> Iterator[Finding]:
    labels = gang.pods.labels()
    named = any(key in labels for key in (_KUEUE_GROUP, _COSCHEDULING_GROUP)) or _VOLCANO_GROUP in gang.pods.annotations()
    if not named and workload.controller() is None:
        yield from _check_name(workload, gang, params)
    if params.scheduler == "Kueue" and not workload.is_pod() and not queue_label(workload):
        yield Finding(
            "NotHeldTogether",
            ("metadata", "labels", QUEUE_NAME),
            f"the gang of {gang.size} has no queue name: without one Kueue does not hold its pods together",
            f"Write the label {QUEUE_NAME} with the name of a LocalQueue.",
            Level.WARN,
        )
    if workload.kind.kind in {"Deployment", "ReplicaSet", "DaemonSet"}:
        yield Finding(
            "OneByOne",
            ("metadata", "annotations", GANG_SIZE),
            f"a {workload.kind.kind} starts and replaces its {gang.size} pods one by one: nothing holds them together",
            "Use a Job with completions equal to parallelism, a JobSet or a LeaderWorkerSet for a gang.",
            Level.WARN,
        )
    if params.scheduler == "KAI" and workload.kind.kind in {"Job", "CronJob"}:
        yield Finding(
            "OneByOne",
            ("spec",),
            f"KAI makes one pod group per pod of a Job: nothing holds the {gang.size} pods together",
            "Use a JobSet, LeaderWorkerSet or PyTorchJob for a gang under KAI.",
            Level.WARN,
        )


def _check_name(workload: Workload, gang: Gang, params: GangParams) -> Iterator[Finding]:
    place = ("metadata", "annotations", GANG_NAME)
    if workload.is_pod() and params.scheduler in {"Kueue", "Coscheduling", "Volcano"}:
        yield Finding(
            "GangNameMissing",
            place,
            f"the pod is 1 of {gang.size} and does not say of which group: {params.scheduler} would place it alone",
            f"Write the annotation {GANG_NAME} with the same name in all {gang.size} pods.",
        )
    elif params.scheduler == "Coscheduling" and workload.kind.makes != "Job" and gang.members == gang.size:
        # The name that metadata.generateName stands for is made after the mutating webhooks have run.
        yield Finding(
            "GangNameMissing",
            place,
            f"the pods of the gang of {gang.size} carry no {_COSCHEDULING_GROUP}: the scheduler would place them one by one",
            f"Write the annotation {GANG_NAME}, or metadata.name in place of metadata.generateName.",
        )


def _check_fragments(gang: Gang, params: GangParams, facts: Facts) -> Iterator[Finding]:
    if facts.state("nodes") is Known.PENDING:
        yield Finding(
            "NodesUnknown",
            gang.pods.field("containers"),
            "the nodes are not synced yet, so it is not known whether the gang leaves fragments",
            "Try again in a few seconds.",
            Level.UNKNOWN,
        )
        return
    shapes = reachable(gang.pods, facts)
    for name, count in sorted(gang.pods.accelerators().items()):
        large = [shape for shape in shapes if shape.devices[name] >= count]
        if not large or any(shape.devices[name] % count == 0 for shape in large):
            continue
        sums = "; ".join(list(dict.fromkeys(_remainder(shape, name, count) for shape in large))[:_SHOWN_SHAPES])
        fitting = sorted(
            {divisor for shape in large for divisor in range(1, shape.devices[name] + 1) if shape.devices[name] % divisor == 0}
        )
        yield Finding(
            "Fragments",
            gang.pods.field("containers"),
            f"{count} of {name} per pod leave a remainder on every node that offers it: {sums}",
            f"Ask for {' or '.join(str(one) for one in fitting)} of {name} per pod.",
            Level.DENY if params.fragments == "Deny" else Level.WARN,
        )


def _remainder(shape: Shape, name: str, count: int) -> str:
    offered = shape.devices[name]
    return f"{shape.title}: {offered} = {offered // count} x {count} + {offered % count}"


def _check_shrinking(workload: Workload, before: Object, gang: Gang | None, facts: Facts) -> Iterator[Finding]:
    if not is_running(workload) or is_being_stopped(workload) or (gang is None and declared_size(workload) == 1):
        return
    old = open_workload(workload.kind, before, facts, namespace=workload.namespace)
    ran = None if unreadable_size(old) is not None else gang_of(old)
    if ran is None or ran.members is None:
        return
    now = next((pods.count for pods in workload.pod_sets if pods.path == ran.pods.path), None)
    count_path = next((one.count for one in workload.kind.pod_sets if one.template == ran.pods.path), None)
    if not now or count_path is None or now >= ran.members:
        return
    yield Finding(
        "Shrinks",
        count_path,
        f"the gang runs with {ran.members} pods and would go on with {now}: {now} < {ran.members}",
        f"Leave {count_path[-1]} at {ran.members}, or stop the gang (suspend it, or scale to 0) and start it anew.",
        measure=ran.members - now,
    )


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
