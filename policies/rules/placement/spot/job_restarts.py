"""Whether a workload starts again after its nodes were taken back, and how often.

A pod that is evicted, or whose node goes, has failed as far as its Job knows; its condition ``DisruptionTarget`` says why
(``k8s.io/api/batch/v1``, ``PodFailurePolicyOnPodConditionsPattern``). The other pods of a gang fail of themselves, since their
peer is gone, and no condition says so. What operators do about it: :mod:`gpugate.policies.rules.placement.spot.operator_restarts`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpugate.policies.findings import Finding, Level
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.fields import Object, lookup
from gpugate.policies.rules.placement.spot.operator_restarts import check_operators, number_or
from gpugate.policies.workloads.kinds.model import API_BACKOFF_LIMIT, Recovery
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

_DISRUPTION: Final = "DisruptionTarget"


def check_restarts(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    """Speak of ``pods`` that would not start again after so many ``interruptions``."""
    if workload.is_pod():
        if workload.controller() is None:
            yield Finding(
                "NotRestarted",
                ("metadata", "ownerReferences"),
                "the pod belongs to no controller: once its node is taken back, nobody starts it again",
                "Make it a Job.",
                Level.WARN,
            )
        return
    if pods.kind.recovery is Recovery.BACKOFF:
        yield from _check_job(workload, pods, interruptions)
    else:
        yield from check_operators(workload, pods, interruptions)


class _Failures(NamedTuple):
    """What one interruption counts against a Job."""

    failed: int
    ignored: bool

    @property
    def counted(self) -> int:
        return self.failed - self.ignored


def _check_job(workload: Workload, pods: PodSet, interruptions: int) -> Iterator[Finding]:
    path = pods.path[:-1]
    spec = lookup(workload.root, path)
    if type(spec) is not dict or _whole_set_restarts(workload, pods, interruptions):
        return
    parallelism = number_or(spec.get("parallelism"), 1)
    failures = _Failures(max(1, parallelism) if gang_of(workload) is not None else 1, _ignores_disruption(spec))
    per_index = spec.get("backoffLimitPerIndex")
    if per_index is not None:
        counted, limit, name = min(1, failures.counted), number_or(per_index, 0), "backoffLimitPerIndex"
    else:
        counted, limit, name = failures.counted, number_or(spec.get("backoffLimit"), API_BACKOFF_LIMIT), "backoffLimit"
    needed = interruptions * counted
    if limit < needed:
        yield Finding(
            "BackoffTooSmall",
            (*path, name),
            f"{name} {limit} < {interruptions} interruptions x {_shown(counted, failures)} = {needed}",
            _remedy(spec, name, interruptions, needed, failures),
            measure=needed - limit,
        )


def _shown(counted: int, failures: _Failures) -> str:
    text = f"{counted} failed pod{'s' if counted != 1 else ''}"
    if failures.failed > 1:
        text += " (the gang fails with the one whose node goes"
        return f"{text}, which podFailurePolicy does not count)" if failures.ignored else f"{text})"
    return text


def _remedy(spec: Object, name: str, interruptions: int, needed: int, failures: _Failures) -> str:
    if failures.ignored or (name != "backoffLimit" and failures.failed > 1):
        return f"Write {name}: {needed} or more."
    if lookup(spec, ("template", "spec", "restartPolicy")) != "Never":
        return f"Write {name}: {needed} or more; with restartPolicy: Never, a podFailurePolicy can leave interruptions out."
    left = interruptions * (failures.failed - 1)
    policy = f"a podFailurePolicy rule with action: Ignore and onPodConditions: [{{type: {_DISRUPTION}}}]"
    return f"Write {name}: {needed} or more, or {policy}{f' and {name}: {left} or more' if left else ''}."


def _ignores_disruption(spec: Object) -> bool:
    """Whether the Job does not count a pod whose node went: the first rule that speaks of it decides."""
    rules = lookup(spec, ("podFailurePolicy", "rules"))
    for rule in rules if type(rules) is list else ():
        conditions = lookup(rule, ("onPodConditions",))
        for one in conditions if type(conditions) is list else ():
            if lookup(one, ("type",)) == _DISRUPTION and (lookup(one, ("status",)) or "True") == "True":
                return bool(lookup(rule, ("action",)) == "Ignore")
    return False


def _whole_set_restarts(workload: Workload, pods: PodSet, interruptions: int) -> bool:
    """Whether the kind re-creates all its Jobs so often, whatever the limits of the Jobs are."""
    limit = pods.kind.retry
    if limit is None or limit.by_pod:
        return False
    return number_or(lookup(workload.root, (*workload.owner_path(pods), *limit.path)), 0) >= interruptions
