"""Parameters and edits of the rule `jobs`."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.framework.params import Params, Seconds, show_seconds
from gpugate.policies.framework.reasons import Reaction
from gpugate.policies.gangs.gang import gang_of
from gpugate.policies.kube.cel import UNIQUE, CelRule
from gpugate.policies.kube.fields import Object, Path, integer_at, lookup
from gpugate.policies.kube.managers import is_gitops_managed, is_user_set
from gpugate.policies.patch import Edit
from gpugate.policies.rules.lifecycle.jobs.job_fields import (
    JobSpec,
    deadlines_of,
    job_specs,
    jobs_of,
    pods_held_after_end,
    retry_limit,
    ttl_of,
)
from gpugate.policies.workloads.kinds.model import API_BACKOFF_LIMIT
from gpugate.policies.workloads.pod_set import PodSet
from gpugate.policies.workloads.workload import Workload

#: Objects that a GitOps tool runs once for each sync, and does not create again.
_HOOKS: Final = ("argocd.argoproj.io/hook", "helm.sh/hook")
_DISRUPTED: Final = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
#: The API has 32 bits for the seconds of the durations that gpugate writes.
_LONGEST: Final = 10 * 365 * 24 * 3600
#: The fields of those durations.
_WRITTEN: Final = ("ttlAfterFinished", "defaultDeadline")
#: Pairs of durations (low, high).
_ORDERED: Final = (
    ("shortestDeadline", "longestDeadline"),
    ("defaultDeadline", "longestDeadline"),
    ("shortestDeadline", "defaultDeadline"),
)
_RETRIES: Final = ("fewestRetries", "mostRetries")


def _not_above(low: str, high: str) -> str:
    return f"{low} must not be above {high}"


class JobsParams(Params):
    """Parameters of `jobs`."""

    validations = (
        *(
            CelRule(
                f"!has(self.{name}) || duration(self.{name}) <= duration('{show_seconds(_LONGEST)}')",
                _not_above(name, show_seconds(_LONGEST)),
            )
            for name in _WRITTEN
        ),
        *(
            CelRule(
                f"!has(self.{low}) || !has(self.{high}) || duration(self.{low}) <= duration(self.{high})", _not_above(low, high)
            )
            for low, high in _ORDERED
        ),
        CelRule(
            "!has(self.fewestRetries) || !has(self.mostRetries) || self.fewestRetries <= self.mostRetries", _not_above(*_RETRIES)
        ),
    )

    ttl_after_finished: Seconds | None = None
    """How long a finished job is kept if it states no TTL. Not written into jobs in Git: the GitOps tool would run them again."""
    without_ttl: Reaction = "Allow"
    """What happens if nothing ever deletes a job."""
    default_deadline: Seconds | None = None
    """Deadline of a job that states none."""
    shortest_deadline: Seconds | None = None
    """A job with a shorter deadline is refused."""
    longest_deadline: Seconds | None = None
    """A job with a longer deadline, or without one, is refused."""
    backoff_limit: Annotated[int, Field(ge=0, le=1000)] | None = None
    """backoffLimit of a Job or CronJob that states none; higher if `fewestRetries` requires it. In a gang every failed pod
    counts."""
    fewest_retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    """A job with fewer retries of the whole job is refused; a Job's backoffLimit is divided by the pods of its gang."""
    most_retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    """A job with more retries of the whole job is refused."""
    restarts_in_place: Reaction = "Warn"
    """What happens if containers of a gang restart inside their pods."""
    release_after_end: bool = False
    """Whether gpugate ends pods that would run on after the job: a RayJob's cluster, an MPIJob's workers."""
    held_after_end: Reaction = "Warn"
    """What happens if pods hold accelerators after the end of the job."""
    gpu_fault_exit_codes: Annotated[tuple[Annotated[int, Field(ge=1, le=255)], ...], *UNIQUE] = ()
    """Exit codes with which training reports a faulty GPU."""
    gpu_fault_action: Literal["Ignore", "FailJob"] = "Ignore"
    """What happens if a pod of a Job ends with one: the pod is replaced and not counted, or the Job fails."""
    ignore_disruptions: bool = False
    """Whether evicted and preempted pods do not count against backoffLimit."""

    @model_validator(mode="after")
    def _limits_in_order(self) -> Self:
        values = {str(field.alias): getattr(self, name) for name, field in type(self).model_fields.items()}
        for name in _WRITTEN:
            if (values[name] or 0) > _LONGEST:
                raise ValueError(_not_above(name, show_seconds(_LONGEST)))
        for low, high in (*_ORDERED, _RETRIES):
            if values[low] is not None and values[high] is not None and values[low] > values[high]:
                raise ValueError(_not_above(low, high))
        return self


