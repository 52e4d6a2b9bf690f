"""A workload keeps to the ResourceQuotas and LimitRanges of its namespace, so that its pods can be made.

## What it does

Works out what each pod comes to once the API's defaults, those of the LimitRanges and the RuntimeClass's overhead are in, and
holds it against the namespace. Refuses pods that the API would never take: one pod, or all that must run together, above the
hard limit of a ResourceQuota whose scopes it is in; CPU or memory that a quota counts and a container does not state; what is
above the maximum, below the minimum or beyond the ratio of a LimitRange. A Job that could go on with fewer pods, since nobody
declares it a gang and no queue admits it as a whole, a group of plain pods that would be too large if all asked alike, and a
quota that is merely full now, are warned about.

## Why

A Job or Deployment is taken whatever its pods ask for; the quota turns away only the pods, one by one, and says so in an event
of the controller. A gang of which half the pods are refused holds its GPUs and waits for ever.

## Practice

- Orchestration guide, "Resource Quotas and Limits": a ResourceQuota on GPUs and memory keeps a team within its share.

## Example

Refused, where the ResourceQuota of the namespace has `requests.nvidia.com/gpu: 16`:

```yaml
spec:
  parallelism: 4
  completions: 4
  template:
    spec:
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
```

4 pods x 8 = 32 of requests.nvidia.com/gpu > 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from gpugate.policies.cluster.records.namespaces import ResourceQuota
from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.memo import keep, recall
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.queueing.cluster_queue import not_yet_counted
from gpugate.policies.queueing.headroom_alike import pod_fingerprint
from gpugate.policies.queueing.limit_range import LimitViolation, limit_violations
from gpugate.policies.queueing.resource_quota import (
    Missing,
    check_together,
    in_scope,
    missing_requests,
    usage_in_flight,
    usage_of_object,
    usage_of_pod,
)
from gpugate.policies.queueing.workload_demand import number_of_pods
from gpugate.policies.scheduling.pod_resources import defaults_for, filled, resolved_resources
from gpugate.policies.workloads.workload import PodSet, Workload

_RANGES: Final = ("limitranges",)
_QUOTAS: Final = ("resourcequotas",)


class NamespaceLimitsParams(Params):
    """Parameters of `namespace-limits`."""

    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether pods that could never be made are refused, or only warned about."""
    waits: Literal["Warn", "Allow"] = "Warn"
    """Whether a quota that is full now is warned about."""


class NamespaceRequest(NamedTuple):
    """What a pod set asks of the namespace.

    Attributes:
        pods: the pod set.
        number: how many pods there are to be.
        together: whether all of them must run, so that fewer are of no use.
        each: what one pod counts for, by the names that quotas use.
    """

    pods: PodSet
    number: int
    together: bool
    each: Mapping[str, int]


