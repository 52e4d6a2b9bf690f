"""Findings of `namespace-limits`, with their sums and remedies."""

from collections.abc import Mapping, Sequence

from gpugate.policies.cluster.snapshot import ClusterSnapshot, SyncState
from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import Path
from gpugate.policies.kube.quantity import show_amount
from gpugate.policies.queueing.budget import Charge, show_sum
from gpugate.policies.queueing.limit_range import LimitViolation
from gpugate.policies.queueing.resource_quota import Missing, NamespaceQuota
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload


def objects_never_fit(budget: NamespaceQuota, name: str) -> Finding:
    """Report a quota that allows no object of the workload's kind."""
    return Finding(
        "QuotaNeverFits",
        ("metadata", "namespace"),
        f"1 of {name} > {budget.total(name)}, {_hard_limit(budget)}",
        "Use another namespace, or have the quota raised.",
        measure=1,
        rests_on=budget.facts,
    )


def _hard_limit(budget: NamespaceQuota) -> str:
    return f"the hard limit of {budget.source} in namespace {budget.quota.namespace}"


def never_fits(budget: NamespaceQuota, pods: PodSet, charge: Charge, names: list[str], *, together: bool) -> Finding:
    """Report pods that exceed a hard limit.

    Args:
        budget: the quota.
        pods: the pods.
        charge: what the quota counts for them.
        names: the resources that they exceed.
        together: whether all of the pods must run, so that fewer are of no use.
    """
    each, number = charge.each, charge.number
    alone = [name for name in names if each[name] > budget.total(name)]
    sums = [
        f"{show_sum(name, each[name], 1 if name in alone else number)} > {show_amount(name, budget.total(name))}"
        for name in alone or names
    ]
    what = ": one pod alone is above it" if alone and number > 1 else ""
    if not alone and not together and not pods.path:
        what = f": so it is if all {number} pods ask for as much"
    return Finding(
        "QuotaNeverFits",
        pods.field("containers"),
        f"{' and '.join(sums)}, {_hard_limit(budget)}{what}",
        _remedy(budget, charge, (alone or names)[0]),
        Level.DENY if alone or together else Level.WARN,
        measure=sum(charge.total(name) for name in names),
        rests_on=budget.facts,
    )


def _remedy(budget: NamespaceQuota, charge: Charge, name: str) -> str:
    most, each = budget.total(name), charge.each[name]
    fitting = most // each
    if fitting:
        amount, pods = show_amount(name, fitting * each), f"{fitting} pod{'s' if fitting > 1 else ''}"
        return f"Ask for at most {amount} of {name}: {pods} of {show_amount(name, each)}."
    if most:
        return f"Ask for at most {show_amount(name, most)} of {name} per pod."
    return f"Use a namespace whose quota has {name}."


def never_fits_together(
    budget: NamespaceQuota, workload: Workload, name: str, amounts: Sequence[int], *, together: bool
) -> Finding:
    """Report pod sets that together exceed a hard limit; ``amounts``: what each counts for; ``together``: if all must run."""
    hard, total = show_amount(name, budget.total(name)), sum(amounts)
    sums = " + ".join(show_amount(name, amount) for amount in amounts)
    return Finding(
        "QuotaNeverFits",
        workload.gpu_pod_sets()[0].field("containers"),
        f"all pods together ask for {sums} = {show_amount(name, total)} of {name} > {hard}, {_hard_limit(budget)}",
        f"Ask for at most {hard} of {name} in all pods together.",
        Level.DENY if together else Level.WARN,
        measure=total,
        rests_on=(*budget.facts, "limitranges", "runtimeclasses"),
    )


def full_now(budget: NamespaceQuota, path: Path, charge: Charge, names: Sequence[str], in_flight: Mapping[str, int]) -> Finding:
    """Report a quota that has too little of ``names`` left now."""
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
        f"does not fit now into {budget.source} of namespace {budget.quota.namespace}: {'; '.join(sums)}",
        "Wait until others have ended, or ask for what is left.",
        Level.WARN,
        rests_on=budget.facts,
    )


def needs_request(missing: Missing, budget: NamespaceQuota, snapshot: ClusterSnapshot) -> Finding:
    """Report a request or limit that a container must state because the quota counts it."""
    container = missing.container.container
    return Finding(
        "QuotaNeedsRequest",
        container.place(missing.kind, missing.resource),
        f"{container.name} states no {missing.resource} under {missing.kind}, which {budget.source} of namespace"
        f" {budget.quota.namespace} counts ({missing.quota_name}): the API takes no pod that does not state it",
        f"Write resources.{missing.kind}.{missing.resource} in {container.name}.",
        # A LimitRange that was not given may add it.
        Level.WARN if snapshot.sync_state("limitranges") is SyncState.NOT_GIVEN else Level.DENY,
        rests_on=("limitranges", "resourcequotas"),
    )


def limit_range_finding(violation: LimitViolation, pods: PodSet) -> Finding:
    """Report a bound of a LimitRange that a container or pod violates."""
    container = violation.container.container if violation.container else None
    path = pods.field("resources", violation.kind, violation.resource)
    if container:
        path = container.place(violation.kind, violation.resource)
    who, scope = (container.name, "container") if container else ("the pod", "pod")
    field = f"resources.{violation.kind}.{violation.resource}"
    bound, amount = show_amount(violation.resource, violation.allowed), violation.found or 0
    stated = "none is stated" if violation.found is None else show_amount(violation.resource, violation.found)
    source = f"LimitRange {violation.source}"
    what = f"{who}: {violation.resource} {violation.kind.removesuffix('s')}"
    if violation.bound == "max":
        text = f"{what} {stated} > {bound}, the most that {source} allows a {scope}"
        finding = Finding("LimitRangeMax", path, text, f"Write {field}: {bound} or less.", measure=amount)
    elif violation.bound == "min":
        text = f"{what} {stated} < {bound}, the least that {source} demands of a {scope}"
        finding = Finding("LimitRangeMin", path, text, f"Write {field}: {bound} or more.", measure=violation.allowed - amount)
    elif violation.bound == "default":
        text = f"{what} {stated} > {bound}, the limit that {source} gives it, since it states none itself"
        finding = Finding("LimitRangeDefault", path, text, f"Write resources.limits.{violation.resource}: {stated} or more.")
    elif violation.found is None:
        text = f"{what} is missing or zero, and {source} allows a limit at most {violation.ratio} times the request"
        finding = Finding("LimitRangeRatio", path, text, f"Write {field}.")
    else:
        ratio = f"{violation.found / violation.allowed:.2f}".rstrip("0").rstrip(".")
        text = f"{what} {stated} / request {bound} = {ratio} > {violation.ratio}, the ratio that {source} allows"
        remedy = f"Write resources.requests.{violation.resource} closer to the limit of {stated}."
        finding = Finding("LimitRangeRatio", path, text, remedy, measure=int(1000 * violation.found / violation.allowed))
    return finding._replace(rests_on=("limitranges",))
