"""Findings of the rule `priority`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.names import PRIORITY_CLASS
from gpugate.policies.rules.queueing.priority.classes import (
    SYSTEM,
    Named,
    PriorityBound,
    PriorityClasses,
    class_for_all,
    class_of,
    classes_of,
    scale_of_pods,
    scale_of_workloads,
    workload_class_of,
    workload_class_path,
)
from gpugate.policies.rules.queueing.priority.params import PriorityParams, bound_of_pods, bound_of_workloads, classes_for
from gpugate.policies.rules.queueing.priority.purpose import PURPOSES, WORKLOAD_KIND, purpose_of, stated_purpose
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse classes that there are not, that are not for workloads, or too high; and none at all where one is required."""
    if not workload.gpu_pod_sets():
        return
    scale = scale_of_pods(snapshot)
    bound = bound_of_pods(workload, params, snapshot)
    if workload.owner_kind() is not None:
        if workload.is_pod():
            yield from (one.as_warning() for one in _too_much(workload, scale, bound))
        return
    yield from _of_kind(workload)
    yield from _unknown(workload, scale, list(classes_of(workload)))
    yield from _too_much(workload, scale, bound)
    yield from _of_kueue(workload, params, snapshot)
    yield from _missing(workload, params, scale, bound)


def _of_kind(workload: Workload) -> Iterator[Finding]:
    said = stated_purpose(workload)
    if said is not None and said not in PURPOSES:
        own = WORKLOAD_KIND in workload.annotations()
        yield Finding(
            "WorkloadKindUnknown",
            ("metadata", "annotations", WORKLOAD_KIND) if own else workload.pod_sets[0].meta("annotations", WORKLOAD_KIND),
            f"{said[:60]!r} is no kind of workload: there is {', '.join(PURPOSES)}",
            f"Write {WORKLOAD_KIND}: {PURPOSES[0]}, or one of the others.",
        )