def check(workload: Workload, params: NamespaceLimitsParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse pods that the namespace would never take; warn of a quota that is full."""
    if not workload.gpu_pod_sets():
        return
    pending = [kind for kind in ("limitranges", "resourcequotas") if snapshot.sync_state(kind) is SyncState.PENDING]
    if pending:
        yield _unknown(workload, pending)
        return
    if workload.namespace not in snapshot.limit_ranges and workload.namespace not in snapshot.quotas:
        return
    findings = [*_of_object(workload, snapshot, params)]
    for pods in workload.pod_sets:
        findings += _of_pods(workload, pods, snapshot, params)
    if len(workload.pod_sets) > 1 and not any(one.level is Level.DENY for one in findings):
        findings += check_together(workload, snapshot)
    if params.never_fits == "Warn" or workload.owner_was_reviewed():
        yield from [one._replace(level=Level.WARN) for one in findings]
        return
    yield from findings


def _unknown(workload: Workload, pending: list[str]) -> Finding:
    return not_synced(
        "NamespaceLimitsUnknown",
        ("metadata", "namespace"),
        " and ".join(pending),
        f"what namespace {workload.namespace} would take",
    )


def _of_object(workload: Workload, snapshot: ClusterSnapshot, params: NamespaceLimitsParams) -> Iterator[Finding]:
    """What counts objects, whatever they ask for: only quotas without scopes do."""
    counts = usage_of_object(workload)
    for quota in snapshot.quotas.get(workload.namespace, ()):
        for name in sorted(counts.keys() & quota.hard.keys()) if not quota.scopes else ():
            hard, used = quota.hard[name], quota.used.get(name, 0)
            if hard < 1:
                yield Finding(
                    "QuotaNeverFits",
                    ("metadata", "namespace"),
                    f"1 of {name} > {hard}, the hard limit of ResourceQuota {quota.name} in namespace {quota.namespace}",
                    "Use another namespace, or have the quota raised.",
                    measure=1,
                    rests_on=_QUOTAS,
                )
            elif used >= hard and params.waits == "Warn" and not_yet_counted(workload):
                yield _full_now(("metadata", "namespace"), quota, [f"1 of {name} > 0 left of {hard} ({used} used)"])


def _of_pods(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot, params: NamespaceLimitsParams) -> Sequence[Finding]:
    """What the namespace says to one pod set, remembered by what it asks for: the next of a gang asks the same."""
    space = workload.namespace
    number, together = number_of_pods(workload, pods)
    waits = params.waits == "Warn" and not_yet_counted(workload) and not workload.owner_was_reviewed()
    # What is in flight never stays the same for long: what rests on it is worked out each time.
    flying = waits and bool(snapshot.in_flight.namespace(space))
    alike = pod_fingerprint(workload, pods)
    key = alike and (alike, number, together, waits and not flying)
    rests_on = (
        snapshot.runtime_classes,
        snapshot.priorities,
        snapshot.sync_state("priorityclasses"),
        snapshot.sync_state("limitranges"),
        *snapshot.limit_ranges.get(space, ()),
        *snapshot.quotas.get(space, ()),
    )
    found: Sequence[Finding] | None = recall(snapshot.memo, "namespace-limits", key, *rests_on)
    if found is None:
        wanted = NamespaceRequest(pods, number, together, usage_of_pod(resolved_resources(pods, snapshot, space)))
        found = (*_lasting(workload, wanted, snapshot), *(_now(workload, wanted, snapshot) if waits and not flying else ()))
        keep(snapshot.memo, "namespace-limits", key, found, *rests_on)
    if not flying:
        return found
    wanted = NamespaceRequest(pods, number, together, usage_of_pod(resolved_resources(pods, snapshot, space)))
    return (*found, *_now(workload, wanted, snapshot))


def _lasting(workload: Workload, wanted: NamespaceRequest, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """What keeps the pods from being made whatever ends."""
    pods = wanted.pods
    defaults = defaults_for(snapshot, workload.namespace)
    containers = filled(pods, defaults)
    bare = resolved_resources(pods, snapshot, workload.namespace, with_overhead=False)
    for breach in limit_violations(snapshot.limit_ranges.get(workload.namespace, ()), containers, bare, defaults):
        yield _of_breach(breach, pods)
    for quota in snapshot.quotas.get(workload.namespace, ()):
        if in_scope(quota, pods, bare, snapshot):
            yield from (_needs_request(one, quota, snapshot) for one in missing_requests(quota, pods, containers))
            yield from _never(wanted, quota)


def _now(workload: Workload, wanted: NamespaceRequest, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """What keeps them from being made now."""
    bare = resolved_resources(wanted.pods, snapshot, workload.namespace, with_overhead=False)
    # Other members of a group of pods are counted as used once they are there.
    wanted = wanted._replace(number=1) if workload.is_pod() else wanted
    for quota in snapshot.quotas.get(workload.namespace, ()):
        if in_scope(quota, wanted.pods, bare, snapshot):
            yield from _full(wanted, quota, snapshot)


def _never(wanted: NamespaceRequest, quota: ResourceQuota) -> Iterator[Finding]:
    names = [name for name in _counted(wanted, quota) if wanted.each[name] * wanted.number > quota.hard[name]]
    if names:
        yield _never_fits(wanted, quota, names)


def _counted(wanted: NamespaceRequest, quota: ResourceQuota) -> list[str]:
    return [name for name in sorted(quota.hard) if wanted.each.get(name)]


def _full(wanted: NamespaceRequest, quota: ResourceQuota, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    flying = usage_in_flight(snapshot.in_flight, quota.namespace) if not quota.scopes else {}
    names = [name for name in _counted(wanted, quota) if wanted.each[name] * wanted.number <= quota.hard[name]]
    short = [_short_now(wanted, quota, name, flying.get(name, 0)) for name in names]
    if wanted.number and any(short):
        yield _full_now(wanted.pods.field("containers"), quota, [text for text in short if text])


def _sum(wanted: NamespaceRequest, name: str, number: int) -> str:
    each = wanted.each[name]
    if number == 1:
        return f"{show_amount(name, each)} of {name}"
    return f"{number} pods x {show_amount(name, each)} = {show_amount(name, each * number)} of {name}"


def _never_fits(wanted: NamespaceRequest, quota: ResourceQuota, names: list[str]) -> Finding:
    alone = [name for name in names if wanted.each[name] > quota.hard[name]]
    sums = [
        f"{_sum(wanted, name, 1 if name in alone else wanted.number)} > {show_amount(name, quota.hard[name])}"
        for name in alone or names
    ]
    what = "one pod alone is above it" if alone and wanted.number > 1 else ""
    if not alone and not wanted.together and not wanted.pods.path:
        what = f"so it is if all {wanted.number} pods ask for as much"
    name = (alone or names)[0]
    most, each = quota.hard[name], wanted.each[name]
    pods = most // each
    amount = f"{show_amount(name, pods * each if pods else most)} of {name}"
    return Finding(
        "QuotaNeverFits",
        wanted.pods.field("containers"),
        f"{' and '.join(sums)}, the hard limit of ResourceQuota {quota.name} in namespace {quota.namespace}"
        + (f": {what}" if what else ""),
        f"Ask for at most {amount}: {pods} pod{'s' if pods > 1 else ''} of {show_amount(name, each)}."
        if pods
        else f"Ask for at most {amount} per pod."
        if most
        else f"Use a namespace whose quota has {name}.",
        Level.DENY if alone or wanted.together else Level.WARN,
        measure=sum(wanted.each[name] for name in names) * wanted.number,
        rests_on=_QUOTAS,
    )


def _short_now(wanted: NamespaceRequest, quota: ResourceQuota, name: str, flying: int) -> str:
    hard, used, total = quota.hard[name], quota.used.get(name, 0), wanted.each[name] * wanted.number
    if used + flying + total <= hard:
        return ""
    taken = f"{show_amount(name, used)} used" + (f", {show_amount(name, flying)} in flight" if flying else "")
    left = show_amount(name, max(0, hard - used - flying))
    return f"{_sum(wanted, name, wanted.number)} > {left} left of {show_amount(name, hard)} ({taken})"


def _full_now(path: Path, quota: ResourceQuota, sums: list[str]) -> Finding:
    return Finding(
        "QuotaFullNow",
        path,
        f"does not fit now into ResourceQuota {quota.name} of namespace {quota.namespace}: {'; '.join(sums)}",
        "Wait until others have ended, or ask for what is left.",
        Level.WARN,
        rests_on=_QUOTAS,
    )


def _needs_request(missing: Missing, quota: ResourceQuota, snapshot: ClusterSnapshot) -> Finding:
    container = missing.container.container
    return Finding(
        "QuotaNeedsRequest",
        container.place(missing.kind, missing.resource),
        f"{container.name} states no {missing.resource} under {missing.kind}, which ResourceQuota {quota.name} of namespace"
        f" {quota.namespace} counts ({missing.quota_name}): the API takes no pod that does not state it",
        f"Write resources.{missing.kind}.{missing.resource} in {container.name}.",
        # A LimitRange that nobody gave may put it in.
        Level.WARN if snapshot.sync_state("limitranges") is SyncState.NOT_GIVEN else Level.DENY,
        rests_on=("limitranges", "resourcequotas"),
    )


def _of_breach(breach: LimitViolation, pods: PodSet) -> Finding:
    held = breach.container.container if breach.container else None
    path = held.place(breach.kind, breach.resource) if held else pods.field("resources", breach.kind, breach.resource)
    who = held.name if held else "the pod"
    field = f"resources.{breach.kind}.{breach.resource}"
    bound, one = show_amount(breach.resource, breach.allowed), "container" if held else "pod"
    stated = "none is stated" if breach.found is None else show_amount(breach.resource, breach.found)
    what = f"{who}: {breach.resource} {breach.kind.removesuffix('s')}"
    if breach.bound == "max":
        text = f"{what} {stated} > {bound}, the most that LimitRange {breach.source} allows a {one}"
        finding = Finding("LimitRangeMax", path, text, f"Write {field}: {bound} or less.", measure=breach.found or 0)
    elif breach.bound == "min":
        text = f"{what} {stated} < {bound}, the least that LimitRange {breach.source} demands of a {one}"
        shortfall = breach.allowed - (breach.found or 0)
        finding = Finding("LimitRangeMin", path, text, f"Write {field}: {bound} or more.", measure=shortfall)
    elif breach.bound == "default":
        text = f"{what} {stated} > {bound}, the limit that LimitRange {breach.source} gives it, since it states none itself"
        finding = Finding("LimitRangeDefault", path, text, f"Write resources.limits.{breach.resource}: {stated} or more.")
    else:
        finding = _of_ratio(breach, path, what, stated)
    return finding._replace(rests_on=_RANGES)


def _of_ratio(breach: LimitViolation, path: Path, what: str, stated: str) -> Finding:
    other = show_amount(breach.resource, breach.allowed)
    if breach.found is None:
        return Finding(
            "LimitRangeRatio",
            path,
            f"{what} is missing or zero, and LimitRange {breach.source} allows a limit at most {breach.ratio} times the request",
            f"Write resources.{breach.kind}.{breach.resource}.",
        )
    ratio = f"{breach.found / breach.allowed:.2f}".rstrip("0").rstrip(".")
    return Finding(
        "LimitRangeRatio",
        path,
        f"{what} {stated} / request {other} = {ratio} > {breach.ratio}, the ratio that LimitRange {breach.source} allows",
        f"Write resources.requests.{breach.resource} closer to the limit of {stated}.",
        measure=int(1000 * breach.found / breach.allowed),
    )


REASONS: Final[dict[str, Reason]] = {
    "LimitRangeDefault": Reason(
        "The default limit of a LimitRange is below the request.", warns="`neverFits` is Warn, or gpugate has reviewed the owner"
    ),
    "LimitRangeMax": Reason(
        "A request or limit is above the maximum of a LimitRange.", warns="`neverFits` is Warn, or gpugate has reviewed the owner"
    ),
    "LimitRangeMin": Reason(
        "A request or limit is below the minimum of a LimitRange.", warns="`neverFits` is Warn, or gpugate has reviewed the owner"
    ),
    "LimitRangeRatio": Reason(
        "A limit is more times the request than a LimitRange allows.",
        warns="`neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "NamespaceLimitsUnknown": Reason("The ResourceQuotas or LimitRanges are not synced yet.", action="Unknown"),
    "QuotaFullNow": Reason("The request fits the ResourceQuota, but not beside what is used now.", action="waits"),
    "QuotaNeedsRequest": Reason(
        "A ResourceQuota counts a resource that the pod does not state.",
        warns="the LimitRanges are not known, `neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "QuotaNeverFits": Reason(
        "The request is above the hard limit of a ResourceQuota.",
        warns="the pods may run in turns, `neverFits` is Warn, or gpugate has reviewed the owner",
    ),
}

RULE = Rule(
    id="namespace-limits",
    title="A workload keeps to the quotas and limit ranges of its namespace",
    since="0.1.0",
    params=NamespaceLimitsParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"limitranges", "priorityclasses", "resourcequotas", "runtimeclasses"}),
    reads=frozenset({"activeDeadlineSeconds", "affinity", "annotations", "priorityClassName", "runtimeClassName"}),
    documentation=__doc__,
)
