"""A workload keeps to the ResourceQuotas and LimitRanges of its namespace.

## What it does

Adds the API's defaults, those of the LimitRanges and the RuntimeClass's overhead to the requests of each pod, and compares them
with the namespace. It refuses pods that the API would never create: one pod, or all pods of a gang, above the hard limit of a
ResourceQuota that counts it; CPU or memory that a quota counts and a container does not set; a value above the maximum, below the
minimum or beyond the ratio of a LimitRange. It warns about a workload that is no gang and of which the quota lets a part run,
about plain pods that would be too large if all requested the same, and about a quota that is only full now.

## Why

The API accepts a Job or Deployment with any requests of its pods; the quota rejects only the pods, one by one, in events of the
controller. A gang of which half the pods are rejected holds its GPUs and waits forever.

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

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Final, Literal

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level, not_synced
from gpugate.policies.framework.params import Params
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.memo import remembered
from gpugate.policies.kube.quantity import NO_AMOUNTS, show_amount
from gpugate.policies.queueing.budget import Charge, exceeds_ever, exceeds_together, pod_fingerprint, show_sum, waits_now
from gpugate.policies.queueing.cluster_queue import not_yet_counted
from gpugate.policies.queueing.limit_range import LimitViolation, limit_violations
from gpugate.policies.queueing.resource_quota import (
    Missing,
    QuotaBudget,
    missing_requests,
    namespace_facts,
    quotas_of,
    usage_of_object,
)
from gpugate.policies.queueing.workload_demand import number_of_pods
from gpugate.policies.scheduling.pod_resources import defaults_for, filled, resolved_resources
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_NAMESPACE: Final = ("metadata", "namespace")


class NamespaceLimitsParams(Params):
    """Parameters of `namespace-limits`."""

    never_fits: Literal["Deny", "Warn"] = "Deny"
    """Whether pods that could never be created are refused or only warned about."""
    gang_in_part: Literal["Deny", "Warn"] = "Deny"
    """Whether a gang of which a ResourceQuota lets only a part run is refused or only warned about."""
    waits: Literal["Warn", "Allow"] = "Warn"
    """Whether gpugate warns about a quota that is full now."""


def check(workload: Workload, params: NamespaceLimitsParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Refuse pods that the namespace would never accept; warn about a quota that is full."""
    if not workload.gpu_pod_sets():
        return
    pending = [kind for kind in ("limitranges", "resourcequotas") if snapshot.sync_state(kind) is SyncState.PENDING]
    if pending:
        what = f"what namespace {workload.namespace} allows"
        yield not_synced("NamespaceLimitsUnknown", _NAMESPACE, " and ".join(pending), what)
        return
    if workload.namespace not in snapshot.limit_ranges and workload.namespace not in snapshot.quotas:
        return
    warns_of_waiting = params.waits == "Warn" and not_yet_counted(workload)
    findings = [*_check_object(workload, snapshot, waits=warns_of_waiting)]
    for pods in workload.pod_sets:
        findings += _check_ever(workload, pods, snapshot)
        if warns_of_waiting and not workload.owner_was_reviewed():
            findings += _check_now(workload, pods, snapshot)
    if len(workload.pod_sets) > 1 and not any(finding.level is Level.DENY for finding in findings):
        findings += _check_together(workload, snapshot)
    only_warns = params.never_fits == "Warn" or workload.owner_was_reviewed()
    yield from [finding._replace(level=Level.WARN) for finding in findings] if only_warns else findings


def _check_object(workload: Workload, snapshot: ClusterSnapshot, *, waits: bool) -> Iterator[Finding]:
    """Compare the object itself with quotas that count objects: those without scopes."""
    counts = usage_of_object(workload)
    for budget in quotas_of(workload, snapshot):
        for name in sorted(counts.keys() & budget.quota.hard.keys()) if not budget.quota.scopes else ():
            charge = Charge(1, {name: 1})
            if exceeds_ever(budget, charge):
                yield Finding(
                    "QuotaNeverFits",
                    _NAMESPACE,
                    f"1 of {name} > {budget.total(name)}, {_hard_limit(budget)}",
                    "Use another namespace, or raise the quota.",
                    measure=1,
                    rests_on=budget.facts,
                )
            elif waits and waits_now(budget, charge, NO_AMOUNTS):
                yield _full_now(budget, _NAMESPACE, charge, [name], NO_AMOUNTS)


def _hard_limit(budget: QuotaBudget) -> str:
    return f"the hard limit of {budget.source} in namespace {budget.quota.namespace}"


def _key(workload: Workload, pods: PodSet, _snapshot: ClusterSnapshot) -> Hashable | None:
    fingerprint = pod_fingerprint(workload, pods)
    return fingerprint and (fingerprint, number_of_pods(workload, pods))