def _of_kueue(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    named, scale = workload_class_of(workload), scale_of_workloads(snapshot)
    bound = bound_of_workloads(workload, params, snapshot)
    if named is None:
        path, classes = workload_class_path(workload), classes_for(workload, params)
        if path is not None and classes is not None:
            yield from _not_given(path, purpose_of(workload), classes.workload, scale, bound)
        return
    yield from _unknown(workload, scale, [named])
    yield from _above(scale, bound, [named])


def _unknown(workload: Workload, scale: PriorityClasses, named: list[Named]) -> Iterator[Finding]:
    if scale.known is not SyncState.SYNCED:
        if scale.known is SyncState.PENDING and named:
            what = f"whether there is a {scale.title} {named[0].name}"
            yield not_synced("PriorityUndecided", named[0].path, f"the {scale.title}es", what)
        return
    outcome = _outcome(workload, scale)
    for one in named:
        if one.name not in scale.classes:
            yield Finding(
                "PriorityUnknown",
                one.path,
                f"there is no {scale.title} {one.name[:60]}{outcome}; there is {scale.lists()}",
                "Name one that exists, or have this one made.",
                rests_on=(scale.resource,),
            )


def _outcome(workload: Workload, scale: PriorityClasses) -> str:
    """What becomes of a class that does not exist."""
    if scale.resource != "priorityclasses":
        return ", so Kueue never admits the workload"
    return "" if workload.is_pod() else f": the {workload.kind.kind} is taken, and the apiserver refuses every pod of it"


def _too_much(workload: Workload, scale: PriorityClasses, bound: PriorityBound | None) -> Iterator[Finding]:
    named = list(classes_of(workload))
    yield from _above(scale, bound, [one for one in named if not one.name.startswith(SYSTEM)])
    for one in named:
        if one.name.startswith(SYSTEM):
            yield Finding(
                "PrioritySystem",
                one.path,
                f"{one.name[:60]} is for what the cluster cannot do without: a workload with it pushes aside the node's own parts",
                f"Name another PriorityClass; there is {scale.lists(None if bound is None else bound.value)}.",
            )


def _above(scale: PriorityClasses, bound: PriorityBound | None, named: list[Named]) -> Iterator[Finding]:
    if bound is None or not named:
        return
    if bound.value is None:
        if scale.known in {SyncState.SYNCED, SyncState.ABSENT}:
            why = f"{bound.words}, and there is no {scale.title} of that name"
        else:
            why = f"{bound.words}, and the {scale.title}es are not known"
        yield Finding(
            "PriorityUndecided",
            named[0].path,
            f"{why}: whether {named[0].name[:60]} is above that cannot be said",
            "Have that class made, or a number written in its place.",
        )
        return
    for one in named:
        excess = scale.excess(one.name, bound)
        if excess:
            value = bound.value + excess
            yield Finding(
                "PriorityTooHigh",
                one.path,
                f"{scale.title} {one.name} has the value {value}, and {bound.words}: {value} > {bound.value}",
                f"Name another {scale.title}; there is {scale.lists(bound.value)}.",
                measure=excess,
                rests_on=(scale.resource, "namespaces"),
            )


def _missing(workload: Workload, params: PriorityParams, scale: PriorityClasses, bound: PriorityBound | None) -> Iterator[Finding]:
    lacking = [pods for pods in workload.pod_sets if pods.is_whole and class_of(pods) is None]
    if not lacking or class_for_all(workload) is not None:
        return
    path = lacking[0].field("priorityClassName")
    classes = classes_for(workload, params)
    wanted = classes.pods if classes is not None else None
    if wanted is not None and scale.known is SyncState.SYNCED and wanted not in scale.classes:
        yield Finding(
            "ClassOfPolicyUnknown",
            path,
            f"the policy gives {purpose_of(workload)} the PriorityClass {wanted}, which does not exist: nothing is written;"
            f" there is {scale.lists()}",
            "Have it made, or name another in the policy.",
        )
    yield from _not_given(path, purpose_of(workload), wanted, scale, bound)
    if params.required and workload_class_of(workload) is None:
        yield from _required(workload, lacking[0], wanted, scale, bound)


def _not_given(
    path: Path, purpose: str | None, wanted: str | None, scale: PriorityClasses, bound: PriorityBound | None
) -> Iterator[Finding]:
    """A class that the policy gives and the namespace may not use."""
    if wanted is not None and bound is not None and scale.excess(wanted, bound):
        value = scale.classes[wanted].value
        yield Finding(
            "ClassOfPolicyTooHigh",
            path,
            f"the policy gives {purpose} the {scale.title} {wanted}, which has the value {value}, and {bound.words}:"
            f" {value} > {bound.value}: nothing is written",
            f"Name a {scale.title} that is not above that; there is {scale.lists(bound.value)}.",
            measure=scale.excess(wanted, bound),
            rests_on=(scale.resource, "namespaces"),
        )


def _required(
    workload: Workload, pods: PodSet, wanted: str | None, scale: PriorityClasses, bound: PriorityBound | None
) -> Iterator[Finding]:
    path = pods.field("priorityClassName")
    if any(one.is_default for one in scale.classes.values()):
        return
    purpose = purpose_of(workload)
    what = f"it counts as {purpose}" if purpose else f"what it is for nobody says ({WORKLOAD_KIND}: {', '.join(PURPOSES)})"
    gives = "gives none" if wanted is None else f"gives {wanted}, which is not written"
    if scale.known not in {SyncState.SYNCED, SyncState.ABSENT}:
        yield Finding(
            "PriorityUndecided",
            path,
            f"no priority class is named, {what}, and the PriorityClasses, of which one may be the default, are not known",
            "Write priorityClassName, or give the cluster's PriorityClasses.",
        )
        return
    kueue = f" or label {PRIORITY_CLASS}" if workload_class_path(workload) else ""
    usable = None if bound is None else bound.value
    yield Finding(
        "PriorityMissing",
        path,
        f"the policy requires a priority class, and the {workload.kind.kind} names none: {what}, for which the policy {gives}",
        f"Write priorityClassName{kueue}; there is {scale.lists(usable)}."
        if purpose
        else f"Write {WORKLOAD_KIND}, or priorityClassName{kueue}; there is {scale.lists(usable)}.",
    )