def is_own(workload: Workload) -> bool:
    """Return whether no other object made the job: that one was reviewed with it, and deletes it."""
    return workload.controller() is None


def is_kept_by_git(workload: Workload) -> bool:
    """Return whether a GitOps tool applies the object, and not as a hook."""
    return is_gitops_managed(workload.root) and all(key not in workload.annotations() for key in _HOOKS)


def show_yaml(value: object) -> str:
    """Format a value as YAML writes it."""
    return "true" if value is True else str(value)


def mutate(workload: Workload, params: JobsParams, _snapshot: ClusterSnapshot) -> Iterator[Edit]:
    """Write the values of the policy into fields that the job does not set."""
    owner = workload.owner_kind()
    is_of_cron_job = owner is not None and owner.scheduled
    if workload.is_pod() or not (is_own(workload) or is_of_cron_job) or not _writes(params):
        return
    for job in jobs_of(workload):
        yield from _set_limits(workload, job, params)
        if params.release_after_end:
            held = pods_held_after_end(job, workload.root)
            if held is not None and held.absent:
                yield Edit("set", held.path, held.value, f"{held.path[-1]} {show_yaml(held.value)}")
        if params.gpu_fault_exit_codes or params.ignore_disruptions:
            for pods, spec in job_specs(job):
                yield from _set_failure_policy(pods, spec, workload.root, params)


def _writes(params: JobsParams) -> bool:
    values = (params.ttl_after_finished, params.default_deadline, params.backoff_limit)
    switches = params.release_after_end or params.ignore_disruptions or bool(params.gpu_fault_exit_codes)
    return switches or any(value is not None for value in values)


def _set_limits(workload: Workload, job: JobSpec, params: JobsParams) -> Iterator[Edit]:
    root = workload.root
    ttl = ttl_of(job) if is_own(workload) and not is_kept_by_git(workload) else None
    for path, value in (
        *([] if ttl is None else [(ttl, params.ttl_after_finished)]),
        *((path, params.default_deadline) for path in deadlines_of(job)),
    ):
        if value is not None and integer_at(root, path) is None:
            yield Edit("set", path, value, f"{path[-1]} {value}")
    limit = retry_limit(job, root) if params.backoff_limit is not None else None
    # Only the limit that the API server itself fills in is replaced; the limits of other kinds count something else.
    if limit is None or limit.default != API_BACKOFF_LIMIT or integer_at(root, limit.path) not in {None, limit.default}:
        return
    user_set = is_user_set(root, limit.path)
    if user_set is not True:
        # Each failed pod of a gang counts.
        gang = gang_of(workload) if limit.by_pod else None
        required = (params.fewest_retries or 0) * (1 if gang is None else gang.size)
        number = max(params.backoff_limit or 0, required)
        yield Edit("set", limit.path, number, f"backoffLimit {number}", defaulted=user_set is False)


def _set_failure_policy(pods: PodSet, spec: Path, root: Object, params: JobsParams) -> Iterator[Edit]:
    """Write the failure policy of the Job whose spec is at ``spec``, if it has none and the API accepts one."""
    path, replacement = (*spec, "podFailurePolicy"), (*spec, "podReplacementPolicy")
    if lookup(root, path) is not None or pods.spec.get("restartPolicy") != "Never":
        return
    if lookup(root, replacement) not in (None, "Failed"):
        # With a failure policy the API accepts no other value (``ValidateJobSpec`` of Kubernetes).
        user_set = is_user_set(root, replacement)
        if user_set is True:
            return
        yield Edit(
            "set", replacement, "Failed", "podReplacementPolicy Failed", f"failure-policy {spec}", defaulted=user_set is False
        )
    rules: list[Object] = [_DISRUPTED] if params.ignore_disruptions else []
    if params.gpu_fault_exit_codes:
        codes = {"operator": "In", "values": sorted(params.gpu_fault_exit_codes)}
        rules.append({"action": params.gpu_fault_action, "onExitCodes": codes})
    yield Edit("set", path, {"rules": rules}, "podFailurePolicy", f"failure-policy {spec}")
