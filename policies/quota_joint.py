"""Whether what several sorts of pods of one workload count for together is within the ResourceQuotas of its namespace."""

from __future__ import annotations

from collections.abc import Iterator

from gpugate.policies.accelerators import is_accelerator
from gpugate.policies.effective import effective_of
from gpugate.policies.facts import Facts
from gpugate.policies.finding import Finding, Level
from gpugate.policies.kueue_demand import number_of_pods
from gpugate.policies.quantity import show_amount
from gpugate.policies.quota_usage import is_about, usage_of_pod
from gpugate.policies.workload import Workload


def check_together(workload: Workload, facts: Facts) -> Iterator[Finding]:
    """Refuse sorts of pods each of which is within a quota, and which together are not.

    Raises:
        MalformedError: an amount is no quantity.
    """
    space = workload.namespace
    for quota in facts.quotas.get(space, ()):
        totals: dict[str, list[int]] = {}
        together = True
        for pods in workload.pod_sets:
            number, whole = number_of_pods(workload, pods) if pods.count and not pods.follows else (0, True)
            if not number or is_about(quota, pods, effective_of(pods, facts, space, with_overhead=False), facts) is not True:
                continue
            together = together and whole
            for name, amount in usage_of_pod(effective_of(pods, facts, space)).items():
                if amount and name in quota.hard:
                    totals.setdefault(name, []).append(amount * number)
        above = [name for name, parts in totals.items() if len(parts) > 1 and sum(parts) > quota.hard[name]]
        if above:
            name = min(above, key=lambda one: (not is_accelerator(one.removeprefix("requests.")), one))
            parts, hard = totals[name], show_amount(name, quota.hard[name])
            sums = " + ".join(show_amount(name, part) for part in parts)
            yield Finding(
                "QuotaNeverFits",
                workload.asking()[0].field("containers"),
                f"all pods together ask for {sums} = {show_amount(name, sum(parts))} of {name} > {hard}, the hard limit of"
                f" ResourceQuota {quota.name} in namespace {quota.namespace}",
                f"Ask for at most {hard} of {name} in all pods together.",
                Level.DENY if together else Level.WARN,
                measure=sum(parts),
                rests_on=("resourcequotas", "limitranges", "runtimeclasses"),
            )
