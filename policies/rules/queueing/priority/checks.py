"""Findings of the rule `priority`."""

from collections.abc import Iterator

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, not_synced
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.names import PRIORITY_CLASS
from gpugate.policies.rules.queueing.priority.classes import (
    PURPOSES,
    SYSTEM,
    WORKLOAD_KIND,
    NamedClass,
    PriorityClasses,
    PriorityParams,
    class_for_all,
    class_of,
    classes_for,
    classes_of,
    pod_classes,
    purpose_of,
    stated_purpose,
    workload_class_of,
    workload_class_path,
    workload_classes,
)
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def check(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse unknown, system and too high classes, and a missing class if the policy requires one."""
    if not workload.gpu_pod_sets():
        return
    classes = pod_classes(workload, params, snapshot)
    if workload.owner_kind() is not None:
        if workload.is_pod():
            yield from (finding.as_warning() for finding in _check_height(workload, classes))
        return
    purpose = stated_purpose(workload)
    if purpose is not None and purpose not in PURPOSES:
        own = WORKLOAD_KIND in workload.annotations()
        yield Finding(
            "WorkloadKindUnknown",
            ("metadata", "annotations", WORKLOAD_KIND) if own else workload.pod_sets[0].meta("annotations", WORKLOAD_KIND),
            f"{WORKLOAD_KIND} is {purpose[:60]!r}, but its values are {', '.join(PURPOSES)}",
            f"Write {WORKLOAD_KIND}: {PURPOSES[0]}, or another of these values.",
        )
    yield from _check_existence(workload, classes, list(classes_of(workload)))
    yield from _check_height(workload, classes)
    yield from _check_kueue(workload, params, snapshot)
    yield from _check_missing(workload, params, classes)


def _check_kueue(workload: Workload, params: PriorityParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    named, classes = workload_class_of(workload), workload_classes(workload, params, snapshot)
    if named is not None:
        yield from _check_existence(workload, classes, [named])
        yield from _check_limit(classes, [named])
        return
    path, defaults = workload_class_path(workload), classes_for(workload, params)
    if path is not None and defaults is not None:
        yield from _check_default(path, workload, defaults.workload, classes)


def _check_existence(workload: Workload, classes: PriorityClasses, named: list[NamedClass]) -> Iterator[Finding]:
    if classes.state is SyncState.PENDING and named:
        what = f"whether there is a {classes.title} {named[0].name}"
        yield not_synced("PriorityUndecided", named[0].path, f"the {classes.title}es", what)
    if classes.state is not SyncState.SYNCED:
        return
    result = "" if workload.is_pod() else f", so the API server accepts the {workload.kind.kind} and rejects all its pods"
    if classes.resource != "priorityclasses":
        result = ", so Kueue never admits the workload"
    for path, name in named:
        if name not in classes.by_name:
            yield Finding(
                "PriorityUnknown",
                path,
                f"there is no {classes.title} {name[:60]}{result}; available: {classes.shown(limited=False)}",
                "Name an existing class, or create this one.",
                rests_on=(classes.resource,),
            )


def _check_height(workload: Workload, classes: PriorityClasses) -> Iterator[Finding]:
    """Refuse classes above the limit, and those of the system."""
    named = list(classes_of(workload))
    yield from _check_limit(classes, [item for item in named if not item.name.startswith(SYSTEM)])
    for path, name in named:
        if name.startswith(SYSTEM):
            yield Finding(
                "PrioritySystem",
                path,
                f"{name[:60]} is for components that the cluster needs, and a workload with it can preempt them",
                f"Name another PriorityClass; available: {classes.shown()}.",
            )


def _check_limit(classes: PriorityClasses, named: list[NamedClass]) -> Iterator[Finding]:
    limit = classes.limit
    if limit is None or not named:
        return
    if limit.value is None:
        known = classes.state in {SyncState.SYNCED, SyncState.ABSENT}
        problem = f"there is no {classes.title} of that name" if known else f"the {classes.title}es are unknown"
        yield Finding(
            "PriorityUndecided",
            named[0].path,
            f"{limit.text}, but {problem}, so gpugate cannot tell whether {named[0].name[:60]} is above it",
            "Create that class, or write a number in its place.",
        )
        return
    for path, name in named:
        excess = classes.excess(name)
        if excess:
            value = limit.value + excess
            yield Finding(
                "PriorityTooHigh",
                path,
                f"{classes.title} {name} has the value {value}, but {limit.text}: {value} > {limit.value}",
                f"Name another {classes.title}; available: {classes.shown()}.",
                measure=excess,
                rests_on=(classes.resource, "namespaces"),
            )


def _check_missing(workload: Workload, params: PriorityParams, classes: PriorityClasses) -> Iterator[Finding]:
    lacking = [pods for pods in workload.pod_sets if pods.is_whole and class_of(pods) is None]
    if not lacking or class_for_all(workload) is not None:
        return
    path = lacking[0].field("priorityClassName")
    defaults = classes_for(workload, params)
    default = defaults.pods if defaults is not None else None
    if default is not None and classes.state is SyncState.SYNCED and default not in classes.by_name:
        yield Finding(
            "ClassOfPolicyUnknown",
            path,
            f"the policy sets PriorityClass {default} for {purpose_of(workload)}, but it does not exist, so gpugate writes none;"
            f" available: {classes.shown(limited=False)}",
            "Create the class, or name another in the policy.",
        )
    yield from _check_default(path, workload, default, classes)
    if params.required and workload_class_of(workload) is None:
        yield from _check_required(workload, lacking[0], default, classes)


def _check_default(path: Path, workload: Workload, default: str | None, classes: PriorityClasses) -> Iterator[Finding]:
    """Report a class of the policy that the namespace may not use."""
    excess, limit = classes.excess(default), classes.limit
    if default is not None and limit is not None and excess:
        value = classes.by_name[default].value
        yield Finding(
            "ClassOfPolicyTooHigh",
            path,
            f"the policy sets {classes.title} {default} with the value {value} for {purpose_of(workload)}, but {limit.text}, so"
            f" gpugate writes none: {value} > {limit.value}",
            f"Name a lower {classes.title}; available: {classes.shown()}.",
            measure=excess,
            rests_on=(classes.resource, "namespaces"),
        )


def _check_required(workload: Workload, pods: PodSet, default: str | None, classes: PriorityClasses) -> Iterator[Finding]:
    path = pods.field("priorityClassName")
    if any(priority.is_default for priority in classes.by_name.values()):
        return
    purpose = purpose_of(workload)
    what = f"counts as {purpose}" if purpose else f"has no known purpose ({WORKLOAD_KIND}: {', '.join(PURPOSES)})"
    if classes.state not in {SyncState.SYNCED, SyncState.ABSENT}:
        yield Finding(
            "PriorityUndecided",
            path,
            f"the workload names no priority class and {what}; the PriorityClasses, one of which may be the default, are unknown",
            "Write priorityClassName, or give gpugate the cluster's PriorityClasses.",
        )
        return
    default_text = "sets none" if default is None else f"sets {default}, which gpugate does not write"
    write = f"priorityClassName{f' or the label {PRIORITY_CLASS}' if workload_class_path(workload) else ''}"
    yield Finding(
        "PriorityMissing",
        path,
        f"the policy requires a priority class, but the {workload.kind.kind} names none; it {what}, and for that the policy"
        f" {default_text}",
        f"Write {'' if purpose else f'{WORKLOAD_KIND}, or '}{write}; available: {classes.shown()}.",
    )