def _key_with_nothing_in_flight(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> Hashable | None:
    return None if snapshot.in_flight.into_namespace(workload.namespace) else _key(workload, pods, snapshot)


@remembered(by=_key, on=lambda workload, _pods, snapshot: namespace_facts(workload, snapshot))
def _check_ever(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> tuple[Finding, ...]:
    """Find limits that keep the pods from being created, regardless of other workloads."""
    defaults = defaults_for(snapshot, workload.namespace)
    containers = filled(pods, defaults)
    own = resolved_resources(pods, snapshot, workload.namespace, with_overhead=False)
    violations = limit_violations(snapshot.limit_ranges.get(workload.namespace, ()), containers, own, defaults)
    findings = [_violates_limit_range(violation, pods) for violation in violations]
    number, needed = number_of_pods(workload, pods)
    for budget in quotas_of(workload, snapshot):
        if budget.applies(pods):
            findings += [_needs_request(missing, budget, snapshot) for missing in missing_requests(budget.quota, pods, containers)]
            charge = Charge(number, budget.charge(pods))
            names = exceeds_ever(budget, charge)
            if names:
                findings.append(_never_fits(budget, pods, charge, names, needed))
    return tuple(findings)


def _never_fits(budget: QuotaBudget, pods: PodSet, charge: Charge, names: list[str], needed: int) -> Finding:
    """Report pods that exceed a hard limit; ``names``: the resources; ``needed``: how many pods must run together."""
    each, number = charge.each, charge.number
    alone = [name for name in names if each[name] > budget.total(name)]
    gang = [name for name in names if each[name] * needed > budget.total(name)]
    sums = [
        f"{show_sum(name, each[name], 1 if name in alone else number)} > {show_amount(name, budget.total(name))}"
        for name in alone or names
    ]
    condition = ", so not even one pod fits" if alone and number > 1 else ""
    if not gang:
        most = min(budget.total(name) // each[name] for name in names)
        condition = f", so at most {most} of the pods run at once" if pods.path else f", if all {number} pods request as much"
    return Finding(
        "QuotaSplitsGang" if gang and not alone else "QuotaNeverFits",
        pods.field("containers"),
        f"{' and '.join(sums)}, {_hard_limit(budget)}{condition}",
        _remedy(budget, charge, (alone or names)[0]),
        Level.DENY if gang else Level.WARN,
        measure=sum(charge.total(name) for name in names),
        rests_on=budget.facts,
    )


def _remedy(budget: QuotaBudget, charge: Charge, name: str) -> str:
    most, each = budget.total(name), charge.each[name]
    fitting = most // each
    if fitting:
        amount, pods = show_amount(name, fitting * each), f"{fitting} pod{'s' if fitting > 1 else ''}"
        return f"Request at most {amount} of {name} ({pods} of {show_amount(name, each)})."
    if most:
        return f"Request at most {show_amount(name, most)} of {name} per pod."
    return f"Use a namespace whose quota has {name}."


@remembered(by=_key_with_nothing_in_flight, on=lambda workload, _pods, snapshot: namespace_facts(workload, snapshot))
def _check_now(workload: Workload, pods: PodSet, snapshot: ClusterSnapshot) -> tuple[Finding, ...]:
    """Find the quotas that have too little left for the pods now."""
    # Other pods of a group count as used once they are created.
    number = 1 if workload.is_pod() else number_of_pods(workload, pods)[0]
    findings = []
    for budget in quotas_of(workload, snapshot):
        if budget.applies(pods):
            charge, in_flight = Charge(number, budget.charge(pods)), budget.in_flight()
            never = exceeds_ever(budget, charge)
            names = [name for name in waits_now(budget, charge, in_flight) if name not in never]
            if names:
                findings.append(_full_now(budget, pods.field("containers"), charge, names, in_flight))
    return tuple(findings)


def _full_now(budget: QuotaBudget, path: Path, charge: Charge, names: Sequence[str], in_flight: Mapping[str, int]) -> Finding:
    sums = []
    for name in names:
        flying = in_flight.get(name, 0)
        taken = f"{show_amount(name, budget.quota.used.get(name, 0))} used"
        taken += f", {show_amount(name, flying)} in flight" if flying else ""
        left, hard = show_amount(name, budget.available(name, flying)), show_amount(name, budget.total(name))
        sums.append(f"{show_sum(name, charge.each[name], charge.number)} > {left} left of {hard} ({taken})")
    return Finding(
        "QuotaFullNow",
        path,
        f"the workload does not fit now into {budget.source} of namespace {budget.quota.namespace}: {'; '.join(sums)}",
        "Wait until other workloads have ended, or request what is left.",
        Level.WARN,
        rests_on=budget.facts,
    )


def _check_together(workload: Workload, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Find the quotas that each pod set fits alone, and all together exceed."""
    is_gang = gang_of(workload) is not None
    for budget in quotas_of(workload, snapshot):
        charges, needed = [], []
        for pods in workload.pod_sets:
            number, together = number_of_pods(workload, pods) if pods.count and not pods.follows else (0, 0)
            if number and budget.applies(pods):
                charges.append(Charge(number, budget.charge(pods)))
                needed.append(Charge(together, charges[-1].each))
        name = exceeds_together(charges, budget.total)
        if name is None:
            continue
        amounts = [charge.total(name) for charge in charges if charge.each.get(name)]
        hard, total = show_amount(name, budget.total(name)), sum(amounts)
        sums = " + ".join(show_amount(name, amount) for amount in amounts)
        splits = is_gang and sum(charge.total(name) for charge in needed) > budget.total(name)
        yield Finding(
            "QuotaSplitsGang" if splits else "QuotaNeverFits",
            workload.gpu_pod_sets()[0].field("containers"),
            f"all pods together request {sums} = {show_amount(name, total)} of {name} > {hard}, {_hard_limit(budget)}",
            f"Request at most {hard} of {name} in all pods together.",
            Level.DENY if splits else Level.WARN,
            measure=total,
            rests_on=(*budget.facts, "limitranges", "runtimeclasses"),
        )


def _needs_request(missing: Missing, budget: QuotaBudget, snapshot: ClusterSnapshot) -> Finding:
    container, field = missing.container.container, f"resources.{missing.kind}.{missing.resource}"
    return Finding(
        "QuotaNeedsRequest",
        container.place(missing.kind, missing.resource),
        f"{container.name} sets no {field}, but {budget.source} of namespace {budget.quota.namespace} counts"
        f" {missing.quota_name}, so the API server rejects the pod",
        f"Write {field} in {container.name}.",
        # A LimitRange that was not given may add it.
        Level.WARN if snapshot.sync_state("limitranges") is SyncState.NOT_GIVEN else Level.DENY,
        rests_on=("limitranges", "resourcequotas"),
    )


def _violates_limit_range(violation: LimitViolation, pods: PodSet) -> Finding:
    container = violation.container.container if violation.container else None
    place = container.place(violation.kind, violation.resource) if container else None
    path = place or pods.field("resources", violation.kind, violation.resource)
    name, scope = (container.name, "container") if container else ("the pod", "pod")
    field = f"resources.{violation.kind}.{violation.resource}"
    bound, amount = show_amount(violation.resource, violation.allowed), violation.found or 0
    value = "0 (not set)" if violation.found is None else show_amount(violation.resource, violation.found)
    source = f"LimitRange {violation.source}"
    subject = f"{name}: {violation.resource} {violation.kind.removesuffix('s')}"
    if violation.bound == "max":
        text = f"{subject} {value} > {bound}, the maximum that {source} allows a {scope}"
        finding = Finding("LimitRangeMax", path, text, f"Write {field}: {bound} or less.", measure=amount)
    elif violation.bound == "min":
        text = f"{subject} {value} < {bound}, the minimum that {source} demands of a {scope}"
        finding = Finding("LimitRangeMin", path, text, f"Write {field}: {bound} or more.", measure=violation.allowed - amount)
    elif violation.bound == "default":
        text = f"{subject} {value} > {bound}, because {name} sets no limit and gets the default limit of {source}"
        finding = Finding("LimitRangeDefault", path, text, f"Write resources.limits.{violation.resource}: {value} or more.")
    elif violation.found is None:
        text = f"{subject} is missing or zero, but {source} allows a limit of at most {violation.ratio} times the request"
        finding = Finding("LimitRangeRatio", path, text, f"Write {field}.")
    else:
        ratio = f"{violation.found / violation.allowed:.2f}".rstrip("0").rstrip(".")
        text = f"{subject} {value} / request {bound} = {ratio} > {violation.ratio}, the ratio that {source} allows"
        remedy = f"Write resources.requests.{violation.resource} closer to the limit of {value}."
        finding = Finding("LimitRangeRatio", path, text, remedy, measure=int(1000 * violation.found / violation.allowed))
    return finding._replace(rests_on=("limitranges",))


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
        "The ratio of limit to request is above that of a LimitRange.",
        warns="`neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "NamespaceLimitsUnknown": Reason("The ResourceQuotas or LimitRanges are not synced yet.", action="Unknown"),
    "QuotaFullNow": Reason("The request fits the ResourceQuota, but not the part of it that is unused now.", action="waits"),
    "QuotaNeedsRequest": Reason(
        "A ResourceQuota counts a request or limit that the pod does not set.",
        warns="the LimitRanges are unknown, `neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "QuotaNeverFits": Reason(
        "The request is above the hard limit of a ResourceQuota.",
        warns="one pod fits and the pods are no gang, `neverFits` is Warn, or gpugate has reviewed the owner",
    ),
    "QuotaSplitsGang": Reason(
        "The hard limit of a ResourceQuota holds only a part of the gang.",
        action="gang_in_part",
        warns="`neverFits` is Warn, or gpugate has reviewed the owner",
    ),
}

RULE = Rule(
    id="namespace-limits",
    title="A workload keeps to the ResourceQuotas and LimitRanges of its namespace",
    since="0.1.0",
    params=NamespaceLimitsParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"limitranges", "priorityclasses", "resourcequotas", "runtimeclasses"}),
    reads=frozenset({"activeDeadlineSeconds", "affinity", "annotations", "priorityClassName", "runtimeClassName"}),
    documentation=__doc__,
)
